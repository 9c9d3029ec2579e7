#pragma once

namespace sllm::launch {

/// Our own failures: a status that commands seldom use themselves.
constexpr int failed_status = 125;

/// Write "sllm-launch: ..." as one line to stderr.
[[gnu::format(printf, 1, 2)]] void warn(const char *format, ...);

/// The same, then end with `status`.
[[noreturn, gnu::format(printf, 2, 3)]] void give_up(int status, const char *format, ...);

} // namespace sllm::launch
