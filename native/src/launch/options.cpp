#include "options.hpp"

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "report.hpp"

namespace sllm::launch {
namespace {

constexpr const char *usage =
    R"(usage: sllm-launch --parent PID --life FD --status FD [options] -- COMMAND [ARGUMENT ...]

Starts COMMAND and stays as its guardian. COMMAND leads a session of its own, has default signal
handling, no ambient capabilities, and can gain no privileges; it inherits all descriptors but those
named here. Once the life pipe ends, COMMAND and everything that it has started are killed, wherever
they went.

  --parent PID           the process that must still be the parent
  --life FD              a pipe to read from; it ends when its writer closes it or dies
  --status FD            where to write what becomes of COMMAND, each on a line: "started PID", then
                         "exited STATUS" or "signalled NUMBER CORE", CORE being 1 if it was dumped;
                         the process is reaped only after the end of the life pipe
  --cgroup DIR           a cgroup v2 folder that COMMAND joins, and that is killed with it
  --nice N               scheduling priority, -20 to 19
  --oom-score-adj N      how readily the kernel kills it when memory ends, -1000 to 1000
  --cpus LIST            processors to run on, such as 0,2-3
  --rlimit NAME=SOFT[:HARD]
                         a resource limit; NAME as in ulimits (core, nofile, as, ...), values are
                         numbers or "unlimited"; may be given for each resource
  --umask OCT            file mode creation mask
  --help                 show this

A nice value, OOM score, processor list or cgroup that the system refuses is a warning. The guardian
ends with status 0 once nothing is left, or 125 if it cannot start anything. COMMAND's is 125 if its
process cannot be prepared, 126 if it cannot be executed, 127 if it is not found.
)";

struct ResourceName {
    const char *name;
    int resource;
};

constexpr ResourceName resources[] = {
    {"as", RLIMIT_AS},           {"core", RLIMIT_CORE},         {"cpu", RLIMIT_CPU},
    {"data", RLIMIT_DATA},       {"fsize", RLIMIT_FSIZE},       {"locks", RLIMIT_LOCKS},
    {"memlock", RLIMIT_MEMLOCK}, {"msgqueue", RLIMIT_MSGQUEUE}, {"nice", RLIMIT_NICE},
    {"nofile", RLIMIT_NOFILE},   {"nproc", RLIMIT_NPROC},       {"rss", RLIMIT_RSS},
    {"rtprio", RLIMIT_RTPRIO},   {"rttime", RLIMIT_RTTIME},     {"sigpending", RLIMIT_SIGPENDING},
    {"stack", RLIMIT_STACK},
};
static_assert(sizeof resources / sizeof *resources <= Options::most_limits);

/// A whole number in [low, high] that ends at `*end`, which is moved behind it.
bool read_number(const char **text, int base, long long low, long long high, long long &into) {
    const char first = **text;
    if (first != '-' && (first < '0' || first > '9')) {
        return false; // strtoll would take blanks and signs
    }
    char *end = nullptr;
    errno = 0;
    into = std::strtoll(*text, &end, base);
    const bool good = errno == 0 && end != *text && into >= low && into <= high;
    *text = end;
    return good;
}

long long number_of(const char *option, const char *value, int base, long long low,
                    long long high) {
    long long number = 0;
    const char *rest = value;
    if (!read_number(&rest, base, low, high, number) || *rest != '\0') {
        give_up(failed_status, "cannot use '%s' for %s; give a number from %lld to %lld", value,
                option, low, high);
    }
    return number;
}

/// A descriptor beyond the standard ones that is open.
int pipe_of(const char *option, const char *value) {
    const int descriptor = static_cast<int>(number_of(option, value, 10, 3, INT_MAX));
    // The worker is not to inherit it.
    if (::fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0) {
        give_up(failed_status, "cannot use '%s' for %s: %s; give an open descriptor", value, option,
                std::strerror(errno));
    }
    return descriptor;
}

mode_t umask_of(const char *value) {
    long long number = 0;
    const char *rest = value;
    if (!read_number(&rest, 8, 0, 0777, number) || *rest != '\0') {
        give_up(failed_status, "cannot use '%s' for --umask; give an octal number up to 777",
                value);
    }
    return static_cast<mode_t>(number);
}

cpu_set_t cpus_of(const char *value) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    const char *rest = value;
    for (;;) {
        long long first = 0;
        bool good = read_number(&rest, 10, 0, CPU_SETSIZE - 1, first);
        long long last = first;
        if (good && *rest == '-') {
            ++rest;
            good = read_number(&rest, 10, first, CPU_SETSIZE - 1, last);
        }
        if (!good || (*rest != ',' && *rest != '\0')) {
            give_up(failed_status, "cannot use '%s' for --cpus; give a list such as 0,2-3", value);
        }
        for (long long cpu = first; cpu <= last; ++cpu) {
            CPU_SET(static_cast<std::size_t>(cpu), &cpus);
        }
        if (*rest == '\0') {
            return cpus;
        }
        ++rest;
    }
}

