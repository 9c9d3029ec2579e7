#pragma once

#include "options.hpp"

namespace sllm::launch {

/// Start the worker, tell what becomes of it, and end it with all that it has started once the
/// life pipe ends.
[[noreturn]] void guard(const Options &options);

} // namespace sllm::launch
