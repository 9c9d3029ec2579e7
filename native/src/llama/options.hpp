#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace sllm::llama {

/// What the command line of sllm-llama-worker says.
struct Options {
    std::string model;           ///< path of the GGUF file
    std::int32_t threads = 1;    ///< computing threads, the calling one included
    std::uint32_t context = 0;   ///< tokens; 0 means the model's own, at most default_context_cap
    std::uint32_t sessions = 4;  ///< most sessions with a name; each has a context when it is used
    std::uint32_t batch = 512;   ///< most tokens in one call of the engine
    std::uint32_t ubatch = 128;  ///< most tokens in one computing step; bounds the wait of a cancel
    std::int32_t gpu_layers = 0; ///< layers put on a GPU
    bool map = true;             ///< map the file, so that processes share it
    bool verbose = false;        ///< pass on all of llama.cpp's log, not only warnings
};

/// Models claim contexts that no small machine can hold, so 0 does not mean "all of it".
inline constexpr std::uint32_t default_context_cap = 8192;

/// The command line asked for something else than to run: a text and the exit status that goes
/// with it (0: the help, for stdout; 2: what is wrong, for stderr).
struct Leave {
    int status;
    std::string text;
};

/// Read the command line; argv[0] is skipped. Never throws for bad options: they are a Leave.
std::variant<Options, Leave> parse_options(int argc, const char *const *argv);

} // namespace sllm::llama
