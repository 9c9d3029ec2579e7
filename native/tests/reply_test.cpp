#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "sllm/reply.hpp"
#include "support.hpp"

using sllm::test::Json;

TEST_CASE("A plain worker says nothing more than that it is ready", "[reply]") {
    CHECK(R"({"ready":true,"max_sessions":1,"max_named_sessions":0})" == sllm::ready_line({}));
}

TEST_CASE("The ready line offers what there is", "[reply]") {
    const sllm::ModelInfo model{"m", 4096, "{{ x }}", "<s>", "</s>", 135, "Q4_1"};
    CHECK(R"({"ready":true,"max_sessions":5,"max_named_sessions":4,"supports_cancel":true,)"
          R"("extensions":["ping","model"],"model":{"id":"m","context_length":4096,)"
          R"("chat_template":"{{ x }}","bos_token":"<s>","eos_token":"</s>","parameters":135,)"
          R"("quantization":"Q4_1"}})" == sllm::ready_line({4, true, {"ping", "model"}, &model}));
}

TEST_CASE("What is not known of a model is left out", "[reply]") {
    const sllm::ModelInfo model{.id = "m"};
    CHECK(Json::parse(R"({"id":"m"})") ==
          Json::parse(sllm::ready_line({0, false, {"model"}, &model}))["model"]);
}

TEST_CASE("A token is one line whatever is in it", "[reply]") {
    CHECK(R"({"token":"a\nb\"\\"})" == sllm::token_line("a\nb\"\\"));
    CHECK("{\"token\":\"\u20AC\"}" == sllm::token_line("\u20AC"));
    CHECK("{\"token\":\"\uFFFD\"}" == sllm::token_line("\xFF"));
}

TEST_CASE("A terminal has all fields of the protocol", "[reply]") {
    sllm::Outcome outcome;
    outcome.prompt_tokens = 10;
    outcome.reused_tokens = 4;
    outcome.prefilled_tokens = 6;
    outcome.reset_reason = sllm::ResetReason::exact_prefix;
    outcome.completion_tokens = 4;
    outcome.finish_reason = "length";
    outcome.prefill_ms = 100;
    outcome.decode_ms = 8;
    outcome.total_ms = 110;
    outcome.generated = {1, 2, 3, 4};
    CHECK(R"({"done":true,"prompt_tokens":10,"completion_tokens":4,"finish_reason":"length",)"
          R"("reused_prompt_tokens":4,"prefilled_prompt_tokens":6,)"
          R"("session_reset_reason":"exact_prefix",)"
          R"("prefill_ms":100.0,"decode_ms":8.0,"total_ms":110.0,"prefill_tok_s":60.0,)"
          R"("decode_tok_s":500.0,"generated_token_ids":[1,2,3,4]})" == sllm::done_line(outcome));
}

TEST_CASE("Each reason for a reset has the word of the protocol", "[reply]") {
    using Reason = sllm::ResetReason;
    const std::pair<Reason, const char *> words[] = {{Reason::new_session, "new"},
                                                     {Reason::exact_prefix, "exact_prefix"},
                                                     {Reason::mismatch, "mismatch"},
                                                     {Reason::dirty, "dirty"},
                                                     {Reason::equal, "equal"}};
    for (const auto &[reason, word] : words) {
        sllm::Outcome outcome;
        outcome.reset_reason = reason;
        CHECK(word == Json::parse(sllm::done_line(outcome))["session_reset_reason"]);
    }
}

TEST_CASE("A cancelled terminal says so and lists no tokens", "[reply]") {
    sllm::Outcome outcome;
    outcome.cancelled = true;
    const Json json = Json::parse(sllm::done_line(outcome));
    CHECK(json["cancelled"] == true);
    CHECK_FALSE(json.contains("generated_token_ids"));
}

TEST_CASE("No tokens and tokens not listed are two things", "[reply]") {
    sllm::Outcome outcome;
    CHECK_FALSE(Json::parse(sllm::done_line(outcome)).contains("generated_token_ids"));
    outcome.generated.emplace();
    CHECK(Json::array() == Json::parse(sllm::done_line(outcome))["generated_token_ids"]);
    CHECK_FALSE(Json::parse(sllm::done_line(outcome)).contains("cancelled"));
}

TEST_CASE("Numbers that JSON does not have never come out", "[reply]") {
    for (const double odd : {std::nan(""), std::numeric_limits<double>::infinity(), -1.0}) {
        sllm::Outcome outcome;
        outcome.prefill_ms = outcome.decode_ms = outcome.total_ms = odd;
        const Json json = Json::parse(sllm::done_line(outcome));
        for (const char *field :
             {"prefill_ms", "decode_ms", "total_ms", "prefill_tok_s", "decode_tok_s"}) {
            CHECK(0.0 == json[field]);
        }
    }
}

TEST_CASE("A rate over no time is 0", "[reply]") {
    sllm::Outcome outcome;
    outcome.completion_tokens = 3;
    CHECK(0.0 == Json::parse(sllm::done_line(outcome))["decode_tok_s"]);
}

TEST_CASE("An error has a code and a session only if there is one", "[reply]") {
    CHECK(R"({"error":"cannot"})" == sllm::error_line({"cannot"}));
    CHECK(R"({"error":"cannot","code":"c","session_id":"s"})" ==
          sllm::error_line({"cannot", "c", "s"}));
}

TEST_CASE("A long message is cut", "[reply]") {
    const Json json = Json::parse(sllm::error_line({std::string(1'000'000, 'x')}));
    CHECK(2003 == json["error"].get<std::string>().size());
    CHECK(
        2000 ==
        Json::parse(sllm::error_line({std::string(2000, 'x')}))["error"].get<std::string>().size());
}

TEST_CASE("Acknowledgements, pongs and heartbeats look as agreed", "[reply]") {
    CHECK(R"({"closed":true,"session_id":"__probe__"})" ==
          sllm::session_line("closed", "__probe__"));
    CHECK(R"({"pong":18446744073709551615})" == sllm::pong_line(Json(18446744073709551615ULL)));
    sllm::Progress progress;
    progress.enter(sllm::Phase::prefill, 30);
    progress.advance_to(20);
    progress.beat();
    CHECK(R"({"heartbeat":{"phase":"prefill","done":20,"total":30,"beats":2}})" ==
          sllm::heartbeat_line(progress.phase(), progress));
}
