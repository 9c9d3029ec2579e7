#include "sllm/control_thread.hpp"

#include <array>
#include <cerrno>
#include <span>

#include <unistd.h>

namespace sllm {

ControlThread::ControlThread(UniqueFd pipe, CancelController &controller)
    : pipe_(std::move(pipe)), controller_(controller) {
    if (!pipe_ || read_once() == Read::end) {
        pipe_.close();
        return;
    }
    supported_ = true;
    thread_ = std::thread([this] { run(); });
}

ControlThread::~ControlThread() {
    wake_.set();
    if (thread_.joinable()) {
        thread_.join();
    }
}

ControlThread::Read ControlThread::read_once() {
    std::array<unsigned char, 64> bytes;
    const ssize_t size = ::read(pipe_.get(), bytes.data(), bytes.size());
    if (size > 0) {
        parser_.feed(std::span(bytes).first(static_cast<std::size_t>(size)),
                     [this](std::uint64_t id) { controller_.deliver(id); });
        return Read::some;
    }
    return size < 0 && (errno == EAGAIN || errno == EINTR) ? Read::none_yet : Read::end;
}

void ControlThread::run() {
    while (wait_readable(pipe_.get(), wake_)) {
        if (read_once() == Read::end) {
            ended_.store(true, std::memory_order_relaxed);
            return;
        }
    }
}

} // namespace sllm
