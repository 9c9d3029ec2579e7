#include "keys.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <limits>
#include <system_error>

namespace sllm::sim {
namespace {

/// One word of the sim worker's language.
struct Key {
    std::string_view name;
    std::string_view value; ///< what to show for its value; empty: a flag
    bool option_only;
    bool (*store)(Script &script, std::string_view value); ///< false: the value means nothing
    std::string_view help;
};

template <typename Number> bool read(std::string_view text, Number low, Number high, Number &into) {
    Number number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size() || !(number >= low) ||
        !(number <= high)) {
        return false;
    }
    into = number;
    return true;
}

/// Large enough for any test, small enough for arithmetic in nanoseconds.
constexpr std::int64_t most = 1'000'000'000;

bool count(std::string_view text, std::int64_t &into) {
    return read<std::int64_t>(text, 0, most, into);
}

bool count(std::string_view text, std::optional<std::int64_t> &into) {
    std::int64_t number = 0;
    if (!count(text, number)) {
        return false;
    }
    into = number;
    return true;
}

std::string spaced(std::string_view words) {
    std::string text(words);
    std::replace(text.begin(), text.end(), '_', ' ');
    return text;
}

struct SignalName {
    std::string_view name;
    int number;
};

constexpr std::array<SignalName, 14> signals{{{"HUP", SIGHUP},
                                              {"INT", SIGINT},
                                              {"QUIT", SIGQUIT},
                                              {"ILL", SIGILL},
                                              {"ABRT", SIGABRT},
                                              {"BUS", SIGBUS},
                                              {"FPE", SIGFPE},
                                              {"KILL", SIGKILL},
                                              {"SEGV", SIGSEGV},
                                              {"PIPE", SIGPIPE},
                                              {"TERM", SIGTERM},
                                              {"USR1", SIGUSR1},
                                              {"SYS", SIGSYS},
                                              {"STOP", SIGSTOP}}};

bool read_signal(Script &script, std::string_view value) {
    if (value.starts_with("SIG")) {
        value.remove_prefix(3);
    }
    for (const SignalName &known : signals) {
        if (known.name == value) {
            script.death = Death{Death::Way::signal, known.number};
            return true;
        }
    }
    return false;
}

bool read_during(std::string_view value, During &into) {
    if (value == "load") {
        into = During::load;
    } else if (value == "prefill") {
        into = During::prefill;
    } else if (value == "decode") {
        into = During::decode;
    } else {
        return false;
    }
    return true;
}

bool read_bad_ready(Script &script, std::string_view value) {
    if (value == "not_json") {
        script.bad_ready = BadReady::not_json;
    } else if (value == "not_object") {
        script.bad_ready = BadReady::not_object;
    } else if (value == "false") {
        script.bad_ready = BadReady::not_ready;
    } else if (value == "string") {
        script.bad_ready = BadReady::string;
    } else {
        return false;
    }
    return true;
}

bool read_pause(Script &script, std::string_view value) {
    const std::size_t colon = value.find(':');
    Pause pause;
    const std::string_view point = value.substr(0, colon);
    if (point == "before_detach") {
        pause.at = Pause::At::before_detach;
    } else if (point == "after_flush") {
        pause.at = Pause::At::after_flush;
    } else if (point != "before_read") {
        return false;
    }
    if (colon == std::string_view::npos || !count(value.substr(colon + 1), pause.milliseconds)) {
        return false;
    }
    script.pause_at = pause;
    return true;
}

using V = std::string_view;

constexpr Key keys[] = {
    {"tokens", "N", false, [](Script &s, V v) { return count(v, s.tokens); },
     "room for N tokens (16; with text: all of it); the answer then ends with \"length\""},
    {"tps", "F", false, [](Script &s, V v) { return read(v, 0.0, 1e9, s.tps); },
     "tokens per second (0: as fast as it can)"},
    {"prefill_ms", "N", false, [](Script &s, V v) { return count(v, s.prefill_ms); },
     "time of the whole prefill, which beats meanwhile"},
    {"load_ms", "N", true, [](Script &s, V v) { return count(v, s.load_ms); },
     "time of loading, which beats meanwhile"},
    {"text", "WORDS", false,
     [](Script &s, V v) {
         s.text = spaced(v);
         return true;
     },
     "answer with these words, one a token, then end; _ is a space"},
    {"utf8", "", false, [](Script &s, V) { return s.utf8 = true; },
     "answer with characters of several bytes that are cut apart; 8 tokens make 3 and a space"},
    {"eos_at", "N", false, [](Script &s, V v) { return count(v, s.eos_at); },
     "the model ends its answer after N tokens"},
    {"context_length", "N", true,
     [](Script &s, V v) { return read<std::int64_t>(v, 1, most, s.context_length); },
     "context in tokens (131072); a longer prompt is refused"},
    {"chat_template", "JINJA", true,
     [](Script &s, V v) {
         s.chat_template = v;
         return true;
     },
     "chat template of the model extension (one like ChatML)"},
    {"sessions", "N", true,
     [](Script &s, V v) { return read<std::int64_t>(v, 0, 1024, s.sessions); },
     "most sessions with a name at a time (0: none)"},
    {"no_cancel", "", true, [](Script &s, V) { return s.no_cancel = true; },
     "does not offer supports_cancel"},
    {"no_cancel_prefill", "", true, [](Script &s, V) { return s.no_cancel_prefill = true; },
     "does not look at a cancel during prefill"},
    {"no_extensions", "", true, [](Script &s, V) { return s.no_extensions = true; },
     "offers no extension"},
    {"no_heartbeat", "", true, [](Script &s, V) { return s.no_heartbeat = true; },
     "does not offer heartbeat"},
    {"no_ping", "", true, [](Script &s, V) { return s.no_ping = true; }, "does not offer ping"},
    {"not_ready", "", true, [](Script &s, V) { return s.not_ready = true; },
     "exits with status 0 instead of the ready line"},
    {"never_ready", "", true, [](Script &s, V) { return s.never_ready = true; },
     "does nothing for ever instead of the ready line"},
    {"bad_ready", "KIND", true, read_bad_ready,
     "a ready line of this kind: not_json, not_object, false (not ready), string (ready is one)"},
    {"ignore_eof", "", true, [](Script &s, V) { return s.ignore_eof = true; },
     "does not end at the end of its input"},
    {"ignore_sigterm", "", false, [](Script &s, V) { return s.ignore_sigterm = true; },
     "ignores SIGTERM (from this request on)"},
    {"spawn", "N", false, [](Script &s, V v) { return read<std::int64_t>(v, 0, 64, s.spawn); },
     "forks N processes that sleep (option: once, at start)"},
    {"spawn_detached", "N", false,
     [](Script &s, V v) { return read<std::int64_t>(v, 0, 64, s.spawn_detached); },
     "the same, each with a session of its own"},
    {"spawn_stubborn", "N", false,
     [](Script &s, V v) { return read<std::int64_t>(v, 0, 64, s.spawn_stubborn); },
     "the same, in the worker's group, and each ignores SIGTERM"},
    {"spawn_escaped", "N", false,
     [](Script &s, V v) { return read<std::int64_t>(v, 0, 64, s.spawn_escaped); },
     "the same, each with a session of its own and no parent: it was forked twice"},
    {"stderr_flood", "N", false, [](Script &s, V v) { return count(v, s.stderr_flood); },
     "writes N lines a second to stderr, from now on"},
    {"leak", "BYTES", false, [](Script &s, V v) { return count(v, s.leak); },
     "takes BYTES of memory a second, from now on, and gives none back"},
    {"deaf", "", false, [](Script &s, V) { return s.deaf = true; },
     "does not read its stdin (from this request on), and does not see its end"},
    {"wrong_nonce", "", true, [](Script &s, V) { return s.wrong_nonce = true; },
     "answers a ping with the nonce of another"},
    {"wrong_session", "", true, [](Script &s, V) { return s.wrong_session = true; },
     "acknowledges what is done to a session with the name of another"},
    {"stray_done", "MS", false, [](Script &s, V v) { return count(v, s.stray_done); },
     "idle for MS after the ready line (directive: after its terminal), says done to nobody"},
    {"hang", "STAGE", false,
     [](Script &s, V v) {
         During during{};
         if (!read_during(v, during)) {
             return false;
         }
         s.hang = during;
         return true;
     },
     "does nothing for ever, without a beat, in load, prefill or decode"},
    {"hang_at", "N", false, [](Script &s, V v) { return count(v, s.hang_at); },
     "decode step of hang=decode (0)"},
    {"slow", "prefill", false, [](Script &s, V v) { return s.slow_prefill = v == "prefill"; },
     "a prefill that beats and never ends; it can be cancelled"},
    {"ignore_cancel", "", false, [](Script &s, V) { return s.ignore_cancel = true; },
     "does not hear cancel frames"},
    {"exit", "N", false,
     [](Script &s, V v) {
         Death death{Death::Way::exit, 0};
         const bool good = read(v, 0, 255, death.number);
         s.death = death;
         return good;
     },
     "exits with status N"},
    {"signal", "NAME", false, read_signal, "sends itself a signal, such as SEGV"},
    {"abort", "", false,
     [](Script &s, V) {
         s.death = Death{};
         return true;
     },
     "calls abort()"},
    {"at", "N", false, [](Script &s, V v) { return count(v, s.at); },
     "decode step of exit, signal, abort, garbage, half_line, big_line, close_stdout, error (0)"},
    {"during", "STAGE", false, [](Script &s, V v) { return read_during(v, s.during); },
     "exit, signal or abort at the start of load or prefill, or in decode (decode)"},
    {"garbage", "", false, [](Script &s, V) { return s.garbage = true; },
     "writes a line that is not JSON"},
    {"half_line", "", false, [](Script &s, V) { return s.half_line = true; },
     "writes half a line and exits with status 0"},
    {"big_line", "BYTES", false,
     [](Script &s, V v) {
         std::int64_t bytes = 0;
         if (!read<std::int64_t>(v, 0, std::int64_t{1} << 28, bytes)) {
             return false;
         }
         s.big_line = bytes;
         return true;
     },
     "writes a token of BYTES on one line (at most 256 MiB)"},
    {"close_stdout", "", false, [](Script &s, V) { return s.close_stdout = true; },
     "closes stdout and does nothing for ever, but stays alive"},
    {"two_dones", "", false, [](Script &s, V) { return s.two_dones = true; },
     "ends the request twice"},
    {"late_done", "MS", false, [](Script &s, V v) { return count(v, s.late_done); },
     "after a cancel: silent for MS, then a proper done"},
    {"error", "TEXT", false,
     [](Script &s, V v) {
         s.error = spaced(v);
         return true;
     },
     "the request ends with this error; _ is a space"},
    {"stderr", "N", false, [](Script &s, V v) { return count(v, s.stderr_lines); },
     "writes N lines to stderr before the first token"},
    {"pause_at", "POINT:MS", false, read_pause,
     "the runtime pauses before_detach, after_flush or before_read"},
};

const Key *find(std::string_view name) {
    std::string plain(name);
    std::replace(plain.begin(), plain.end(), '-', '_');
    for (const Key &key : keys) {
        if (key.name == plain) {
            return &key;
        }
    }
    return nullptr;
}

} // namespace

