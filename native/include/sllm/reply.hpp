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

/// What the ready line offers. Sessions with a name are not offered.
struct Offer {
    bool cancel = false;
    std::vector<std::string> extensions; ///< in the order in which they are to be listed
    const ModelInfo *model = nullptr;    ///< none: not offered
};

/// Figures of a finished request; times in milliseconds.
struct Outcome {
    std::size_t prompt_tokens = 0;
    std::size_t prefilled_tokens = 0; ///< less than prompt_tokens if cancelled before; for the rate
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

/// `done` is "closed" or "reset".
[[nodiscard]] std::string session_line(std::string_view done, std::string_view session_id);
[[nodiscard]] std::string pong_line(const nlohmann::json &nonce);

/// `phase` was read before, so that it can be looked at first; it is never idle.
[[nodiscard]] std::string heartbeat_line(Phase phase, const Progress &progress);

} // namespace sllm
