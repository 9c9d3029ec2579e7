#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sllm {

/// Puts UTF-8 sequences together that a tokenizer has cut apart.
///
/// What comes out is valid UTF-8 and does not depend on where the input was cut. A sequence that is
/// not finished yet is held back, at most 3 bytes; one that can no longer become valid is replaced
/// by U+FFFD, one for each maximal part of a well-formed sequence, as Unicode recommends (chapter
/// 3, "Substitution of Maximal Subparts"). Surrogates, overlong forms and values above U+10FFFF are
/// invalid.
class Utf8Assembler {
  public:
    /// The text that `bytes` completes; may be empty.
    [[nodiscard]] std::string push(std::string_view bytes);

    /// The stream has ended: U+FFFD if a sequence was held back, else nothing. Ready for another.
    [[nodiscard]] std::string finish();

  private:
    void take(unsigned char byte, std::string &text);
    void start(unsigned char byte, std::string &text);

    std::string held_;
    std::size_t missing_ = 0;  ///< continuation bytes to come
    unsigned char low_ = 0x80; ///< bounds of the next one
    unsigned char high_ = 0xBF;
};

} // namespace sllm
