#include "sllm/line_splitter.hpp"

namespace sllm {

void LineSplitter::feed(std::string_view bytes) {
    for (;;) {
        const std::size_t end = bytes.find('\n');
        append(bytes.substr(0, end));
        if (end == std::string_view::npos) {
            return;
        }
        end_line();
        bytes.remove_prefix(end + 1);
    }
}

void LineSplitter::finish() { end_line(); }

void LineSplitter::append(std::string_view part) {
    if (skipping_) {
        return;
    }
    if (part.size() > limit_ - pending_.size()) {
        skipping_ = true;
        pending_ = std::string(); // gives the memory back
        receiver_.too_long();
        return;
    }
    pending_ += part;
}

void LineSplitter::end_line() {
    if (!skipping_ && !pending_.empty()) {
        receiver_.line(pending_);
    }
    skipping_ = false;
    pending_.clear();
}

} // namespace sllm
