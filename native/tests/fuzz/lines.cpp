/// Lines: the same for every way of cutting; of one over the limit nothing but that it was there.

#include "input.hpp"
#include "sllm/line_splitter.hpp"

using namespace sllm;

namespace {

const std::string too_long = "\n"; // which no line can be

std::vector<std::string> expected_lines(std::string_view bytes, std::size_t limit) {
    std::vector<std::string> lines;
    while (!bytes.empty()) {
        const std::size_t end = bytes.find('\n');
        const std::string_view line = bytes.substr(0, end);
        if (line.size() > limit) {
            lines.push_back(too_long);
        } else if (!line.empty()) {
            lines.emplace_back(line);
        }
        bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
    }
    return lines;
}

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::uint8_t seed = input.byte();
    const std::size_t limit = input.byte() % 32U;
    const std::string_view bytes = input.rest();

    std::vector<std::string> lines;
    LineSplitter splitter(limit, {[&lines](std::string_view line) { lines.emplace_back(line); },
                                  [&lines] { lines.push_back(too_long); }});
    for (const std::string_view piece : fuzz::cut(bytes, seed)) {
        splitter.feed(piece);
    }
    splitter.finish();
    fuzz::expect(lines == expected_lines(bytes, limit), "the lines do not depend on the cuts");
    return 0;
}
