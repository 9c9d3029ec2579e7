#include "support.hpp"

#include <array>
#include <cerrno>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include <sys/mman.h>
#include <unistd.h>

namespace sllm::test {

Captured::Captured() : file_(::memfd_create("output", MFD_CLOEXEC)), output_(UniqueFd(file_)) {
    if (file_ < 0) {
        throw std::system_error(errno, std::generic_category(), "memfd_create");
    }
}

std::string Captured::bytes() const {
    std::string all(static_cast<std::size_t>(::lseek(file_, 0, SEEK_CUR)), '\0');
    const ssize_t size = ::pread(file_, all.data(), all.size(), 0);
    all.resize(static_cast<std::size_t>(size));
    return all;
}

void Captured::clear() {
    if (::ftruncate(file_, 0) != 0 || ::lseek(file_, 0, SEEK_SET) != 0) {
        throw std::system_error(errno, std::generic_category(), "ftruncate");
    }
}

std::vector<Json> Captured::lines() const {
    std::vector<Json> lines;
    std::istringstream stream(bytes());
    for (std::string line; std::getline(stream, line);) {
        lines.push_back(Json::parse(line));
    }
    return lines;
}

std::string Captured::text() const {
    std::string text;
    for (const Json &line : lines()) {
        text += line.value("token", "");
    }
    return text;
}

Pipe::Pipe() {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) {
        throw std::system_error(errno, std::generic_category(), "pipe");
    }
    read = UniqueFd(ends[0]);
    write = UniqueFd(ends[1]);
}

void Pipe::send(std::string_view bytes) const {
    if (::write(write.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
        throw std::system_error(errno, std::generic_category(), "write");
    }
}

void Pipe::send_frame(std::uint64_t id) const { send(frame(id)); }

std::string frame(std::uint64_t id) {
    std::string bytes;
    for (int shift = 0; shift < 64; shift += 8) {
        bytes += static_cast<char>(id >> shift & 0xFFU);
    }
    return bytes;
}

std::variant<std::vector<Token>, Failed> FakeEngine::tokenize(const Prompt &prompt) {
    std::vector<Token> tokens;
    for (const Segment &segment : prompt.segments) {
        if (const auto *given = std::get_if<std::vector<Token>>(&segment)) {
            tokens.insert(tokens.end(), given->begin(), given->end());
            continue;
        }
        std::istringstream words{std::get<std::string>(segment)};
        for (std::string word; words >> word;) {
            if (word == "untokenizable") {
                return Failed{"cannot tokenize"};
            }
            tokens.push_back(static_cast<Token>(word.size()));
        }
    }
    return tokens;
}

std::variant<std::unique_ptr<Session>, Failed> FakeEngine::make_session() {
    on_session();
    if (!fail_session.empty()) {
        return Failed{fail_session};
    }
    return std::make_unique<FakeSession>(*this);
}

FakeSession::FakeSession(FakeEngine &engine) : engine_(engine) { engine.sessions.push_back(this); }

FakeSession::~FakeSession() { std::erase(engine_.sessions, this); }

void FakeSession::stop() noexcept {
    ++engine_.stops;
    stopped_ = true;
}

ResetResult FakeSession::reset() {
    ++engine_.resets;
    engine_.on_reset();
    if (!engine_.fail_reset.empty()) {
        return Failed{engine_.fail_reset};
    }
    engine_.stops = 0;
    engine_.batches.clear();
    stopped_ = false;
    held.clear();
    return Ok{};
}

PrefillResult FakeSession::prefill(std::span<const Token> tokens) {
    step_ = 0;
    engine_.on_prefill(engine_.batches.size());
    engine_.batches.push_back(tokens.size());
    if (!engine_.fail_prefill.empty()) {
        return Failed{engine_.fail_prefill};
    }
    held.insert(held.end(), tokens.begin(), tokens.end());
    if (engine_.obeys && engine_.stops_prefill && stopped_) {
        return Stopped{};
    }
    return Ok{};
}

DecodeResult FakeSession::decode_one(const Sampling &sampling) {
    engine_.on_decode(step_);
    engine_.samplings.push_back(sampling);
    if (engine_.obeys && stopped_) {
        return Stopped{};
    }
    if (step_ == engine_.answer.size()) {
        if (!engine_.fail_decode.empty()) {
            return Failed{engine_.fail_decode};
        }
        if (engine_.no_room) {
            return NoRoom{};
        }
        return EndOfText{};
    }
    auto token = static_cast<Token>(100 + step_);
    std::string text = engine_.answer[step_++];
    if (engine_.recalls) {
        std::uint32_t hash = 1;
        for (const Token one : held) {
            hash = hash * 31 + static_cast<std::uint32_t>(one);
        }
        token = static_cast<Token>(hash % 100'000);
        text += std::to_string(token) + " ";
    }
    held.push_back(token);
    return Decoded{token, text};
}

Sessions sessions_of(Engine &engine) {
    auto made = Sessions::make(engine);
    if (const auto *failed = std::get_if<Failed>(&made)) {
        throw std::runtime_error(failed->message);
    }
    return std::get<Sessions>(std::move(made));
}

} // namespace sllm::test
