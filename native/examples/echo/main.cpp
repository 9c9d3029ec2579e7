// The smallest worker that is one: it answers each prompt with the prompt, byte by byte.

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "sllm/worker.hpp"

namespace {

/// What one token takes.
constexpr auto pace = std::chrono::milliseconds(5);

/// What a model holds of one conversation: here, what is left to say.
class EchoSession final : public sllm::Session {
  public:
    explicit EchoSession(sllm::Progress &progress) : progress_(progress) {}

    // Called by another thread, under a lock: store a flag, and nothing else.
    void stop() noexcept override { stopped_ = true; }

    [[nodiscard]] sllm::ResetResult reset() override {
        stopped_ = false;
        prompt_.clear();
        said_ = 0;
        return sllm::Ok{};
    }

    [[nodiscard]] sllm::PrefillResult prefill(std::span<const sllm::Token> tokens) override {
        if (stopped_) {
            return sllm::Stopped{};
        }
        if (said_ > 0) { // the next turn of a named session: only this turn is echoed
            prompt_.clear();
            said_ = 0;
        }
        prompt_.insert(prompt_.end(), tokens.begin(), tokens.end());
        return sllm::Ok{};
    }

    [[nodiscard]] sllm::DecodeResult decode_one(const sllm::Sampling & /*sampling*/) override {
        if (said_ == prompt_.size()) {
            return sllm::EndOfText{};
        }
        std::this_thread::sleep_for(pace); // a model computes here, and looks at the flag meanwhile
        progress_.beat();
        if (stopped_) {
            return sllm::Stopped{};
        }
        const sllm::Token token = prompt_[said_++];
        return sllm::Decoded{token, std::string(1, static_cast<char>(token))};
    }

  private:
    sllm::Progress &progress_;
    std::atomic<bool> stopped_{false};
    std::vector<sllm::Token> prompt_;
    std::size_t said_ = 0;
};

/// A model whose tokens are bytes.
class EchoEngine final : public sllm::Engine {
  public:
    [[nodiscard]] sllm::LoadResult load(sllm::Progress &progress) override {
        progress_ = &progress;
        model_.id = "echo";
        model_.context_length = 4096;
        model_.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}";
        return sllm::Ok{};
    }

    [[nodiscard]] const sllm::ModelInfo &model() const override { return model_; }
    [[nodiscard]] std::size_t batch_tokens() const override { return 512; }
    [[nodiscard]] bool can_stop_prefill() const override { return true; }
    [[nodiscard]] std::size_t max_sessions() const override { return 4; }

    [[nodiscard]] std::variant<std::vector<sllm::Token>, sllm::Failed>
    tokenize(const sllm::Prompt &prompt) override {
        std::vector<sllm::Token> tokens;
        for (const sllm::Segment &segment : prompt.segments) {
            if (const auto *text = std::get_if<std::string>(&segment)) {
                for (const char byte : *text) {
                    tokens.push_back(static_cast<unsigned char>(byte));
                }
                continue;
            }
            for (const sllm::Token token : std::get<std::vector<sllm::Token>>(segment)) {
                if (token < 0 || token > 255) {
                    return sllm::Failed{"cannot use the token " + std::to_string(token) +
                                        "; give bytes, 0 to 255"};
                }
                tokens.push_back(token);
            }
        }
        return tokens;
    }

    [[nodiscard]] std::variant<std::unique_ptr<sllm::Session>, sllm::Failed>
    make_session() override {
        return std::make_unique<EchoSession>(*progress_);
    }

  private:
    sllm::ModelInfo model_;
    sllm::Progress *progress_ = nullptr;
};

} // namespace

int main() {
    EchoEngine engine;
    const sllm::WorkerEnd end = sllm::run_worker(engine);
    if (!end.message.empty()) {
        std::fprintf(stderr, "echo-worker: %s\n", end.message.c_str());
    }
    return end.status;
}
