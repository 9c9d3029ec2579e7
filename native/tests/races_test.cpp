// Each race between a cancel frame and a request, and each way in which upstream workers lose one,
// through the whole of the usual loop. The frame comes at the very point in question: from a hook
// of the engine or a seam of the runtime, or on the pipe before that is read.

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <unistd.h>

#include "bench.hpp"
#include "sllm/control_thread.hpp"
#include "sllm/environment.hpp"

using sllm::test::Bench;
using sllm::test::cancelled;
using sllm::test::frame;
using sllm::test::Json;
using sllm::test::whole;

namespace {

/// A bench whose frames come through the control pipe.
struct Piped : Bench {
    sllm::test::Pipe pipe;
    std::optional<sllm::ControlThread> thread;

    Piped() {
        REQUIRE(::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK) == 0);
        request.session_id = "s";
    }

    /// The worker becomes ready.
    void start() { thread.emplace(std::move(pipe.read), controller); }

    /// Waits without an end: a frame that is never heard shows as a test that hangs until ctest
    /// ends it.
    void wait_parked(std::size_t count) const {
        while (controller.parked() != count) {
            std::this_thread::yield();
        }
    }
};

/// Make `act` happen in the decode step of that number.
auto at_step(std::size_t wanted, std::function<void()> act) {
    return [wanted, act = std::move(act)](std::size_t step) {
        if (step == wanted) {
            act();
        }
    };
}

bool dirty(Bench &bench) { return bench.next()["session_reset_reason"] == "dirty"; }

} // namespace

TEST_CASE("Race: a cancel sent before its request is read", "[races]") {
    Piped bench;
    bench.start();
    bench.pipe.send_frame(1);
    bench.wait_parked(1);
    CHECK(cancelled(bench.terminal()));
    CHECK("" == bench.captured.text());
    CHECK(1 == bench.engine.resets);
    CHECK(1 == bench.engine.stops);
    CHECK(dirty(bench));
}

TEST_CASE("Race: a cancel queued before the worker was ready", "[races]") {
    Piped bench;
    bench.pipe.send_frame(1);
    bench.start();
    CHECK(bench.thread->supported());
    CHECK(1 == bench.controller.parked());
    CHECK(cancelled(bench.terminal()));
    CHECK(dirty(bench));
}

TEST_CASE("Race: a cancel during the reset of the session", "[races]") {
    Bench bench;
    bench.request.session_id = "s";
    bench.engine.on_reset = [&] { bench.cancel(); };
    CHECK(cancelled(bench.terminal()));
    bench.engine.on_reset = [] {};
    CHECK(dirty(bench));
}

TEST_CASE("Race: a cancel while the session is being made", "[races]") {
    // Its id is not entered yet, so the frame is parked.
    Bench bench;
    bench.request.session_id = "s";
    bench.table();
    bench.engine.on_session = [&] { bench.cancel(); };
    CHECK(cancelled(bench.terminal()));
    CHECK(dirty(bench));
}

TEST_CASE("Race: a cancel during prefill", "[races]") {
    Bench bench;
    bench.request.session_id = "s";
    bench.request.prompt = whole("a b c d e f g h i");
    SECTION("of an engine that looks at it there: the rest of the prompt is left") {
        bench.engine.on_prefill = [&](std::size_t batch) { batch == 1 ? bench.cancel() : void(); };
        CHECK(cancelled(bench.terminal()));
        CHECK(2 == bench.engine.batches.size());
        CHECK(1 == bench.engine.stops);
    }
    SECTION("of an engine that does not: it is asked between two calls") {
        bench.engine.stops_prefill = false;
        bench.engine.on_prefill = [&](std::size_t batch) { batch == 1 ? bench.cancel() : void(); };
        CHECK(cancelled(bench.terminal()));
        CHECK(2 == bench.engine.batches.size());
    }
    SECTION("in its last call: no token is made") {
        bench.engine.stops_prefill = false;
        bench.engine.on_prefill = [&](std::size_t batch) { batch == 2 ? bench.cancel() : void(); };
        CHECK(cancelled(bench.terminal()));
        CHECK(bench.engine.samplings.empty());
        CHECK(1 == bench.engine.stops);
    }
    CHECK("" == bench.captured.text());
    bench.engine.on_prefill = [](std::size_t) {};
    CHECK(dirty(bench));
}

