#pragma once

#include <cstdint>
#include <thread>
#include <vector>

namespace sllm::sim {

/// What a worker does besides its work that harms others, from threads of its own.
///
/// Rates of 0 start nothing. The destructor ends all of it at once and gives the memory back.
class Nuisance {
  public:
    /// Write so many lines a second to stderr; fewer where nobody reads them as fast.
    void flood_stderr(std::int64_t lines_per_second);

    /// Take so many bytes of memory a second, and touch them.
    void leak(std::int64_t bytes_per_second);

  private:
    std::vector<std::jthread> threads_;
};

} // namespace sllm::sim
