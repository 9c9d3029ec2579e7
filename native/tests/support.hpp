#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "sllm/cancel.hpp"
#include "sllm/engine.hpp"
#include "sllm/output.hpp"
#include "sllm/sessions.hpp"

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

    /// Forget all that was written.
    void clear();

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

class FakeEngine;

/// A session of the engine below. It keeps its own list of the tokens that it holds.
class FakeSession final : public Session {
  public:
    explicit FakeSession(FakeEngine &engine);
    ~FakeSession() override;

    std::vector<Token> held;

    void stop() noexcept override;
    ResetResult reset() override;
    PrefillResult prefill(std::span<const Token> tokens) override;
    DecodeResult decode_one(const Sampling &sampling) override;

  private:
    FakeEngine &engine_;
    std::atomic<bool> stopped_{false};
    std::size_t step_ = 0;
};

/// An engine that does what a test says. One word of a prompt is one token; the answer is `answer`,
/// one string a token, and then it ends. The hooks are called before each step does its work.
class FakeEngine final : public Engine {
  public:
    std::vector<std::string> answer{"a", "b", "c"};
    bool recalls = false; ///< each token of the answer, and its text, depends on all tokens held
    std::function<void()> on_session = [] {};
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

    std::size_t most_sessions = 3;
    std::string fail_session; ///< no further session can be made

    int stops = 0;                    ///< since the last reset
    std::vector<std::size_t> batches; ///< since then
    std::vector<Sampling> samplings;
    int resets = 0;
    std::vector<FakeSession *> sessions; ///< that exist, in the order in which they were made

    LoadResult load(Progress & /*progress*/) override { return Ok{}; }
    const ModelInfo &model() const override { return info; }
    std::size_t batch_tokens() const override { return batch; }
    bool can_stop_prefill() const override { return stops_prefill; }
    std::variant<std::vector<Token>, Failed> tokenize(const Prompt &prompt) override;
    std::size_t max_sessions() const override { return most_sessions; }
    std::variant<std::unique_ptr<Session>, Failed> make_session() override;
};

/// The sessions of an engine, for tests where making the first one cannot fail.
Sessions sessions_of(Engine &engine);

/// A prompt of one text.
inline Prompt whole(std::string text) { return {{std::move(text)}, true}; }

} // namespace sllm::test
