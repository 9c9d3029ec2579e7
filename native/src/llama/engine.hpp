#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "log.hpp"
#include "model.hpp"
#include "options.hpp"
#include "sllm/engine.hpp"
#include "threads.hpp"

namespace sllm::llama {

/// llama.cpp as an engine of the worker runtime: one GGUF model.
///
/// Each session is a context of its own, over the same weights. One context with a sequence for
/// each session would take the same memory for what the tokens leave behind, which is nearly all of
/// it, and would take it at the start, for sessions that may never be used; if the sequences shared
/// their cells to avoid that, the order of a session's sums would depend on its neighbours, and
/// with it the last bit of its answer.
///
/// The options and the log outlive the engine. Only main() makes one, because llama.cpp's backends
/// and its log belong to the process.
class LlamaEngine final : public Engine {
  public:
    LlamaEngine(const Options &options, Log &log);

    LoadResult load(Progress &progress) override;
    [[nodiscard]] const ModelInfo &model() const override { return info_; }
    [[nodiscard]] std::size_t batch_tokens() const override;
    [[nodiscard]] bool can_stop_prefill() const override { return true; }
    std::variant<std::vector<Token>, Failed> tokenize(const Prompt &prompt) override;
    [[nodiscard]] std::size_t max_sessions() const override { return options_.sessions + 1U; }
    std::variant<std::unique_ptr<Session>, Failed> make_session() override;

  private:
    const Options &options_;
    Log &log_;
    Progress *progress_ = nullptr;
    std::optional<Model> model_;
    std::uint32_t context_ = 0;
    ModelInfo info_;
    ThreadPool threads_; ///< of all sessions: one of them computes at a time
};

} // namespace sllm::llama
