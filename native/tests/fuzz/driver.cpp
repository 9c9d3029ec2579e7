/// Stands in for libFuzzer where the compiler has none: seeded random inputs, for some seconds.
///
///     fuzz-NAME [--seconds=N] [--seed=N]
///     fuzz-NAME FILE...
///
/// Without coverage to guide it, the inputs have to be likely ones: bytes of a small alphabet, for
/// fuzzers that make of any bytes what is worth trying. What ends the process is preceded on stderr
/// by the input in hexadecimal digits; the same seed gives the same inputs.

#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <random>
#include <span>

#include <unistd.h>

#include "input.hpp"

#if defined(__SANITIZE_ADDRESS__)
extern "C" void __sanitizer_set_death_callback(void (*callback)());
#endif

namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes current; // what is being tried, for the handlers below

void show_current() {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text = "input: ";
    for (const std::uint8_t byte : current) {
        text += digits[byte >> 4U];
        text += digits[byte & 15U];
    }
    text += '\n';
    static_cast<void>(::write(STDERR_FILENO, text.data(), text.size()) < 0);
}

void on_abort(int number) {
    show_current();
    std::signal(number, SIG_DFL);
    std::raise(number);
}

constexpr std::array<std::string_view, 5> alphabets{
    "", // all bytes
    "ab",
    "ab\n",
    "{}[]\":,0123456789.-eEtruefalsnx \\u",
    "\x41\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC1\xC2\xDF\xE0\xE1\xEC\xED\xEE\xEF\xF0\xF1\xF3\xF4\xF5",
};

class Inputs {
  public:
    explicit Inputs(std::uint64_t seed) : random_(seed) {}

    Bytes next() {
        Bytes bytes;
        for (std::uint32_t left = below(4); left > 0; --left) {
            bytes.push_back(static_cast<std::uint8_t>(below(256))); // what fuzzers take first
        }
        const std::string_view alphabet = alphabets[below(alphabets.size())];
        for (std::size_t left = below(1U + below(200)); left > 0; --left) {
            if (alphabet.empty()) {
                bytes.push_back(static_cast<std::uint8_t>(below(256)));
            } else {
                bytes.push_back(static_cast<std::uint8_t>(alphabet[below(alphabet.size())]));
            }
        }
        return bytes;
    }

  private:
    std::uint32_t below(std::size_t bound) { return static_cast<std::uint32_t>(random_() % bound); }

    std::mt19937_64 random_;
};

bool read_option(std::string_view word, std::string_view name, std::uint64_t &into) {
    if (!word.starts_with(name)) {
        return false;
    }
    into = std::strtoull(std::string(word.substr(name.size())).c_str(), nullptr, 10);
    return true;
}

void try_one(Bytes bytes) {
    current = std::move(bytes);
    LLVMFuzzerTestOneInput(current.data(), current.size());
}

} // namespace

int main(int argc, char **argv) {
    std::signal(SIGABRT, on_abort);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_set_death_callback(show_current);
#endif
    std::uint64_t seconds = 2;
    std::uint64_t seed = 1;
    bool files = false;
    for (const std::string_view word : std::span(argv + 1, static_cast<std::size_t>(argc - 1))) {
        if (read_option(word, "--seconds=", seconds) || read_option(word, "--seed=", seed)) {
            continue;
        }
        std::ifstream file{std::string(word), std::ios::binary};
        if (!file) {
            std::fprintf(stderr, "cannot read %s\n", std::string(word).c_str());
            return 2;
        }
        try_one({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
        files = true;
    }
    if (files) {
        return 0;
    }
    Inputs inputs(seed);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    std::uint64_t runs = 0;
    for (; runs % 64 != 0 || std::chrono::steady_clock::now() < end; ++runs) {
        try_one(inputs.next());
    }
    std::printf("%llu inputs\n", static_cast<unsigned long long>(runs));
    return 0;
}