bool read_limit_value(const char **text, rlim_t &into) {
    constexpr const char *unlimited = "unlimited";
    if (std::strncmp(*text, unlimited, std::strlen(unlimited)) == 0) {
        *text += std::strlen(unlimited);
        into = RLIM_INFINITY;
        return true;
    }
    long long number = 0;
    const bool good = read_number(text, 10, 0, LLONG_MAX, number);
    into = static_cast<rlim_t>(number);
    return good;
}

Limit limit_of(const char *value) {
    const char *equals = std::strchr(value, '=');
    for (const ResourceName &known : resources) {
        const std::size_t length = std::strlen(known.name);
        if (equals == nullptr || static_cast<std::size_t>(equals - value) != length ||
            std::strncmp(value, known.name, length) != 0) {
            continue;
        }
        Limit limit{known.name, known.resource, 0, std::nullopt};
        const char *rest = equals + 1;
        bool good = read_limit_value(&rest, limit.soft);
        if (good && *rest == ':') {
            ++rest;
            rlim_t hard = 0;
            good = read_limit_value(&rest, hard) && limit.soft <= hard;
            limit.hard = hard;
        }
        if (good && *rest == '\0') {
            return limit;
        }
    }
    give_up(
        failed_status,
        "cannot use '%s' for --rlimit; give NAME=SOFT[:HARD], such as core=0 or nofile=1024:4096",
        value);
}

void store(Options &options, const char *option, const char *value) {
    const auto is = [option](const char *name) { return std::strcmp(option, name) == 0; };
    if (is("--parent")) {
        options.parent = static_cast<pid_t>(number_of(option, value, 10, 1, INT_MAX));
    } else if (is("--life")) {
        options.life = pipe_of(option, value);
    } else if (is("--status")) {
        options.status = pipe_of(option, value);
    } else if (is("--cgroup")) {
        options.cgroup = value;
    } else if (is("--nice")) {
        options.nice = static_cast<int>(number_of(option, value, 10, -20, 19));
    } else if (is("--oom-score-adj")) {
        options.oom_score_adj = static_cast<int>(number_of(option, value, 10, -1000, 1000));
    } else if (is("--cpus")) {
        options.cpus = cpus_of(value);
    } else if (is("--umask")) {
        options.umask = umask_of(value);
    } else if (is("--rlimit")) {
        if (options.limit_count == Options::most_limits) {
            give_up(failed_status, "cannot take another --rlimit; give each resource once");
        }
        options.limits[options.limit_count++] = limit_of(value);
    } else {
        give_up(failed_status, "unknown option '%s'; see --help", option);
    }
}

} // namespace

Options parse_options(int argc, char **argv) {
    Options options;
    int at = 1;
    for (; at < argc && std::strcmp(argv[at], "--") != 0; at += 2) {
        if (std::strcmp(argv[at], "--help") == 0) {
            const ssize_t written = ::write(STDOUT_FILENO, usage, std::strlen(usage));
            ::_exit(written < 0 ? failed_status : 0);
        }
        if (argv[at][0] != '-') {
            give_up(failed_status, "cannot tell what '%s' is; put -- before the command", argv[at]);
        }
        if (at + 1 >= argc || std::strcmp(argv[at + 1], "--") == 0) {
            give_up(failed_status, "%s needs a value; see --help", argv[at]);
        }
        store(options, argv[at], argv[at + 1]);
    }
    if (options.parent == 0) {
        give_up(failed_status, "no parent; give --parent the process id of the parent");
    }
    if (options.life < 0 || options.status < 0) {
        give_up(failed_status, "no pipes; give --life and --status descriptors");
    }
    if (at + 1 >= argc) {
        give_up(failed_status, "no command; give one behind --");
    }
    options.command = argv + at + 1;
    return options;
}

} // namespace sllm::launch
