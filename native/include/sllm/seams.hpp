#pragma once

#include <cstdint>

namespace sllm {

class Output;

/// Places in the runtime where a scripted worker can put itself between two steps.
///
/// Races of microseconds cannot be met on demand from outside the process; here they are forced.
/// Ordinary workers use the defaults, which do nothing. Unless it says otherwise a member is called
/// by the request thread.
class Seams {
  public:
    virtual ~Seams() = default;

    /// Before the model is loaded. `output` lives until run_worker returns.
    virtual void started(Output & /*output*/) {}

    /// Before the next request line is taken.
    virtual void before_read() {}

    /// After the outcome of a request is decided, while it is still the active one.
    virtual void before_detach() {}

    /// After a terminal was written.
    virtual void after_flush() {}

    /// Whether the active request hears a cancel frame for it. Called by the control thread, or by
    /// the request thread for a parked frame, under the controller's lock: must not block.
    virtual bool hears_cancel(std::uint64_t /*id*/) noexcept { return true; }
};

} // namespace sllm
