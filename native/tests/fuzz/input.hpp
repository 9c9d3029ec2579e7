#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

/// What the fuzzers share: the bytes of one input, taken apart into what a fuzzer needs.
namespace sllm::fuzz {

/// What must hold does not: end the process, so that the driver shows the input.
inline void expect(bool holds, const char *what) {
    if (!holds) {
        std::fprintf(stderr, "violated: %s\n", what);
        std::abort();
    }
}

/// Hands out the bytes of an input, and zeros behind its end.
class Input {
  public:
    Input(const std::uint8_t *data, std::size_t size)
        : bytes_(reinterpret_cast<const char *>(data), size) {}

    [[nodiscard]] std::uint8_t byte() {
        if (bytes_.empty()) {
            return 0;
        }
        const auto first = static_cast<std::uint8_t>(bytes_.front());
        bytes_.remove_prefix(1);
        return first;
    }

    /// As many bytes as there are, at most `most`.
    [[nodiscard]] std::string_view text(std::size_t most) {
        const std::string_view taken = bytes_.substr(0, most);
        bytes_.remove_prefix(taken.size());
        return taken;
    }

    [[nodiscard]] std::string_view rest() { return text(bytes_.size()); }

  private:
    std::string_view bytes_;
};

/// Cut `text` into pieces, some empty, as `seed` says.
inline std::vector<std::string_view> cut(std::string_view text, std::uint32_t seed) {
    std::vector<std::string_view> pieces;
    while (!text.empty()) {
        seed = seed * 1664525U + 1013904223U;
        const std::size_t size = (seed >> 24U) % 8;
        pieces.push_back(text.substr(0, size));
        text.remove_prefix(pieces.back().size());
    }
    return pieces;
}

} // namespace sllm::fuzz

/// What libFuzzer, or our own driver, calls with each input; returns 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);
