#include "report.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <unistd.h>

namespace sllm::launch {
namespace {

void say(const char *format, std::va_list arguments) {
    char line[1024] = "sllm-launch: ";
    const std::size_t prefix = std::strlen(line);
    std::vsnprintf(line + prefix, sizeof line - prefix - 1, format, arguments);
    const std::size_t size = std::strlen(line);
    line[size] = '\n';
    // There is nobody to tell if stderr does not take it.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line, size + 1);
}

} // namespace

void warn(const char *format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
}

void give_up(int status, const char *format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
    ::_exit(status);
}

} // namespace sllm::launch
