#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "sllm/engine.hpp"
#include "sllm/reply.hpp"

namespace sllm {

/// A request for text, checked.
struct GenerateRequest {
    Prompt prompt{};
    std::string session_id{};         ///< empty: the anonymous session
    std::int64_t max_new_tokens = -1; ///< 0 or less: as many as there is room for
    Sampling sampling{};              ///< the seed may still be 0: draw one
    std::vector<std::string> stop{};  ///< none is empty
    std::optional<std::uint64_t> cancel_id{};
};

/// Something to be done with a session.
struct SessionRequest {
    enum class Operation : std::uint8_t { open, close, reset };
    Operation operation;
    std::string session_id; ///< never empty
};

/// A request that cannot be served, with the cancel id that it carried, if that was readable:
/// frames for it must not wait for a request that never comes.
struct RefusedRequest {
    Refusal refusal;
    std::optional<std::uint64_t> cancel_id{};
};

using Request = std::variant<GenerateRequest, SessionRequest, RefusedRequest>;

/// Read one request. `supports_cancel` says whether a cancel_request_id is allowed.
///
/// All fields of the protocol are checked for type and range; a field that is not one of them is
/// refused by name, since a wish that is silently not fulfilled is worse than an error.
[[nodiscard]] Request read_request(const nlohmann::json &json, bool supports_cancel);

/// The nonce, if this is a ping with a whole number as its nonce; else null.
[[nodiscard]] const nlohmann::json *ping_nonce(const nlohmann::json &json);

} // namespace sllm
