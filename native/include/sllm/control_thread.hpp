#pragma once

#include <atomic>
#include <thread>

#include "sllm/cancel.hpp"
#include "sllm/control_frame.hpp"
#include "sllm/fd.hpp"

namespace sllm {

/// Feeds cancel frames from the control pipe to the controller, from a thread of its own.
///
/// The thread sleeps until a frame comes and does nothing but CancelController::deliver, so a frame
/// is heard within microseconds whatever the request thread does. At the end of the pipe the thread
/// ends quietly: requests go on, they can only no longer be cancelled.
class ControlThread {
  public:
    /// `pipe` is non-blocking and may be no descriptor; `controller` must outlive this object.
    ///
    /// Frames that wait in the pipe are delivered before the constructor returns, so their order
    /// with the ready line is certain. Throws std::system_error if there is no thread to be had.
    ControlThread(UniqueFd pipe, CancelController &controller);
    ControlThread(const ControlThread &) = delete;
    ControlThread &operator=(const ControlThread &) = delete;

    /// Ends the thread and joins it, at once.
    ~ControlThread();

    /// Whether there is a pipe that was not at its end when this was constructed.
    [[nodiscard]] bool supported() const noexcept { return supported_; }

    /// Whether the pipe has come to its end since: no cancel will be heard any more. Thread-safe.
    [[nodiscard]] bool ended() const noexcept { return ended_.load(std::memory_order_relaxed); }

  private:
    enum class Read : unsigned char { some, none_yet, end };

    Read read_once();
    void run();

    UniqueFd pipe_;
    CancelController &controller_;
    FrameParser parser_;
    Wake wake_;
    bool supported_ = false;
    std::atomic<bool> ended_{false};
    std::thread thread_;
};

} // namespace sllm
