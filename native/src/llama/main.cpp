#include <string>
#include <string_view>
#include <variant>

#include <unistd.h>

#include "engine.hpp"
#include "llama.h"
#include "log.hpp"
#include "options.hpp"
#include "sllm/worker.hpp"

namespace {

/// Whole, as far as the descriptor takes it; there is nobody to tell if it does not.
void say(int descriptor, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(descriptor, text.data(), text.size());
        if (written <= 0) {
            return;
        }
        text.remove_prefix(static_cast<std::size_t>(written));
    }
}

} // namespace

int main(int argc, char **argv) {
    const auto parsed = sllm::llama::parse_options(argc, argv);
    if (const auto *leave = std::get_if<sllm::llama::Leave>(&parsed)) {
        say(leave->status == 0 ? STDOUT_FILENO : STDERR_FILENO, leave->text);
        return leave->status;
    }
    const auto &options = std::get<sllm::llama::Options>(parsed);
    sllm::llama::Log log(options.verbose);
    llama_backend_init();
    sllm::WorkerEnd end{};
    {
        sllm::llama::LlamaEngine engine(options, log);
        end = sllm::run_worker(engine);
    }
    llama_backend_free();
    if (!end.message.empty()) {
        say(STDERR_FILENO, end.message + "\n");
    }
    return end.status;
}
