#include "session.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "sampler.hpp"

namespace sllm::llama {

LlamaSession::LlamaSession(const Model &model, Log &log, Progress &progress)
    : model_(model), log_(log), progress_(progress) {}

std::variant<std::unique_ptr<Session>, Failed>
LlamaSession::make(const Model &model, const Options &options, std::uint32_t context,
                   ggml_threadpool &threads, Log &log, Progress &progress) {
    std::unique_ptr<LlamaSession> session(new LlamaSession(model, log, progress));
    if (std::optional<Failed> failed = session->open(options, context, threads)) {
        return *std::move(failed);
    }
    return session;
}

std::optional<Failed> LlamaSession::open(const Options &options, std::uint32_t context,
                                         ggml_threadpool &threads) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = context;
    params.n_batch = std::min(options.batch, context);
    params.n_ubatch = std::min(options.ubatch, context);
    params.n_outputs_max = 1; // the last token's logits are all that is ever asked for
    params.n_threads = options.threads;
    params.n_threads_batch = options.threads;
    params.abort_callback = &LlamaSession::should_abort;
    params.abort_callback_data = this;
    params.no_perf = true;
    context_.reset(llama_init_from_model(model_.get(), params));
    if (!context_ || llama_get_memory(context_.get()) == nullptr) {
        return Failed{"cannot make a context of " + std::to_string(context) +
                      " tokens: " + log_.last_error() + "; give --ctx a smaller number"};
    }
    llama_attach_threadpool(context_.get(), &threads, &threads);

    const llama_token begin = llama_vocab_bos(model_.vocab());
    const std::array<Token, 1> any{begin == LLAMA_TOKEN_NULL ? 0 : begin};
    PrefillResult warmed = compute(any);
    llama_synchronize(context_.get());
    llama_memory_clear(llama_get_memory(context_.get()), false);
    if (auto *failed = std::get_if<Failed>(&warmed)) {
        return std::move(*failed);
    }
    return std::nullopt;
}

ResetResult LlamaSession::reset() {
    stop_.store(false, std::memory_order_relaxed);
    sampler_.reset();
    pending_.reset();
    // The positions are forgotten; zeroing the cells behind them takes a hundred times longer and
    // changes nothing, because what has no position is not attended to.
    llama_memory_clear(llama_get_memory(context_.get()), false);
    return Ok{};
}

PrefillResult LlamaSession::prefill(std::span<const Token> tokens) {
    sampler_.reset();
    if (pending_) {
        // The last token of the answer before this: nobody has needed what follows it until now.
        const std::array<Token, 1> last{*pending_};
        pending_.reset();
        PrefillResult computed = compute(last);
        if (!std::holds_alternative<Ok>(computed)) {
            return computed;
        }
    }
    return compute(tokens);
}

DecodeResult LlamaSession::decode_one(const Sampling &sampling) {
    if (pending_) {
        const std::array<Token, 1> next{*pending_};
        pending_.reset();
        PrefillResult computed = compute(next);
        if (auto *failed = std::get_if<Failed>(&computed)) {
            return std::move(*failed);
        }
        if (std::holds_alternative<Stopped>(computed)) {
            return Stopped{};
        }
    } else if (stop_.load(std::memory_order_relaxed)) {
        return Stopped{};
    }
    if (!sampler_) {
        sampler_ = make_sampler(sampling);
    }
    const Token token = llama_sampler_sample(sampler_.get(), context_.get(), -1);
    if (model_.ends_answer(token)) {
        return EndOfText{};
    }
    pending_ = token;
    return Decoded{token, model_.piece(token)};
}

PrefillResult LlamaSession::compute(std::span<const Token> tokens) {
    if (stop_.load(std::memory_order_relaxed)) {
        return Stopped{};
    }
    // llama.cpp only reads the tokens; its batch is not const because others fill theirs in place.
    const llama_batch batch = llama_batch_get_one(const_cast<llama_token *>(tokens.data()),
                                                  static_cast<std::int32_t>(tokens.size()));
    log_.hold();
    const int status = llama_decode(context_.get(), batch);
    if (status == 2) {
        log_.drop();
    } else {
        log_.release();
    }
    switch (status) {
    case 0:
        return Ok{};
    case 1:
        return Failed{"cannot go on: the context is full; send a shorter prompt or raise --ctx"};
    case 2:
        return Stopped{};
    default:
        return Failed{"cannot compute the next tokens: llama_decode returned " +
                      std::to_string(status) + " (" + log_.last_error() + ")"};
    }
}

bool LlamaSession::should_abort(void *self) {
    auto *session = static_cast<LlamaSession *>(self);
    session->progress_.beat();
    return session->stop_.load(std::memory_order_relaxed);
}

} // namespace sllm::llama
