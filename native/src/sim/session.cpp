#include "session.hpp"

#include <array>
#include <string_view>

#include "faults.hpp"

namespace sllm::sim {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t usual_tokens = 16;
constexpr auto beat_period = std::chrono::milliseconds(10);

/// U+00E9, U+20AC, U+1F600 and a space, cut inside of the characters.
constexpr std::array<std::string_view, 8> cut_characters{"\xC3", "\xA9", "\xE2\x82", "\xAC",
                                                         "\xF0", "\x9F", "\x98",     "\x80 "};

/// The nth word of a text, with the space before it unless it is the first; none if there is none.
std::optional<std::string> word_of(std::string_view text, std::int64_t number) {
    std::size_t start = 0;
    for (std::int64_t at = 0; at < number; ++at) {
        start = text.find(' ', start + 1);
        if (start == std::string_view::npos) {
            return std::nullopt;
        }
    }
    if (text.empty()) {
        return std::nullopt;
    }
    const std::size_t end = text.find(' ', start + 1);
    return std::string(text.substr(start, end == std::string_view::npos ? end : end - start));
}

} // namespace

void StopFlag::set() noexcept {
    {
        const std::scoped_lock lock(mutex_);
        set_ = true;
    }
    changed_.notify_all();
}

void StopFlag::clear() {
    const std::scoped_lock lock(mutex_);
    set_ = false;
}

bool StopFlag::is_set() {
    const std::scoped_lock lock(mutex_);
    return set_;
}

bool StopFlag::wait_until(Clock::time_point deadline, Progress &progress) {
    std::unique_lock lock(mutex_);
    for (;;) {
        progress.beat();
        const Clock::time_point now = Clock::now();
        if (set_ || now >= deadline) {
            return set_;
        }
        changed_.wait_until(lock, std::min(deadline, now + beat_period));
    }
}

ResetResult SimSession::reset() {
    stop_.clear();
    answering_ = true;
    return Ok{};
}

PrefillResult SimSession::prefill(std::span<const Token> tokens) {
    const Script &script = scene_.script;
    if (answering_) {
        answering_ = false;
        prefilled_ = 0;
        step_ = 0;
        start_request();
    }
    prefilled_ += tokens.size();
    if (script.slow_prefill) {
        while (!stop_.wait_until(Clock::now() + std::chrono::hours(1), progress_)) {
        }
        return Stopped{};
    }
    const std::chrono::duration<double, std::milli> due(
        static_cast<double>(script.prefill_ms) * static_cast<double>(prefilled_) /
        static_cast<double>(std::max(scene_.prompt_tokens, prefilled_)));
    if (stop_.wait_until(start_ + std::chrono::duration_cast<Clock::duration>(due), progress_)) {
        return Stopped{};
    }
    return Ok{};
}

void SimSession::start_request() {
    const Script &script = scene_.script;
    begin_faults(script, scene_.nuisance);
    write_stderr(script.stderr_lines);
    if (script.death && script.during == During::prefill) {
        die(*script.death);
    }
    if (script.hang == During::prefill) {
        hang();
    }
    start_ = Clock::now();
}

DecodeResult SimSession::decode_one(const Sampling & /*sampling*/) {
    const Script &script = scene_.script;
    answering_ = true;
    if (step_ == 0) {
        start_ = Clock::now();
    }
    if (std::optional<Failed> failed = misbehave()) {
        return *failed;
    }
    if (step_ >= script.tokens.value_or(script.text ? step_ + 1 : usual_tokens)) {
        return NoRoom{};
    }
    Clock::time_point due = Clock::now();
    if (script.tps > 0) {
        const std::chrono::duration<double> spent(static_cast<double>(step_ + 1) / script.tps);
        due = start_ + std::chrono::duration_cast<Clock::duration>(spent);
    }
    if (stop_.wait_until(due, progress_)) {
        return Stopped{};
    }
    if (script.eos_at && step_ >= *script.eos_at) {
        return EndOfText{};
    }
    std::optional<std::string> text = piece();
    if (!text) {
        return EndOfText{};
    }
    return Decoded{static_cast<Token>(step_++), std::move(*text)};
}

std::optional<Failed> SimSession::misbehave() {
    const Script &script = scene_.script;
    if (script.hang == During::decode && step_ == script.hang_at) {
        hang();
    }
    if (step_ != script.at) {
        return std::nullopt;
    }
    if (script.garbage) {
        static_cast<void>(scene_.output->write_raw("this is not JSON\n"));
    }
    if (script.big_line) {
        std::string line = "{\"token\":\"";
        line.append(static_cast<std::size_t>(*script.big_line), 'x');
        static_cast<void>(scene_.output->write_raw(line + "\"}\n"));
    }
    if (script.close_stdout) {
        scene_.output->close();
        hang();
    }
    if (script.half_line) {
        static_cast<void>(scene_.output->write_raw("{\"token\": \"hal"));
        die({Death::Way::exit, 0});
    }
    if (script.death && script.during == During::decode) {
        die(*script.death);
    }
    if (script.error) {
        return Failed{*script.error};
    }
    return std::nullopt;
}

std::optional<std::string> SimSession::piece() const {
    const Script &script = scene_.script;
    if (script.text) {
        return word_of(*script.text, step_);
    }
    if (script.utf8) {
        return std::string(cut_characters[static_cast<std::size_t>(step_) % cut_characters.size()]);
    }
    return "t" + std::to_string(step_) + " ";
}

} // namespace sllm::sim
