#pragma once

#include <functional>
#include <optional>
#include <string>

#include "sllm/generate.hpp"
#include "support.hpp"

namespace sllm::test {

struct RecordingSeams final : Seams {
    std::function<void(bool)> detaching = [](bool) {};
    std::function<void()> flushed = [] {};
    void before_detach(bool cancelled) override { detaching(cancelled); }
    void after_flush() override { flushed(); }
};

/// All that one request is served with.
struct Bench {
    FakeEngine engine;
    RecordingSeams seams;
    CancelController controller{seams};
    Captured captured;
    Progress progress;
    std::optional<Sessions> sessions;
    GenerateRequest request{.prompt = whole("one two three"), .cancel_id = 1};

    Sessions &table() {
        if (!sessions) {
            sessions = sessions_of(engine); // with what the test has made of the engine
        }
        return *sessions;
    }

    bool run() {
        Workbench bench{engine, table(), controller, captured.output(), progress, seams};
        return generate(request, bench);
    }

    /// The terminal of the request; none if nobody reads.
    Json terminal() { return run() ? captured.terminal() : Json(); }

    /// The same with the next id.
    Json next() {
        request.cancel_id = request.cancel_id.value_or(0) + 1;
        return terminal();
    }

    void cancel() { controller.deliver(request.cancel_id.value_or(0)); }
};

/// Whether a terminal is the one of a cancelled request.
inline bool cancelled(const Json &terminal) {
    return terminal.value("done", false) && terminal.value("cancelled", false) &&
           terminal["finish_reason"] == "stop" && !terminal.contains("generated_token_ids");
}

} // namespace sllm::test
