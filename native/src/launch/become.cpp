// The parent could do this between fork and exec (Python: preexec_fn), but not safely while it has
// threads. setpriv and prlimit do parts of it; neither checks that the parent is still the expected
// one once the death signal is armed, and without that check a parent that dies in between leaves
// a worker that nothing ends.

#include "become.hpp"

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "report.hpp"

namespace sllm::launch {
namespace {

void die_with(pid_t parent) {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        give_up(failed_status, "cannot arm the parent-death signal: %s", std::strerror(errno));
    }
    // Only now: had it died earlier, no signal would come.
    if (::getppid() != parent) {
        give_up(failed_status, "the guardian has ended");
    }
}

void lead_session() {
    if (::setsid() < 0) {
        give_up(failed_status, "cannot make a session: %s", std::strerror(errno));
    }
}

void join_cgroup(const char *folder) {
    char path[PATH_MAX];
    const int length = std::snprintf(path, sizeof path, "%s/cgroup.procs", folder);
    const bool fits = length < static_cast<int>(sizeof path);
    const int file = fits ? ::open(path, O_WRONLY | O_CLOEXEC) : -1;
    if (file < 0 || ::write(file, "0", 1) != 1) { // 0 is whoever writes it
        warn("cannot join the cgroup %s: %s; going on without it", folder,
             std::strerror(fits ? errno : ENAMETOOLONG));
    }
    if (file >= 0) {
        ::close(file);
    }
}

/// Ignored signals and the mask survive an exec: a worker is to start with neither.
///
/// By the system call, since the C library refuses to change the two signals that it keeps for
/// itself, and make starts its commands with those ignored.
void reset_signals() {
    // The kernel's own struct sigaction: a handler (0 is SIG_DFL), flags, restorer and mask.
    const std::array<std::uint64_t, 4> by_default{};
    constexpr std::size_t mask_bytes = 8;
    for (int number = 1; number < NSIG; ++number) {
        // Fails for those that cannot be changed, as it should.
        ::syscall(SYS_rt_sigaction, number, by_default.data(), nullptr, mask_bytes);
    }
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void set_limit(const Limit &limit) {
    struct rlimit values{};
    ::getrlimit(static_cast<__rlimit_resource_t>(limit.resource), &values);
    values.rlim_cur = limit.soft;
    values.rlim_max = limit.hard.value_or(values.rlim_max);
    if (::setrlimit(static_cast<__rlimit_resource_t>(limit.resource), &values) != 0) {
        give_up(failed_status,
                "cannot set the limit %s: %s; choose values within the present "
                "hard limit",
                limit.name, std::strerror(errno));
    }
}

void set_oom_score(int score) {
    const int file = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    char text[16];
    const int size = std::snprintf(text, sizeof text, "%d", score);
    if (file < 0 || ::write(file, text, static_cast<std::size_t>(size)) != size) {
        warn("cannot set the OOM score to %d: %s; going on without it", score,
             std::strerror(errno));
    }
    if (file >= 0) {
        ::close(file);
    }
}

void prepare(const Options &options) {
    reset_signals();
    if (options.umask) {
        ::umask(*options.umask);
    }
    for (std::size_t at = 0; at < options.limit_count; ++at) {
        set_limit(options.limits[at]);
    }
    if (options.nice && ::setpriority(PRIO_PROCESS, 0, *options.nice) != 0) {
        warn("cannot set the nice value to %d: %s; going on without it", *options.nice,
             std::strerror(errno));
    }
    if (options.oom_score_adj) {
        set_oom_score(*options.oom_score_adj);
    }
    if (options.cpus && ::sched_setaffinity(0, sizeof *options.cpus, &*options.cpus) != 0) {
        warn("cannot choose the processors: %s; going on without it", std::strerror(errno));
    }
    // A daemon that was given one, to listen on a low port say, was not given it for its workers.
    // Last, since the above may need one; a kernel that refuses this has no such capabilities.
    ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        give_up(failed_status, "cannot give up privileges: %s", std::strerror(errno));
    }
}

} // namespace

void become_worker(const Options &options, pid_t guardian, int placed) {
    die_with(guardian);
    lead_session();
    if (options.cgroup != nullptr) {
        join_cgroup(options.cgroup);
    }
    ::close(placed);
    prepare(options);
    ::execvp(options.command[0], options.command);
    const int error = errno;
    give_up(error == ENOENT ? 127 : 126, "cannot execute '%s': %s", options.command[0],
            std::strerror(error));
}

} // namespace sllm::launch
