#pragma once

#include <vector>

#include <sys/types.h>

namespace sllm::launch {

/// The children of this process as the kernel lists them, dead ones that wait to be reaped
/// included. A child that comes or goes meanwhile can be missed, or hide another, so whoever must
/// have them all asks again. False if this kernel keeps no such list.
bool listed_children(std::vector<pid_t> &into);

/// The same, by looking at every process of the machine; a hundred times as slow.
std::vector<pid_t> searched_children();

/// The quick way where there is one.
std::vector<pid_t> children();

} // namespace sllm::launch
