#pragma once

#include <atomic>

#include "script.hpp"
#include "sllm/output.hpp"

namespace sllm::sim {

/// What the engine and the seams of one sim worker share. Owned by main(); it outlives both.
struct Scene {
    explicit Scene(Script options) : defaults(std::move(options)), script(defaults) {}

    const Script defaults;         ///< what the options say
    Script script;                 ///< of the latest request; request thread only
    std::atomic<bool> deaf{false}; ///< script.ignore_cancel, for the control thread
    Output *output = nullptr;      ///< set when the runtime has started
};

} // namespace sllm::sim
