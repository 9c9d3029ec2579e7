#pragma once

#include <cstdint>

#include "nuisance.hpp"
#include "script.hpp"

/// The things that no decent worker does.
namespace sllm::sim {

/// End the process as told. Returns only from signals that do not kill.
void die(const Death &death);

/// Never returns, does nothing.
[[noreturn]] void hang();

/// Do what the script says of signals, input, descendants, stderr and memory, from now on.
///
/// A descendant sleeps, and ends by itself after ten minutes.
void begin_faults(const Script &script, Nuisance &nuisance);

/// Write this many numbered lines to stderr.
void write_stderr(std::int64_t lines);

/// Sleep, whatever happens.
void pause_for(std::int64_t milliseconds);

} // namespace sllm::sim
