#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sllm/progress.hpp"

/// What the runtime asks of an inference engine.
///
/// The runtime owns the protocol, the cancellation and the text; an engine turns text into tokens
/// and tokens into the next token. Nothing here throws, unless the system is out of memory: every
/// call says in its result whether it worked, was stopped, or failed and why. A failure is reported
/// to the one request that met it; the worker goes on serving.
///
/// Threads: one thread, the request thread, makes all calls, one at a time, except Session::stop.
/// Lifetimes: the Progress given to load outlives the engine's last call; an engine outlives its
/// sessions.
namespace sllm {

using Token = std::int32_t;

struct Ok {};

/// The call ended early because stop() was called. What it left in the session is undefined until
/// the next reset.
struct Stopped {};

/// The call could not do its work. `message` is one line for the person who sent the request (or,
/// from load, for the operator); it begins with "cannot" and ends with a remedy where there is one.
struct Failed {
    std::string message;
};

/// One step of decoding produced a token.
struct Decoded {
    Token token;
    std::string text; ///< its bytes; may be empty, or a part of a UTF-8 sequence
};

/// The model ended its answer. The token that said so is not shown and not counted.
struct EndOfText {};

/// There is no room for another token. The runtime keeps to ModelInfo::context_length by itself;
/// this is for an engine that meets another limit. The answer ends there, with "length".
struct NoRoom {};

using LoadResult = std::variant<Ok, Failed>;
using ResetResult = std::variant<Ok, Failed>;
using PrefillResult = std::variant<Ok, Stopped, Failed>;
using DecodeResult = std::variant<Decoded, EndOfText, NoRoom, Stopped, Failed>;

/// How the next token is chosen. Validated by the runtime before an engine sees it.
struct Sampling {
    double temperature = 0.0; ///< 0 is greedy: the other members do not matter then
    double top_p = 1.0;       ///< in (0, 1]; 1 keeps all
    std::int32_t top_k = 0;   ///< 0 keeps all
    std::uint64_t seed = 0;   ///< never 0 when temperature is above 0: the runtime drew one then

    friend bool operator==(const Sampling &, const Sampling &) = default;
};

/// What the ready line says about the model. An empty string, or 0, is a thing not known: it is
/// left out.
struct ModelInfo {
    std::string id{};
    std::uint64_t context_length = 0; ///< tokens, prompt and answer together
    std::string chat_template{};      ///< Jinja source
    std::string bos_token{};          ///< as text
    std::string eos_token{};          ///< as text
    std::uint64_t parameters = 0;
    std::string quantization{};
};

/// A part of a prompt: text, or tokens already.
using Segment = std::variant<std::string, std::vector<Token>>;

/// What a request asks to be continued.
struct Prompt {
    std::vector<Segment> segments{};

    /// Whether this is a whole text, as a model expects it from its beginning: a BOS token is put
    /// in front if the model wants one and the prompt does not begin with it. Otherwise somebody
    /// else has put the parts together, and nothing is added anywhere.
    bool whole = true;

    friend bool operator==(const Prompt &, const Prompt &) = default;
};

/// What can be told to give up by another thread.
class Stoppable {
  public:
    virtual ~Stoppable() = default;

    /// Make the prefill or decode_one in progress, or else the next one, return Stopped soon.
    ///
    /// Called by the control thread, at most once between two resets, and under a lock: it must
    /// neither block nor call back; storing to an atomic is what is meant. It stays in force until
    /// the next reset, which is sure to come before the session is used again. The runtime never
    /// calls it before the reset of the request that it is for, if there is one, nor after that
    /// request was sealed, so a stop cannot leak into the next request.
    virtual void stop() noexcept = 0;
};

/// One context of a model: the tokens it holds and the state computed from them.
///
/// It holds the tokens of each prefill that returned Ok and of each decode_one that returned
/// Decoded, in order, since the last reset. After any other result of those two except EndOfText
/// and NoRoom, what it holds is undefined until the next reset; the runtime sees to that reset.
/// Destroying a session gives back what it took.
class Session : public Stoppable {
  public:
    /// Forget all tokens, a stop, and the random state. Failed: nothing has changed.
    [[nodiscard]] virtual ResetResult reset() = 0;

    /// Append a part of the prompt.
    ///
    /// Begins a request on an empty session, or on one that holds the beginning of this prompt: all
    /// of an earlier prompt and its answer, to which this is added.
    ///
    /// The span holds 1 to Engine::batch_tokens() tokens and fits into the context; it is not kept.
    /// A prompt comes in as many calls as it takes. An engine whose Engine::can_stop_prefill() is
    /// true looks at stop() inside; for any other the runtime delays stop() until decoding.
    [[nodiscard]] virtual PrefillResult prefill(std::span<const Token> tokens) = 0;

    /// Choose the next token and append it.
    ///
    /// Follows a prefill or another decode_one that returned Decoded. The random sequence starts
    /// from sampling.seed at the first call after a prefill; `sampling` is the same for the whole
    /// request. Results of an aborted computation are never sampled from.
    [[nodiscard]] virtual DecodeResult decode_one(const Sampling &sampling) = 0;
};

/// A loaded model.
class Engine {
  public:
    virtual ~Engine() = default;

    /// Load the model; called once, before anything else.
    ///
    /// Meanwhile the engine says how far it is with progress.advance_to (the phase is already
    /// `load`, of 1000 units), and keeps the reference: beats during prefill and decode come from
    /// the engine (the runtime adds one per batch and per token), `done` there from the runtime.
    /// After Failed nothing else is called.
    [[nodiscard]] virtual LoadResult load(Progress &progress) = 0;

    /// Valid and unchanged after load.
    [[nodiscard]] virtual const ModelInfo &model() const = 0;

    /// The most tokens of one Session::prefill call; at least 1. Valid after load.
    [[nodiscard]] virtual std::size_t batch_tokens() const = 0;

    /// Whether stop() takes effect inside Session::prefill. Valid after load.
    [[nodiscard]] virtual bool can_stop_prefill() const = 0;

    /// The tokens of a prompt: those of its segments, one after the other.
    ///
    /// Special tokens written as text become those tokens, since chat templates write them so. A
    /// token that the model does not have is Failed, as is a text that cannot be read.
    [[nodiscard]] virtual std::variant<std::vector<Token>, Failed>
    tokenize(const Prompt &prompt) = 0;

    /// The most sessions that there can be at a time, with one copy of the weights; at least 1.
    /// Valid after load.
    [[nodiscard]] virtual std::size_t max_sessions() const = 0;

    /// A new session, empty. The runtime makes one after load and keeps it, and makes the others
    /// when they are first used, never more than max_sessions(). Failed: there is no room for it
    /// now; those that exist are not touched.
    [[nodiscard]] virtual std::variant<std::unique_ptr<Session>, Failed> make_session() = 0;
};

} // namespace sllm
