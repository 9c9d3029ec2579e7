// The races between a cancel frame and everything else, one by one. The frame comes from the
// test's own thread at the very point in question, which is what the mutex makes of a race.

#include <catch2/catch.hpp>

#include <cstdint>
#include <thread>

#include "sllm/cancel.hpp"
#include "sllm/scope.hpp"
#include "support.hpp"

using sllm::CancelController;
using sllm::RequestScope;
using State = sllm::CancelController::State;

namespace {

struct Bench {
    sllm::Seams seams;
    CancelController controller{seams};
    sllm::test::Captured captured;
    sllm::test::StopCounter engine;

    std::optional<RequestScope> enter(std::optional<std::uint64_t> id) {
        engine.stops = 0;
        return RequestScope::enter(controller, captured.output(), engine, id);
    }

    /// Serve a request from end to end, without a cancel during it; whether one counted.
    bool serve(std::uint64_t id) {
        auto scope = enter(id);
        REQUIRE(scope);
        scope->allow_stop();
        scope->begin_decode();
        return scope->seal();
    }
};

} // namespace

TEST_CASE("A request goes through its states and back to idle", "[cancel]") {
    Bench bench;
    CHECK(State::idle == bench.controller.state());
    auto scope = bench.enter(1);
    REQUIRE(scope);
    CHECK(State::preparing == bench.controller.state());
    scope->begin_decode();
    CHECK(State::decoding == bench.controller.state());
    CHECK_FALSE(scope->seal());
    CHECK(State::sealed == bench.controller.state());
    scope->detach();
    CHECK(State::idle == bench.controller.state());
}

TEST_CASE("A cancel in decode stops the engine once, however often it is sent", "[cancel]") {
    Bench bench;
    auto scope = bench.enter(1);
    scope->begin_decode();
    CHECK_FALSE(scope->cancelled());
    for (int time = 0; time < 3; ++time) {
        bench.controller.deliver(1);
    }
    CHECK(scope->cancelled());
    CHECK(1 == bench.engine.stops);
    CHECK(scope->seal());
}

TEST_CASE("A cancel before stop is allowed is latched and stops the engine then", "[cancel]") {
    Bench bench;
    CHECK_FALSE(bench.serve(1)); // that one allowed it for itself only
    auto scope = bench.enter(2);
    bench.controller.deliver(2);
    CHECK(scope->cancelled());
    CHECK(0 == bench.engine.stops);
    SECTION("in prefill, if the engine can") {
        scope->allow_stop();
        CHECK(1 == bench.engine.stops);
        scope->begin_decode();
    }
    SECTION("in decode, if it cannot before") { scope->begin_decode(); }
    CHECK(1 == bench.engine.stops);
    CHECK(scope->seal());
}

TEST_CASE("A cancel that comes before its request is parked, not lost", "[cancel]") {
    Bench bench;
    bench.controller.deliver(1);
    CHECK(1 == bench.controller.parked());
    CHECK(bench.serve(1));
    CHECK(1 == bench.engine.stops);
    CHECK(0 == bench.controller.parked());
    CHECK_FALSE(bench.serve(2));
}

TEST_CASE("A cancel for the next request is parked while one is in hand", "[cancel]") {
    // Between the terminal of a request and its detachment an upstream worker loses it (B1).
    Bench bench;
    auto scope = bench.enter(1);
    SECTION("preparing") {}
    SECTION("decoding") { scope->begin_decode(); }
    SECTION("sealed") { CHECK_FALSE(scope->seal()); }
    bench.controller.deliver(2);
    CHECK_FALSE(scope->seal());
    CHECK(0 == bench.engine.stops);
    scope->detach();
    CHECK(bench.serve(2));
}

TEST_CASE("Several cancels are parked at a time, each for its own request", "[cancel]") {
    Bench bench;
    bench.controller.deliver(3);
    bench.controller.deliver(1);
    bench.controller.deliver(3);
    CHECK(bench.serve(1));
    CHECK_FALSE(bench.serve(2));
    CHECK(bench.serve(3));
}

TEST_CASE("The cancel of a refused request goes with it", "[cancel]") {
    // In an upstream worker it stays and takes the place of the next one (B2).
    Bench bench;
    bench.controller.deliver(1);
    bench.controller.refuse(1);
    CHECK(0 == bench.controller.parked());
    bench.controller.deliver(1);
    CHECK(0 == bench.controller.parked());
    bench.controller.deliver(2);
    CHECK(bench.serve(2));
}

TEST_CASE("Refusing an old id again changes nothing", "[cancel]") {
    Bench bench;
    CHECK_FALSE(bench.serve(5));
    bench.controller.refuse(3);
    bench.controller.deliver(6);
    CHECK(bench.serve(6));
}

TEST_CASE("A late cancel of an old request is ignored", "[cancel]") {
    Bench bench;
    CHECK_FALSE(bench.serve(1));
    SECTION("while idle") {
        bench.controller.deliver(1);
        CHECK(0 == bench.controller.parked());
        CHECK_FALSE(bench.serve(2));
    }
    SECTION("while another is in hand") {
        auto scope = bench.enter(2);
        scope->begin_decode();
        bench.controller.deliver(1);
        CHECK_FALSE(scope->seal());
        CHECK(0 == bench.engine.stops);
    }
}

