#include "log.hpp"

#include <string_view>

#include <unistd.h>

#include "llama.h"

namespace sllm::llama {
namespace {

void to_stderr(std::string_view text) {
    // A log that cannot be written has nobody to be told to.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

} // namespace

Log::Log(bool verbose) : verbose_(verbose) { llama_log_set(&Log::receive, this); }

Log::~Log() {
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
}

void Log::receive(ggml_log_level level, const char *text, void *self) {
    static_cast<Log *>(self)->write(level, text);
}

void Log::write(ggml_log_level level, const char *text) {
    if (level != GGML_LOG_LEVEL_CONT) { // which goes on with the line that was begun
        current_ = level;
        if (level == GGML_LOG_LEVEL_ERROR) {
            last_error_.clear();
        }
    }
    if (current_ == GGML_LOG_LEVEL_ERROR) {
        last_error_ += text;
        while (!last_error_.empty() && last_error_.back() == '\n') {
            last_error_.pop_back();
        }
    }
    if (verbose_) {
        to_stderr(text);
    } else if (current_ == GGML_LOG_LEVEL_WARN || current_ == GGML_LOG_LEVEL_ERROR) {
        if (holding_) {
            held_ += text;
        } else {
            to_stderr(text);
        }
    }
}

void Log::hold() { holding_ = true; }

void Log::release() {
    if (!held_.empty()) {
        to_stderr(held_);
    }
    drop();
}

void Log::drop() {
    holding_ = false;
    held_.clear();
}

} // namespace sllm::llama
