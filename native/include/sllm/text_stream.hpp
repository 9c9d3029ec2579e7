#pragma once

#include "sllm/stop_words.hpp"
#include "sllm/utf8.hpp"

namespace sllm {

/// From the bytes of tokens to text that may be shown: whole characters, nothing of a stop string.
class TextStream {
  public:
    explicit TextStream(const std::vector<std::string> &stop) : stop_words_(stop) {}

    [[nodiscard]] StopWords::Result push(std::string_view bytes) {
        return stop_words_.push(utf8_.push(bytes));
    }

    /// The answer has ended by itself. What was held back may still complete a stop string: a cut
    /// character becomes U+FFFD.
    [[nodiscard]] StopWords::Result finish() {
        StopWords::Result last = stop_words_.push(utf8_.finish());
        if (!last.stopped) {
            last.text += stop_words_.finish();
        }
        return last;
    }

  private:
    Utf8Assembler utf8_;
    StopWords stop_words_;
};

} // namespace sllm
