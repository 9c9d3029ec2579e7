#include "sllm/environment.hpp"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace sllm {
namespace {

constexpr const char *control_variable = "EXECUTORCH_LLM_WORKER_CONTROL_FD";
constexpr const char *protocol_variable = "SUPERVISORD_LLM_PROTOCOL";
constexpr const char *heartbeat_variable = "SUPERVISORD_LLM_HEARTBEAT_MS";
constexpr int longest_heartbeat = 3'600'000;

/// A number of digits only, at most `most`.
std::optional<int> read_digits(std::string_view text, int most) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || text.front() == '-' || error != std::errc{} ||
        end != text.data() + text.size() || value > most) {
        return std::nullopt;
    }
    return value;
}

} // namespace

std::variant<Environment, Failed> read_environment() {
    Environment environment;
    if (const char *protocol = std::getenv(protocol_variable)) {
        environment.extensions = std::string_view(protocol) == "1";
    }
    if (const char *period = std::getenv(heartbeat_variable)) {
        const std::optional<int> milliseconds = read_digits(period, longest_heartbeat);
        if (!milliseconds || *milliseconds == 0) {
            return Failed{"cannot use " + std::string(heartbeat_variable) + "='" + period +
                          "'; give milliseconds from 1 to " + std::to_string(longest_heartbeat)};
        }
        environment.heartbeat = std::chrono::milliseconds(*milliseconds);
    }
    return environment;
}

UniqueFd take_control_pipe() {
    const char *value = std::getenv(control_variable);
    if (value == nullptr) {
        return {};
    }
    const std::optional<int> number = read_digits(value, 0x7FFFFFFF);
    ::unsetenv(control_variable);
    if (!number || *number <= STDERR_FILENO) {
        return {};
    }
    UniqueFd pipe(*number);
    struct stat facts{};
    const int flags = ::fcntl(pipe.get(), F_GETFL);
    const bool usable = flags >= 0 && (flags & O_ACCMODE) != O_WRONLY &&
                        ::fstat(pipe.get(), &facts) == 0 && S_ISFIFO(facts.st_mode) &&
                        ::fcntl(pipe.get(), F_SETFL, flags | O_NONBLOCK) == 0 &&
                        ::fcntl(pipe.get(), F_SETFD, FD_CLOEXEC) == 0;
    if (!usable) {
        pipe.close();
    }
    return pipe;
}

} // namespace sllm
