#include <catch2/catch.hpp>

#include <cstdint>
#include <vector>

#include <fcntl.h>

#include "sllm/control_frame.hpp"
#include "sllm/control_thread.hpp"
#include "sllm/scope.hpp"
#include "support.hpp"

using Ids = std::vector<std::uint64_t>;
using sllm::test::frame;

namespace {

void feed(sllm::FrameParser &parser, std::string_view bytes, Ids &ids) {
    parser.feed(std::span(reinterpret_cast<const unsigned char *>(bytes.data()), bytes.size()),
                [&ids](std::uint64_t id) { ids.push_back(id); });
}

/// A control pipe whose read end is non-blocking, as take_control_pipe makes it.
struct ControlPipe : sllm::test::Pipe {
    ControlPipe() { REQUIRE(::fcntl(read.get(), F_SETFL, O_NONBLOCK) == 0); }
};

/// Waits without an end: a frame that is never heard shows as a test that hangs until ctest ends
/// it.
void wait_cancelled(const sllm::RequestScope &scope) {
    while (!scope.cancelled()) {
        std::this_thread::yield();
    }
}

} // namespace

TEST_CASE("Frames are read however the bytes are cut", "[control]") {
    const Ids expected{1, 0x0123456789ABCDEF, UINT64_MAX, 0};
    std::string bytes;
    for (const std::uint64_t id : expected) {
        bytes += frame(id);
    }
    for (std::size_t first = 0; first <= bytes.size(); ++first) {
        for (std::size_t second = first; second <= bytes.size(); ++second) {
            sllm::FrameParser parser;
            Ids ids;
            feed(parser, std::string_view(bytes).substr(0, first), ids);
            CHECK(ids.size() == first / 8);
            feed(parser, std::string_view(bytes).substr(first, second - first), ids);
            feed(parser, std::string_view(bytes).substr(second), ids);
            CHECK(expected == ids);
        }
    }
}

TEST_CASE("A frame is little-endian", "[control]") {
    sllm::FrameParser parser;
    Ids ids;
    feed(parser, std::string_view("\x07\x00\x00\x00\x00\x00\x00\x01", 8), ids);
    CHECK(Ids{0x0100000000000007} == ids);
}

TEST_CASE("Seven bytes are no frame", "[control]") {
    sllm::FrameParser parser;
    Ids ids;
    feed(parser, std::string_view(frame(1)).substr(0, 7), ids);
    CHECK(ids.empty());
}

TEST_CASE("Frames that wait in the pipe are delivered before the worker is ready", "[control]") {
    sllm::Seams seams;
    sllm::CancelController controller(seams);
    ControlPipe pipe;
    pipe.send_frame(3);
    pipe.send_frame(4);
    const sllm::ControlThread thread(std::move(pipe.read), controller);
    CHECK(thread.supported());
    CHECK(2 == controller.parked());
}

TEST_CASE("A frame that comes later cancels the request in hand", "[control]") {
    sllm::Seams seams;
    sllm::CancelController controller(seams);
    sllm::test::Captured captured;
    sllm::test::StopCounter engine;
    ControlPipe pipe;
    const sllm::ControlThread thread(std::move(pipe.read), controller);
    auto scope = sllm::RequestScope::enter(controller, captured.output(), engine, 9);
    REQUIRE(scope);
    scope->begin_decode();
    const std::string bytes = frame(9);
    pipe.send(std::string_view(bytes).substr(0, 3));
    pipe.send(std::string_view(bytes).substr(3));
    wait_cancelled(*scope);
    CHECK(scope->seal());
    CHECK(1 == engine.stops);
}

TEST_CASE("A pipe at its end is no support", "[control]") {
    sllm::Seams seams;
    sllm::CancelController controller(seams);
    ControlPipe pipe;
    pipe.write.close();
    const sllm::ControlThread thread(std::move(pipe.read), controller);
    CHECK_FALSE(thread.supported());
}

TEST_CASE("No pipe is no support", "[control]") {
    sllm::Seams seams;
    sllm::CancelController controller(seams);
    const sllm::ControlThread thread(sllm::UniqueFd(), controller);
    CHECK_FALSE(thread.supported());
}

TEST_CASE("The end of the pipe ends the thread and nothing else", "[control]") {
    sllm::Seams seams;
    sllm::CancelController controller(seams);
    sllm::test::Captured captured;
    sllm::test::StopCounter engine;
    ControlPipe pipe;
    {
        const sllm::ControlThread thread(std::move(pipe.read), controller);
        pipe.send(std::string_view(frame(1)).substr(0, 5));
        pipe.write.close();
    }
    CHECK(0 == controller.parked());
    CHECK(sllm::RequestScope::enter(controller, captured.output(), engine, 1));
}

TEST_CASE("The thread ends while the writer is still there", "[control]") {
    sllm::Seams seams;
    sllm::CancelController controller(seams);
    ControlPipe pipe;
    {
        const sllm::ControlThread thread(std::move(pipe.read), controller);
    }
    SUCCEED();
}
