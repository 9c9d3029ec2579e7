#include "faults.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <unistd.h>

namespace sllm::sim {
namespace {

constexpr unsigned sleeper_seconds = 600;

void fork_sleeper(bool detached) {
    if (::fork() != 0) {
        return; // a failed fork is one sleeper less: the test that counts them will tell
    }
    if (detached) {
        ::setsid();
    }
    // Only calls that are safe after fork in a process with threads.
    ::sleep(sleeper_seconds);
    ::_exit(0);
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

void ignore_sigterm() { std::signal(SIGTERM, SIG_IGN); }

void spawn(std::int64_t in_group, std::int64_t detached) {
    for (std::int64_t made = 0; made < in_group; ++made) {
        fork_sleeper(false);
    }
    for (std::int64_t made = 0; made < detached; ++made) {
        fork_sleeper(true);
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
