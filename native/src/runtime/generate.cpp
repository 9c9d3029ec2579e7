#include "sllm/generate.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <utility>

#include "sllm/prefill_plan.hpp"
#include "sllm/reply.hpp"
#include "sllm/scope.hpp"
#include "sllm/text_stream.hpp"

namespace sllm {
namespace {

/// Length of an answer if the model does not say how long its context is.
constexpr std::size_t tokens_without_context = 2048;

class Stopwatch {
  public:
    [[nodiscard]] double milliseconds() const {
        const auto passed = std::chrono::steady_clock::now() - start_;
        return std::chrono::duration<double, std::milli>(passed).count();
    }

  private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Longer answers do not list their tokens, so that a terminal stays well below the limit of lines
/// that clients have (1 MiB is usual).
constexpr std::size_t most_listed_tokens = 65'536;

constexpr const char *stale_id = "cannot use this cancel_request_id: it is stale or a duplicate; "
                                 "give one larger than all before";

/// How a stage of the loop ended.
enum class End : std::uint8_t { finished, stopped, failed, unread };

std::uint64_t draw_seed() {
    std::random_device device;
    return (std::uint64_t{device()} << 32U | device()) | 1U;
}

class Generation {
  public:
    Generation(const GenerateRequest &request, Workbench &bench, const std::vector<Token> &tokens,
               ResidentSession &resident, RequestScope &scope)
        : request_(request), bench_(bench), tokens_(tokens), resident_(resident), scope_(scope),
          text_(request.stop) {
        const std::size_t context = bench.engine.model().context_length;
        limit_ = context > 0 ? context - tokens.size() : tokens_without_context;
        if (request.max_new_tokens > 0 && std::cmp_less(request.max_new_tokens, limit_)) {
            limit_ = static_cast<std::size_t>(request.max_new_tokens);
        }
    }

    /// Everything up to the terminal, which is returned; empty if nobody reads.
    std::string run() {
        End end = prefill();
        if (end == End::finished) {
            end = decode();
        }
        outcome_.cancelled = scope_.seal();
        if (end == End::finished && !outcome_.cancelled) {
            end = show_rest();
        }
        outcome_.total_ms = total_.milliseconds();
        if (end == End::unread) {
            return {};
        }
        if (outcome_.cancelled) {
            outcome_.finish_reason = "stop";
            return done_line(outcome_);
        }
        if (end == End::stopped) {
            failure_ = "cannot finish: the engine stopped without being asked to";
        }
        if (end != End::finished) {
            return error_line({failure_});
        }
        if (!trimmed_) {
            resident_.keep(tokens_, generated_);
            if (generated_.size() <= most_listed_tokens) {
                outcome_.generated = std::move(generated_);
            }
        }
        return done_line(outcome_);
    }

  private:
    End prefill() {
        const ResidentSession::Start start = resident_.look(tokens_);
        outcome_.prompt_tokens = tokens_.size();
        outcome_.reused_tokens = start.reused;
        outcome_.reset_reason = start.reason;
        ResetResult ready = resident_.begin(start);
        if (auto *failed = std::get_if<Failed>(&ready)) {
            return fail(std::move(*failed));
        }
        if (bench_.engine.can_stop_prefill()) {
            scope_.allow_stop();
        }
        PrefillPlan plan(tokens_, start.reused, bench_.engine.batch_tokens());
        bench_.progress.enter(Phase::prefill, plan.total());
        const Stopwatch watch;
        const End end = run_batches(plan);
        outcome_.prefill_ms = watch.milliseconds();
        return end;
    }

    End run_batches(PrefillPlan &plan) {
        for (;;) {
            outcome_.prefilled_tokens = plan.done();
            bench_.progress.advance_to(plan.done());
            const std::span<const Token> batch = plan.next();
            if (batch.empty()) {
                return End::finished;
            }
            if (scope_.cancelled()) {
                return End::stopped;
            }
            PrefillResult result = resident_.session().prefill(batch);
            if (auto *failed = std::get_if<Failed>(&result)) {
                return fail(std::move(*failed));
            }
            if (std::holds_alternative<Stopped>(result)) {
                return End::stopped;
            }
        }
    }

    End decode() {
        scope_.begin_decode();
        bench_.progress.enter(Phase::decode, limit_);
        Sampling sampling = request_.sampling;
        if (sampling.seed == 0 && sampling.temperature > 0) {
            sampling.seed = draw_seed();
        }
        const Stopwatch watch;
        End end = End::finished;
        bool more = true;
        while (more && end == End::finished) {
            end = scope_.cancelled() ? End::stopped : step(sampling, more);
        }
        outcome_.decode_ms = watch.milliseconds();
        return end;
    }

