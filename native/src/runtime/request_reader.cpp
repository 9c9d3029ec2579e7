#include "sllm/request_reader.hpp"

#include <cerrno>
#include <utility>
#include <vector>

#include <poll.h>
#include <unistd.h>

#include "sllm/reply.hpp"
#include "sllm/request.hpp"

namespace sllm {

RequestReader::RequestReader(int fd, Output &output, Options options)
    : fd_(fd), output_(output), options_(options),
      splitter_(options.most_line_bytes,
                {[this](std::string_view line) { receive(line); },
                 [this] {
                     enqueue({{},
                              "cannot read a request line of more than " +
                                  std::to_string(options_.most_line_bytes) +
                                  " bytes; send a shorter one"});
                 }}),
      thread_([this] { run(); }) {}

RequestReader::~RequestReader() {
    {
        const std::scoped_lock lock(mutex_);
        ending_ = true;
    }
    changed_.notify_all();
    wake_.set();
    thread_.join();
}

std::optional<Incoming> RequestReader::next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return finished_ || !queue_.empty(); });
    if (queue_.empty()) {
        return std::nullopt;
    }
    Incoming incoming = std::move(queue_.front());
    queue_.pop_front();
    queued_bytes_ -= incoming.bytes;
    changed_.notify_all();
    return incoming;
}

void RequestReader::run() {
    std::vector<char> chunk(std::size_t{64} << 10U);
    while (wait_readable(fd_, wake_)) {
        const ssize_t size = ::read(fd_, chunk.data(), chunk.size());
        if (size > 0) {
            splitter_.feed({chunk.data(), static_cast<std::size_t>(size)});
        } else if (size == 0 || (errno != EINTR && errno != EAGAIN)) {
            splitter_.finish();
            break;
        }
    }
    finish();
}

void RequestReader::receive(std::string_view line) {
    nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_discarded()) {
        enqueue({{}, "cannot read the request; give one line of JSON", line.size()});
        return;
    }
    if (options_.answer_pings) {
        if (const nlohmann::json *nonce = ping_nonce(json)) {
            // A broken output is found by the request thread as well, which then ends all.
            static_cast<void>(output_.write_line(pong_line(*nonce)));
            return;
        }
    }
    enqueue({std::move(json), {}, line.size()});
}

void RequestReader::enqueue(Incoming incoming) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
        const bool room = queue_.size() < options_.most_queued &&
                          queued_bytes_ + incoming.bytes <= options_.most_line_bytes;
        return ending_ || room || queue_.empty();
    });
    if (!ending_) {
        queued_bytes_ += incoming.bytes;
        queue_.push_back(std::move(incoming));
        changed_.notify_all();
    }
}

void RequestReader::finish() {
    const std::scoped_lock lock(mutex_);
    finished_ = true;
    changed_.notify_all();
}

} // namespace sllm
