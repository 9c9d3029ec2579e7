#include "sllm/worker.hpp"

#include <csignal>
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
#include "sllm/sessions.hpp"

namespace sllm {
namespace {

constexpr std::uint64_t load_units = 1000;

const WorkerEnd unread{1, "cannot write replies: nobody reads them any more"};

/// Tell the operator; there is nobody to tell if that cannot be written.
void say(std::string_view text) {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

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
    Server(Workbench bench, const ControlThread &control) : bench_(bench), control_(control) {}

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
        const Request request = read_request(incoming.json, control_.supported());
        if (const auto *wanted = std::get_if<GenerateRequest>(&request)) {
            if (wanted->cancel_id && control_.ended() && !std::exchange(told_deaf_, true)) {
                say("sllm: the control pipe has ended; requests are served but no cancel reaches "
                    "them\n");
            }
            return generate(*wanted, bench_);
        }
        if (const auto *session = std::get_if<SessionRequest>(&request)) {
            return operate(*session);
        }
        const auto &refused = std::get<RefusedRequest>(request);
        if (refused.cancel_id) {
            bench_.controller.refuse(*refused.cancel_id);
        }
        return bench_.output.write_line(error_line(refused.refusal));
    }

    bool operate(const SessionRequest &request) {
        std::optional<Refusal> refusal;
        std::string_view done;
        switch (request.operation) {
        case SessionRequest::Operation::open:
            refusal = bench_.sessions.open(request.session_id);
            done = "opened";
            break;
        case SessionRequest::Operation::close:
            bench_.sessions.close(request.session_id);
            done = "closed";
            break;
        case SessionRequest::Operation::reset:
            refusal = bench_.sessions.reset(request.session_id);
            done = "reset";
            break;
        }
        return bench_.output.write_line(refusal ? error_line(*refusal)
                                                : session_line(done, request.session_id));
    }

    Workbench bench_;
    const ControlThread &control_;
    bool told_deaf_ = false;
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
    auto made = Sessions::make(engine);
    if (const auto *failed = std::get_if<Failed>(&made)) {
        return {1, failed->message};
    }
    auto &sessions = std::get<Sessions>(made);

    CancelController controller(seams);
    UniqueFd pipe = take_control_pipe();
    if (withheld.cancel) {
        pipe.close();
    }
    const ControlThread control(std::move(pipe), controller);
    const std::optional<std::string> ready =
        seams.announce(ready_line({sessions.most_named(), control.supported(),
                                   extensions.names(control.supported(), engine.can_stop_prefill()),
                                   extensions.any ? &engine.model() : nullptr}));
    if (!ready) {
        return {0, {}};
    }
    progress.rest();
    if (!output.write_line(*ready)) {
        return unread;
    }
    RequestReader reader(STDIN_FILENO, output, {.answer_pings = extensions.ping});
    Server server({engine, sessions, controller, output, progress, seams}, control);
    return server.serve(reader);
}

WorkerEnd run_worker(Engine &engine) {
    Seams none;
    return run_worker(engine, none);
}

} // namespace sllm
