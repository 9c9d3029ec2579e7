// What goes over descriptors: output, requests, heartbeats, and the environment that names them.

#include <catch2/catch.hpp>

#include <array>
#include <cstdlib>
#include <future>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "sllm/environment.hpp"
#include "sllm/heartbeat.hpp"
#include "sllm/request_reader.hpp"
#include "support.hpp"

using sllm::test::Captured;
using sllm::test::Json;
using sllm::test::Pipe;

namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

/// Reads from a pipe until `count` lines are there.
std::vector<std::string> read_lines(int fd, std::size_t count) {
    std::vector<std::string> lines;
    std::string line;
    while (lines.size() < count) {
        char byte = 0;
        if (::read(fd, &byte, 1) != 1) {
            break;
        }
        if (byte == '\n') {
            lines.push_back(std::exchange(line, {}));
        } else {
            line += byte;
        }
    }
    return lines;
}

struct EnvironmentVariable {
    EnvironmentVariable(const char *name, const std::string &value) : name_(name) {
        ::setenv(name, value.c_str(), 1);
    }
    ~EnvironmentVariable() { ::unsetenv(name_); }
    const char *name_;
};

constexpr const char *control = "EXECUTORCH_LLM_WORKER_CONTROL_FD";

} // namespace

TEST_CASE("Lines from many threads stay whole", "[output]") {
    Captured captured;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&captured, thread] {
            for (int line = 0; line < 200; ++line) {
                static_cast<void>(captured.output().write_line(std::to_string(thread)));
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(800 == captured.lines().size());
    CHECK(1600 == captured.bytes().size());
}

TEST_CASE("After the reader is gone every write says so", "[output]") {
    Pipe pipe;
    sllm::Output output(std::move(pipe.write));
    CHECK(output.write_line("a"));
    pipe.read.close();
    CHECK_FALSE(output.write_line("b"));
    CHECK_FALSE(output.write_current([] { return std::nullopt; }));
}

TEST_CASE("A line longer than the pipe is written whole, also if that cannot block", "[output]") {
    Pipe pipe;
    REQUIRE(::fcntl(pipe.write.get(), F_SETFL, O_NONBLOCK) == 0);
    sllm::Output output(std::move(pipe.write));
    const std::string line(1'000'000, 'x');
    auto reading = std::async(std::launch::async, [&] { return read_lines(pipe.read.get(), 1); });
    CHECK(output.write_line(line));
    CHECK(line == reading.get().at(0));
}

TEST_CASE("Requests come in order, then the end", "[reader]") {
    Captured captured;
    Pipe pipe;
    sllm::RequestReader reader(pipe.read.get(), captured.output(), {});
    pipe.send("{\"a\": 1}\n\nnonsense\n[2]\n\"rest\"");
    pipe.write.close();
    CHECK(Json{{"a", 1}} == reader.next()->json);
    CHECK(reader.next()->problem.find("JSON") != std::string::npos);
    CHECK(Json{2} == reader.next()->json);
    CHECK("rest" == reader.next()->json);
    CHECK_FALSE(reader.next());
    CHECK_FALSE(reader.next());
}

TEST_CASE("A request line over the limit is a problem of its own", "[reader]") {
    Captured captured;
    Pipe pipe;
    sllm::RequestReader reader(pipe.read.get(), captured.output(), {.most_line_bytes = 10});
    pipe.send("[1,2,3,4,5,6,7]\n[8]\n");
    CHECK(reader.next()->problem.find("more than 10 bytes") != std::string::npos);
    CHECK(Json{8} == reader.next()->json);
}

TEST_CASE("A deeply nested line does not hurt", "[reader]") {
    Captured captured;
    Pipe pipe;
    sllm::RequestReader reader(pipe.read.get(), captured.output(), {});
    std::thread writer(
        [&] { pipe.send(std::string(1'000'000, '[') + std::string(1'000'000, ']') + "\n[1]\n"); });
    CHECK(reader.next()->json.is_array());
    CHECK(Json{1} == reader.next()->json);
    writer.join();
}

TEST_CASE("A ping is answered while nobody takes requests", "[reader]") {
    Captured unused;
    Pipe in;
    Pipe out;
    sllm::Output output(std::move(out.write));
    sllm::RequestReader reader(in.read.get(), output, {.answer_pings = true});
    in.send("[1]\n{\"op\": \"ping\", \"nonce\": 7}\n{\"op\": \"ping\", \"nonce\": 8}\n");
    CHECK(std::vector<std::string>{R"({"pong":7})", R"({"pong":8})"} ==
          read_lines(out.read.get(), 2));
    CHECK(Json{1} == reader.next()->json);
}

TEST_CASE("A ping is a request like any other if it was not offered", "[reader]") {
    Captured captured;
    Pipe pipe;
    sllm::RequestReader reader(pipe.read.get(), captured.output(), {});
    pipe.send("{\"op\": \"ping\", \"nonce\": 7}\n");
    CHECK("ping" == reader.next()->json["op"]);
}

TEST_CASE("A full queue makes the writer wait and loses nothing", "[reader]") {
    Captured captured;
    Pipe pipe;
    sllm::RequestReader reader(pipe.read.get(), captured.output(), {.most_queued = 2});
    std::string lines;
    for (int number = 0; number < 100; ++number) {
        lines += std::to_string(number) + "\n";
    }
    pipe.send(lines);
    pipe.write.close();
    for (int number = 0; number < 100; ++number) {
        CHECK(number == reader.next()->json);
    }
    CHECK_FALSE(reader.next());
}

TEST_CASE("A reader ends at once, whatever it waits for", "[reader]") {
    Captured captured;
    Pipe pipe;
    SECTION("for input") {
        const sllm::RequestReader reader(pipe.read.get(), captured.output(), {});
    }
    SECTION("for room in the queue") {
        sllm::RequestReader reader(pipe.read.get(), captured.output(), {.most_queued = 1});
        pipe.send("1\n2\n3\n");
        CHECK(1 == reader.next()->json);
    }
    SUCCEED();
}

TEST_CASE("A heartbeat tells of work and is silent at rest", "[heartbeat]") {
    Pipe pipe;
    sllm::Output output(std::move(pipe.write));
    sllm::Progress progress;
    progress.enter(sllm::Phase::load, 1000);
    {
        const sllm::Heartbeat heartbeat(output, progress, std::chrono::milliseconds(1));
        for (const std::string &line : read_lines(pipe.read.get(), 3)) {
            const Json beat = Json::parse(line)["heartbeat"];
            CHECK(beat == Json{{"phase", "load"}, {"done", 0}, {"total", 1000}, {"beats", 0}});
        }
        progress.advance_to(500);
        for (;;) {
            const Json beat = Json::parse(read_lines(pipe.read.get(), 1).at(0))["heartbeat"];
            if (beat["done"] == 500) {
                CHECK(beat["beats"] == 1);
                break;
            }
        }
        progress.rest();
        REQUIRE(output.write_line("\"terminal\""));
        while (read_lines(pipe.read.get(), 1).at(0) != "\"terminal\"") {
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(20)); // a chance to break the rule
        pollfd polled{pipe.read.get(), POLLIN, 0};
        CHECK(0 == ::poll(&polled, 1, 0));
    }
}

TEST_CASE("A heartbeat that is not due soon ends at once", "[heartbeat]") {
    Captured captured;
    const sllm::Progress progress;
    {
        const sllm::Heartbeat heartbeat(captured.output(), progress, std::chrono::hours(1));
    }
    CHECK(captured.bytes().empty());
}

TEST_CASE("Extensions are used only with the one who knows them", "[environment]") {
    const auto extensions = [] {
        return std::get<sllm::Environment>(sllm::read_environment()).extensions;
    };
    CHECK_FALSE(extensions());
    for (const char *other : {"0", "", "2", "01", "yes"}) {
        const EnvironmentVariable protocol("SUPERVISORD_LLM_PROTOCOL", other);
        CHECK_FALSE(extensions());
    }
    const EnvironmentVariable protocol("SUPERVISORD_LLM_PROTOCOL", "1");
    CHECK(extensions());
}

TEST_CASE("The period of heartbeats is a sane number or an error", "[environment]") {
    CHECK(std::chrono::seconds(1) ==
          std::get<sllm::Environment>(sllm::read_environment()).heartbeat);
    {
        const EnvironmentVariable period("SUPERVISORD_LLM_HEARTBEAT_MS", "250");
        CHECK(std::chrono::milliseconds(250) ==
              std::get<sllm::Environment>(sllm::read_environment()).heartbeat);
    }
    for (const char *bad : {"0", "-1", "", "1s", "1e3", " 1", "+1", "3600001", "99999999999"}) {
        const EnvironmentVariable period("SUPERVISORD_LLM_HEARTBEAT_MS", bad);
        const auto read = sllm::read_environment();
        REQUIRE(std::holds_alternative<sllm::Failed>(read));
        CHECK(std::get<sllm::Failed>(read).message.find("SUPERVISORD_LLM_HEARTBEAT_MS") !=
              std::string::npos);
    }
}

TEST_CASE("A control pipe is taken over and hidden from others", "[environment]") {
    Pipe pipe;
    const int number = ::dup(pipe.read.get());
    const EnvironmentVariable variable(control, std::to_string(number));
    const sllm::UniqueFd taken = sllm::take_control_pipe();
    CHECK(number == taken.get());
    CHECK(nullptr == std::getenv(control));
    CHECK((::fcntl(number, F_GETFL) & O_NONBLOCK) != 0);
    CHECK((::fcntl(number, F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("What is not a readable pipe is closed and not used", "[environment]") {
    const Pipe pipe;
    const bool write_end = GENERATE(true, false);
    const int number =
        write_end ? ::dup(pipe.write.get()) : ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    const EnvironmentVariable variable(control, std::to_string(number));
    CHECK_FALSE(sllm::take_control_pipe());
    CHECK_FALSE(is_open(number));
    CHECK(nullptr == std::getenv(control));
}

TEST_CASE("The standard descriptors are refused but never closed", "[environment]") {
    for (const char *number : {"0", "1", "2"}) {
        const EnvironmentVariable variable(control, number);
        CHECK_FALSE(sllm::take_control_pipe());
        CHECK(nullptr == std::getenv(control));
    }
    CHECK(is_open(0));
    CHECK(is_open(1));
    CHECK(is_open(2));
}

TEST_CASE("A variable that is no number is no pipe", "[environment]") {
    for (const char *value : {"", "x", "-3", "+3", " 3", "3 ", "3.0", "0x3", "99999999999"}) {
        const EnvironmentVariable variable(control, value);
        CHECK_FALSE(sllm::take_control_pipe());
        CHECK(nullptr == std::getenv(control));
    }
    CHECK_FALSE(sllm::take_control_pipe());
}
