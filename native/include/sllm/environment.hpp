#pragma once

#include <chrono>
#include <string>
#include <variant>

#include "sllm/engine.hpp"
#include "sllm/fd.hpp"

namespace sllm {

/// What a worker learns from its environment.
struct Environment {
    /// Whether the other side knows the extensions (SUPERVISORD_LLM_PROTOCOL is 1). Otherwise the
    /// worker is a plain one: no extra key in the ready line, no heartbeat.
    bool extensions = false;

    /// Time between heartbeats (SUPERVISORD_LLM_HEARTBEAT_MS).
    std::chrono::milliseconds heartbeat{1000};
};

/// Read the environment. Failed: a variable has a value that means nothing.
[[nodiscard]] std::variant<Environment, Failed> read_environment();

/// Take over the control pipe named by EXECUTORCH_LLM_WORKER_CONTROL_FD, and remove the variable.
///
/// No descriptor: there is no usable pipe, and cancellation is not offered. That is so if the
/// variable is missing or not a number, or its descriptor is one of 0 to 2, not a pipe, or not for
/// reading. A rejected descriptor is closed, unless it is 0 to 2: those belong to the process,
/// whatever the variable says.
[[nodiscard]] UniqueFd take_control_pipe();

} // namespace sllm
