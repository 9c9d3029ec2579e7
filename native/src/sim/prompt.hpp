#pragma once

#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "script.hpp"
#include "sllm/engine.hpp"

namespace sllm::sim {

/// A prompt, read: what to do and what is left as its tokens.
struct Prompt {
    Script script;
    std::vector<Token> tokens;
};

/// A prompt without words: what the options of the process mean for each request.
[[nodiscard]] Prompt begin_prompt(const Script &defaults);

/// Split at white space; "sim." words change the script, each other word is one more token. Failed:
/// a "sim." word means nothing.
[[nodiscard]] std::optional<Failed> read_text(std::string_view text, Prompt &prompt);

/// Both of the above, for a prompt that is one text.
[[nodiscard]] std::variant<Prompt, Failed> read_prompt(std::string_view text,
                                                       const Script &defaults);

} // namespace sllm::sim
