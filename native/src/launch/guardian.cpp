// The worker's parent. What the worker starts, and whatever that starts, comes to this process when
// it loses its own parent: that is how those are found that left for a session of their own. A
// child's pid is its own until it is reaped here, so no other process is ever signalled by mistake.
//
// Nothing stops it but SIGKILL, and that takes the worker along: the worker's parent-death signal
// is bound to this one thread.

#include "guardian.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "become.hpp"
#include "children.hpp"
#include "report.hpp"

namespace sllm::launch {
namespace {

constexpr int first_pause_ms = 1;
constexpr int longest_pause_ms = 500;

class Guardian {
  public:
    Guardian(const Options &options, pid_t worker, int deaths)
        : options_{options}, worker_{worker}, deaths_{deaths} {}

    [[noreturn]] void run() {
        char line[32];
        say(line, std::snprintf(line, sizeof line, "started %d\n", static_cast<int>(worker_)));
        while (living()) {
            look();
        }
        finish();
    }

  private:
    /// Wait for a death or the end of the life pipe; false at that end.
    bool living() const {
        pollfd waited[] = {{options_.life, POLLIN, 0}, {deaths_, POLLIN, 0}};
        while (::poll(waited, 2, -1) < 0) {
        }
        drain();
        char unexpected[64];
        // Whatever else is wrong with the pipe, nobody could end it any more.
        return waited[0].revents == 0 || ::read(options_.life, unexpected, sizeof unexpected) > 0;
    }

    /// Tell of the worker's end, without reaping it, and reap the orphans that have come here.
    void look() {
        siginfo_t end{};
        if (!told_ &&
            ::waitid(P_PID, static_cast<id_t>(worker_), &end, WEXITED | WNOWAIT | WNOHANG) == 0 &&
            end.si_pid == worker_) {
            tell(end.si_code == CLD_EXITED, end.si_status, end.si_code == CLD_DUMPED);
        }
        for (const pid_t child : children()) {
            if (child != worker_) {
                ::waitpid(child, nullptr, WNOHANG);
            }
        }
    }

    [[noreturn]] void finish() {
        // Once: as long as the worker is not reaped its group is its own.
        ::kill(-worker_, SIGKILL);
        kill_cgroup();
        for (int pause = first_pause_ms;; pause = std::min(2 * pause, longest_pause_ms)) {
            for (const pid_t child : children()) {
                ::kill(child, SIGKILL);
            }
            if (reap()) {
                pause = first_pause_ms; // what they had started is ours now
            }
            pollfd waited{deaths_, POLLIN, 0};
            ::poll(&waited, 1, pause);
            drain();
        }
    }

    /// Take the status of all that are dead; whether there were any. Ends when no child is left.
    bool reap() {
        bool any = false;
        for (;;) {
            int status = 0;
            const pid_t child = ::waitpid(-1, &status, WNOHANG);
            if (child < 0) {
                ::_exit(0);
            }
            if (child == 0) {
                return any;
            }
            any = true;
            if (child == worker_ && !told_) {
                const bool exited = WIFEXITED(status);
                tell(exited, exited ? WEXITSTATUS(status) : WTERMSIG(status),
                     !exited && WCOREDUMP(status));
            }
        }
    }

    void kill_cgroup() const {
        char path[PATH_MAX];
        if (options_.cgroup == nullptr ||
            std::snprintf(path, sizeof path, "%s/cgroup.kill", options_.cgroup) >= PATH_MAX) {
            return;
        }
        // Quicker than one by one where there is such a file; what is left is killed all the same.
        if (const int file = ::open(path, O_WRONLY | O_CLOEXEC); file >= 0) {
            [[maybe_unused]] const auto written = ::write(file, "1", 1);
            ::close(file);
        }
    }

    void tell(bool exited, int value, bool core) {
        told_ = true;
        char line[32];
        say(line, exited
                      ? std::snprintf(line, sizeof line, "exited %d\n", value)
                      : std::snprintf(line, sizeof line, "signalled %d %d\n", value, core ? 1 : 0));
    }

    void say(const char *line, int size) const {
        // If nobody reads it any more, nobody needs it.
        [[maybe_unused]] const auto written =
            ::write(options_.status, line, static_cast<std::size_t>(size));
    }

    void drain() const {
        signalfd_siginfo ignored[8];
        while (::read(deaths_, ignored, sizeof ignored) > 0) {
        }
    }

    const Options &options_;
    const pid_t worker_;
    const int deaths_;
    bool told_ = false;
};

[[noreturn]] void refuse(const char *what) {
    give_up(failed_status, "cannot %s: %s", what, std::strerror(errno));
}

/// Wait until the worker leads its session and is in its cgroup, or has failed to.
void await_place(int placed) {
    char nothing = 0;
    while (::read(placed, &nothing, 1) < 0 && errno == EINTR) {
    }
    ::close(placed);
}

/// Let go of all that the worker has inherited: the ends of its pipes must be its own.
void keep_only(int life, int status) {
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        ::close(standard);
        ::open("/dev/null", O_RDWR); // takes the number that is free
    }
    DIR *const folder = ::opendir("/proc/self/fd");
    if (folder == nullptr) {
        return;
    }
    while (const dirent *const entry = ::readdir(folder)) {
        const int descriptor = std::atoi(entry->d_name); // 0 for the dots
        if (descriptor > STDERR_FILENO && descriptor != life && descriptor != status &&
            descriptor != ::dirfd(folder)) {
            ::close(descriptor);
        }
    }
    ::closedir(folder);
}

} // namespace

void guard(const Options &options) {
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_BLOCK, &all, nullptr);
    if (::getsid(0) != ::getpid() && ::setsid() < 0) {
        refuse("make a session");
    }
    if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
        refuse("adopt orphans");
    }
    int placed[2];
    if (::pipe2(placed, O_CLOEXEC) != 0) {
        refuse("make a pipe");
    }
    const pid_t self = ::getpid();
    const pid_t worker = ::fork();
    if (worker < 0) {
        refuse("start a process");
    }
    if (worker == 0) {
        ::close(placed[0]);
        become_worker(options, self, placed[1]);
    }
    ::close(placed[1]);
    await_place(placed[0]);
    keep_only(options.life, options.status);
    ::prctl(PR_SET_NAME, "sllm-guardian");
    sigset_t deaths;
    ::sigemptyset(&deaths);
    ::sigaddset(&deaths, SIGCHLD);
    // Without it the worker could not be watched; it goes with this process.
    const int seen = ::signalfd(-1, &deaths, SFD_CLOEXEC | SFD_NONBLOCK);
    if (seen < 0) {
        ::_exit(failed_status);
    }
    Guardian{options, worker, seen}.run();
}

} // namespace sllm::launch
