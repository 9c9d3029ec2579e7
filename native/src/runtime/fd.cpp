#include "sllm/fd.hpp"

#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace sllm {

UniqueFd &UniqueFd::operator=(UniqueFd &&other) noexcept {
    if (this != &other) {
        close();
        fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
}

void UniqueFd::close() noexcept {
    if (fd_ >= 0) {
        ::close(std::exchange(fd_, -1));
    }
}

Wake::Wake() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!fd_) {
        throw std::system_error(errno, std::generic_category(), "cannot make an eventfd");
    }
}

void Wake::set() noexcept {
    const std::uint64_t one = 1;
    // Fails only when the counter is full, and then it is readable already.
    [[maybe_unused]] const auto written = ::write(fd_.get(), &one, sizeof one);
}

bool wait_readable(int fd, const Wake &wake) noexcept {
    std::array<pollfd, 2> polled{{{fd, POLLIN, 0}, {wake.fd(), POLLIN, 0}}};
    while (::poll(polled.data(), polled.size(), -1) < 0) {
        if (errno != EINTR) {
            return false;
        }
    }
    return polled[1].revents == 0;
}

} // namespace sllm
