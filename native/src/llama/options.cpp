#include "options.hpp"

#include <charconv>
#include <span>
#include <string_view>
#include <system_error>

namespace sllm::llama {
namespace {

constexpr std::string_view help_text =
    R"(usage: sllm-llama-worker --model FILE [options]

Serves one GGUF model with llama.cpp: requests on stdin, replies on stdout, logs on stderr.
It is started by supervisord-llm, and can be driven by hand for a look.

  --model FILE     the GGUF file (required)
  --threads N      computing threads, 1 to 512 (default 1; give each worker its share of the cores)
  --ctx N          context length in tokens; 0 is the model's own, at most 8192 (default 0)
  --sessions N     most sessions with a name at a time, 0 to 1024 (default 4); each takes the memory
                   of one more context from its first use until it is closed
  --batch N        most tokens of a prompt in one call (default 512)
  --ubatch N       most tokens in one computing step, at most --batch (default 128); a cancel in a
                   long prompt waits for a part of one step, so a larger one reads prompts faster
                   and is cancelled later
  --gpu-layers N   layers to put on a GPU (default 0)
  --no-mmap        read the file instead of mapping it: each worker has its own copy, rearranged
                   for the processor where that is faster
  --verbose        pass on all of llama.cpp's log, not only warnings and errors
  --help           show this

exit status: 0 end of input, 1 the model cannot be loaded, 2 bad options
)";

Leave wrong(std::string message) {
    return {2, "sllm-llama-worker: " + std::move(message) + "; see --help\n"};
}

/// A whole number in [low, high], or nothing.
template <typename Number>
bool read_number(std::string_view text, Number low, Number high, Number &into) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high) {
        return false;
    }
    into = value;
    return true;
}

constexpr std::uint32_t most_tokens = 1U << 24U;

/// Store the value of an option that takes one; an empty string is success.
std::string store(Options &options, std::string_view name, std::string_view value) {
    bool good = false;
    std::string range;
    if (name == "--model") {
        options.model = value;
        good = !value.empty();
        range = "the path of a GGUF file";
    } else if (name == "--threads") {
        good = read_number(value, 1, 512, options.threads);
        range = "a number from 1 to 512";
    } else if (name == "--ctx") {
        good = read_number(value, 0U, most_tokens, options.context);
        range = "a number of tokens, or 0";
    } else if (name == "--sessions") {
        good = read_number(value, 0U, 1024U, options.sessions);
        range = "a number from 0 to 1024";
    } else if (name == "--batch") {
        good = read_number(value, 1U, most_tokens, options.batch);
        range = "a number of tokens from 1";
    } else if (name == "--ubatch") {
        good = read_number(value, 1U, most_tokens, options.ubatch);
        range = "a number of tokens from 1";
    } else if (name == "--gpu-layers") {
        good = read_number(value, 0, 100'000, options.gpu_layers);
        range = "a number of layers, or 0";
    } else {
        return "unknown option '" + std::string(name) + "'";
    }
    if (good) {
        return {};
    }
    return "cannot use '" + std::string(value) + "' for " + std::string(name) + "; give " + range;
}

} // namespace

std::variant<Options, Leave> parse_options(int argc, const char *const *argv) {
    Options options;
    const std::span<const char *const> words(argv, static_cast<std::size_t>(argc));
    for (std::size_t at = 1; at < words.size(); ++at) {
        std::string_view name = words[at];
        if (name == "--help") {
            return Leave{0, std::string(help_text)};
        }
        if (name == "--no-mmap") {
            options.map = false;
            continue;
        }
        if (name == "--verbose") {
            options.verbose = true;
            continue;
        }
        std::string_view value;
        if (const auto equals = name.find('='); equals != std::string_view::npos) {
            value = name.substr(equals + 1);
            name = name.substr(0, equals);
        } else if (at + 1 < words.size()) {
            value = words[++at];
        } else if (name.starts_with("--")) {
            Options unused;
            const std::string problem = store(unused, name, "1");
            return wrong(problem.empty() ? std::string(name) + " needs a value" : problem);
        }
        if (std::string problem = store(options, name, value); !problem.empty()) {
            return wrong(std::move(problem));
        }
    }
    if (options.model.empty()) {
        return wrong("no model; give --model the path of a GGUF file");
    }
    if (options.ubatch > options.batch) {
        return wrong("--ubatch " + std::to_string(options.ubatch) + " is more than --batch " +
                     std::to_string(options.batch) + "; give --ubatch at most that");
    }
    return options;
}

} // namespace sllm::llama
