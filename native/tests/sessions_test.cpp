#include <catch2/catch.hpp>

#include <random>

#include "bench.hpp"

using sllm::Prompt;
using sllm::Refusal;
using sllm::Token;
using sllm::test::cancelled;
using sllm::test::FakeEngine;
using sllm::test::Json;
using sllm::test::sessions_of;
using sllm::test::whole;

namespace {

/// A bench whose request has a session with a name and an engine whose answers depend on all that
/// the session holds.
struct Bench : sllm::test::Bench {
    Bench() {
        engine.recalls = true;
        request.session_id = "s";
        request.cancel_id = 0;
    }

    Json ask(const Prompt &prompt) {
        request.prompt = prompt;
        return next();
    }

    /// Ask for what the session holds after this terminal, and then for these words.
    Prompt continued(const Json &terminal, const std::string &words) const {
        Prompt prompt{request.prompt.segments, false};
        prompt.segments.emplace_back(terminal["generated_token_ids"].get<std::vector<Token>>());
        prompt.segments.emplace_back(words);
        return prompt;
    }
};

/// What a worker answers that has just been started.
std::string fresh_answer(const Prompt &prompt) {
    Bench fresh;
    fresh.engine.info.context_length = 256;
    fresh.ask(prompt);
    return fresh.captured.text();
}

std::string code(const std::variant<sllm::ResidentSession *, Refusal> &found) {
    const auto *refusal = std::get_if<Refusal>(&found);
    return refusal == nullptr ? "" : refusal->code;
}

} // namespace

TEST_CASE("A session is new once, and then goes on where it was", "[sessions]") {
    Bench bench;
    const Json first = bench.ask(whole("a bb ccc"));
    CHECK(first["session_reset_reason"] == "new");
    CHECK(first["reused_prompt_tokens"] == 0);
    CHECK(first["prefilled_prompt_tokens"] == 3);

    const Json second = bench.ask(bench.continued(first, "and more"));
    CHECK(second["session_reset_reason"] == "exact_prefix");
    CHECK(second["prompt_tokens"] == 8);
    CHECK(second["reused_prompt_tokens"] == 6);
    CHECK(second["prefilled_prompt_tokens"] == 2);
    CHECK(1 == bench.engine.resets);
    CHECK(std::vector<std::size_t>{3, 2} == bench.engine.batches);

    const Json third = bench.ask(bench.continued(second, "again"));
    CHECK(third["reused_prompt_tokens"] == 11);
    CHECK(1 == bench.engine.resets);
}

TEST_CASE("A warm answer is the one that the whole prompt gets", "[sessions]") {
    Bench bench;
    const Prompt more = bench.continued(bench.ask(whole("a bb ccc")), "and more");
    const std::size_t before = bench.captured.text().size();
    bench.ask(more);
    CHECK(fresh_answer(more) == bench.captured.text().substr(before));
}

TEST_CASE("An answer that reached its length goes on as well", "[sessions]") {
    Bench bench;
    SECTION("asked for") { bench.request.max_new_tokens = 2; }
    SECTION("of the context") { bench.engine.info.context_length = 5; }
    SECTION("of the engine") {
        bench.engine.answer = {"a", "b"};
        bench.engine.no_room = true;
    }
    const Json first = bench.ask(whole("a bb ccc"));
    REQUIRE(first["finish_reason"] == "length");
    bench.engine.info.context_length = 64;
    const Json second = bench.ask(bench.continued(first, "more"));
    CHECK(second["session_reset_reason"] == "exact_prefix");
    CHECK(second["reused_prompt_tokens"] == 5);
}

TEST_CASE("An empty answer leaves the prompt", "[sessions]") {
    Bench bench;
    bench.engine.answer = {};
    const Json first = bench.ask(whole("a bb"));
    CHECK(first["generated_token_ids"] == Json::array());
    CHECK(bench.ask(whole("a bb ccc"))["reused_prompt_tokens"] == 2);
}

TEST_CASE("A prompt that does not begin with what is held resets the session", "[sessions]") {
    Bench bench;
    const Json first = bench.ask(whole("a bb ccc"));
    SECTION("another prompt") { bench.request.prompt = whole("other words here please and more"); }
    SECTION("the prompt without the answer") { bench.request.prompt = whole("a bb ccc and more"); }
    SECTION("less than is held") { bench.request.prompt = whole("a bb ccc"); }
    const Prompt prompt = bench.request.prompt;
    const std::size_t before = bench.captured.text().size();
    const Json second = bench.ask(prompt);
    CHECK(second["session_reset_reason"] == "mismatch");
    CHECK(second["reused_prompt_tokens"] == 0);
    CHECK(2 == bench.engine.resets);
    CHECK(fresh_answer(prompt) == bench.captured.text().substr(before));
}

