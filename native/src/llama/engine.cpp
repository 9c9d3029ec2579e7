#include "engine.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "session.hpp"

namespace sllm::llama {

LlamaEngine::LlamaEngine(const Options &options, Log &log) : options_(options), log_(log) {}

LoadResult LlamaEngine::load(Progress &progress) {
    progress_ = &progress;
    auto loaded = Model::load(options_, log_, [&progress](float done) {
        progress.advance_to(static_cast<std::uint64_t>(std::clamp(done, 0.0F, 1.0F) * 1000.0F));
    });
    if (auto *failed = std::get_if<Failed>(&loaded)) {
        return std::move(*failed);
    }
    model_ = std::get<Model>(std::move(loaded));
    context_ = options_.context;
    if (context_ == 0) {
        context_ = std::clamp(model_->trained_context(), 1U, default_context_cap);
    }
    info_ = model_->info(context_);
    threads_ = make_thread_pool(options_.threads);
    if (!threads_) {
        return Failed{"cannot start " + std::to_string(options_.threads) +
                      " threads; give --threads a smaller number"};
    }
    return Ok{};
}

std::size_t LlamaEngine::batch_tokens() const {
    // On a GPU nothing interrupts a call, so there a call is one computing step.
    const std::uint32_t call = options_.gpu_layers > 0 ? options_.ubatch : options_.batch;
    return std::min(call, context_);
}

std::variant<std::vector<Token>, Failed> LlamaEngine::tokenize(const Prompt &prompt) {
    return model_->tokenize(prompt);
}

std::variant<std::unique_ptr<Session>, Failed> LlamaEngine::make_session() {
    return LlamaSession::make(*model_, options_, context_, *threads_, log_, *progress_);
}

} // namespace sllm::llama
