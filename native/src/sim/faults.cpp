#include "faults.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sllm::sim {
namespace {

constexpr unsigned sleeper_seconds = 600;

enum class Sleeper : std::uint8_t { plain, detached, stubborn, escaped };

/// A failed fork is one sleeper less: the test that counts them will tell.
void fork_sleeper(Sleeper kind) {
    const pid_t forked = ::fork();
    if (forked != 0) {
        if (forked > 0 && kind == Sleeper::escaped) {
            ::waitpid(forked, nullptr, 0); // the one in between
        }
        return;
    }
    // Only calls that are safe after fork in a process with threads.
    if (kind == Sleeper::detached || kind == Sleeper::escaped) {
        ::setsid();
    }
    if (kind == Sleeper::escaped && ::fork() != 0) {
        ::_exit(0);
    }
    if (kind == Sleeper::stubborn) {
        std::signal(SIGTERM, SIG_IGN);
    }
    ::sleep(sleeper_seconds);
    ::_exit(0);
}

void spawn(std::int64_t number, Sleeper kind) {
    for (std::int64_t made = 0; made < number; ++made) {
        fork_sleeper(kind);
    }
}

/// Put a pipe that nobody writes to in the place of stdin, whose read end stays open: whoever
/// writes to us finds a pipe that fills up, not one that is broken. All of it is meant to leak.
void stop_reading_stdin() {
    std::array<int, 2> ends{};
    if (::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) < 0 ||
        ::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0 ||
        ::dup2(ends[0], STDIN_FILENO) != STDIN_FILENO) {
        std::perror("sim: cannot stop reading stdin");
        std::_Exit(1);
    }
}

} // namespace

void die(const Death &death) {
    switch (death.way) {
    case Death::Way::exit:
        std::_Exit(death.number);
    case Death::Way::abort:
        std::signal(SIGABRT, SIG_DFL);
        std::abort();
    case Death::Way::signal:
        std::signal(death.number, SIG_DFL); // ours for SIGPIPE, a sanitizer's for others
        ::kill(::getpid(), death.number);
    }
}

void hang() {
    for (;;) {
        ::pause();
    }
}

void begin_faults(const Script &script, Nuisance &nuisance) {
    if (script.ignore_sigterm) {
        std::signal(SIGTERM, SIG_IGN);
    }
    spawn(script.spawn, Sleeper::plain);
    spawn(script.spawn_detached, Sleeper::detached);
    spawn(script.spawn_stubborn, Sleeper::stubborn);
    spawn(script.spawn_escaped, Sleeper::escaped);
    nuisance.flood_stderr(script.stderr_flood);
    nuisance.leak(script.leak);
    if (script.deaf) {
        stop_reading_stdin();
    }
}

void write_stderr(std::int64_t lines) {
    for (std::int64_t line = 0; line < lines; ++line) {
        std::fprintf(stderr, "sim: line %lld\n", static_cast<long long>(line));
    }
}

void pause_for(std::int64_t milliseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

} // namespace sllm::sim
