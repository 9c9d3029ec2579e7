/// UTF-8: what comes out is valid, is the same for every way of cutting, and is what went in if
/// that was valid.

#include "sllm/utf8.hpp"
#include "input.hpp"

using namespace sllm;

namespace {

/// How many bytes the character at the start of `text` takes; 0 if there is no valid one. By the
/// value of the code point, and so in another way than the assembler, which goes by ranges of
/// bytes.
std::size_t valid_prefix(std::string_view text) {
    const auto at = [text](std::size_t index) {
        return static_cast<std::uint32_t>(static_cast<unsigned char>(text[index]));
    };
    const std::uint32_t lead = at(0);
    if (lead < 0x80) {
        return 1;
    }
    const std::size_t size = lead >> 5U == 6 ? 2 : lead >> 4U == 14 ? 3 : lead >> 3U == 30 ? 4 : 0;
    if (size == 0 || text.size() < size) {
        return 0;
    }
    std::uint32_t point = lead & (0x7FU >> size);
    for (std::size_t index = 1; index < size; ++index) {
        if (at(index) >> 6U != 2) {
            return 0;
        }
        point = point << 6U | (at(index) & 0x3FU);
    }
    const std::uint32_t least = size == 2 ? 0x80 : size == 3 ? 0x800 : 0x10000;
    const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
    return point >= least && point <= 0x10FFFF && !surrogate ? size : 0;
}

bool is_valid(std::string_view text) {
    while (!text.empty()) {
        const std::size_t size = valid_prefix(text);
        if (size == 0) {
            return false;
        }
        text.remove_prefix(size);
    }
    return true;
}

std::string assemble(const std::vector<std::string_view> &pieces) {
    Utf8Assembler assembler;
    std::string text;
    for (const std::string_view piece : pieces) {
        const std::string shown = assembler.push(piece);
        fuzz::expect(is_valid(shown), "each piece that is shown is valid UTF-8");
        text += shown;
    }
    return text + assembler.finish();
}

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::uint8_t seed = input.byte();
    const std::string_view bytes = input.rest();

    const std::string text = assemble({bytes});
    fuzz::expect(is_valid(text), "the whole is valid UTF-8");
    fuzz::expect(assemble(fuzz::cut(bytes, seed)) == text, "the text does not depend on the cuts");
    fuzz::expect(!is_valid(bytes) || text == bytes, "valid text is left as it is");
    return 0;
}
