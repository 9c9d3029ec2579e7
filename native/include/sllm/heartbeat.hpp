#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "sllm/output.hpp"
#include "sllm/progress.hpp"

namespace sllm {

/// Tells how far the work in hand is, once per period, from a thread of its own; silent while
/// nothing is in hand.
///
/// It beats also while the engine hangs: that `beats` stands still is the news then. The phase is
/// looked at under the lock of the output: after progress.rest() no heartbeat can come behind
/// a line that is written later.
class Heartbeat {
  public:
    /// `output` and `progress` must outlive it. Throws std::system_error if there is no thread.
    Heartbeat(Output &output, const Progress &progress, std::chrono::milliseconds period);
    Heartbeat(const Heartbeat &) = delete;
    Heartbeat &operator=(const Heartbeat &) = delete;

    /// Ends the thread and joins it.
    ~Heartbeat();

  private:
    void run();

    Output &output_;
    const Progress &progress_;
    std::chrono::milliseconds period_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool ending_ = false;
    std::thread thread_;
};

} // namespace sllm
