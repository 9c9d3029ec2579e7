#include <csignal>

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

int main(int argc, char **argv) {
    std::signal(SIGPIPE, SIG_IGN); // as run_worker does
    return Catch::Session().run(argc, argv);
}
