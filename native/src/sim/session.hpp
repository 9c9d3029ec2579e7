#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "scene.hpp"
#include "sllm/engine.hpp"

namespace sllm::sim {

/// A request to stop that a sleeping thread hears at once.
class StopFlag {
  public:
    void set() noexcept;
    void clear();
    [[nodiscard]] bool is_set();

    /// Sleep until `deadline`, beating; true at once when the flag is or becomes set.
    [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point deadline,
                                  Progress &progress);

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool set_ = false;
};

/// Plays the script of the request in hand.
class SimSession final : public Session {
  public:
    SimSession(Scene &scene, Progress &progress) : scene_(scene), progress_(progress) {}

    void stop() noexcept override { stop_.set(); }
    [[nodiscard]] ResetResult reset() override;
    [[nodiscard]] PrefillResult prefill(std::span<const Token> tokens) override;
    [[nodiscard]] DecodeResult decode_one(const Sampling &sampling) override;

  private:
    void start_request();
    [[nodiscard]] std::optional<Failed> misbehave();
    [[nodiscard]] std::optional<std::string> piece() const;

    Scene &scene_;
    Progress &progress_;
    StopFlag stop_;
    bool answering_ = true; ///< the next prefill begins another request
    std::size_t prefilled_ = 0;
    std::int64_t step_ = 0;
    std::chrono::steady_clock::time_point start_; ///< of the prefill, then of decoding
};

} // namespace sllm::sim
