#include <catch2/catch.hpp>

#include "keys.hpp"
#include "prompt.hpp"
#include "scene.hpp"
#include "session.hpp"

using namespace sllm::sim;

namespace {

Prompt good(std::string_view text, const Script &defaults = {}) {
    auto read = read_prompt(text, defaults);
    if (const auto *failed = std::get_if<sllm::Failed>(&read)) {
        FAIL(text << ": " << failed->message);
    }
    return std::get<Prompt>(std::move(read));
}

std::string bad(std::string_view text) {
    auto read = read_prompt(text, {});
    INFO(text);
    REQUIRE(std::holds_alternative<sllm::Failed>(read));
    return std::get<sllm::Failed>(read).message;
}

std::vector<std::string> answer(const std::string &prompt) {
    Scene scene{Script{}};
    scene.script = good(prompt).script;
    sllm::Progress progress;
    SimSession session(scene, progress);
    static_cast<void>(session.reset());
    const std::vector<sllm::Token> tokens{1};
    static_cast<void>(session.prefill(tokens));
    std::vector<std::string> texts;
    for (;;) {
        const sllm::DecodeResult result = session.decode_one({});
        if (const auto *decoded = std::get_if<sllm::Decoded>(&result)) {
            texts.push_back(decoded->text);
        } else {
            texts.emplace_back(std::holds_alternative<sllm::EndOfText>(result) ? "EOS" : "FULL");
            return texts;
        }
    }
}

using Texts = std::vector<std::string>;

} // namespace

TEST_CASE("Words of a prompt are tokens, directives are not", "[sim]") {
    const Prompt prompt = good(" hello\tsim.tokens=3  hello\nworld sim.utf8\n");
    CHECK(3 == prompt.tokens.size());
    CHECK(prompt.tokens[0] == prompt.tokens[1]);
    CHECK(prompt.tokens[0] != prompt.tokens[2]);
    CHECK(3 == prompt.script.tokens);
    CHECK(prompt.script.utf8);
}

TEST_CASE("A directive goes before the option of the same name", "[sim]") {
    Script defaults;
    defaults.tokens = 5;
    defaults.tps = 7;
    const Prompt prompt = good("x sim.tokens=6", defaults);
    CHECK(6 == prompt.script.tokens);
    CHECK(7 == prompt.script.tps);
}

TEST_CASE("What the process did at its start is not done again by each request", "[sim]") {
    Script defaults;
    defaults.spawn = 2;
    defaults.spawn_detached = 1;
    defaults.hang = During::load;
    defaults.spawn_stubborn = defaults.spawn_escaped = 1;
    defaults.stderr_flood = defaults.leak = 1;
    defaults.deaf = true;
    defaults.stray_done = 1;
    const Script again = good("x", defaults).script;
    CHECK(0 == again.spawn_stubborn + again.spawn_escaped + again.stderr_flood + again.leak);
    CHECK_FALSE(again.deaf);
    CHECK_FALSE(again.stray_done);
    CHECK(0 == good("x", defaults).script.spawn);
    CHECK(0 == good("x", defaults).script.spawn_detached);
    CHECK_FALSE(good("x", defaults).script.hang);
    CHECK(3 == good("x sim.spawn=3", defaults).script.spawn);
}

TEST_CASE("A directive that means nothing is an error that names it", "[sim]") {
    for (const char *text :
         {"sim.unknown", "sim.tokens", "sim.tokens=", "sim.tokens=-1", "sim.tokens=x",
          "sim.tokens=3x", "sim.utf8=1", "sim.hang", "sim.hang=sleep", "sim.signal=KABOOM",
          "sim.exit=256", "sim.pause_at=before_read", "sim.pause_at=nowhere:3", "sim.slow=decode",
          "sim.tps=nan", "sim.tps=-1", "sim.", "sim.spawn=1000"}) {
        const std::string message = bad(text);
        INFO(message);
        const std::string_view name =
            std::string_view(text).substr(0, std::string_view(text).find('='));
        CHECK(message.find(name) != std::string::npos);
    }
}

TEST_CASE("Options that only a process can have are refused in a prompt", "[sim]") {
    for (const char *text :
         {"sim.load_ms=1", "sim.not_ready", "sim.no_cancel", "sim.hang=load", "sim.during=load"}) {
        CHECK(bad(text).starts_with("cannot "));
    }
}

TEST_CASE("Names may be written with dashes", "[sim]") {
    Script script;
    CHECK("" == apply(script, "load-ms", "12", Place::option));
    CHECK(12 == script.load_ms);
    CHECK(takes_value("chat-template"));
    CHECK_FALSE(takes_value("no-cancel"));
    CHECK_FALSE(takes_value("no-such-key"));
}

TEST_CASE("The help explains every key once", "[sim]") {
    const std::string text = help();
    for (const char *key : {"tokens=N", "pause_at=POINT:MS", "ignore_eof", "late_done=MS"}) {
        const std::size_t found = text.find(std::string("  ") + key);
        CHECK(found != std::string::npos);
        CHECK(text.find(std::string("\n  ") + key, found + 1) == std::string::npos);
    }
}

TEST_CASE("Answers are as the script says", "[sim]") {
    CHECK(Texts{"t0 ", "t1 ", "FULL"} == answer("sim.tokens=2"));
    CHECK(Texts{"t0 ", "EOS"} == answer("sim.eos_at=1"));
    CHECK(Texts{"a", " big", " dog", "EOS"} == answer("sim.text=a_big_dog"));
    CHECK(Texts{"a", " big", "FULL"} == answer("sim.text=a_big_dog sim.tokens=2"));
    CHECK(Texts{"EOS"} == answer("sim.text="));
    CHECK(17 == answer("x").size());
    std::string joined;
    for (const std::string &text : answer("sim.utf8 sim.tokens=8")) {
        joined += text;
    }
    CHECK("\u00E9\u20AC\U0001F600 FULL" == joined);
}
