#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "sllm/cancel.hpp"
#include "sllm/output.hpp"

namespace sllm {

/// One request from its activation to its detachment: what a decoding loop drives.
///
///     auto scope = RequestScope::enter(controller, output, resident.session(), id);
///     if (!scope) ...           // refuse it
///     const auto start = resident.look(prompt);
///     resident.begin(start);    // resets the session if it has to be
///     scope->allow_stop();      // only if the engine looks at stop() before it decodes
///     ... prefill from start.reused on, asking scope->cancelled() between batches ...
///     scope->begin_decode();
///     ... decode, asking scope->cancelled() between steps; scope->emit(text) ...
///     const bool cancelled = scope->seal();
///     ... resident.keep(prompt, generated), if not cancelled and all of it was shown ...
///     scope->detach();          // before the terminal is written
///
/// allow_stop() must not come before begin(): a reset would undo the stop.
///
/// A loop of one's own (several tokens a step, a picture before the prompt) does the same; the
/// usual one is generate(). Leaving early by any path detaches. To be used by one thread; the
/// controller, the output and the session must outlive it.
class RequestScope {
  public:
    /// Make the request active. A parked cancel for its id counts from now on.
    ///
    /// `id` is none for a request that cannot be cancelled. Returns nullopt if the id is stale
    /// (served or refused before, or smaller than one that was), or another request is active.
    [[nodiscard]] static std::optional<RequestScope> enter(CancelController &controller,
                                                           Output &output, Stoppable &engine,
                                                           std::optional<std::uint64_t> id) {
        if (!controller.enter(id, engine)) {
            return std::nullopt;
        }
        return RequestScope(controller, output);
    }

    RequestScope(RequestScope &&other) noexcept
        : controller_(std::exchange(other.controller_, nullptr)), output_(other.output_) {}
    RequestScope &operator=(RequestScope &&) = delete;
    RequestScope(const RequestScope &) = delete;
    RequestScope &operator=(const RequestScope &) = delete;
    ~RequestScope() { detach(); }

    /// The engine was reset: from now on a cancel calls its stop(), one that is latched at once.
    void allow_stop() { controller_->allow_stop(); }

    /// Prefill is over. Also allows stop, for engines that cannot be stopped before.
    void begin_decode() { controller_->begin_decode(); }

    /// Whether a cancel is latched. An answer of false may be old when it arrives; seal() decides.
    [[nodiscard]] bool cancelled() const { return controller_->cancelled(); }

    /// Write a piece of the answer; nothing if it is empty. False: nobody reads any more.
    [[nodiscard]] bool emit(std::string_view text);

    /// Freeze the outcome and return it: whether the cancel came first. To be called before
    /// anything that may block once the end is known, and always before the terminal is formatted.
    /// Further calls return the same.
    [[nodiscard]] bool seal() { return controller_->seal(); }

    /// No longer active: further cancels for this id are stale. May be called again; nothing else
    /// may be called after it.
    void detach() {
        if (controller_ != nullptr) {
            std::exchange(controller_, nullptr)->detach();
        }
    }

  private:
    RequestScope(CancelController &controller, Output &output)
        : controller_(&controller), output_(&output) {}

    CancelController *controller_;
    Output *output_;
};

} // namespace sllm
