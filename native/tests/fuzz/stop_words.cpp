/// Stop words: for every way of cutting the text ends where a search through all of it says.

#include <algorithm>
#include <optional>

#include "input.hpp"
#include "sllm/stop_words.hpp"

using namespace sllm;

namespace {

/// The text before the stop word that is complete first, of those the longest; none: no such word.
std::optional<std::string> before_stop(std::string_view text,
                                       const std::vector<std::string> &words) {
    for (std::size_t end = 1; end <= text.size(); ++end) {
        std::size_t longest = 0;
        for (const std::string &word : words) {
            if (text.substr(0, end).ends_with(word)) {
                longest = std::max(longest, word.size());
            }
        }
        if (longest > 0) {
            return std::string(text.substr(0, end - longest));
        }
    }
    return std::nullopt;
}

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::uint8_t seed = input.byte();
    // Few letters, so that words overlap each other and themselves.
    const auto letters = [](std::string_view bytes) {
        std::string text(bytes);
        std::transform(text.begin(), text.end(), text.begin(),
                       [](char byte) { return static_cast<char>('a' + (byte & 1)); });
        return text;
    };
    std::vector<std::string> words;
    for (std::size_t left = input.byte() % 5U; left > 0; --left) {
        std::string word = letters(input.text(1U + input.byte() % 9U));
        if (!word.empty()) {
            words.push_back(std::move(word));
        }
    }
    const std::string text = letters(input.text(400));

    const std::optional<std::string> expected = before_stop(text, words);
    StopWords stop(words);
    std::string shown;
    bool stopped = false;
    for (const std::string_view piece : fuzz::cut(text, seed)) {
        const StopWords::Result result = stop.push(piece);
        fuzz::expect(!stopped || (result.text.empty()), "nothing is shown after a stop word");
        stopped = stopped || result.stopped;
        shown += result.text;
        fuzz::expect(text.starts_with(shown), "what is shown is the text, in order");
    }
    if (!stopped) {
        shown += stop.finish();
    }
    fuzz::expect(stopped == expected.has_value(),
                 "a stop word is found if and only if it is there");
    fuzz::expect(shown == expected.value_or(text), "the text ends right before it");
    return 0;
}
