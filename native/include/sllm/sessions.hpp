#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sllm/engine.hpp"
#include "sllm/reply.hpp"

namespace sllm {

/// A session of the engine, and the runtime's knowledge of what it holds.
///
///     const Start start = resident.look(prompt);    // nothing has changed yet
///     resident.begin(start);                        // from here on it is dirty ...
///     ... prefill prompt from start.reused on, decode ...
///     resident.keep(prompt, generated);             // ... unless the request ended well
///
/// A request leaves its session dirty by whatever path it ends, except the one where everything
/// that the engine computed was also shown: a list of all the ways to spoil a session would be one
/// way short some day. Dirty means a full reset before the next use, so what that gives is what a
/// new session gives, byte for byte.
///
/// A warm start computes only what was added. Cutting a session back to a common beginning would
/// reuse more, but not every model can be cut back, and after a cut nothing says that it is exact.
///
/// To be used by the request thread only.
class ResidentSession {
  public:
    /// `kept`: whether it holds its tokens for the next request. If not, each request resets it and
    /// finds it new.
    ResidentSession(std::unique_ptr<Session> session, bool kept)
        : session_(std::move(session)), kept_(kept) {}

    /// How a request begins.
    struct Start {
        ResetReason reason = ResetReason::new_session;
        std::size_t reused = 0; ///< tokens of the prompt that are there; 0 unless exact_prefix
    };

    /// What a request with this prompt would find.
    [[nodiscard]] Start look(std::span<const Token> prompt) const;

    /// Make the session ready for the request that looked, and dirty until keep(). Failed: it could
    /// not be reset.
    [[nodiscard]] ResetResult begin(const Start &start);

    /// The request ended by itself and all of its answer was shown: the session holds exactly this.
    void keep(std::span<const Token> prompt, std::span<const Token> generated);

    /// Forget everything. Failed: nothing has changed, nor has it become dirty.
    [[nodiscard]] ResetResult reset();

    [[nodiscard]] Session &session() { return *session_; }

  private:
    std::unique_ptr<Session> session_;
    bool kept_;
    bool dirty_ = false;
    std::vector<Token> tokens_; ///< what it holds, if it is not dirty
};

/// All sessions of a worker: the anonymous one, and those with a name.
///
/// Named ones are made at their first use, so that a worker whose clients name none pays for none.
/// To be used by the request thread only; the engine outlives it.
class Sessions {
  public:
    /// The name that idle probes close. It is nobody's session, so that a probe closes nobody's.
    static constexpr std::string_view probe = "__probe__";

    /// Makes the anonymous session. Failed: the engine has none.
    [[nodiscard]] static std::variant<Sessions, Failed> make(Engine &engine);

    /// The session for a request; an empty name is the anonymous one. A name that is new is given a
    /// session. Refusal: `unsupported_session` if there are none with a name, or none with that
    /// name; `capacity_exhausted` if all are in use or the engine has no room. The pointer is valid
    /// until that session is closed.
    [[nodiscard]] std::variant<ResidentSession *, Refusal> find(std::string_view name);

    /// Give a name a session, if it has none. A refusal as from find().
    [[nodiscard]] std::optional<Refusal> open(std::string_view name);

    /// Forget the name and give back its session, if it has one.
    void close(std::string_view name);

    /// Empty the session of that name, if it has one. A refusal without a code if the engine
    /// cannot; the session is what it was then.
    [[nodiscard]] std::optional<Refusal> reset(std::string_view name);

    /// How many sessions with a name there are.
    [[nodiscard]] std::size_t named() const { return named_.size(); }

    /// How many there can be.
    [[nodiscard]] std::size_t most_named() const { return most_named_; }

  private:
    Sessions(Engine &engine, std::unique_ptr<Session> anonymous);

    Engine *engine_;
    std::size_t most_named_;
    ResidentSession anonymous_;
    std::map<std::string, ResidentSession, std::less<>> named_;
};

} // namespace sllm
