#pragma once

#include "scene.hpp"
#include "sllm/engine.hpp"

namespace sllm::sim {

/// An engine without a model: answers are made up, in the time and with the faults of the script.
class SimEngine final : public Engine {
  public:
    explicit SimEngine(Scene &scene);

    [[nodiscard]] LoadResult load(Progress &progress) override;
    [[nodiscard]] const ModelInfo &model() const override { return model_; }
    [[nodiscard]] std::size_t batch_tokens() const override;
    [[nodiscard]] bool can_stop_prefill() const override;

    /// Also makes the script of the prompt the one in hand.
    [[nodiscard]] std::variant<std::vector<Token>, Failed>
    tokenize(const sllm::Prompt &prompt) override;

    [[nodiscard]] std::size_t max_sessions() const override;

    [[nodiscard]] std::variant<std::unique_ptr<Session>, Failed> make_session() override;

  private:
    Scene &scene_;
    ModelInfo model_;
    Progress *progress_ = nullptr;
};

} // namespace sllm::sim
