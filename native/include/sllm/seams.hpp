#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sllm {

class Output;

/// Places in the runtime where a scripted worker can put itself between two steps.
///
/// Races of microseconds and faults of a whole process cannot be met on demand from outside; here
/// they are made. Ordinary workers use the defaults, which change nothing. Unless it says otherwise
/// a member is called by the request thread, and may block.
class Seams {
  public:
    virtual ~Seams() = default;

    /// What the worker withholds, though it could offer it.
    struct Withheld {
        bool cancel = false;     ///< no supports_cancel; the control pipe is closed
        bool extensions = false; ///< none of them, whatever the environment says
        bool heartbeat = false;
        bool ping = false;
    };
    [[nodiscard]] virtual Withheld withheld() const { return {}; }

    /// Before the model is loaded. `output` lives until run_worker returns.
    virtual void started(Output & /*output*/) {}

    /// Returns the ready line to send, usually `line`; none: end with status 0 instead.
    [[nodiscard]] virtual std::optional<std::string> announce(std::string line) { return line; }

    /// Before the next request line is taken.
    virtual void before_read() {}

    /// After the outcome of a request is sealed, while it is still the active one.
    virtual void before_detach(bool /*cancelled*/) {}

    /// After a terminal was written.
    virtual void after_flush() {}

    /// The input has ended and all of it was answered; the worker ends when this returns.
    virtual void before_end() {}

    /// Whether the active request hears a cancel frame for it. Called by the control thread, or by
    /// the request thread for a parked frame, under the controller's lock: must not block.
    [[nodiscard]] virtual bool hears_cancel(std::uint64_t /*id*/) noexcept { return true; }
};

} // namespace sllm
