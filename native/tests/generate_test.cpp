#include <catch2/catch.hpp>

#include "bench.hpp"
#include "sllm/prefill_plan.hpp"

using sllm::test::Bench;
using sllm::test::cancelled;
using sllm::test::Json;
using sllm::test::whole;

TEST_CASE("An answer is its tokens and one terminal", "[generate]") {
    Bench bench;
    const Json terminal = bench.terminal();
    const std::vector<Json> lines = bench.captured.lines();
    REQUIRE(4 == lines.size());
    CHECK(Json{{"token", "a"}} == lines[0]);
    CHECK(Json{{"token", "b"}} == lines[1]);
    CHECK(Json{{"token", "c"}} == lines[2]);
    CHECK(terminal["finish_reason"] == "stop");
    CHECK(terminal["prompt_tokens"] == 3);
    CHECK(terminal["completion_tokens"] == 3);
    CHECK(terminal["prefilled_prompt_tokens"] == 3);
    CHECK(terminal["generated_token_ids"] == Json({100, 101, 102}));
    CHECK(sllm::Phase::idle == bench.progress.phase());
}

TEST_CASE("Each request starts from a reset session", "[generate]") {
    Bench bench;
    for (std::uint64_t id = 1; id <= 3; ++id) {
        bench.request.cancel_id = id;
        REQUIRE(bench.run());
    }
    CHECK(3 == bench.engine.resets);
}

TEST_CASE("A prompt is read in batches", "[generate]") {
    Bench bench;
    bench.request.prompt = whole("a b c d e f g h i");
    REQUIRE(bench.run());
    CHECK(std::vector<std::size_t>{4, 4, 1} == bench.engine.batches);
}

TEST_CASE("A plan cuts any prompt into full batches and a rest", "[generate]") {
    for (std::size_t size = 0; size <= 20; ++size) {
        for (std::size_t batch = 1; batch <= 21; ++batch) {
            std::vector<sllm::Token> tokens;
            for (std::size_t at = 0; at < size; ++at) {
                tokens.push_back(static_cast<sllm::Token>(at));
            }
            sllm::PrefillPlan plan(tokens, 0, batch);
            std::vector<sllm::Token> joined;
            for (auto part = plan.next(); !part.empty(); part = plan.next()) {
                CHECK((part.size() == batch || plan.done() == size));
                joined.insert(joined.end(), part.begin(), part.end());
            }
            CHECK(tokens == joined);
        }
    }
}

TEST_CASE("A plan leaves out what is there already", "[generate]") {
    const std::vector<sllm::Token> tokens{1, 2, 3, 4, 5};
    sllm::PrefillPlan plan(tokens, 2, 2);
    CHECK(3 == plan.total());
    const auto first = plan.next();
    CHECK(std::vector<sllm::Token>{3, 4} == std::vector<sllm::Token>(first.begin(), first.end()));
    const auto second = plan.next();
    CHECK(std::vector<sllm::Token>{5} == std::vector<sllm::Token>(second.begin(), second.end()));
    CHECK(3 == plan.done());
    CHECK(plan.next().empty());
}

TEST_CASE("An answer ends at the tokens asked for", "[generate]") {
    Bench bench;
    bench.request.max_new_tokens = 2;
    const Json terminal = bench.terminal();
    CHECK("ab" == bench.captured.text());
    CHECK(terminal["finish_reason"] == "length");
    CHECK(terminal["completion_tokens"] == 2);
}

TEST_CASE("An answer ends with the context", "[generate]") {
    Bench bench;
    bench.engine.info.context_length = 5;
    SECTION("if no length is asked for") {}
    SECTION("if more is asked for") { bench.request.max_new_tokens = 50; }
    SECTION("if 0 is asked for") { bench.request.max_new_tokens = 0; }
    CHECK(bench.terminal()["finish_reason"] == "length");
    CHECK("ab" == bench.captured.text());
}

TEST_CASE("Without a known context an answer has at most 2048 tokens", "[generate]") {
    Bench bench;
    bench.engine.info.context_length = 0;
    bench.engine.answer.assign(3000, "x");
    CHECK(bench.terminal()["completion_tokens"] == 2048);
}

TEST_CASE("An engine without room ends the answer with length", "[generate]") {
    Bench bench;
    bench.engine.no_room = true;
    const Json terminal = bench.terminal();
    CHECK(terminal["finish_reason"] == "length");
    CHECK(terminal["completion_tokens"] == 3);
}

