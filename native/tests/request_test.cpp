#include <catch2/catch.hpp>

#include <cstdint>
#include <limits>

#include "sllm/request.hpp"
#include "support.hpp"

using sllm::GenerateRequest;
using sllm::RefusedRequest;
using sllm::SessionRequest;
using sllm::test::Json;
using sllm::test::whole;

namespace {

sllm::Request read(const char *text, bool supports_cancel = true) {
    return sllm::read_request(Json::parse(text), supports_cancel);
}

GenerateRequest good(const char *text) {
    const sllm::Request request = read(text);
    if (const auto *refused = std::get_if<RefusedRequest>(&request)) {
        FAIL(text << " was refused: " << refused->refusal.message);
    }
    return std::get<GenerateRequest>(request);
}

RefusedRequest bad(const char *text, bool supports_cancel = true) {
    const sllm::Request request = read(text, supports_cancel);
    INFO(text);
    REQUIRE(std::holds_alternative<RefusedRequest>(request));
    return std::get<RefusedRequest>(request);
}

} // namespace

TEST_CASE("A prompt alone has the defaults of the protocol", "[request]") {
    const GenerateRequest request = good(R"({"prompt": "hi"})");
    CHECK(whole("hi") == request.prompt);
    CHECK("" == request.session_id);
    CHECK(-1 == request.max_new_tokens);
    CHECK(sllm::Sampling{} == request.sampling);
    CHECK(request.stop.empty());
    CHECK_FALSE(request.cancel_id);
}

TEST_CASE("All fields of a request are read", "[request]") {
    const GenerateRequest request = good(
        R"({"prompt": "p", "max_new_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 40,
            "seed": 9223372036854775807, "stop": ["a", "b"], "session_id": "s",
            "cancel_request_id": 18446744073709551615})");
    CHECK("s" == request.session_id);
    CHECK(7 == request.max_new_tokens);
    CHECK(sllm::Sampling{0.5, 0.9, 40, 9223372036854775807ULL} == request.sampling);
    CHECK(std::vector<std::string>{"a", "b"} == request.stop);
    CHECK(std::numeric_limits<std::uint64_t>::max() == request.cancel_id);
}

TEST_CASE("Values at the edges of their ranges are taken", "[request]") {
    CHECK(0 == good(R"({"prompt": "", "temperature": 0})").sampling.temperature);
    CHECK(1.0 == good(R"({"prompt": "p", "top_p": 1})").sampling.top_p);
    CHECK(2147483647 == good(R"({"prompt": "p", "top_k": 2147483647})").sampling.top_k);
    CHECK(0 == good(R"({"prompt": "p", "seed": 0})").sampling.seed);
    CHECK(std::numeric_limits<std::int64_t>::min() ==
          good(R"({"prompt": "p", "max_new_tokens": -9223372036854775808})").max_new_tokens);
    CHECK(1 == good(R"({"prompt": "p", "cancel_request_id": 1})").cancel_id);
}

