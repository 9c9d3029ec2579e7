#include "sllm/utf8.hpp"

namespace sllm {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

} // namespace

std::string Utf8Assembler::push(std::string_view bytes) {
    std::string text;
    text.reserve(bytes.size() + held_.size());
    for (const char byte : bytes) {
        take(static_cast<unsigned char>(byte), text);
    }
    return text;
}

std::string Utf8Assembler::finish() {
    const bool cut = !held_.empty();
    held_.clear();
    missing_ = 0;
    return std::string(cut ? replacement : std::string_view());
}

void Utf8Assembler::take(unsigned char byte, std::string &text) {
    if (missing_ == 0) {
        start(byte, text);
        return;
    }
    if (byte < low_ || byte > high_) {
        // The sequence ends here, unfinished; the byte may well begin the next one.
        held_.clear();
        missing_ = 0;
        text += replacement;
        start(byte, text);
        return;
    }
    low_ = 0x80;
    high_ = 0xBF;
    held_ += static_cast<char>(byte);
    if (--missing_ == 0) {
        text += held_;
        held_.clear();
    }
}

void Utf8Assembler::start(unsigned char byte, std::string &text) {
    // Unicode, table 3-7: the first byte says how many follow and narrows the second.
    low_ = 0x80;
    high_ = 0xBF;
    if (byte < 0x80) {
        text += static_cast<char>(byte);
        return;
    }
    if (byte >= 0xC2 && byte <= 0xDF) {
        missing_ = 1;
    } else if (byte >= 0xE0 && byte <= 0xEF) {
        missing_ = 2;
        low_ = byte == 0xE0 ? 0xA0 : 0x80;
        high_ = byte == 0xED ? 0x9F : 0xBF;
    } else if (byte >= 0xF0 && byte <= 0xF4) {
        missing_ = 3;
        low_ = byte == 0xF0 ? 0x90 : 0x80;
        high_ = byte == 0xF4 ? 0x8F : 0xBF;
    } else {
        text += replacement;
        return;
    }
    held_ = static_cast<char>(byte);
}

} // namespace sllm