std::string apply(Script &script, std::string_view name, std::optional<std::string_view> value,
                  Place place) {
    const std::string shown = (place == Place::option ? "--" : "sim.") + std::string(name);
    const Key *key = find(name);
    if (key == nullptr) {
        return "unknown " + std::string(place == Place::option ? "option " : "directive ") + shown +
               "; see sllm-sim-worker --help";
    }
    if (place == Place::directive && key->option_only) {
        return "cannot use " + shown + " in a prompt; give it as an option of the worker";
    }
    const bool flag = key->value.empty();
    if (flag && value) {
        return "cannot give " + shown + " a value; leave it out";
    }
    if (!flag && !value) {
        return shown + " needs a value; see sllm-sim-worker --help";
    }
    if (!key->store(script, value.value_or(""))) {
        return "cannot use '" + std::string(*value) + "' for " + shown +
               "; see sllm-sim-worker --help";
    }
    const bool loading = script.during == During::load || script.hang == During::load;
    if (place == Place::directive && loading) {
        return "cannot do " + shown + " in a prompt: the model is loaded; give prefill or decode";
    }
    return {};
}

bool takes_value(std::string_view name) {
    const Key *key = find(name);
    return key != nullptr && !key->value.empty();
}

std::string help() {
    std::string text = R"(usage: sllm-sim-worker [--KEY | --KEY VALUE | --KEY=VALUE ...]

A worker without a model, for tests: it speaks the protocol through the same runtime as the real
ones and does what it is told, faults included. Options hold for all requests. A prompt may hold
the same keys as words of their own, sim.KEY or sim.KEY=VALUE, for that request; its other words
are the prompt, one token each. The answer is "t0 t1 t2 ...".

)";
    for (const Key &key : keys) {
        std::string line = "  " + std::string(key.name);
        line += key.value.empty() ? "" : "=" + std::string(key.value);
        line += key.option_only ? " (option only)" : "";
        text += line + "\n      " + std::string(key.help) + "\n";
    }
    text += "\nexit status: 0 end of input, 2 bad options, or what a fault says\n";
    return text;
}

} // namespace sllm::sim