    /// One step; clears `more` at the natural end of the answer.
    End step(const Sampling &sampling, bool &more) {
        DecodeResult result = resident_.session().decode_one(sampling);
        if (auto *failed = std::get_if<Failed>(&result)) {
            return fail(std::move(*failed));
        }
        if (std::holds_alternative<Stopped>(result)) {
            return End::stopped;
        }
        const auto *decoded = std::get_if<Decoded>(&result);
        if (decoded == nullptr) {
            more = false;
            if (std::holds_alternative<NoRoom>(result)) {
                outcome_.finish_reason = "length";
            }
            return End::finished;
        }
        const StopWords::Result shown = text_.push(decoded->text);
        if (shown.stopped) {
            more = false;
            trimmed_ = true;
        } else {
            generated_.push_back(decoded->token);
            outcome_.completion_tokens = generated_.size();
            bench_.progress.advance_to(generated_.size());
            if (generated_.size() >= limit_) {
                more = false;
                outcome_.finish_reason = "length";
            }
        }
        // The end is known, and writing may take as long as the reader likes: decide before that.
        if (!more && scope_.seal()) {
            return End::stopped;
        }
        return scope_.emit(shown.text) ? End::finished : End::unread;
    }

    /// The answer ended by itself: what was held back is shown as well.
    End show_rest() {
        if (trimmed_) {
            return End::finished;
        }
        const StopWords::Result rest = text_.finish();
        if (rest.stopped) {
            trimmed_ = true;
            outcome_.finish_reason = "stop";
        }
        return scope_.emit(rest.text) ? End::finished : End::unread;
    }

    End fail(Failed failed) {
        failure_ = std::move(failed.message);
        return End::failed;
    }

    const GenerateRequest &request_;
    Workbench &bench_;
    const std::vector<Token> &tokens_;
    ResidentSession &resident_;
    RequestScope &scope_;
    TextStream text_;
    std::size_t limit_;
    Stopwatch total_;
    Outcome outcome_;
    std::vector<Token> generated_;
    bool trimmed_ = false;
    std::string failure_;
};

/// Why this prompt cannot be served; nothing if it can.
std::optional<Refusal> complaint(const std::vector<Token> &tokens, const Engine &engine) {
    const std::uint64_t context = engine.model().context_length;
    if (tokens.empty()) {
        return Refusal{"cannot generate from an empty prompt; give some text"};
    }
    if (context > 0 && tokens.size() >= context) {
        return Refusal{"cannot fit a prompt of " + std::to_string(tokens.size()) +
                           " tokens into a context of " + std::to_string(context) + "; shorten it",
                       "context_length_exceeded"};
    }
    return std::nullopt;
}

bool refuse(const GenerateRequest &request, Workbench &bench, const Refusal &refusal) {
    if (request.cancel_id) {
        bench.controller.refuse(*request.cancel_id);
    }
    return bench.output.write_line(error_line(refusal));
}

} // namespace

bool generate(const GenerateRequest &request, Workbench &bench) {
    if (request.cancel_id && bench.controller.stale(*request.cancel_id)) {
        return bench.output.write_line(error_line({stale_id}));
    }
    auto tokenized = bench.engine.tokenize(request.prompt);
    if (auto *failed = std::get_if<Failed>(&tokenized)) {
        return refuse(request, bench, {std::move(failed->message)});
    }
    const auto &tokens = std::get<std::vector<Token>>(tokenized);
    if (const std::optional<Refusal> refusal = complaint(tokens, bench.engine)) {
        return refuse(request, bench, *refusal);
    }
    // A session that is made now may take as long as a prompt; who watches shall see it move.
    bench.progress.enter(Phase::prefill, tokens.size());
    auto found = bench.sessions.find(request.session_id);
    if (const auto *refusal = std::get_if<Refusal>(&found)) {
        bench.progress.rest();
        return refuse(request, bench, *refusal);
    }
    ResidentSession &resident = *std::get<ResidentSession *>(found);
    auto scope =
        RequestScope::enter(bench.controller, bench.output, resident.session(), request.cancel_id);
    if (!scope) {
        return bench.output.write_line(error_line({stale_id}));
    }
    const std::string terminal = Generation(request, bench, tokens, resident, *scope).run();
    bench.seams.before_detach(scope->seal());
    scope->detach();
    bench.progress.rest();
    if (terminal.empty() || !bench.output.write_line(terminal)) {
        return false;
    }
    bench.seams.after_flush();
    return true;
}

} // namespace sllm
