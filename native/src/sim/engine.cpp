#include "engine.hpp"

#include <limits>
#include <string_view>
#include <utility>

#include "faults.hpp"
#include "prompt.hpp"
#include "session.hpp"

namespace sllm::sim {
namespace {

constexpr std::size_t usual_batch = 512;
constexpr std::int64_t load_units = 1000;

// White space around the content keeps directives in it apart from the special tokens.
constexpr std::string_view usual_template =
    "{% if tools %}<|im_start|>system\n"
    "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}\n<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

} // namespace

SimEngine::SimEngine(Scene &scene) : scene_(scene) {
    const Script &script = scene.defaults;
    model_.id = "sim";
    model_.context_length = static_cast<std::uint64_t>(script.context_length);
    model_.chat_template = script.chat_template.empty() ? usual_template : script.chat_template;
    model_.bos_token = "<|im_start|>";
    model_.eos_token = "<|im_end|>";
}

LoadResult SimEngine::load(Progress &progress) {
    progress_ = &progress;
    const Script &script = scene_.defaults;
    if (script.death && script.during == During::load) {
        die(*script.death);
    }
    if (script.hang == During::load) {
        hang();
    }
    for (std::int64_t done = 0; done < script.load_ms;) {
        const std::int64_t part = std::min<std::int64_t>(10, script.load_ms - done);
        pause_for(part);
        done += part;
        progress.advance_to(static_cast<std::uint64_t>(done * load_units / script.load_ms));
    }
    return Ok{};
}

std::size_t SimEngine::batch_tokens() const {
    // One batch: otherwise the runtime would look at cancels between them.
    return can_stop_prefill() ? usual_batch : std::numeric_limits<std::size_t>::max();
}

bool SimEngine::can_stop_prefill() const { return !scene_.defaults.no_cancel_prefill; }

std::variant<std::vector<Token>, Failed> SimEngine::tokenize(const sllm::Prompt &prompt) {
    Prompt read = begin_prompt(scene_.defaults);
    for (const Segment &segment : prompt.segments) {
        if (const auto *given = std::get_if<std::vector<Token>>(&segment)) {
            read.tokens.insert(read.tokens.end(), given->begin(), given->end());
        } else if (auto failed = read_text(std::get<std::string>(segment), read)) {
            return *std::move(failed);
        }
    }
    scene_.script = std::move(read.script);
    scene_.ignore_cancel = scene_.script.ignore_cancel;
    scene_.prompt_tokens = read.tokens.size();
    return std::move(read.tokens);
}

std::size_t SimEngine::max_sessions() const {
    return static_cast<std::size_t>(scene_.defaults.sessions) + 1;
}

std::variant<std::unique_ptr<Session>, Failed> SimEngine::make_session() {
    return std::make_unique<SimSession>(scene_, *progress_);
}

} // namespace sllm::sim
