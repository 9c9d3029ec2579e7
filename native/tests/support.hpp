#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "sllm/cancel.hpp"
#include "sllm/engine.hpp"
#include "sllm/output.hpp"

namespace sllm::test {

using Json = nlohmann::json;

/// An Output whose lines can be read.
class Captured {
  public:
    Captured();

    [[nodiscard]] Output &output() { return output_; }
    [[nodiscard]] std::string bytes() const;
    [[nodiscard]] std::vector<Json> lines() const;

    /// The texts of all token lines, joined.
    [[nodiscard]] std::string text() const;

    /// The last line.
    [[nodiscard]] Json terminal() const { return lines().back(); }

  private:
    int file_; ///< owned by output_
    Output output_;
};

/// A descriptor pair.
struct Pipe {
    Pipe();
    UniqueFd read;
    UniqueFd write;
    void send(std::string_view bytes) const;
    void send_frame(std::uint64_t id) const;
};

std::string frame(std::uint64_t id);

/// Counts stops.
class StopCounter final : public Stoppable {
  public:
    void stop() noexcept override { ++stops; }
    int stops = 0;
};

/// An engine that does what a test says. One word of a prompt is one token; the answer is `answer`,
/// one string a token, and then it ends. The hooks are called before each step does its work.
class FakeEngine final : public Engine, public Session {
  public:
    std::vector<std::string> answer{"a", "b", "c"};
    std::function<void()> on_reset = [] {};
    std::function<void(std::size_t batch)> on_prefill = [](std::size_t) {};
    std::function<void(std::size_t step)> on_decode = [](std::size_t) {};
    std::string fail_reset;
    std::string fail_prefill;
    std::string fail_decode; ///< at the step behind the answer
    bool no_room = false;    ///< the answer ends for want of room
    bool stops_prefill = true;
    bool obeys = true; ///< looks at stop() at all
    std::size_t batch = 4;
    ModelInfo info{.id = "fake", .context_length = 64};

    int stops = 0; ///< since the last reset
    std::vector<std::size_t> batches;
    std::vector<Sampling> samplings;
    int resets = 0;

    LoadResult load(Progress & /*progress*/) override { return Ok{}; }
    const ModelInfo &model() const override { return info; }
    std::size_t batch_tokens() const override { return batch; }
    bool can_stop_prefill() const override { return stops_prefill; }
    std::variant<std::vector<Token>, Failed> tokenize(std::string_view prompt) override;
    std::variant<std::unique_ptr<Session>, Failed> make_session() override;

    void stop() noexcept override { ++stops; }
    ResetResult reset() override;
    PrefillResult prefill(std::span<const Token> tokens) override;
    DecodeResult decode_one(const Sampling &sampling) override;

  private:
    std::size_t step_ = 0;
};

} // namespace sllm::test
