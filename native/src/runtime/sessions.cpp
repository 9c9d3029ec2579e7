#include "sllm/sessions.hpp"

#include <algorithm>
#include <utility>

namespace sllm {

ResidentSession::Start ResidentSession::look(std::span<const Token> prompt) const {
    if (dirty_) {
        return {kept_ ? ResetReason::dirty : ResetReason::new_session, 0};
    }
    if (tokens_.empty()) {
        return {ResetReason::new_session, 0};
    }
    const bool begins = prompt.size() >= tokens_.size() &&
                        std::equal(tokens_.begin(), tokens_.end(), prompt.begin());
    if (!begins) {
        return {ResetReason::mismatch, 0};
    }
    if (prompt.size() == tokens_.size()) {
        return {ResetReason::equal, 0}; // with nothing to add there is nothing to choose from
    }
    return {ResetReason::exact_prefix, tokens_.size()};
}

ResetResult ResidentSession::begin(const Start &start) {
    dirty_ = true;
    if (start.reason == ResetReason::exact_prefix) {
        return Ok{};
    }
    return session_->reset();
}

void ResidentSession::keep(std::span<const Token> prompt, std::span<const Token> generated) {
    if (!kept_) {
        return;
    }
    tokens_.assign(prompt.begin(), prompt.end());
    tokens_.insert(tokens_.end(), generated.begin(), generated.end());
    dirty_ = false;
}

ResetResult ResidentSession::reset() {
    ResetResult result = session_->reset();
    if (std::holds_alternative<Ok>(result)) {
        tokens_.clear();
        dirty_ = false;
    }
    return result;
}

Sessions::Sessions(Engine &engine, std::unique_ptr<Session> anonymous)
    : engine_(&engine), most_named_(engine.max_sessions() - 1),
      anonymous_(std::move(anonymous), /*kept=*/false) {}

std::variant<Sessions, Failed> Sessions::make(Engine &engine) {
    auto made = engine.make_session();
    if (auto *failed = std::get_if<Failed>(&made)) {
        return std::move(*failed);
    }
    return Sessions(engine, std::get<std::unique_ptr<Session>>(std::move(made)));
}

std::variant<ResidentSession *, Refusal> Sessions::find(std::string_view name) {
    if (name.empty()) {
        return &anonymous_;
    }
    if (const auto found = named_.find(name); found != named_.end()) {
        return &found->second;
    }
    if (most_named_ == 0) {
        return Refusal{"cannot serve a session with a name: this worker has none; leave session_id "
                       "out",
                       "unsupported_session", std::string(name)};
    }
    if (name == probe) {
        return Refusal{"cannot serve a session of this name: idle probes close it; choose another "
                       "session_id",
                       "unsupported_session", std::string(name)};
    }
    if (named_.size() >= most_named_) {
        return Refusal{"cannot open another session: all " + std::to_string(most_named_) +
                           " are in use; close one, or leave session_id out",
                       "capacity_exhausted", std::string(name)};
    }
    auto made = engine_->make_session();
    if (auto *failed = std::get_if<Failed>(&made)) {
        return Refusal{std::move(failed->message), "capacity_exhausted", std::string(name)};
    }
    const auto added = named_.try_emplace(
        std::string(name), std::get<std::unique_ptr<Session>>(std::move(made)), /*kept=*/true);
    return &added.first->second;
}

std::optional<Refusal> Sessions::open(std::string_view name) {
    auto found = find(name);
    if (auto *refusal = std::get_if<Refusal>(&found)) {
        return std::move(*refusal);
    }
    return std::nullopt;
}

void Sessions::close(std::string_view name) {
    if (const auto found = named_.find(name); found != named_.end()) {
        named_.erase(found);
    }
}

std::optional<Refusal> Sessions::reset(std::string_view name) {
    const auto found = named_.find(name);
    if (found == named_.end()) {
        return std::nullopt;
    }
    ResetResult result = found->second.reset();
    if (auto *failed = std::get_if<Failed>(&result)) {
        return Refusal{std::move(failed->message), {}, std::string(name)};
    }
    return std::nullopt;
}

} // namespace sllm
