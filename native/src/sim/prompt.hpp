#pragma once

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

/// Split at white space; "sim." words change a copy of `defaults`, each other word is a token.
[[nodiscard]] std::variant<Prompt, Failed> read_prompt(std::string_view text,
                                                       const Script &defaults);

} // namespace sllm::sim
