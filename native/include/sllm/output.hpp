#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "sllm/fd.hpp"

namespace sllm {

/// The replies of a worker: whole lines, one after the other, from several threads.
///
/// A write returns when the pipe has taken all of it, so nothing is ever buffered here and there is
/// nothing to flush. While nobody reads, writers wait: a worker has no use for output that nobody
/// wants. After the first error (the reader is gone) every write does nothing and returns false.
class Output {
  public:
    explicit Output(UniqueFd fd) : fd_(std::move(fd)) {}
    Output(const Output &) = delete;
    Output &operator=(const Output &) = delete;

    /// Write `line` and an end of line. False: nobody reads any more.
    [[nodiscard]] bool write_line(std::string_view line);

    /// Write the line that `make` returns, or nothing if it returns none. `make` runs under the
    /// lock of this object, so what it looks at cannot be overtaken by another line; it must not
    /// write itself. False: nobody reads any more.
    [[nodiscard]] bool write_current(const std::function<std::optional<std::string>()> &make);

    /// Write bytes as they are. This and what follows is for workers that break the protocol on
    /// purpose.
    [[nodiscard]] bool write_raw(std::string_view bytes);

    /// From now on write_line writes what `change` makes of each line. To be called before a second
    /// thread writes; `change` runs in whichever thread does.
    void alter(std::function<std::string(std::string line)> change) { change_ = std::move(change); }

    /// Close the descriptor; from now on every write returns false.
    void close();

  private:
    bool write_all(std::string_view bytes);

    std::mutex mutex_;
    UniqueFd fd_;
    bool broken_ = false;
    std::function<std::string(std::string line)> change_;
};

/// Make standard output private: the returned descriptor is what it was, and descriptor 1 is from
/// now on a copy of standard error. No descriptor: there was no standard output. To be called
/// before anything else opens a descriptor: a missing standard descriptor is opened as the null
/// device, so that nobody else gets its number.
[[nodiscard]] UniqueFd take_standard_output();

} // namespace sllm
