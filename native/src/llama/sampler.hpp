#pragma once

#include "llama-cpp.h"

#include "sllm/engine.hpp"

namespace sllm::llama {

/// The sampler chain for a request, in its initial random state: the likeliest token at temperature
/// 0, else a draw among what top_k and then top_p leave, at that temperature.
llama_sampler_ptr make_sampler(const Sampling &sampling);

} // namespace sllm::llama
