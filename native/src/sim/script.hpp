#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sllm::sim {

/// Where in the life of a worker or request something happens.
enum class During : std::uint8_t { load, prefill, decode };

/// How the process ends itself.
struct Death {
    enum class Way : std::uint8_t { exit, signal, abort };
    Way way = Way::abort;
    int number = 0; ///< exit status or signal
};

/// The ready lines that no daemon should accept.
enum class BadReady : std::uint8_t { not_json, not_object, not_ready, string };

/// A pause at one of the runtime's seams.
struct Pause {
    enum class At : std::uint8_t { before_detach, after_flush, before_read };
    At at = At::before_read;
    std::int64_t milliseconds = 0;
};

/// All that the sim worker can be told to do; each member is the key of the same name, which
/// keys.cpp explains. The options make the script of the process; each request has a copy of it,
/// changed by the directives in its prompt. Times are in milliseconds.
struct Script {
    // An ordinary answer.
    std::optional<std::int64_t> tokens;
    double tps = 0;
    std::int64_t prefill_ms = 0;
    std::int64_t load_ms = 0;
    std::optional<std::string> text;
    bool utf8 = false;
    std::optional<std::int64_t> eos_at;

    // What the worker offers.
    std::int64_t context_length = 131072;
    std::string chat_template;
    std::int64_t sessions = 0;
    bool no_cancel = false;
    bool no_cancel_prefill = false;
    bool no_extensions = false;
    bool no_heartbeat = false;
    bool no_ping = false;

    // Faults of the process.
    bool not_ready = false;
    bool never_ready = false;
    std::optional<BadReady> bad_ready;
    bool ignore_eof = false;
    bool ignore_sigterm = false;
    std::int64_t spawn = 0;
    std::int64_t spawn_detached = 0;
    std::int64_t spawn_stubborn = 0;
    std::int64_t spawn_escaped = 0;
    std::int64_t stderr_flood = 0; ///< lines a second
    std::int64_t leak = 0;         ///< bytes a second
    bool deaf = false;
    bool wrong_nonce = false;
    bool wrong_session = false;
    std::optional<std::int64_t> stray_done;

    // Faults of a request.
    std::optional<During> hang;
    std::int64_t hang_at = 0;
    bool slow_prefill = false;
    bool ignore_cancel = false;
    std::optional<Death> death;
    std::int64_t at = 0;
    During during = During::decode;
    bool garbage = false;
    bool half_line = false;
    bool close_stdout = false;
    std::optional<std::int64_t> big_line; ///< bytes of text
    bool two_dones = false;
    std::int64_t late_done = 0;
    std::optional<std::string> error;
    std::int64_t stderr_lines = 0;
    std::optional<Pause> pause_at;
};

} // namespace sllm::sim