TEST_CASE("A prompt with nothing to add resets the session", "[sessions]") {
    Bench bench;
    const Prompt prompt = bench.continued(bench.ask(whole("a bb ccc")), "");
    const std::size_t before = bench.captured.text().size();
    const Json second = bench.ask(prompt);
    CHECK(second["session_reset_reason"] == "equal");
    CHECK(second["prefilled_prompt_tokens"] == 6);
    CHECK(fresh_answer(prompt) == bench.captured.text().substr(before));
}

TEST_CASE("The anonymous session keeps nothing", "[sessions]") {
    Bench bench;
    bench.request.session_id = "";
    const Json first = bench.ask(whole("a bb ccc"));
    const Json second = bench.ask(bench.continued(first, "more"));
    CHECK(second["session_reset_reason"] == "new");
    CHECK(second["reused_prompt_tokens"] == 0);
    CHECK(2 == bench.engine.resets);
    bench.cancel();
    bench.request.cancel_id = 2;
    CHECK(bench.next()["session_reset_reason"] == "new");
}

TEST_CASE("Sessions do not see each other", "[sessions]") {
    Bench bench;
    const Json first = bench.ask(whole("a bb ccc"));
    const Prompt more = bench.continued(first, "more");
    bench.request.session_id = "other";
    CHECK(bench.ask(more)["session_reset_reason"] == "new");
    bench.request.session_id = "";
    CHECK(bench.ask(more)["session_reset_reason"] == "new");
    bench.request.session_id = "s";
    CHECK(bench.ask(more)["session_reset_reason"] == "exact_prefix");
}

TEST_CASE("What spoils a session is undone by a full reset before its next use", "[sessions]") {
    Bench bench;
    const Json first = bench.ask(whole("a bb ccc"));
    const Prompt more = bench.continued(first, "more");
    bool error = false;
    SECTION("a cancel before the request") { bench.controller.deliver(2); }
    SECTION("a cancel in prefill") {
        bench.engine.on_prefill = [&](std::size_t) { bench.cancel(); };
    }
    SECTION("a cancel in decode") {
        bench.engine.on_decode = [&](std::size_t step) { step == 1 ? bench.cancel() : void(); };
    }
    SECTION("a cancel in the step that completes a stop string") {
        bench.engine.obeys = false;
        bench.request.stop = {"b"};
        bench.engine.on_decode = [&](std::size_t step) { step == 1 ? bench.cancel() : void(); };
    }
    SECTION("a cancel in the step that reaches the length") {
        bench.engine.obeys = false;
        bench.request.max_new_tokens = 2;
        bench.engine.on_decode = [&](std::size_t step) { step == 1 ? bench.cancel() : void(); };
    }
    SECTION("a cancel in the step that ends the answer") {
        bench.engine.obeys = false;
        bench.engine.on_decode = [&](std::size_t step) { step == 3 ? bench.cancel() : void(); };
    }
    SECTION("a stop string") { bench.request.stop = {"b"}; }
    SECTION("a stop string that the cut end of the answer completes") {
        bench.engine.recalls = false; // its texts are whole
        bench.engine.answer = {"a", "b\xC3"};
        bench.request.stop = {"b\uFFFD"};
    }
    SECTION("a failed prefill") {
        bench.engine.fail_prefill = "cannot do it";
        error = true;
    }
    SECTION("a failed decode") {
        bench.engine.fail_decode = "cannot do it";
        error = true;
    }
    const Json spoiled = bench.ask(more);
    CHECK(error == spoiled.contains("error"));
    CHECK_FALSE(spoiled.contains("generated_token_ids"));

    bench.engine.answer = {"a", "b", "c"};
    bench.engine.recalls = bench.engine.obeys = true;
    bench.engine.fail_prefill = bench.engine.fail_decode = "";
    bench.engine.on_prefill = bench.engine.on_decode = [](std::size_t) {};
    bench.request.stop = {};
    bench.request.max_new_tokens = -1;
    const std::size_t before = bench.captured.text().size();
    const int resets = bench.engine.resets;
    const Json after = bench.ask(more);
    CHECK(after["session_reset_reason"] == "dirty");
    CHECK(after["reused_prompt_tokens"] == 0);
    CHECK(resets + 1 == bench.engine.resets);
    CHECK(fresh_answer(more) == bench.captured.text().substr(before));
    CHECK(bench.ask(bench.continued(after, "on"))["session_reset_reason"] == "exact_prefix");
}

TEST_CASE("A reset that fails before a prompt leaves the session dirty", "[sessions]") {
    Bench bench;
    bench.ask(whole("a bb ccc"));
    bench.engine.fail_reset = "cannot do it";
    const Json failed = bench.ask(whole("other"));
    CHECK(failed == Json{{"error", "cannot do it"}});
    bench.engine.fail_reset = "";
    const Json after = bench.ask(whole("a bb ccc"));
    CHECK(after["session_reset_reason"] == "dirty");
}

