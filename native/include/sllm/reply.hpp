#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "sllm/engine.hpp"
#include "sllm/progress.hpp"

/// The lines that a worker writes, without their end. All are valid JSON whatever goes in: bytes
/// that are not UTF-8 become U+FFFD, and a number that JSON does not have becomes 0.
namespace sllm {

/// Why a session was emptied before a request, or why not.
enum class ResetReason : std::uint8_t {
    new_session,  ///< it held nothing, or is one that never keeps anything
    exact_prefix, ///< not emptied: the prompt begins with all that it held
    mismatch,     ///< the prompt does not begin with what it held
    dirty,        ///< what it held may be more than what was shown
    equal,        ///< the prompt is what it held: nothing to compute, so nothing to choose from
};

/// The word for it in a terminal.
constexpr std::string_view name_of(ResetReason reason) {
    switch (reason) {
    case ResetReason::new_session:
        break;
    case ResetReason::exact_prefix:
        return "exact_prefix";
    case ResetReason::mismatch:
        return "mismatch";
    case ResetReason::dirty:
        return "dirty";
    case ResetReason::equal:
        return "equal";
    }
    return "new";
}

/// What the ready line offers.
struct Offer {
    std::size_t named_sessions = 0;
    bool cancel = false;
    std::vector<std::string> extensions; ///< in the order in which they are to be listed
    const ModelInfo *model = nullptr;    ///< none: not offered
};

/// Figures of a finished request; times in milliseconds.
struct Outcome {
    std::size_t prompt_tokens = 0;
    std::size_t reused_tokens = 0;    ///< of the prompt; the others were to be prefilled
    std::size_t prefilled_tokens = 0; ///< fewer than those if cancelled before; for the rate
    ResetReason reset_reason = ResetReason::new_session;
    std::size_t completion_tokens = 0;
    std::string_view finish_reason = "stop"; ///< "stop" or "length"
    bool cancelled = false;
    double prefill_ms = 0;
    double decode_ms = 0;
    double total_ms = 0;
    std::optional<std::vector<Token>> generated; ///< none: too many, or not what was shown
};

/// Why a request was not served.
struct Refusal {
    std::string message;
    std::string code{};       ///< empty: none
    std::string session_id{}; ///< empty: none
};

[[nodiscard]] std::string ready_line(const Offer &offer);
[[nodiscard]] std::string token_line(std::string_view text);
[[nodiscard]] std::string done_line(const Outcome &outcome);

/// A message over 2000 bytes is cut.
[[nodiscard]] std::string error_line(const Refusal &refusal);

/// `done` is "opened", "closed" or "reset".
[[nodiscard]] std::string session_line(std::string_view done, std::string_view session_id);
[[nodiscard]] std::string pong_line(const nlohmann::json &nonce);

/// `phase` was read before, so that it can be looked at first; it is never idle.
[[nodiscard]] std::string heartbeat_line(Phase phase, const Progress &progress);

} // namespace sllm
