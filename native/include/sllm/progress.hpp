#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace sllm {

/// What a worker is doing, as far as its heartbeat tells.
enum class Phase : std::uint8_t { idle, load, prefill, decode };

/// The word for a phase in a heartbeat: "load", "prefill", "decode"; "idle" is never sent.
constexpr std::string_view name_of(Phase phase) {
    switch (phase) {
    case Phase::load:
        return "load";
    case Phase::prefill:
        return "prefill";
    case Phase::decode:
        return "decode";
    case Phase::idle:
        break;
    }
    return "idle";
}

/// How far the work in hand is, written by the thread that works and read by the heartbeat.
///
/// Every member may be called from any thread at any time. The values are independent counters, not
/// a consistent picture: a reader may see `done` of one moment and `beats` of the next. That is
/// enough to tell slow from stuck, and it costs the inner loops of an engine one relaxed add.
class Progress {
  public:
    /// The engine did something: a graph node, a step, a tensor read. Never wraps in practice.
    void beat() noexcept { beats_.fetch_add(1, std::memory_order_relaxed); }

    /// Begin a phase of `total` units (load: the engine's own; prefill and decode: tokens).
    void enter(Phase phase, std::uint64_t total) noexcept {
        done_.store(0, std::memory_order_relaxed);
        total_.store(total, std::memory_order_relaxed);
        phase_.store(phase, std::memory_order_relaxed);
    }

    /// `done` units of the phase are finished; also counts as a beat.
    void advance_to(std::uint64_t done) noexcept {
        done_.store(done, std::memory_order_relaxed);
        beat();
    }

    /// Nothing is in hand: the heartbeat falls silent.
    void rest() noexcept { phase_.store(Phase::idle, std::memory_order_relaxed); }

    [[nodiscard]] Phase phase() const noexcept { return phase_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t done() const noexcept {
        return done_.load(std::memory_order_relaxed);
    }
    [[nodiscard]] std::uint64_t total() const noexcept {
        return total_.load(std::memory_order_relaxed);
    }
    [[nodiscard]] std::uint64_t beats() const noexcept {
        return beats_.load(std::memory_order_relaxed);
    }

  private:
    std::atomic<Phase> phase_{Phase::idle};
    std::atomic<std::uint64_t> done_{0};
    std::atomic<std::uint64_t> total_{0};
    std::atomic<std::uint64_t> beats_{0};
};

} // namespace sllm