TEST_CASE("A cancel after the outcome is sealed leaves the session warm", "[sessions]") {
    Bench bench;
    bench.seams.detaching = [&](bool) { bench.cancel(); };
    bench.seams.flushed = [&] { bench.cancel(); };
    const Json first = bench.ask(whole("a bb ccc"));
    CHECK_FALSE(cancelled(first));
    CHECK(bench.ask(bench.continued(first, "x"))["session_reset_reason"] == "exact_prefix");
}

TEST_CASE("A request that is refused touches no session and opens none", "[sessions]") {
    Bench bench;
    const Json first = bench.ask(whole("a bb ccc"));
    const Prompt more = bench.continued(first, "more");
    const std::string session = GENERATE(as<std::string>(), "s", "unknown");
    bench.request.session_id = session;
    SECTION("a stale id") {
        bench.request.cancel_id = 0;
        CHECK(bench.ask(whole("x")).contains("error"));
    }
    SECTION("an empty prompt") { CHECK(bench.ask(whole(" ")).contains("error")); }
    SECTION("a prompt over the context") {
        bench.engine.info.context_length = 2;
        CHECK(bench.ask(whole("a bb ccc")).contains("error"));
        bench.engine.info.context_length = 64;
    }
    SECTION("a text that cannot be read") {
        CHECK(bench.ask(whole("untokenizable")).contains("error"));
    }
    CHECK(1 == bench.table().named());
    bench.request.session_id = "s";
    bench.request.cancel_id = 10;
    CHECK(bench.ask(more)["session_reset_reason"] == "exact_prefix");
}

TEST_CASE("Progress tells that a session is being made", "[sessions]") {
    Bench bench;
    bench.table();
    bench.engine.on_session = [&] { CHECK(sllm::Phase::prefill == bench.progress.phase()); };
    bench.ask(whole("a"));
    CHECK(2 == bench.engine.sessions.size());
    bench.request.session_id = "t";
    bench.engine.fail_session = "cannot";
    bench.ask(whole("a"));
    CHECK(sllm::Phase::idle == bench.progress.phase());
}

TEST_CASE("Progress in a warm prefill counts what is to be read", "[sessions]") {
    Bench bench;
    const Json first = bench.ask(whole("a bb ccc"));
    bool seen = false;
    bench.engine.on_prefill = [&](std::size_t) {
        seen = true;
        CHECK(2 == bench.progress.total());
        CHECK(0 == bench.progress.done());
    };
    bench.ask(bench.continued(first, "two words"));
    CHECK(seen);
}

TEST_CASE("There are as many sessions with a name as the engine has beside one", "[sessions]") {
    FakeEngine engine;
    auto sessions = sessions_of(engine);
    CHECK(2 == sessions.most_named());
    CHECK_FALSE(sessions.open("a"));
    CHECK(code(sessions.find("b")).empty());
    CHECK(2 == sessions.named());
    CHECK(3 == engine.sessions.size());

    const auto refused = std::get<Refusal>(sessions.find("c"));
    CHECK("capacity_exhausted" == refused.code);
    CHECK("c" == refused.session_id);
    CHECK(refused.message.starts_with("cannot "));
    CHECK("capacity_exhausted" == sessions.open("c")->code);
    CHECK(code(sessions.find("a")).empty());
    CHECK(code(sessions.find("")).empty());

    sessions.close("a");
    CHECK(2 == engine.sessions.size());
    CHECK_FALSE(sessions.open("c"));
}

TEST_CASE("Open, close and reset may be repeated", "[sessions]") {
    FakeEngine engine;
    auto sessions = sessions_of(engine);
    CHECK_FALSE(sessions.reset("a"));
    sessions.close("a");
    CHECK(0 == engine.resets);
    for (int time = 0; time < 2; ++time) {
        CHECK_FALSE(sessions.open("a"));
        CHECK(1 == sessions.named());
    }
    for (int time = 0; time < 2; ++time) {
        CHECK_FALSE(sessions.reset("a"));
    }
    CHECK(2 == engine.resets);
    for (int time = 0; time < 2; ++time) {
        sessions.close("a");
        CHECK(0 == sessions.named());
    }
    CHECK(1 == engine.sessions.size());
}

TEST_CASE("Opening an open session changes nothing in it", "[sessions]") {
    Bench bench;
    const Json first = bench.ask(whole("a bb ccc"));
    CHECK_FALSE(bench.table().open("s"));
    CHECK(bench.ask(bench.continued(first, "x"))["session_reset_reason"] == "exact_prefix");
}

