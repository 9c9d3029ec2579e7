#pragma once

#include <utility>

namespace sllm {

/// A descriptor that is closed by its owner, once.
class UniqueFd {
  public:
    UniqueFd() = default;
    explicit UniqueFd(int fd) noexcept : fd_(fd) {}
    UniqueFd(UniqueFd &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    UniqueFd &operator=(UniqueFd &&other) noexcept;
    UniqueFd(const UniqueFd &) = delete;
    UniqueFd &operator=(const UniqueFd &) = delete;
    ~UniqueFd() { close(); }

    /// The number, or -1 if there is none.
    [[nodiscard]] int get() const noexcept { return fd_; }
    explicit operator bool() const noexcept { return fd_ >= 0; }

    /// Close it now; does nothing if there is none.
    void close() noexcept;

  private:
    int fd_ = -1;
};

/// A descriptor that another thread makes readable, once and for good: how a thread that sleeps in
/// poll() is told to end.
class Wake {
  public:
    /// Throws std::system_error if the system has no descriptor left.
    Wake();

    /// Thread-safe; may be called again.
    void set() noexcept;

    /// For poll(): readable after set().
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }

  private:
    UniqueFd fd_;
};

/// Sleep until `fd` is readable (or at its end, or broken) or `wake` is set.
/// Returns whether `fd` is worth reading; false means that it is time to end.
[[nodiscard]] bool wait_readable(int fd, const Wake &wake) noexcept;

} // namespace sllm
