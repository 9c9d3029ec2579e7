#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>

#include "sllm/engine.hpp"
#include "sllm/seams.hpp"

namespace sllm {

/// Decides, for the one request in hand, whether a cancellation or the natural end came first.
///
///     idle --enter--> preparing --begin_decode--> decoding --seal--> sealed --detach--> idle
///                         |                          |
///                         +------- a cancel is latched, the engine is stopped once
///
/// Cancel frames come from the control thread in any order and number; all else comes from the
/// request thread, through a RequestScope. One mutex guards everything, and the engine's stop() is
/// called under it: a stop can therefore neither precede the reset of its request nor follow its
/// seal.
///
/// Ids grow. Frames up to the watermark (the highest id that was served or refused) are stale; the
/// id in hand is cancelled; a larger one is parked until its request comes, whatever is in hand
/// now. So an early frame is never lost, a late one never hits the wrong request, and repeated ones
/// change nothing. (Upstream workers park one id, and none while a request is in hand: frames can
/// be lost there.)
class CancelController {
  public:
    /// Most ids parked at a time. A client has one request in flight, so this is never full unless
    /// frames are garbage; then the largest ids, those least likely to come, are forgotten.
    static constexpr std::size_t most_parked = 64;

    /// Where the request in hand is; see the drawing.
    enum class State : std::uint8_t { idle, preparing, decoding, sealed };

    /// `seams` must outlive the controller.
    explicit CancelController(Seams &seams) : seams_(seams) {}
    CancelController(const CancelController &) = delete;
    CancelController &operator=(const CancelController &) = delete;

    /// A cancel frame arrived. Thread-safe; id 0 means nothing and is ignored.
    void deliver(std::uint64_t id);

    /// A request with this id was refused: its frames, past and future, are stale. Without this a
    /// parked frame of a refused request would stay for ever.
    void refuse(std::uint64_t id);

    /// Whether a request with this id could not be entered: it, or one with a larger id, was served
    /// or refused before. Only the request thread changes that.
    [[nodiscard]] bool stale(std::uint64_t id) const;

    [[nodiscard]] State state() const;
    [[nodiscard]] std::size_t parked() const;

  private:
    friend class RequestScope;

    bool enter(std::optional<std::uint64_t> id, Stoppable &engine);
    void allow_stop();
    void begin_decode();
    bool cancelled() const;
    bool seal();
    void detach();

    void latch();
    void stop_once();
    void raise_watermark(std::uint64_t id);

    Seams &seams_;
    mutable std::mutex mutex_;
    State state_ = State::idle;
    std::uint64_t active_ = 0; ///< 0: none, or a request that cannot be cancelled
    Stoppable *engine_ = nullptr;
    bool cancelled_ = false;
    bool may_stop_ = false;
    bool stop_called_ = false;
    std::uint64_t watermark_ = 0;
    std::set<std::uint64_t> parked_;
};

} // namespace sllm
