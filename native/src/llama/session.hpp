#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <variant>

#include "ggml-cpu.h"
#include "llama-cpp.h"

#include "log.hpp"
#include "model.hpp"
#include "options.hpp"
#include "sllm/engine.hpp"

namespace sllm::llama {

/// One llama.cpp context; holds one sequence.
///
/// A stop is seen in two places. llama.cpp asks the abort callback after each graph node (hundreds
/// of times in a step), so on the CPU a stop waits for one node at most, in prefill too; and each
/// call asks before it begins, which is all there is on a GPU. Killing the process would be as
/// quick, but would load the model again for each cancelled request.
///
/// After an aborted computation the logits are those of an earlier one, readable but wrong:
/// decode_one samples only right after a computation that succeeded.
class LlamaSession final : public Session {
  public:
    /// Make a context of `context` tokens and run one token through it, so that the first request
    /// does not pay for touching everything the first time. The model, the threads, the log and the
    /// progress outlive the session.
    static std::variant<std::unique_ptr<Session>, Failed>
    make(const Model &model, const Options &options, std::uint32_t context,
         ggml_threadpool &threads, Log &log, Progress &progress);

    void stop() noexcept override { stop_.store(true, std::memory_order_relaxed); }
    ResetResult reset() override;
    PrefillResult prefill(std::span<const Token> tokens) override;
    DecodeResult decode_one(const Sampling &sampling) override;

  private:
    LlamaSession(const Model &model, Log &log, Progress &progress);

    std::optional<Failed> open(const Options &options, std::uint32_t context,
                               ggml_threadpool &threads);
    PrefillResult compute(std::span<const Token> tokens);
    static bool should_abort(void *self);

    const Model &model_;
    Log &log_;
    Progress &progress_;
    std::atomic<bool> stop_{false};
    llama_context_ptr context_;
    llama_sampler_ptr sampler_;    // made by the first decode_one of a request
    std::optional<Token> pending_; // chosen, but not yet computed with
};

} // namespace sllm::llama
