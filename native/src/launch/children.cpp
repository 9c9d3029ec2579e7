#include "children.hpp"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

namespace sllm::launch {
namespace {

/// The parent of a process, 0 if it is gone.
pid_t parent_of(pid_t pid) {
    char path[32];
    std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return 0;
    }
    char text[512];
    const ssize_t size = ::read(file, text, sizeof text - 1);
    ::close(file);
    text[size < 0 ? 0 : size] = '\0';
    // The second field, the command, stands in parentheses and may hold some itself.
    const char *behind = std::strrchr(text, ')');
    int parent = 0;
    if (behind == nullptr || std::sscanf(behind + 1, " %*c %d", &parent) != 1) {
        return 0;
    }
    return parent;
}

} // namespace

bool listed_children(std::vector<pid_t> &into) {
    char path[64];
    const int self = static_cast<int>(::getpid());
    std::snprintf(path, sizeof path, "/proc/%d/task/%d/children", self, self);
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    pid_t pid = 0;
    char text[4096];
    for (ssize_t size = 0; (size = ::read(file, text, sizeof text)) > 0;) {
        for (ssize_t at = 0; at < size; ++at) {
            if (text[at] != ' ') {
                pid = 10 * pid + (text[at] - '0'); // a number may go on in the next piece
            } else {
                into.push_back(pid);
                pid = 0;
            }
        }
    }
    ::close(file);
    return true;
}

std::vector<pid_t> searched_children() {
    std::vector<pid_t> found;
    DIR *const folder = ::opendir("/proc");
    if (folder == nullptr) {
        return found;
    }
    while (const dirent *const entry = ::readdir(folder)) {
        const pid_t pid = std::atoi(entry->d_name); // 0 for what is no process
        if (pid > 0 && parent_of(pid) == ::getpid()) {
            found.push_back(pid);
        }
    }
    ::closedir(folder);
    return found;
}

std::vector<pid_t> children() {
    std::vector<pid_t> found;
    return listed_children(found) ? found : searched_children();
}

} // namespace sllm::launch
