#include "sllm/worker.hpp"

#include <csignal>
#include <memory>
#include <optional>
#include <utility>

#include <unistd.h>

#include "sllm/cancel.hpp"
#include "sllm/control_thread.hpp"
#include "sllm/environment.hpp"
#include "sllm/generate.hpp"
#include "sllm/heartbeat.hpp"
#include "sllm/reply.hpp"
#include "sllm/request.hpp"
#include "sllm/request_reader.hpp"

namespace sllm {
namespace {

constexpr std::uint64_t load_units = 1000;

const WorkerEnd unread{1, "cannot write replies: nobody reads them any more"};

/// Which extensions this worker has, and whether it uses them.
struct Extensions {
    bool any = false;
    bool heartbeat = false;
    bool ping = false;

    [[nodiscard]] std::vector<std::string> names(bool cancel, bool stops_prefill) const {
        std::vector<std::string> names;
        if (ping) {
            names.emplace_back("ping");
        }
        if (heartbeat) {
            names.emplace_back("heartbeat");
        }
        if (any && cancel) {
            if (stops_prefill) {
                names.emplace_back("cancel_prefill");
            }
            names.emplace_back("cancel_ids");
        }
        if (any) {
            names.emplace_back("model");
        }
        return names;
    }
};

Extensions choose(const Environment &environment, const Seams::Withheld &withheld) {
    const bool any = environment.extensions && !withheld.extensions;
    return {any, any && !withheld.heartbeat, any && !withheld.ping};
}

/// Answers the requests of one worker, in order.
class Server {
  public:
    Server(Workbench bench, bool supports_cancel)
        : bench_(bench), supports_cancel_(supports_cancel) {}

    /// Until the input ends.
    WorkerEnd serve(RequestReader &reader) {
        for (;;) {
            bench_.seams.before_read();
            std::optional<Incoming> incoming = reader.next();
            if (!incoming) {
                bench_.seams.before_end();
                return {0, {}};
            }
            if (!answer(*incoming)) {
                return unread;
            }
        }
    }

  private:
    bool answer(const Incoming &incoming) {
        if (!incoming.problem.empty()) {
            return bench_.output.write_line(error_line({incoming.problem}));
        }
        const Request request = read_request(incoming.json, supports_cancel_);
        if (const auto *wanted = std::get_if<GenerateRequest>(&request)) {
            return generate(*wanted, bench_);
        }
        if (const auto *session = std::get_if<SessionRequest>(&request)) {
            return bench_.output.write_line(session_line(session->done, session->session_id));
        }
        const auto &refused = std::get<RefusedRequest>(request);
        if (refused.cancel_id) {
            bench_.controller.refuse(*refused.cancel_id);
        }
        return bench_.output.write_line(error_line(refused.refusal));
    }

    Workbench bench_;
    bool supports_cancel_;
};

} // namespace

WorkerEnd run_worker(Engine &engine, Seams &seams) {
    std::signal(SIGPIPE, SIG_IGN);
    Output output(take_standard_output());
    const auto read = read_environment();
    if (const auto *failed = std::get_if<Failed>(&read)) {
        return {2, failed->message};
    }
    const auto &environment = std::get<Environment>(read);
    const Seams::Withheld withheld = seams.withheld();
    const Extensions extensions = choose(environment, withheld);
    seams.started(output);

    Progress progress;
    progress.enter(Phase::load, load_units);
    std::optional<Heartbeat> heartbeat;
    if (extensions.heartbeat) {
        heartbeat.emplace(output, progress, environment.heartbeat);
    }
    if (LoadResult loaded = engine.load(progress); std::holds_alternative<Failed>(loaded)) {
        return {1, std::get<Failed>(loaded).message};
    }
    auto made = engine.make_session();
    if (const auto *failed = std::get_if<Failed>(&made)) {
        return {1, failed->message};
    }
    const auto &session = std::get<std::unique_ptr<Session>>(made);

    CancelController controller(seams);
    UniqueFd pipe = take_control_pipe();
    if (withheld.cancel) {
        pipe.close();
    }
    const ControlThread control(std::move(pipe), controller);
    const std::optional<std::string> ready = seams.announce(ready_line(
        {control.supported(), extensions.names(control.supported(), engine.can_stop_prefill()),
         extensions.any ? &engine.model() : nullptr}));
    if (!ready) {
        return {0, {}};
    }
    progress.rest();
    if (!output.write_line(*ready)) {
        return unread;
    }
    RequestReader reader(STDIN_FILENO, output, {.answer_pings = extensions.ping});
    Server server({engine, *session, controller, output, progress, seams}, control.supported());
    return server.serve(reader);
}

WorkerEnd run_worker(Engine &engine) {
    Seams none;
    return run_worker(engine, none);
}

} // namespace sllm
