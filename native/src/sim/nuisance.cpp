#include "nuisance.hpp"

#include <chrono>
#include <cstddef>
#include <stop_token>
#include <string>
#include <vector>

#include <poll.h>
#include <unistd.h>

namespace sllm::sim {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto tick = std::chrono::milliseconds(10);
constexpr int writable_within_ms = 100;

/// How much of a rate is due by now.
std::int64_t due(std::int64_t per_second, Clock::time_point since) {
    const std::chrono::duration<double> spent = Clock::now() - since;
    return static_cast<std::int64_t>(static_cast<double>(per_second) * spent.count());
}

/// Write one line, however long that takes, unless told to end; a pipe that polls writable has room
/// for a short line, so the write itself does not wait.
void write_patiently(const std::stop_token &end, const std::string &line) {
    pollfd polled{STDERR_FILENO, POLLOUT, 0};
    while (!end.stop_requested()) {
        if (::poll(&polled, 1, writable_within_ms) > 0) {
            static_cast<void>(::write(STDERR_FILENO, line.data(), line.size()) < 0);
            return;
        }
    }
}

} // namespace

void Nuisance::flood_stderr(std::int64_t lines_per_second) {
    if (lines_per_second == 0) {
        return;
    }
    threads_.emplace_back([lines_per_second](const std::stop_token &end) {
        const Clock::time_point start = Clock::now();
        for (std::int64_t written = 0; !end.stop_requested();) {
            for (; written < due(lines_per_second, start) && !end.stop_requested(); ++written) {
                write_patiently(end, "sim: flood " + std::to_string(written) + "\n");
            }
            std::this_thread::sleep_for(tick);
        }
    });
}

void Nuisance::leak(std::int64_t bytes_per_second) {
    if (bytes_per_second == 0) {
        return;
    }
    threads_.emplace_back([bytes_per_second](const std::stop_token &end) {
        const Clock::time_point start = Clock::now();
        std::vector<std::vector<char>> taken;
        for (std::int64_t bytes = 0; !end.stop_requested();) {
            const std::int64_t more = due(bytes_per_second, start) - bytes;
            taken.emplace_back(static_cast<std::size_t>(more), 'x');
            bytes += more;
            std::this_thread::sleep_for(tick);
        }
    });
}

} // namespace sllm::sim