TEST_CASE("A stop string ends the answer and is not counted", "[generate]") {
    Bench bench;
    bench.engine.answer = {"x", "aE", "N", "Dy", "z"};
    bench.request.stop = {"END"};
    const Json terminal = bench.terminal();
    CHECK("xa" == bench.captured.text());
    CHECK(terminal["finish_reason"] == "stop");
    CHECK(terminal["completion_tokens"] == 3);
    CHECK_FALSE(terminal.contains("generated_token_ids"));
}

TEST_CASE("Text that was held back is shown when the answer ends", "[generate]") {
    Bench bench;
    bench.engine.answer = {"a", "EN\xC3"};
    bench.request.stop = {"END"};
    SECTION("by itself") {}
    SECTION("by its length") { bench.request.max_new_tokens = 2; }
    const Json terminal = bench.terminal();
    CHECK("aEN\uFFFD" == bench.captured.text());
    CHECK(terminal["completion_tokens"] == 2);
}

TEST_CASE("A token without text makes no line but counts", "[generate]") {
    Bench bench;
    bench.engine.answer = {"", "b"};
    CHECK(bench.terminal()["completion_tokens"] == 2);
    CHECK(2 == bench.captured.lines().size());
}

TEST_CASE("Very long answers do not list their tokens", "[generate]") {
    Bench bench;
    bench.engine.info.context_length = 1'000'000;
    bench.engine.answer.assign(65'537, "");
    CHECK_FALSE(bench.terminal().contains("generated_token_ids"));
    bench.engine.answer.pop_back();
    bench.request.cancel_id = 2;
    CHECK(65'536 == bench.terminal()["generated_token_ids"].size());
}

TEST_CASE("A seed is drawn when there is none and one is needed", "[generate]") {
    Bench bench;
    SECTION("greedy needs none") {
        REQUIRE(bench.run());
        CHECK(0 == bench.engine.samplings.front().seed);
    }
    SECTION("a random one, the same for the whole request") {
        bench.request.sampling.temperature = 1;
        REQUIRE(bench.run());
        CHECK(0 != bench.engine.samplings.front().seed);
        CHECK(bench.engine.samplings.front() == bench.engine.samplings.back());
    }
    SECTION("the one given") {
        bench.request.sampling = {1.0, 0.5, 3, 42};
        REQUIRE(bench.run());
        CHECK(bench.request.sampling == bench.engine.samplings.front());
    }
}

TEST_CASE("A prompt that cannot be served is refused before the session is touched", "[generate]") {
    Bench bench;
    bench.engine.info.context_length = 3;
    std::string code;
    SECTION("empty") { bench.request.prompt = whole(" "); }
    SECTION("as long as the context") {
        bench.request.prompt = whole("one two three");
        code = "context_length_exceeded";
    }
    SECTION("untokenizable") { bench.request.prompt = whole("untokenizable"); }
    bench.cancel();
    const Json terminal = bench.terminal();
    CHECK(terminal["error"].get<std::string>().starts_with("cannot "));
    CHECK(code == terminal.value("code", ""));
    CHECK(0 == bench.engine.resets);
    CHECK(0 == bench.controller.parked());
}

TEST_CASE("A prompt one shorter than the context gets one token", "[generate]") {
    Bench bench;
    bench.engine.info.context_length = 4;
    CHECK(bench.terminal()["completion_tokens"] == 1);
}

TEST_CASE("A stale or duplicate cancel id is refused", "[generate]") {
    Bench bench;
    REQUIRE(bench.run());
    CHECK(bench.terminal()["error"].get<std::string>().find("stale") != std::string::npos);
    CHECK(1 == bench.engine.resets);
}

TEST_CASE("A cancel is obeyed wherever it comes", "[generate]") {
    Bench bench;
    std::string text;
    int stops = 1;
    SECTION("before the request") {
        bench.cancel();
        stops = 1;
    }
    SECTION("during the reset, without losing the stop to it") {
        bench.engine.on_reset = [&] { bench.cancel(); };
    }
    SECTION("in prefill") {
        bench.engine.on_prefill = [&](std::size_t) { bench.cancel(); };
    }
    SECTION("in prefill of an engine that cannot be stopped there") {
        bench.engine.stops_prefill = false;
        bench.engine.on_prefill = [&](std::size_t) {
            bench.cancel();
            CHECK(0 == bench.engine.stops);
        };
    }
    SECTION("in decode") {
        bench.engine.on_decode = [&](std::size_t step) {
            if (step == 2) {
                bench.cancel();
            }
        };
        text = "ab";
    }
    SECTION("in the step that would have ended the answer") {
        bench.engine.on_decode = [&](std::size_t step) {
            if (step == 3) {
                bench.cancel();
            }
        };
        text = "abc";
    }
    SECTION("in a decode that does not look at stop") {
        bench.engine.obeys = false;
        bench.engine.on_decode = [&](std::size_t step) {
            if (step == 1) {
                bench.cancel();
            }
        };
        text = "ab";
    }
    CHECK(cancelled(bench.terminal()));
    CHECK(text == bench.captured.text());
    CHECK(stops == bench.engine.stops);
}

TEST_CASE("A request is detached before its terminal is written", "[generate]") {
    Bench bench;
    bench.seams.detaching = [&](bool) {
        CHECK(sllm::CancelController::State::sealed == bench.controller.state());
        CHECK_FALSE(bench.captured.lines().back().contains("done"));
    };
    bench.seams.flushed = [&] {
        CHECK(sllm::CancelController::State::idle == bench.controller.state());
        CHECK(bench.captured.lines().back().contains("done"));
    };
    REQUIRE(bench.run());
}

TEST_CASE("A stop never leaks into the next request", "[generate]") {
    Bench bench;
    bench.engine.on_decode = [&](std::size_t) { bench.controller.deliver(1); };
    CHECK(cancelled(bench.terminal()));
    bench.request.cancel_id = 2;
    const Json terminal = bench.terminal();
    CHECK_FALSE(terminal.contains("cancelled"));
    CHECK(terminal["completion_tokens"] == 3);
}

TEST_CASE("An engine failure is an error of that request alone", "[generate]") {
    Bench bench;
    SECTION("in reset") { bench.engine.fail_reset = "cannot do it"; }
    SECTION("in prefill") { bench.engine.fail_prefill = "cannot do it"; }
    SECTION("in decode") { bench.engine.fail_decode = "cannot do it"; }
    CHECK(bench.terminal() == Json{{"error", "cannot do it"}});
    bench.engine.fail_reset = bench.engine.fail_prefill = bench.engine.fail_decode = "";
    bench.request.cancel_id = 2;
    CHECK(bench.terminal()["finish_reason"] == "stop");
}

TEST_CASE("An engine that stops by itself has failed", "[generate]") {
    Bench bench;
    bench.engine.on_decode = [&](std::size_t) { bench.engine.sessions.front()->stop(); };
    CHECK(bench.terminal()["error"].get<std::string>().find("without being asked") !=
          std::string::npos);
}

TEST_CASE("When nobody reads, a request ends early and is detached", "[generate]") {
    sllm::test::Pipe pipe;
    pipe.read.close();
    sllm::Output output(std::move(pipe.write));
    Bench bench;
    bench.engine.answer.assign(50, "x");
    std::size_t steps = 0;
    bench.engine.on_decode = [&](std::size_t) { ++steps; };
    sllm::Sessions sessions = sllm::test::sessions_of(bench.engine);
    sllm::Workbench workbench{bench.engine, sessions,       bench.controller,
                              output,       bench.progress, bench.seams};
    CHECK_FALSE(sllm::generate(bench.request, workbench));
    CHECK(1 == steps);
    CHECK(sllm::CancelController::State::idle == bench.controller.state());
}

TEST_CASE("Progress tells phase, tokens and beats", "[generate]") {
    Bench bench;
    bench.request.prompt = whole("a b c d e f");
    bench.engine.on_prefill = [&](std::size_t batch) {
        CHECK(sllm::Phase::prefill == bench.progress.phase());
        CHECK(6 == bench.progress.total());
        CHECK(4 * batch == bench.progress.done());
    };
    std::uint64_t beats = 0;
    bench.engine.on_decode = [&](std::size_t step) {
        CHECK(sllm::Phase::decode == bench.progress.phase());
        CHECK(step == bench.progress.done());
        CHECK(bench.progress.beats() > beats);
        beats = bench.progress.beats();
    };
    REQUIRE(bench.run());
}