TEST_CASE("Race: a cancel during decode", "[races]") {
    Bench bench;
    bench.request.session_id = "s";
    bench.engine.on_decode = at_step(1, [&] { bench.cancel(); });
    CHECK(cancelled(bench.terminal()));
    CHECK("a" == bench.captured.text());
    bench.engine.on_decode = [](std::size_t) {};
    CHECK(dirty(bench));
}

TEST_CASE("Race: a cancel against the natural end", "[races]") {
    Bench bench;
    bench.request.session_id = "s";
    bench.engine.obeys = false; // the step in which it comes still ends the answer
    std::size_t last = 0;
    SECTION("of the text") { last = 3; }
    SECTION("by the length that was asked for") {
        bench.request.max_new_tokens = 2;
        last = 1;
    }
    SECTION("by a stop string") {
        bench.request.stop = {"b"};
        last = 1;
    }
    SECTION("by want of room") {
        bench.engine.no_room = true;
        last = 3;
    }
    SECTION("by a failure") {
        bench.engine.fail_decode = "cannot do it";
        last = 3;
    }
    bench.engine.on_decode = at_step(last, [&] { bench.cancel(); });
    CHECK(cancelled(bench.terminal()));
    bench.engine.on_decode = [](std::size_t) {};
    bench.engine.fail_decode = "";
    CHECK(dirty(bench));
}

TEST_CASE("Race: the natural end against a cancel", "[races]") {
    Bench bench;
    bench.request.session_id = "s";
    const char *reason = "stop";
    const char *next = "mismatch"; // the same prompt again, which the session holds and more
    SECTION("of the text") {}
    SECTION("by the length that was asked for") {
        bench.request.max_new_tokens = 2;
        reason = "length";
    }
    SECTION("by a stop string, which makes the session dirty by itself") {
        bench.request.stop = {"b"};
        next = "dirty";
    }
    bench.seams.detaching = [&](bool won) {
        CHECK_FALSE(won);
        bench.cancel();
    };
    const Json terminal = bench.terminal();
    CHECK_FALSE(terminal.contains("cancelled"));
    CHECK(terminal["finish_reason"] == reason);
    CHECK(0 == bench.engine.stops);
    bench.seams.detaching = [](bool) {};
    CHECK(bench.next()["session_reset_reason"] == next);
}

TEST_CASE("Race: the outcome is decided before the last text is written", "[races]") {
    // Nobody reads at first, so the write blocks: what comes meanwhile is late.
    std::array<int, 2> ends{};
    REQUIRE(::pipe(ends.data()) == 0);
    const sllm::UniqueFd reading(ends[0]);
    sllm::Output output{sllm::UniqueFd(ends[1])};
    Bench bench;
    bench.engine.answer = {std::string(std::size_t{4} << 20U, 'x')}; // more than any pipe holds
    bench.request.max_new_tokens = 1;
    std::thread reader([&] {
        while (bench.controller.state() != sllm::CancelController::State::sealed) {
            std::this_thread::yield();
        }
        bench.controller.deliver(1);
        std::vector<char> chunk(std::size_t{1} << 16U);
        std::string last;
        while (last.find("\"done\"") == std::string::npos) {
            const ssize_t size = ::read(reading.get(), chunk.data(), chunk.size());
            if (size <= 0) {
                break;
            }
            last = last.substr(last.size() > 512 ? last.size() - 512 : 0);
            last.append(chunk.data(), static_cast<std::size_t>(size));
        }
    });
    sllm::Workbench workbench{bench.engine, bench.table(),  bench.controller,
                              output,       bench.progress, bench.seams};
    bool won = true;
    bench.seams.detaching = [&](bool cancelled) { won = cancelled; };
    CHECK(sllm::generate(bench.request, workbench));
    reader.join();
    CHECK_FALSE(won);
    CHECK(0 == bench.engine.stops);
}

