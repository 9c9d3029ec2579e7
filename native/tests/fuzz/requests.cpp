/// Requests: whatever a line holds, it is taken with values in their ranges, or refused in one line
/// of JSON that any daemon can read.

#include <array>
#include <cmath>

#include <nlohmann/json.hpp>

#include "input.hpp"
#include "sllm/reply.hpp"
#include "sllm/request.hpp"

using namespace sllm;

namespace {

constexpr std::array<std::string_view, 16> keys{
    "prompt", "prompt_segments", "text",        "ids",   "op",    "session_id", "cancel_request_id",
    "nonce",  "max_new_tokens",  "temperature", "top_p", "top_k", "seed",       "stop",
    "image",  "PROMPT"};

constexpr std::array<std::string_view, 28> values{"null",
                                                  "true",
                                                  "false",
                                                  "0",
                                                  "-0.0",
                                                  "1",
                                                  "-1",
                                                  "1.0",
                                                  "0.5",
                                                  "1e-320",
                                                  "1e999",
                                                  "2147483648",
                                                  "9223372036854775807",
                                                  "9223372036854775808",
                                                  "18446744073709551615",
                                                  "18446744073709551616",
                                                  R"("")",
                                                  R"("x")",
                                                  R"("close")",
                                                  R"("open")",
                                                  R"("reset")",
                                                  R"("ping")",
                                                  R"("\ud800")",
                                                  R"("\u0000")",
                                                  "\"\xFF\"",
                                                  "[]",
                                                  "{}",
                                                  R"([""])"};

constexpr int deepest = 4;

std::string object(fuzz::Input &input, int depth);

/// A value, or a list or an object of some.
std::string value(fuzz::Input &input, int depth) {
    const std::uint8_t choice = input.byte();
    if (choice < 200 || depth >= deepest) {
        return std::string(values[choice % values.size()]);
    }
    if (choice < 228) {
        return object(input, depth + 1);
    }
    std::string list = "[";
    for (unsigned left = choice % 4U; left > 0; --left) {
        list += value(input, depth + 1) + (left > 1 ? "," : "");
    }
    return list + "]";
}

/// An object whose keys are mostly those of a request.
std::string object(fuzz::Input &input, int depth) {
    std::string text = "{";
    for (unsigned left = input.byte() % 6U; left > 0; --left) {
        text += '"' + std::string(keys[input.byte() % keys.size()]) + "\":";
        text += value(input, depth) + (left > 1 ? "," : "");
    }
    return text + "}";
}

void check_reply(const std::string &line) {
    fuzz::expect(line.find('\n') == std::string::npos, "a reply is one line");
    fuzz::expect(line.size() < std::size_t{64} << 10U, "a reply has a bounded length");
    fuzz::expect(nlohmann::json::parse(line, nullptr, false).is_object(), "a reply is an object");
}

void check_taken(const GenerateRequest &request, bool supports_cancel) {
    const Sampling &sampling = request.sampling;
    fuzz::expect(std::isfinite(sampling.temperature) && sampling.temperature >= 0, "temperature");
    fuzz::expect(sampling.top_p > 0 && sampling.top_p <= 1, "top_p");
    fuzz::expect(sampling.top_k >= 0, "top_k");
    for (const std::string &word : request.stop) {
        fuzz::expect(!word.empty(), "no stop word is empty");
    }
    fuzz::expect(!request.cancel_id || (supports_cancel && *request.cancel_id > 0), "cancel id");
}

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::uint8_t how = input.byte();
    const bool supports_cancel = (how & 1U) != 0;
    // The bytes themselves, or what they choose: chance alone seldom writes JSON.
    const std::string line = how < 32 ? std::string(input.rest()) : object(input, 0);
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_discarded()) {
        return 0;
    }
    if (const nlohmann::json *nonce = ping_nonce(json)) {
        check_reply(pong_line(*nonce));
    }
    const Request request = read_request(json, supports_cancel);
    if (const auto *wanted = std::get_if<GenerateRequest>(&request)) {
        check_taken(*wanted, supports_cancel);
    } else if (const auto *refused = std::get_if<RefusedRequest>(&request)) {
        fuzz::expect(!refused->refusal.message.empty(), "a refusal says why");
        check_reply(error_line(refused->refusal));
    } else {
        const auto &session = std::get<SessionRequest>(request);
        fuzz::expect(!session.session_id.empty(), "a session has a name");
    }
    return 0;
}
