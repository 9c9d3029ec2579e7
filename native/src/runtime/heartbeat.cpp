#include "sllm/heartbeat.hpp"

#include <optional>
#include <string>

#include "sllm/reply.hpp"

namespace sllm {

Heartbeat::Heartbeat(Output &output, const Progress &progress, std::chrono::milliseconds period)
    : output_(output), progress_(progress), period_(period), thread_([this] { run(); }) {}

Heartbeat::~Heartbeat() {
    {
        const std::scoped_lock lock(mutex_);
        ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Heartbeat::run() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, period_, [this] { return ending_; })) {
        lock.unlock();
        const bool heard = output_.write_current([this]() -> std::optional<std::string> {
            const Phase phase = progress_.phase();
            if (phase == Phase::idle) {
                return std::nullopt;
            }
            return heartbeat_line(phase, progress_);
        });
        lock.lock();
        if (!heard) {
            return;
        }
    }
}

} // namespace sllm
