#pragma once

#include <cstdint>

#include "script.hpp"

/// The things that no decent worker does.
namespace sllm::sim {

/// End the process as told. Returns only from signals that do not kill.
void die(const Death &death);

/// Never returns, does nothing.
[[noreturn]] void hang();

/// From now on SIGTERM is ignored, by this process and those it forks later.
void ignore_sigterm();

/// Fork sleeping processes; they end by themselves after ten minutes.
void spawn(std::int64_t in_group, std::int64_t detached);

/// Write this many numbered lines to stderr.
void write_stderr(std::int64_t lines);

/// Sleep, whatever happens.
void pause_for(std::int64_t milliseconds);

} // namespace sllm::sim