TEST_CASE("A session that was reset or closed is new", "[sessions]") {
    Bench bench;
    const Json first = bench.ask(whole("a bb ccc"));
    const Prompt more = bench.continued(first, "x");
    const bool spoiled = GENERATE(false, true);
    if (spoiled) {
        bench.controller.deliver(2);
        CHECK(cancelled(bench.ask(more)));
    }
    SECTION("reset") { CHECK_FALSE(bench.table().reset("s")); }
    SECTION("closed") { bench.table().close("s"); }
    CHECK(bench.ask(more)["session_reset_reason"] == "new");
}

TEST_CASE("A failed reset is an error and keeps what the session holds", "[sessions]") {
    Bench bench;
    const Json first = bench.ask(whole("a bb ccc"));
    bench.engine.fail_reset = "cannot reset";
    const auto refused = bench.table().reset("s");
    REQUIRE(refused);
    CHECK("cannot reset" == refused->message);
    CHECK(refused->code.empty());
    CHECK("s" == refused->session_id);
    CHECK(bench.ask(bench.continued(first, "x"))["session_reset_reason"] == "exact_prefix");
}

TEST_CASE("A failed reset does not clean a dirty session", "[sessions]") {
    Bench bench;
    bench.controller.deliver(1);
    CHECK(cancelled(bench.ask(whole("a bb ccc"))));
    bench.engine.fail_reset = "cannot reset";
    CHECK(bench.table().reset("s"));
    bench.engine.fail_reset = "";
    CHECK(bench.ask(whole("a bb ccc"))["session_reset_reason"] == "dirty");
}

TEST_CASE("An engine without room for another session exhausts the capacity", "[sessions]") {
    Bench bench;
    bench.request.session_id = "";
    bench.ask(whole("a"));
    bench.request.session_id = "s";
    bench.engine.fail_session = "cannot make a context";
    CHECK(bench.ask(whole("a")) == Json{{"error", "cannot make a context"},
                                        {"code", "capacity_exhausted"},
                                        {"session_id", "s"}});
    bench.engine.fail_session = "";
    CHECK(bench.ask(whole("a"))["session_reset_reason"] == "new");
}

TEST_CASE("An engine with one session has none with a name", "[sessions]") {
    FakeEngine engine;
    engine.most_sessions = 1;
    auto sessions = sessions_of(engine);
    CHECK(0 == sessions.most_named());
    CHECK("unsupported_session" == code(sessions.find("a")));
    CHECK("a" == sessions.open("a")->session_id);
    CHECK(code(sessions.find("")).empty());
    sessions.close("a");
    CHECK_FALSE(sessions.reset("a"));
}

TEST_CASE("The name of the idle probe is nobody's", "[sessions]") {
    FakeEngine engine;
    auto sessions = sessions_of(engine);
    CHECK("unsupported_session" == code(sessions.find("__probe__")));
    CHECK("unsupported_session" == sessions.open("__probe__")->code);
    CHECK_FALSE(sessions.open("__probe"));
    sessions.close("__probe__");
    CHECK(1 == sessions.named());
}

TEST_CASE("An engine without any session is no engine to serve with", "[sessions]") {
    FakeEngine engine;
    engine.fail_session = "cannot make a context";
    auto made = sllm::Sessions::make(engine);
    CHECK("cannot make a context" == std::get<sllm::Failed>(made).message);
}

TEST_CASE("Whatever happened in a session, each whole answer is that of a fresh worker",
          "[sessions]") {
    std::mt19937 random(20'221'202);
    const auto draw = [&random](unsigned below) { return static_cast<unsigned>(random() % below); };
    Bench bench;
    bench.engine.info.context_length = 256;
    std::vector<Prompt> held(3, whole("a bb ccc"));
    int warm = 0;
    for (int turn = 0; turn < 2000; ++turn) {
        const std::size_t which = draw(3);
        const unsigned moment = draw(8);
        bench.request.session_id = std::string(which, 's');
        const auto cancel_at = [&](unsigned wanted) {
            return [&, wanted](std::size_t) { moment == wanted ? bench.cancel() : void(); };
        };
        bench.engine.on_prefill = cancel_at(0);
        bench.engine.on_decode = cancel_at(1);
        bench.engine.obeys = draw(2) == 0;
        bench.request.stop =
            moment == 2 ? std::vector<std::string>{"b"} : std::vector<std::string>{};
        bench.engine.fail_decode = moment == 3 ? "cannot" : "";
        bench.captured.clear();
        const Prompt prompt = draw(10) == 0 ? whole("start again") : held[which];
        const Json terminal = bench.ask(prompt);
        if (terminal.contains("generated_token_ids")) {
            warm += terminal["session_reset_reason"] == "exact_prefix" ? 1 : 0;
            REQUIRE(fresh_answer(prompt) == bench.captured.text());
            held[which] = bench.continued(terminal, "more");
        }
        if (terminal.value("prompt_tokens", 0) > 100) {
            held[which] = whole("a bb ccc");
        }
    }
    CHECK(warm > 100);
}
