// Misuse that the compiler refuses. Without VIOLATE this file compiles; with VIOLATE=n the nth case
// is added, and the test wants an error with the text that CMakeLists.txt says.

#include "sllm/prefill_plan.hpp"
#include "sllm/scope.hpp"
#include "sllm/sessions.hpp"
#include "sllm/worker.hpp"

namespace {

[[maybe_unused]] void use(sllm::RequestScope &scope, sllm::CancelController &controller,
                          sllm::Output &output, sllm::Engine &engine, sllm::Session &session,
                          sllm::ResidentSession &resident, sllm::Sessions &sessions) {
    const bool cancelled = scope.seal();
    static_cast<void>(cancelled);
#if VIOLATE == 1 // an outcome that nobody looks at
    scope.seal();
#elif VIOLATE == 2  // two owners of one activation
    sllm::RequestScope other = scope;
#elif VIOLATE == 3  // a request entered and left at once
    sllm::RequestScope::enter(controller, output, session, 1);
#elif VIOLATE == 4  // a session that ends before its scope
    auto entered = sllm::RequestScope::enter(controller, output, sllm::Stoppable(session), 1);
#elif VIOLATE == 5  // a plan that outlives its tokens
    sllm::PrefillPlan plan(std::vector<sllm::Token>{1, 2, 3}, 0, 2);
#elif VIOLATE == 6  // two owners of one output
    sllm::Output other = output;
#elif VIOLATE == 7  // an exit status that nobody reports
    sllm::run_worker(engine);
#elif VIOLATE == 8  // a reply that is lost unnoticed
    output.write_line("reply");
#elif VIOLATE == 9  // text that is lost unnoticed
    scope.emit("text");
#elif VIOLATE == 10 // two owners of one descriptor
    const sllm::UniqueFd first(3);
    const sllm::UniqueFd second = first;
#elif VIOLATE == 11 // a controller that forgets who is active
    sllm::CancelController other = controller;
#elif VIOLATE == 12 // a session that may not be ready for its request
    resident.begin({});
#elif VIOLATE == 13 // two owners of one session
    sllm::ResidentSession other = resident;
#elif VIOLATE == 14 // a client that is not told that it has no session
    sessions.open("name");
#endif
    static_cast<void>(controller);
    static_cast<void>(output);
    static_cast<void>(engine);
    static_cast<void>(session);
    static_cast<void>(resident);
    static_cast<void>(sessions);
}

} // namespace