TEST_CASE("A value of the wrong type or range is refused and its field named", "[request]") {
    struct Case {
        const char *request;
        const char *field;
    };
    const Case cases[] = {
        {R"({})", "prompt"},
        {R"({"prompt": 1})", "prompt"},
        {R"({"prompt": null})", "prompt"},
        {R"({"prompt": ["a"]})", "prompt"},
        {R"({"prompt": "p", "prompt_segments": [{"text": "a"}]})", "prompt_segments"},
        {R"({"prompt_segments": []})", "prompt_segments"},
        {R"({"prompt_segments": "a"})", "prompt_segments"},
        {R"({"prompt_segments": null})", "prompt_segments"},
        {R"({"prompt_segments": {"text": "a"}})", "prompt_segments"},
        {R"({"prompt_segments": ["a"]})", "prompt_segments"},
        {R"({"prompt_segments": [{}]})", "a segment without text and ids"},
        {R"({"prompt_segments": [{"text": 1}]})", "text"},
        {R"({"prompt_segments": [{"text": null}]})", "text"},
        {R"({"prompt_segments": [{"ids": 1}]})", "ids"},
        {R"({"prompt_segments": [{"ids": ["1"]}]})", "ids"},
        {R"({"prompt_segments": [{"ids": [1.0]}]})", "ids"},
        {R"({"prompt_segments": [{"ids": [-1]}]})", "ids"},
        {R"({"prompt_segments": [{"ids": [2147483648]}]})", "ids"},
        {R"({"prompt_segments": [{"ids": [18446744073709551616]}]})", "ids"},
        {R"({"prompt_segments": [{"ids": [1], "text": 2}]})", "text"},
        {R"({"prompt_segments": [{"image": {}}]})", "'image'"},
        {R"({"prompt_segments": [{"text": "a"}, {"ids": [null]}]})", "ids"},
        {R"({"prompt": "p", "max_new_tokens": 1.0})", "max_new_tokens"},
        {R"({"prompt": "p", "max_new_tokens": true})", "max_new_tokens"},
        {R"({"prompt": "p", "max_new_tokens": "1"})", "max_new_tokens"},
        {R"({"prompt": "p", "max_new_tokens": 9223372036854775808})", "max_new_tokens"},
        {R"({"prompt": "p", "temperature": -0.1})", "temperature"},
        {R"({"prompt": "p", "temperature": "hot"})", "temperature"},
        {R"({"prompt": "p", "temperature": true})", "temperature"},
        {R"({"prompt": "p", "top_p": 0})", "top_p"},
        {R"({"prompt": "p", "top_p": 1.01})", "top_p"},
        {R"({"prompt": "p", "top_p": null})", "top_p"},
        {R"({"prompt": "p", "top_k": -1})", "top_k"},
        {R"({"prompt": "p", "top_k": 2147483648})", "top_k"},
        {R"({"prompt": "p", "top_k": 1.5})", "top_k"},
        {R"({"prompt": "p", "seed": -1})", "seed"},
        {R"({"prompt": "p", "seed": 9223372036854775808})", "seed"},
        {R"({"prompt": "p", "stop": "END"})", "stop"},
        {R"({"prompt": "p", "stop": [1]})", "stop"},
        {R"({"prompt": "p", "stop": ["a", ""]})", "stop"},
        {R"({"prompt": "p", "session_id": 1})", "session_id"},
        {R"({"prompt": "p", "cancel_request_id": 0})", "cancel_request_id"},
        {R"({"prompt": "p", "cancel_request_id": -1})", "cancel_request_id"},
        {R"({"prompt": "p", "cancel_request_id": 1.0})", "cancel_request_id"},
        {R"({"prompt": "p", "cancel_request_id": true})", "cancel_request_id"},
        {R"({"prompt": "p", "cancel_request_id": "1"})", "cancel_request_id"},
        {R"({"prompt": "p", "cancel_request_id": null})", "cancel_request_id"},
        {R"({"prompt": "p", "cancel_request_id": 18446744073709551616})", "cancel_request_id"},
        {R"({"prompt": "p", "n": 2})", "'n'"},
        {R"([])", "JSON object"},
        {R"("prompt")", "JSON object"},
        {R"(null)", "JSON object"},
        {R"({"op": "fly"})", "fly"},
        {R"({"op": "generate", "prompt": "p"})", "generate"},
        {R"({"op": "ping", "nonce": 1})", "ping"},
        {R"({"op": 1})", "op 'number'"},
        {R"({"op": null, "prompt": "p"})", "op 'null'"},
        {R"({"op": "close"})", "session_id"},
        {R"({"op": "close", "session_id": ""})", "session_id"},
        {R"({"op": "reset", "session_id": 3})", "session_id"},
        {R"({"op": "close", "session_id": "a", "prompt": "p"})", "'prompt'"},
    };
    for (const Case &each : cases) {
        const std::string message = bad(each.request).refusal.message;
        INFO(each.request << " -> " << message);
        CHECK(message.starts_with("cannot "));
        CHECK(message.find("; ") != std::string::npos);
        CHECK(message.find(each.field) != std::string::npos);
    }
}

