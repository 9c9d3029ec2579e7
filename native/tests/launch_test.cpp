#include <catch2/catch.hpp>

#include <algorithm>
#include <csignal>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "children.hpp"

using sllm::launch::listed_children;
using sllm::launch::searched_children;

namespace {

/// A child that waits to be killed, or is dead already; reaped at the end.
class Child {
  public:
    explicit Child(bool dead) : pid_{::fork()} {
        if (pid_ == 0) {
            // The second field of its stat file holds what ends it.
            ::prctl(PR_SET_NAME, "a) R 1 (b");
            while (!dead) {
                ::pause();
            }
            ::_exit(0);
        }
        if (dead) {
            siginfo_t end{};
            ::waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOWAIT);
        }
    }
    ~Child() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    Child(const Child &) = delete;
    Child &operator=(const Child &) = delete;

    [[nodiscard]] pid_t pid() const { return pid_; }

  private:
    pid_t pid_;
};

std::vector<pid_t> sorted(std::vector<pid_t> pids) {
    std::sort(pids.begin(), pids.end());
    return pids;
}

} // namespace

TEST_CASE("both ways find every child, running or dead, and nobody else", "[launch]") {
    REQUIRE(searched_children().empty());
    const Child running{false};
    const Child dead{true};
    const std::vector<pid_t> expected = sorted({running.pid(), dead.pid()});
    CHECK(sorted(searched_children()) == expected);
    if (std::vector<pid_t> listed; listed_children(listed)) {
        CHECK(sorted(listed) == expected);
    }
    CHECK(sorted(sllm::launch::children()) == expected);
}

TEST_CASE("more children than one read of the list takes are all found", "[launch]") {
    std::vector<pid_t> expected;
    for (int made = 0; made < 1200; ++made) {
        const pid_t pid = ::fork();
        if (pid == 0) {
            ::_exit(0);
        }
        REQUIRE(pid > 0);
        expected.push_back(pid);
    }
    for (const pid_t pid : expected) {
        siginfo_t end{};
        ::waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOWAIT);
    }
    std::vector<pid_t> listed;
    const bool available = listed_children(listed);
    const std::vector<pid_t> searched = searched_children();
    for (const pid_t pid : expected) {
        ::waitpid(pid, nullptr, 0);
    }
    CHECK(sorted(searched) == sorted(expected));
    CHECK((!available || sorted(listed) == sorted(expected)));
}
