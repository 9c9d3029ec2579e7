/// Cancel frames: however the bytes arrive, each eight of them are one id.

#include <span>

#include "input.hpp"
#include "sllm/control_frame.hpp"

using namespace sllm;

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::uint8_t seed = input.byte();
    const std::string_view bytes = input.rest();

    std::vector<std::uint64_t> expected;
    for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
        std::uint64_t id = 0;
        for (std::size_t byte = 8; byte-- > 0;) {
            id = id * 256 + static_cast<unsigned char>(bytes[at + byte]);
        }
        expected.push_back(id);
    }
    std::vector<std::uint64_t> heard;
    FrameParser parser;
    for (const std::string_view piece : fuzz::cut(bytes, seed)) {
        const auto *start = reinterpret_cast<const unsigned char *>(piece.data());
        parser.feed(std::span(start, piece.size()),
                    [&heard](std::uint64_t id) { heard.push_back(id); });
    }
    fuzz::expect(expected == heard, "the frames do not depend on how the bytes arrive");
    return 0;
}
