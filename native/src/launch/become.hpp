#pragma once

#include <sys/types.h>

#include "options.hpp"

namespace sllm::launch {

/// Turn this process, a fresh child of the guardian, into the worker: set up what a process can
/// only set for itself, then execute the command. Ends with a status of the launcher's where that
/// fails, having said why on stderr.
///
/// `placed` is closed once the process leads its session and has joined its cgroup: from then on
/// its group can be signalled.
[[noreturn]] void become_worker(const Options &options, pid_t guardian, int placed);

} // namespace sllm::launch
