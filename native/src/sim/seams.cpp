#include "seams.hpp"

#include <string>
#include <string_view>
#include <utility>

#include "faults.hpp"

namespace sllm::sim {
namespace {

constexpr std::string_view stray =
    R"({"done":true,"prompt_tokens":1,"completion_tokens":0,"finish_reason":"stop"})";

/// The line of an acknowledgement, for somebody who did not ask; any other line as it is.
std::string misattribute(const Script &script, std::string line) {
    if (script.wrong_nonce && line.starts_with("{\"pong\":")) {
        return "{\"pong\":4294967295}";
    }
    for (const std::string_view done : {"opened", "closed", "reset"}) {
        const std::string start = "{\"" + std::string(done) + "\":true,";
        if (script.wrong_session && line.starts_with(start)) {
            return start + "\"session_id\":\"somebody\"}";
        }
    }
    return line;
}

} // namespace

Seams::Withheld SimSeams::withheld() const {
    const Script &script = scene_.defaults;
    return {script.no_cancel, script.no_extensions, script.no_heartbeat, script.no_ping};
}

void SimSeams::started(Output &output) {
    const Script &script = scene_.defaults;
    scene_.output = &output;
    if (script.wrong_nonce || script.wrong_session) {
        output.alter([&script](std::string line) { return misattribute(script, std::move(line)); });
    }
    begin_faults(script, scene_.nuisance);
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

void SimSeams::before_read() {
    pause(Pause::At::before_read);
    if (const auto delay = std::exchange(scene_.script.stray_done, std::nullopt)) {
        pause_for(*delay);
        static_cast<void>(scene_.output->write_line(stray));
    }
}

void SimSeams::before_detach(bool cancelled) {
    if (cancelled) {
        pause_for(scene_.script.late_done);
    }
    pause(Pause::At::before_detach);
}

void SimSeams::after_flush() {
    if (scene_.script.two_dones) {
        static_cast<void>(scene_.output->write_line(stray));
    }
    pause(Pause::At::after_flush);
}

void SimSeams::before_end() {
    if (scene_.defaults.ignore_eof) {
        hang();
    }
}

bool SimSeams::hears_cancel(std::uint64_t /*id*/) noexcept { return !scene_.ignore_cancel; }

void SimSeams::pause(Pause::At at) const {
    const Script &script = scene_.script;
    if (script.pause_at && script.pause_at->at == at) {
        pause_for(script.pause_at->milliseconds);
    }
}

} // namespace sllm::sim
