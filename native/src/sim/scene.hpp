#pragma once

#include <atomic>
#include <cstddef>

#include "nuisance.hpp"
#include "script.hpp"
#include "sllm/output.hpp"

namespace sllm::sim {

/// What the engine and the seams of one sim worker share. Owned by main(); it outlives both.
struct Scene {
    explicit Scene(Script options) : defaults(std::move(options)), script(defaults) {}

    const Script defaults;                  ///< what the options say
    Script script;                          ///< of the latest request; request thread only
    std::size_t prompt_tokens = 0;          ///< of the latest request, for the pace of its prefill
    std::atomic<bool> ignore_cancel{false}; ///< of script, for the control thread
    Output *output = nullptr;               ///< set when the runtime has started
    Nuisance nuisance;                      ///< request thread only
};

} // namespace sllm::sim
