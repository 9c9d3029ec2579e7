#pragma once

#include <memory>

#include "ggml-cpu.h"

namespace sllm::llama {

struct ThreadPoolDeleter {
    void operator()(ggml_threadpool *pool) const { ggml_threadpool_free(pool); }
};

/// The computing threads of contexts that compute one at a time. It must outlive those it is
/// attached to.
using ThreadPool = std::unique_ptr<ggml_threadpool, ThreadPoolDeleter>;

/// Start the threads, for llama_attach_threadpool; null if the system gives none.
///
/// Without an attached pool llama.cpp makes a disposable one for every step, whose threads spin:
/// two workers with two threads each on two cores then produce 0.7 tokens/s together. Ours sleep
/// between steps instead of polling, which costs a lone worker nothing that can be measured and
/// gives those two 35 tokens/s instead of 10.
inline ThreadPool make_thread_pool(int threads) {
    ggml_threadpool_params params = ggml_threadpool_params_default(threads);
    params.poll = 0;
    return ThreadPool(ggml_threadpool_new(&params));
}

} // namespace sllm::llama
