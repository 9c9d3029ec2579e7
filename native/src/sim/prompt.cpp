#include "prompt.hpp"

#include <optional>
#include <string>

#include "keys.hpp"

namespace sllm::sim {
namespace {

constexpr std::string_view mark = "sim.";
constexpr std::string_view blanks = " \t\r\n";

/// FNV-1a, so that equal words are equal tokens.
Token token_of(std::string_view word) {
    std::uint32_t hash = 2166136261U;
    for (const char byte : word) {
        hash = (hash ^ static_cast<unsigned char>(byte)) * 16777619U;
    }
    return static_cast<Token>(hash & 0x7FFFFFFFU);
}

std::string follow(Script &script, std::string_view directive) {
    const std::size_t equals = directive.find('=');
    std::optional<std::string_view> value;
    if (equals != std::string_view::npos) {
        value = directive.substr(equals + 1);
    }
    return apply(script, directive.substr(0, equals), value, Place::directive);
}

} // namespace

Prompt begin_prompt(const Script &defaults) {
    Prompt prompt{defaults, {}};
    // As options these have happened already, when the process started.
    prompt.script.spawn = prompt.script.spawn_detached = 0;
    prompt.script.spawn_stubborn = prompt.script.spawn_escaped = 0;
    prompt.script.stderr_flood = prompt.script.leak = 0;
    prompt.script.deaf = false;
    prompt.script.stray_done.reset();
    prompt.script.hang = defaults.hang == During::load ? std::nullopt : defaults.hang;
    if (defaults.during == During::load) {
        prompt.script.during = During::decode;
        prompt.script.death.reset();
    }
    return prompt;
}

std::optional<Failed> read_text(std::string_view text, Prompt &prompt) {
    while (!text.empty()) {
        const std::size_t start = text.find_first_not_of(blanks);
        if (start == std::string_view::npos) {
            break;
        }
        text.remove_prefix(start);
        const std::string_view word = text.substr(0, text.find_first_of(blanks));
        text.remove_prefix(word.size());
        if (!word.starts_with(mark)) {
            prompt.tokens.push_back(token_of(word));
            continue;
        }
        if (std::string problem = follow(prompt.script, word.substr(mark.size()));
            !problem.empty()) {
            return Failed{std::move(problem)};
        }
    }
    return std::nullopt;
}

std::variant<Prompt, Failed> read_prompt(std::string_view text, const Script &defaults) {
    Prompt prompt = begin_prompt(defaults);
    if (std::optional<Failed> failed = read_text(text, prompt)) {
        return *std::move(failed);
    }
    return prompt;
}

} // namespace sllm::sim