TEST_CASE("Race: duplicate frames", "[races]") {
    Bench bench;
    bench.engine.on_decode = at_step(1, [&] {
        for (int time = 0; time < 20; ++time) {
            bench.cancel();
        }
        CHECK(1 == bench.engine.stops);
    });
    CHECK(cancelled(bench.terminal()));
    CHECK(1 == bench.engine.stops);
    CHECK(0 == bench.controller.parked());
}

TEST_CASE("Race: the frame of an old request comes late", "[races]") {
    Bench bench;
    REQUIRE(bench.run());
    SECTION("while idle") { bench.controller.deliver(1); }
    SECTION("while the next one is prepared") {
        bench.engine.on_prefill = [&](std::size_t) { bench.controller.deliver(1); };
    }
    SECTION("while the next one decodes") {
        bench.engine.on_decode = [&](std::size_t) { bench.controller.deliver(1); };
    }
    CHECK_FALSE(bench.next().contains("cancelled"));
    CHECK(0 == bench.engine.stops);
    CHECK(0 == bench.controller.parked());
}

TEST_CASE("Race: a frame for another request while one is in hand", "[races]") {
    // It touches neither the one in hand nor, as in upstream workers, gets lost.
    Bench bench;
    bench.engine.on_decode = at_step(1, [&] { bench.controller.deliver(3); });
    CHECK_FALSE(bench.terminal().contains("cancelled"));
    bench.engine.on_decode = [](std::size_t) {};
    CHECK_FALSE(bench.next().contains("cancelled"));
    CHECK(cancelled(bench.next()));
}

TEST_CASE("Race: several frames while idle", "[races]") {
    // An upstream worker keeps the first of them only.
    Bench bench;
    for (const std::uint64_t id : {4U, 2U, 4U, 1U}) {
        bench.controller.deliver(id);
    }
    std::vector<bool> outcomes{cancelled(bench.terminal())};
    for (int more = 0; more < 4; ++more) {
        outcomes.push_back(cancelled(bench.next()));
    }
    CHECK(std::vector<bool>{true, true, false, true, false} == outcomes);
}

TEST_CASE("Race: a frame in pieces", "[races]") {
    Piped bench;
    bench.start();
    const std::string bytes = frame(2);
    bench.pipe.send(std::string_view(bytes).substr(0, 7));
    CHECK_FALSE(bench.terminal().contains("cancelled"));
    bench.pipe.send(std::string_view(bytes).substr(7));
    bench.wait_parked(1);
    CHECK(cancelled(bench.next()));
}

TEST_CASE("Race: the control pipe ends", "[races]") {
    Piped bench;
    bench.start();
    bench.engine.on_decode = at_step(1, [&] {
        bench.pipe.send(std::string_view(frame(1)).substr(0, 5));
        bench.pipe.write.close();
        while (!bench.thread->ended()) {
            std::this_thread::yield();
        }
    });
    CHECK(bench.terminal()["completion_tokens"] == 3); // five bytes are no frame
    bench.engine.on_decode = [](std::size_t) {};
    CHECK_FALSE(bench.next().contains("cancelled"));
}

TEST_CASE("Race: a failure after the cancel was latched", "[races]") {
    Bench bench;
    bench.request.session_id = "s";
    bench.engine.obeys = false;
    SECTION("in the reset of the session") {
        bench.engine.fail_reset = "cannot do it";
        bench.engine.on_reset = [&] { bench.cancel(); };
    }
    SECTION("in prefill") {
        bench.engine.fail_prefill = "cannot do it";
        bench.engine.on_prefill = [&](std::size_t) { bench.cancel(); };
    }
    SECTION("in decode") {
        bench.engine.fail_decode = "cannot do it";
        bench.engine.on_decode = at_step(3, [&] { bench.cancel(); });
    }
    CHECK(cancelled(bench.terminal()));
    bench.engine.fail_reset = bench.engine.fail_prefill = bench.engine.fail_decode = "";
    bench.engine.on_reset = [] {};
    bench.engine.on_prefill = bench.engine.on_decode = [](std::size_t) {};
    CHECK(dirty(bench));
}

