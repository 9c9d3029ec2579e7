#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include <nlohmann/json.hpp>

#include "sllm/fd.hpp"
#include "sllm/line_splitter.hpp"
#include "sllm/output.hpp"

namespace sllm {

/// Something that came in as a request line: a JSON value, or why it is none.
struct Incoming {
    nlohmann::json json;
    std::string problem{}; ///< not empty: the line could not be read
    std::size_t bytes = 0; ///< length of the line
};

/// Reads requests from a thread of its own and queues them for the request thread.
///
/// A thread of its own, so that a ping is answered while the request thread decodes, or hangs. The
/// queue is bounded: when it is full, reading (and so answering pings) waits, and so does whoever
/// writes to us.
class RequestReader {
  public:
    struct Options {
        std::size_t most_line_bytes = std::size_t{16} << 20U;
        std::size_t most_queued = 64; ///< lines; also bounded by most_line_bytes in all
        bool answer_pings = false;
    };

    /// Reads `fd`, which it does not own. `output` must outlive this object.
    RequestReader(int fd, Output &output, Options options);
    RequestReader(const RequestReader &) = delete;
    RequestReader &operator=(const RequestReader &) = delete;

    /// Ends the thread and joins it, at once.
    ~RequestReader();

    /// Wait for the next request. Nullopt: the input has ended and all of it was handed out.
    [[nodiscard]] std::optional<Incoming> next();

  private:
    void run();
    void receive(std::string_view line);
    void enqueue(Incoming incoming);
    void finish();

    int fd_;
    Output &output_;
    Options options_;
    LineSplitter splitter_;
    Wake wake_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Incoming> queue_;
    std::size_t queued_bytes_ = 0;
    bool finished_ = false; ///< nothing more will be queued
    bool ending_ = false;   ///< nobody will take anything any more
    std::thread thread_;
};

} // namespace sllm
