#include "sllm/reply.hpp"

#include <cmath>

#include <nlohmann/json.hpp>

namespace sllm {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json &value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Clients have a limit for lines; a message may quote a request, which may be longer than that.
std::string clip(std::string_view message) {
    constexpr std::size_t most = 2000;
    if (message.size() <= most) {
        return std::string(message);
    }
    return std::string(message.substr(0, most)) + "...";
}

double finite(double value) { return std::isfinite(value) && value > 0 ? value : 0.0; }

double per_second(std::size_t tokens, double milliseconds) {
    return milliseconds > 0 ? finite(static_cast<double>(tokens) * 1000.0 / milliseconds) : 0.0;
}

Json describe(const ModelInfo &model) {
    Json json = Json::object();
    const auto add = [&json](const char *key, const std::string &value) {
        if (!value.empty()) {
            json[key] = value;
        }
    };
    add("id", model.id);
    if (model.context_length > 0) {
        json["context_length"] = model.context_length;
    }
    add("chat_template", model.chat_template);
    add("bos_token", model.bos_token);
    add("eos_token", model.eos_token);
    if (model.parameters > 0) {
        json["parameters"] = model.parameters;
    }
    add("quantization", model.quantization);
    return json;
}

} // namespace

std::string ready_line(const Offer &offer) {
    // One session more than can be named: the anonymous one.
    Json json{{"ready", true},
              {"max_sessions", offer.named_sessions + 1},
              {"max_named_sessions", offer.named_sessions}};
    if (offer.cancel) {
        json["supports_cancel"] = true;
    }
    if (!offer.extensions.empty()) {
        json["extensions"] = offer.extensions;
    }
    if (offer.model != nullptr) {
        json["model"] = describe(*offer.model);
    }
    return dump(json);
}

std::string token_line(std::string_view text) { return dump(Json{{"token", text}}); }

std::string done_line(const Outcome &outcome) {
    Json json{
        {"done", true},
        {"prompt_tokens", outcome.prompt_tokens},
        {"completion_tokens", outcome.completion_tokens},
        {"finish_reason", outcome.finish_reason},
        {"reused_prompt_tokens", outcome.reused_tokens},
        {"prefilled_prompt_tokens", outcome.prompt_tokens - outcome.reused_tokens},
        {"session_reset_reason", name_of(outcome.reset_reason)},
        {"prefill_ms", finite(outcome.prefill_ms)},
        {"decode_ms", finite(outcome.decode_ms)},
        {"total_ms", finite(outcome.total_ms)},
        {"prefill_tok_s", per_second(outcome.prefilled_tokens, outcome.prefill_ms)},
        {"decode_tok_s", per_second(outcome.completion_tokens, outcome.decode_ms)},
    };
    if (outcome.cancelled) {
        json["cancelled"] = true;
    }
    if (outcome.generated) {
        json["generated_token_ids"] = *outcome.generated;
    }
    return dump(json);
}

std::string error_line(const Refusal &refusal) {
    Json json{{"error", clip(refusal.message)}};
    if (!refusal.code.empty()) {
        json["code"] = refusal.code;
    }
    if (!refusal.session_id.empty()) {
        json["session_id"] = refusal.session_id;
    }
    return dump(json);
}

std::string session_line(std::string_view done, std::string_view session_id) {
    Json json = Json::object();
    json[std::string(done)] = true;
    json["session_id"] = session_id;
    return dump(json);
}

std::string pong_line(const nlohmann::json &nonce) { return dump(Json{{"pong", nonce}}); }

std::string heartbeat_line(Phase phase, const Progress &progress) {
    return dump(Json{{"heartbeat",
                      {{"phase", name_of(phase)},
                       {"done", progress.done()},
                       {"total", progress.total()},
                       {"beats", progress.beats()}}}});
}

} // namespace sllm
