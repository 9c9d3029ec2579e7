#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "log.hpp"
#include "model.hpp"
#include "options.hpp"
#include "sllm/engine.hpp"

namespace sllm::llama {

/// llama.cpp as an engine of the worker runtime: one GGUF model.
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
    std::variant<std::vector<Token>, Failed> tokenize(std::string_view prompt) override;
    std::variant<std::unique_ptr<Session>, Failed> make_session() override;

  private:
    const Options &options_;
    Log &log_;
    Progress *progress_ = nullptr;
    std::optional<Model> model_;
    std::uint32_t context_ = 0;
    ModelInfo info_;
};

} // namespace sllm::llama
