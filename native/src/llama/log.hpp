#pragma once

#include <string>

#include "ggml.h"

namespace sllm::llama {

/// Where llama.cpp's log goes: stderr, from warnings upwards (all of it when verbose).
///
/// llama.cpp keeps one log function per process, so this is installed once by main() and must
/// outlive every use of llama.cpp. It also remembers the last error, because the functions that
/// load a model return a null pointer and leave the reason in the log.
class Log {
  public:
    explicit Log(bool verbose);
    Log(const Log &) = delete;
    Log &operator=(const Log &) = delete;
    Log(Log &&) = delete;
    Log &operator=(Log &&) = delete;
    ~Log();

    /// The last line logged as an error, without its end of line; empty if there was none.
    /// To be called by the thread that called llama.cpp.
    [[nodiscard]] const std::string &last_error() const { return last_error_; }

    /// From now on keep warnings and errors back, until release or drop. An aborted computation is
    /// an ordinary event here, but llama.cpp tells it as four errors. Verbose: nothing is kept
    /// back.
    void hold();
    void release();
    void drop();

  private:
    static void receive(ggml_log_level level, const char *text, void *self);
    void write(ggml_log_level level, const char *text);

    bool verbose_;
    bool holding_ = false;
    std::string held_;
    ggml_log_level current_ = GGML_LOG_LEVEL_NONE;
    std::string last_error_;
};

} // namespace sllm::llama
