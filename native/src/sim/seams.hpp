#pragma once

#include "scene.hpp"
#include "sllm/seams.hpp"

namespace sllm::sim {

/// The faults of the script that are not the engine's.
class SimSeams final : public Seams {
  public:
    explicit SimSeams(Scene &scene) : scene_(scene) {}

    [[nodiscard]] Withheld withheld() const override;
    void started(Output &output) override;
    [[nodiscard]] std::optional<std::string> announce(std::string line) override;
    void before_read() override;
    void before_detach(bool cancelled) override;
    void after_flush() override;
    void before_end() override;
    [[nodiscard]] bool hears_cancel(std::uint64_t id) noexcept override;

  private:
    void pause(Pause::At at) const;

    Scene &scene_;
};

} // namespace sllm::sim