TEST_CASE("A cancel id that was not offered is refused", "[request]") {
    const RefusedRequest refused = bad(R"({"prompt": "p", "cancel_request_id": 1})", false);
    CHECK(refused.refusal.message.find("supports_cancel") != std::string::npos);
}

TEST_CASE("A refused request tells its cancel id, if that was good", "[request]") {
    CHECK(5 == bad(R"({"prompt": 1, "cancel_request_id": 5})").cancel_id);
    CHECK(5 == bad(R"({"prompt_segments": [], "cancel_request_id": 5})").cancel_id);
    CHECK_FALSE(bad(R"({"prompt": "p", "cancel_request_id": 5.0})").cancel_id);
}

TEST_CASE("Deep and long values are refused without quoting them", "[request]") {
    std::string deep(100'000, '[');
    deep += std::string(100'000, ']');
    CHECK(bad(("{\"op\": " + deep + "}").c_str()).refusal.message.size() < 200);
    CHECK(bad(("{\"prompt\": " + deep + "}").c_str()).refusal.message.size() < 200);
    const std::string text(100'000, 'x');
    CHECK(bad(("{\"prompt\": \"p\", \"" + text + "\": 1}").c_str()).refusal.message.size() < 200);
    for (const char *start :
         {R"({"prompt": "p", "session_id": ")", R"({"op": "open", "session_id": ")"}) {
        const RefusedRequest refused = bad((start + text + "\"}").c_str());
        CHECK(refused.refusal.message.find("1024") != std::string::npos);
        CHECK(refused.refusal.session_id.empty());
    }
}

TEST_CASE("Segments are texts and tokens, and nothing is added to them", "[request]") {
    const GenerateRequest request = good(
        R"({"prompt_segments": [{"text": "a"}, {"ids": []}, {"ids": [0, 2147483647]}, {"text": ""}]})");
    const sllm::Prompt expected{
        {"a", std::vector<sllm::Token>{}, std::vector<sllm::Token>{0, 2147483647}, ""}, false};
    CHECK(expected == request.prompt);
}

TEST_CASE("Tokens go before a text in the same segment", "[request]") {
    const sllm::Prompt expected{{std::vector<sllm::Token>{7}}, false};
    CHECK(expected == good(R"({"prompt_segments": [{"text": "a", "ids": [7]}]})").prompt);
}

TEST_CASE("Each operation on a session is read with its name", "[request]") {
    using Operation = SessionRequest::Operation;
    const std::pair<const char *, Operation> operations[] = {
        {R"({"op": "open", "session_id": "x"})", Operation::open},
        {R"({"op": "close", "session_id": "x"})", Operation::close},
        {R"({"op": "reset", "session_id": "x"})", Operation::reset},
    };
    for (const auto &[text, operation] : operations) {
        const auto request = std::get<SessionRequest>(read(text));
        CHECK(operation == request.operation);
        CHECK("x" == request.session_id);
    }
}

TEST_CASE("Only a whole number makes a ping", "[request]") {
    const auto is_ping = [](const char *text) {
        const Json json = Json::parse(text);
        return sllm::ping_nonce(json) != nullptr;
    };
    CHECK(is_ping(R"({"op": "ping", "nonce": 0})"));
    CHECK(is_ping(R"({"op": "ping", "nonce": 18446744073709551615})"));
    CHECK(is_ping(R"({"nonce": -1, "op": "ping"})"));
    CHECK_FALSE(is_ping(R"({"op": "ping"})"));
    CHECK_FALSE(is_ping(R"({"op": "ping", "nonce": 1.5})"));
    CHECK_FALSE(is_ping(R"({"op": "ping", "nonce": "1"})"));
    CHECK_FALSE(is_ping(R"({"op": "ping", "nonce": 1, "x": 1})"));
    CHECK_FALSE(is_ping(R"({"op": "close", "nonce": 1})"));
    CHECK_FALSE(is_ping(R"(["ping", 1])"));
}