TEST_CASE("Race: an id that was used before", "[races]") {
    Bench bench;
    bench.request.session_id = "s";
    REQUIRE(bench.run());
    CHECK(bench.terminal()["error"].get<std::string>().find("stale or a duplicate") !=
          std::string::npos);
    CHECK(1 == bench.engine.resets);
    CHECK(bench.next()["session_reset_reason"] == "mismatch"); // and not dirty
}

TEST_CASE("Race: a request without an id", "[races]") {
    Bench bench;
    bench.request.cancel_id.reset();
    bench.engine.on_decode = [&](std::size_t) {
        bench.controller.deliver(0);
        bench.controller.deliver(1);
    };
    CHECK_FALSE(bench.terminal().contains("cancelled"));
    bench.request.cancel_id = 1;
    CHECK(cancelled(bench.terminal()));
}

TEST_CASE("B1: a cancel between one request's terminal and its detachment is not lost", "[races]") {
    Bench bench;
    SECTION("sealed, not yet detached") {
        bench.seams.detaching = [&](bool) {
            CHECK(sllm::CancelController::State::sealed == bench.controller.state());
            bench.controller.deliver(2);
        };
    }
    SECTION("the terminal is written") {
        bench.seams.flushed = [&] {
            CHECK(sllm::CancelController::State::idle == bench.controller.state());
            bench.controller.deliver(2);
        };
    }
    CHECK_FALSE(bench.terminal().contains("cancelled"));
    CHECK(cancelled(bench.next()));
}

TEST_CASE("B2: the cancel of a refused request does not take the next one's place", "[races]") {
    Bench bench;
    bench.engine.most_sessions = 1;
    bench.controller.deliver(1);
    SECTION("refused for want of a session") { bench.request.session_id = "s"; }
    SECTION("refused for its prompt") { bench.request.prompt = whole(""); }
    CHECK(bench.terminal().contains("error"));
    CHECK(0 == bench.controller.parked());
    bench.controller.deliver(1); // repeated, as frames are until a terminal
    bench.controller.deliver(2);
    bench.request.session_id = "";
    bench.request.prompt = whole("one two three");
    CHECK(cancelled(bench.next()));
}

TEST_CASE("B3: a frame that is sent until the terminal comes works whichever is heard", "[races]") {
    Bench bench;
    const std::size_t heard_from = GENERATE(0U, 1U, 2U);
    bench.engine.on_decode = [&](std::size_t step) {
        step >= heard_from ? bench.cancel() : void();
    };
    bench.seams.detaching = [&](bool) { bench.cancel(); };
    bench.seams.flushed = [&] { bench.cancel(); };
    CHECK(cancelled(bench.terminal()));
    CHECK(1 == bench.engine.stops);
    bench.engine.on_decode = [](std::size_t) {};
    bench.seams.detaching = [](bool) {};
    bench.seams.flushed = [] {};
    CHECK_FALSE(bench.next().contains("cancelled"));
}

TEST_CASE("B4: the end of the control pipe can be known", "[races]") {
    Piped bench;
    bench.start();
    CHECK_FALSE(bench.thread->ended());
    bench.pipe.write.close();
    while (!bench.thread->ended()) {
        std::this_thread::yield();
    }
    CHECK(bench.thread->supported()); // what was offered stays offered
}

TEST_CASE("B5: a cancel that came before a failure is reported as a cancel", "[races]") {
    Bench bench;
    bench.engine.obeys = false;
    bench.cancel();
    bench.engine.fail_prefill = "cannot do it";
    const Json terminal = bench.terminal();
    CHECK(cancelled(terminal));
    CHECK_FALSE(terminal.contains("error"));
}

TEST_CASE("B6: a control variable that names a standard stream does not close it", "[races]") {
    const std::string number = GENERATE(as<std::string>(), "0", "1", "2");
    REQUIRE(::setenv("EXECUTORCH_LLM_WORKER_CONTROL_FD", number.c_str(), 1) == 0);
    CHECK_FALSE(sllm::take_control_pipe());
    CHECK(::fcntl(std::stoi(number), F_GETFD) >= 0);
}