TEST_CASE("A cancel after the seal changes nothing", "[cancel]") {
    Bench bench;
    auto scope = bench.enter(1);
    scope->begin_decode();
    CHECK_FALSE(scope->seal());
    bench.controller.deliver(1);
    CHECK(0 == bench.engine.stops);
    CHECK_FALSE(scope->cancelled());
    CHECK_FALSE(scope->seal());
    scope->detach();
    CHECK(0 == bench.controller.parked());
}

TEST_CASE("A cancel before the seal wins, also if the answer had ended", "[cancel]") {
    Bench bench;
    auto scope = bench.enter(1);
    scope->begin_decode();
    bench.controller.deliver(1);
    CHECK(scope->seal());
    bench.controller.deliver(1);
    CHECK(scope->seal());
}

TEST_CASE("A latched cancel that is sealed before stop was allowed never stops", "[cancel]") {
    Bench bench;
    auto scope = bench.enter(1);
    bench.controller.deliver(1);
    CHECK(scope->seal());
    scope->allow_stop();
    scope->begin_decode();
    CHECK(0 == bench.engine.stops);
}

TEST_CASE("The id 0 means nothing", "[cancel]") {
    Bench bench;
    bench.controller.deliver(0);
    CHECK(0 == bench.controller.parked());
    auto scope = bench.enter(std::nullopt);
    scope->begin_decode();
    bench.controller.deliver(0);
    CHECK_FALSE(scope->seal());
    CHECK(0 == bench.engine.stops);
}

TEST_CASE("A request without an id cannot be cancelled and loses no frame", "[cancel]") {
    Bench bench;
    {
        auto scope = bench.enter(std::nullopt);
        REQUIRE(scope);
        scope->begin_decode();
        bench.controller.deliver(1);
        CHECK_FALSE(scope->cancelled());
    }
    CHECK(bench.serve(1));
}

TEST_CASE("A stale id, a duplicate and a second active request are not entered", "[cancel]") {
    Bench bench;
    CHECK_FALSE(bench.serve(5));
    CHECK_FALSE(bench.enter(5));
    CHECK_FALSE(bench.enter(4));
    auto scope = bench.enter(6);
    REQUIRE(scope);
    CHECK_FALSE(bench.enter(7));
    CHECK_FALSE(bench.enter(std::nullopt));
    CHECK(State::preparing == bench.controller.state());
}

TEST_CASE("Leaving a scope early detaches it", "[cancel]") {
    Bench bench;
    {
        auto scope = bench.enter(1);
    }
    CHECK(State::idle == bench.controller.state());
    bench.controller.deliver(1);
    CHECK(0 == bench.controller.parked());
}

TEST_CASE("A moved scope detaches once", "[cancel]") {
    Bench bench;
    auto scope = bench.enter(1);
    {
        RequestScope moved(std::move(*scope));
        scope.reset();
        CHECK(State::preparing == bench.controller.state());
    }
    CHECK(State::idle == bench.controller.state());
}

TEST_CASE("Parked frames are bounded and the nearest are kept", "[cancel]") {
    Bench bench;
    for (std::uint64_t id = 1000; id > 0; --id) {
        bench.controller.deliver(id);
    }
    CHECK(CancelController::most_parked == bench.controller.parked());
    CHECK(bench.serve(1));
    CHECK(bench.serve(CancelController::most_parked));
    CHECK_FALSE(bench.serve(1000));
}

TEST_CASE("The largest id works", "[cancel]") {
    Bench bench;
    const std::uint64_t last = UINT64_MAX;
    bench.controller.deliver(last);
    CHECK(bench.serve(last));
    CHECK_FALSE(bench.enter(last));
}

TEST_CASE("A seam can make a request deaf", "[cancel]") {
    struct Deaf final : sllm::Seams {
        bool hears_cancel(std::uint64_t) noexcept override { return false; }
    } deaf;
    CancelController controller(deaf);
    sllm::test::Captured captured;
    sllm::test::StopCounter engine;
    controller.deliver(1);
    auto scope = RequestScope::enter(controller, captured.output(), engine, 1);
    scope->begin_decode();
    controller.deliver(1);
    CHECK_FALSE(scope->seal());
    CHECK(0 == engine.stops);
}

TEST_CASE("Frames from another thread stop each request at most once and only its own",
          "[cancel]") {
    constexpr std::uint64_t requests = 2000;
    Bench bench;
    std::thread control([&] {
        for (std::uint64_t id = 1; id <= requests; ++id) {
            for (int time = 0; time < 3; ++time) {
                bench.controller.deliver(id);
            }
        }
    });
    for (std::uint64_t id = 1; id <= requests; ++id) {
        auto scope = bench.enter(id);
        REQUIRE(scope);
        scope->allow_stop();
        scope->begin_decode();
        const bool cancelled = scope->seal();
        REQUIRE(bench.engine.stops == (cancelled ? 1 : 0));
    }
    control.join();
    CHECK(0 == bench.controller.parked());
}
