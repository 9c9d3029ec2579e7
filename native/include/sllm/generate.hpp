#pragma once

#include "sllm/cancel.hpp"
#include "sllm/engine.hpp"
#include "sllm/output.hpp"
#include "sllm/request.hpp"
#include "sllm/seams.hpp"
#include "sllm/sessions.hpp"

namespace sllm {

/// What a request is served with. All outlive the call.
struct Workbench {
    Engine &engine;
    Sessions &sessions;
    CancelController &controller;
    Output &output;
    Progress &progress;
    Seams &seams;
};

/// Serve one request: tokens as they come, then exactly one terminal line.
///
/// A request that is refused (a stale id, a prompt that does not fit, no session to be had) touches
/// no session, and its cancel frames are forgotten with it.
///
/// The usual loop, one token a step. A cancel that was latched before the outcome is sealed makes
/// it a `done` with `cancelled`, also if the engine failed meanwhile; otherwise a failure of the
/// engine is an error line. False: nobody reads the replies any more.
[[nodiscard]] bool generate(const GenerateRequest &request, Workbench &bench);

} // namespace sllm
