// Starts a worker and stays as its guardian: whatever becomes of the daemon, the worker and all
// that it started are gone soon after.

#include <unistd.h>

#include "guardian.hpp"
#include "options.hpp"
#include "report.hpp"

int main(int argc, char **argv) {
    using namespace sllm::launch;
    const Options options = parse_options(argc, argv);
    // A daemon that has died meanwhile is also told by the life pipe, but after a start in vain.
    if (const pid_t actual = ::getppid(); actual != options.parent) {
        give_up(failed_status,
                "the parent is process %d, not %d; it has ended or started this indirectly",
                static_cast<int>(actual), static_cast<int>(options.parent));
    }
    guard(options);
}
