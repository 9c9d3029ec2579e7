#include "sampler.hpp"

namespace sllm::llama {
namespace {

/// llama.cpp's seeds have half the bits, and one of them means "draw one".
std::uint32_t fold(std::uint64_t seed) {
    const auto folded = static_cast<std::uint32_t>(seed ^ (seed >> 32U));
    return folded == LLAMA_DEFAULT_SEED ? 0 : folded;
}

} // namespace

llama_sampler_ptr make_sampler(const Sampling &sampling) {
    llama_sampler_ptr chain(llama_sampler_chain_init({.no_perf = true}));
    if (sampling.temperature <= 0.0) {
        llama_sampler_chain_add(chain.get(), llama_sampler_init_greedy());
        return chain;
    }
    if (sampling.top_k > 0) {
        llama_sampler_chain_add(chain.get(), llama_sampler_init_top_k(sampling.top_k));
    }
    if (sampling.top_p < 1.0) {
        llama_sampler_chain_add(chain.get(),
                                llama_sampler_init_top_p(static_cast<float>(sampling.top_p), 1));
    }
    llama_sampler_chain_add(chain.get(),
                            llama_sampler_init_temp(static_cast<float>(sampling.temperature)));
    llama_sampler_chain_add(chain.get(), llama_sampler_init_dist(fold(sampling.seed)));
    return chain;
}

} // namespace sllm::llama
