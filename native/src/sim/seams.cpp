#include "seams.hpp"

#include "faults.hpp"

namespace sllm::sim {

Seams::Withheld SimSeams::withheld() const {
    const Script &script = scene_.defaults;
    return {script.no_cancel, script.no_extensions, script.no_heartbeat, script.no_ping};
}

void SimSeams::started(Output &output) {
    const Script &script = scene_.defaults;
    scene_.output = &output;
    if (script.ignore_sigterm) {
        ignore_sigterm();
    }
    spawn(script.spawn, script.spawn_detached);
}

std::optional<std::string> SimSeams::announce(std::string line) {
    const Script &script = scene_.defaults;
    if (script.never_ready) {
        hang();
    }
    if (script.not_ready) {
        return std::nullopt;
    }
    if (script.bad_ready) {
        switch (*script.bad_ready) {
        case BadReady::not_json:
            return "ready";
        case BadReady::not_object:
            return "[\"ready\"]";
        case BadReady::not_ready:
            return "{\"ready\": false}";
        case BadReady::string:
            return "{\"ready\": \"yes\"}";
        }
    }
    return line;
}

void SimSeams::before_detach(bool cancelled) {
    if (cancelled) {
        pause_for(scene_.script.late_done);
    }
    pause(Pause::At::before_detach);
}

void SimSeams::before_end() {
    if (scene_.defaults.ignore_eof) {
        hang();
    }
}

bool SimSeams::hears_cancel(std::uint64_t /*id*/) noexcept { return !scene_.deaf; }

void SimSeams::pause(Pause::At at) const {
    const Script &script = scene_.script;
    if (script.pause_at && script.pause_at->at == at) {
        pause_for(script.pause_at->milliseconds);
    }
}

} // namespace sllm::sim
