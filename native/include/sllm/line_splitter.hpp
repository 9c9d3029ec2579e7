#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace sllm {

/// Cuts a stream of bytes into lines of bounded length, however the bytes arrive.
///
/// A line is what stands between two '\n'; empty ones are left out. Of a line over the limit
/// nothing is kept: it is reported once, as soon as it is known to be too long, and skipped to its
/// end.
class LineSplitter {
  public:
    /// `line` is called with each line, without its end; `too_long` for each line over the limit.
    struct Receiver {
        std::function<void(std::string_view line)> line;
        std::function<void()> too_long;
    };

    /// `limit` is in bytes, without the end of line.
    LineSplitter(std::size_t limit, Receiver receiver)
        : limit_(limit), receiver_(std::move(receiver)) {}

    void feed(std::string_view bytes);

    /// The stream has ended: what came after the last end of line is a line too.
    void finish();

  private:
    void append(std::string_view part);
    void end_line();

    std::size_t limit_;
    Receiver receiver_;
    std::string pending_;
    bool skipping_ = false;
};

} // namespace sllm
