#pragma once

#include <cstddef>
#include <optional>

#include <sched.h>
#include <sys/resource.h>
#include <sys/types.h>

namespace sllm::launch {

/// One limit to set; without `hard` the present hard limit stays.
struct Limit {
    const char *name;
    int resource;
    rlim_t soft;
    std::optional<rlim_t> hard;
};

/// What the command line says. Fixed size: this program allocates nothing.
struct Options {
    static constexpr std::size_t most_limits = 16; ///< as many as Linux has

    pid_t parent = 0;
    int life = -1;                    ///< read end of a pipe that only the parent can write to
    int status = -1;                  ///< where the worker's beginning and end are told
    const char *cgroup = nullptr;     ///< folder of the cgroup that is to be the worker's own
    std::optional<int> nice;          ///< absolute, -20 to 19
    std::optional<int> oom_score_adj; ///< -1000 to 1000
    std::optional<cpu_set_t> cpus;
    std::optional<mode_t> umask;
    Limit limits[most_limits];
    std::size_t limit_count = 0;
    char **command = nullptr; ///< null-terminated, not empty
};

/// Read the command line. On a mistake: writes one line to stderr and ends with status 125.
/// `--help` prints the usage and ends with status 0.
Options parse_options(int argc, char **argv);

} // namespace sllm::launch
