#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sllm {

/// Ends a text before the first stop string, wherever the text was cut on its way here.
///
/// Text that might turn out to be the beginning of a stop string is held back until it is known.
/// The stop string that is complete first wins (of several complete at the same byte, the longest),
/// so the result is the same for every way of cutting. One Knuth-Morris-Pratt automaton per string:
/// a byte costs constant time on average, also for strings made to be slow.
class StopWords {
  public:
    /// `words` must not contain an empty string.
    explicit StopWords(const std::vector<std::string> &words);

    struct Result {
        std::string text;     ///< what may be shown now
        bool stopped = false; ///< a stop string was found: nothing comes after `text`
    };

    /// After `stopped` the object is used up: each further push shows nothing.
    [[nodiscard]] Result push(std::string_view text);

    /// The text has ended by itself: what was held back is shown after all.
    [[nodiscard]] std::string finish();

  private:
    struct Automaton {
        std::string word;
        std::vector<std::size_t> fallback; ///< longest border of each prefix, by its length
        std::size_t matched = 0;
    };

    static bool advance(Automaton &automaton, char byte);

    std::vector<Automaton> automata_;
    std::string held_;
    bool stopped_ = false;
};

} // namespace sllm
