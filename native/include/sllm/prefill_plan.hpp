#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "sllm/engine.hpp"

namespace sllm {

/// Cuts a prompt, or what is left of it, into the batches that an engine takes, in order and
/// without gaps.
///
/// Holds a view: the tokens must outlive it.
class PrefillPlan {
  public:
    /// The first `reused` tokens, at most all of them, are left out. `batch` is at least 1.
    PrefillPlan(const std::vector<Token> &tokens, std::size_t reused, std::size_t batch)
        : tokens_(std::span(tokens).subspan(reused)), batch_(batch) {}
    PrefillPlan(std::vector<Token> &&tokens, std::size_t reused, std::size_t batch) = delete;

    /// How many tokens all batches have together.
    [[nodiscard]] std::size_t total() const { return tokens_.size(); }

    /// How many tokens the batches handed out so far had.
    [[nodiscard]] std::size_t done() const { return done_; }

    /// The next batch; empty when the prompt is used up.
    [[nodiscard]] std::span<const Token> next() {
        const std::size_t size = std::min(batch_, tokens_.size() - done_);
        const std::span<const Token> batch = tokens_.subspan(done_, size);
        done_ += size;
        return batch;
    }

  private:
    std::span<const Token> tokens_;
    std::size_t batch_;
    std::size_t done_ = 0;
};

} // namespace sllm
