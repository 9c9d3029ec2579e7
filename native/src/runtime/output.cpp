#include "sllm/output.hpp"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace sllm {

bool Output::write_line(std::string_view line) {
    std::string whole(line);
    if (change_) {
        whole = change_(std::move(whole));
    }
    whole += '\n';
    const std::scoped_lock lock(mutex_);
    return write_all(whole);
}

bool Output::write_current(const std::function<std::optional<std::string>()> &make) {
    const std::scoped_lock lock(mutex_);
    std::optional<std::string> line = make();
    if (!line) {
        return !broken_;
    }
    *line += '\n';
    return write_all(*line);
}

bool Output::write_raw(std::string_view bytes) {
    const std::scoped_lock lock(mutex_);
    return write_all(bytes);
}

void Output::close() {
    const std::scoped_lock lock(mutex_);
    broken_ = true;
    fd_.close();
}

bool Output::write_all(std::string_view bytes) {
    while (!broken_ && !bytes.empty()) {
        const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
        if (written >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(written));
        } else if (errno == EAGAIN) {
            // Whoever made the pipe may have made it non-blocking for its own end as well.
            pollfd polled{fd_.get(), POLLOUT, 0};
            ::poll(&polled, 1, -1);
        } else if (errno != EINTR) {
            broken_ = true;
        }
    }
    return !broken_;
}

UniqueFd take_standard_output() {
    UniqueFd taken(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
    for (int standard = STDIN_FILENO; standard <= STDERR_FILENO; ++standard) {
        if (::fcntl(standard, F_GETFD) < 0) {
            // Gets this very number: it is the lowest that is free.
            static_cast<void>(::open("/dev/null", O_RDWR));
        }
    }
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    return taken;
}

} // namespace sllm
