#include "support.hpp"

#include <array>
#include <cerrno>
#include <sstream>
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

std::variant<std::vector<Token>, Failed> FakeEngine::tokenize(std::string_view prompt) {
    std::vector<Token> tokens;
    std::istringstream words{std::string(prompt)};
    for (std::string word; words >> word;) {
        if (word == "untokenizable") {
            return Failed{"cannot tokenize"};
        }
        tokens.push_back(static_cast<Token>(word.size()));
    }
    return tokens;
}

std::variant<std::unique_ptr<Session>, Failed> FakeEngine::make_session() {
    return Failed{"cannot make a session: this engine is its own"};
}

ResetResult FakeEngine::reset() {
    ++resets;
    on_reset();
    stops = 0;
    step_ = 0;
    batches.clear();
    if (!fail_reset.empty()) {
        return Failed{fail_reset};
    }
    return Ok{};
}

PrefillResult FakeEngine::prefill(std::span<const Token> tokens) {
    on_prefill(batches.size());
    batches.push_back(tokens.size());
    if (!fail_prefill.empty()) {
        return Failed{fail_prefill};
    }
    if (obeys && stops_prefill && stops > 0) {
        return Stopped{};
    }
    return Ok{};
}

DecodeResult FakeEngine::decode_one(const Sampling &sampling) {
    on_decode(step_);
    samplings.push_back(sampling);
    if (obeys && stops > 0) {
        return Stopped{};
    }
    if (step_ == answer.size()) {
        if (!fail_decode.empty()) {
            return Failed{fail_decode};
        }
        if (no_room) {
            return NoRoom{};
        }
        return EndOfText{};
    }
    const auto token = static_cast<Token>(100 + step_);
    return Decoded{token, answer[step_++]};
}

} // namespace sllm::test
