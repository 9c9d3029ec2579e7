#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine.hpp"
#include "keys.hpp"
#include "scene.hpp"
#include "seams.hpp"
#include "sllm/worker.hpp"

namespace {

/// Read the options into `script`; returns an empty string, or what is wrong.
std::string read_options(std::span<char *const> words, sllm::sim::Script &script) {
    for (std::size_t at = 0; at < words.size(); ++at) {
        std::string_view name = words[at];
        if (!name.starts_with("--")) {
            return "cannot tell what '" + std::string(name) + "' is; see sllm-sim-worker --help";
        }
        name.remove_prefix(2);
        std::optional<std::string_view> value;
        if (const std::size_t equals = name.find('='); equals != std::string_view::npos) {
            value = name.substr(equals + 1);
            name = name.substr(0, equals);
        } else if (sllm::sim::takes_value(name) && at + 1 < words.size()) {
            value = words[++at];
        }
        std::string problem = apply(script, name, value, sllm::sim::Place::option);
        if (!problem.empty()) {
            return problem;
        }
    }
    return {};
}

} // namespace

int main(int argc, char **argv) {
    const std::span<char *const> words(argv + 1, static_cast<std::size_t>(argc - 1));
    for (const std::string_view word : words) {
        if (word == "--help") {
            const std::string text = sllm::sim::help();
            return std::fputs(text.c_str(), stdout) < 0 ? 1 : 0;
        }
    }
    sllm::sim::Script script;
    if (const std::string problem = read_options(words, script); !problem.empty()) {
        std::fprintf(stderr, "sllm-sim-worker: %s\n", problem.c_str());
        return 2;
    }
    sllm::sim::Scene scene(std::move(script));
    sllm::sim::SimEngine engine(scene);
    sllm::sim::SimSeams seams(scene);
    const sllm::WorkerEnd end = sllm::run_worker(engine, seams);
    if (!end.message.empty()) {
        std::fprintf(stderr, "sllm-sim-worker: %s\n", end.message.c_str());
    }
    return end.status;
}
