#pragma once

#include <string>

#include "sllm/engine.hpp"
#include "sllm/seams.hpp"

namespace sllm {

/// How a worker ended: the exit status of the process and, unless it was the orderly end, one line
/// for stderr (no end of line).
struct WorkerEnd {
    int status;
    std::string message;
};

/// Be a worker on `engine` until stdin ends: load, announce, serve. main() calls this once.
///
/// Takes over descriptors 0 (requests) and 1 (replies; from then on 1 is a copy of 2, so that
/// a library's printf cannot break the protocol) and the control descriptor named by the
/// environment; ignores SIGPIPE. Starts the threads that it needs and has joined them when it
/// returns. Status 0: stdin ended and all that was read is answered; 1: the model cannot be loaded,
/// or nobody reads the replies; 2: the environment is wrong.
[[nodiscard]] WorkerEnd run_worker(Engine &engine, Seams &seams);
[[nodiscard]] WorkerEnd run_worker(Engine &engine);

} // namespace sllm
