#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "llama-cpp.h"

#include "log.hpp"
#include "options.hpp"
#include "sllm/engine.hpp"

namespace sllm::llama {

/// One loaded GGUF file: its weights, vocabulary and metadata. Immutable after loading; all const
/// members may be used from any thread. It must outlive each context made from it.
class Model {
  public:
    /// Load the file that the options name.
    ///
    /// `progress` is called with values from 0 to 1 by the calling thread, now and then.
    /// Fails where the file is missing, is no GGUF, or holds no decoder-only language model.
    static std::variant<Model, Failed> load(const Options &options, const Log &log,
                                            const std::function<void(float)> &progress);

    [[nodiscard]] llama_model *get() const { return model_.get(); }
    [[nodiscard]] const llama_vocab *vocab() const { return llama_model_get_vocab(get()); }

    /// Tokens that the model was trained for.
    [[nodiscard]] std::uint32_t trained_context() const;

    /// What the ready line says of the model, served with a context of that many tokens.
    [[nodiscard]] ModelInfo info(std::uint32_t context) const;

    /// Whether the token ends an answer (end of text, of turn, of message).
    [[nodiscard]] bool ends_answer(llama_token token) const;

    /// A prompt to tokens; special tokens in a text are recognised, because chat templates write
    /// them. The model's beginning-of-sequence token is put first if the prompt is a whole text,
    /// the model wants one and the text does not have it. Fails if a text is too long to be
    /// counted, or a token is not one of the model's.
    [[nodiscard]] std::variant<std::vector<Token>, Failed> tokenize(const Prompt &prompt) const;

    /// The bytes of a token, which need not be whole characters; special tokens have none.
    [[nodiscard]] std::string piece(llama_token token) const;

  private:
    Model(llama_model_ptr model, std::string path);

    [[nodiscard]] std::variant<std::vector<Token>, Failed> encode(std::string_view text) const;
    [[nodiscard]] std::optional<Failed> check(const std::vector<Token> &tokens) const;
    [[nodiscard]] std::string name() const;
    [[nodiscard]] std::string token_text(llama_token token) const;

    llama_model_ptr model_;
    std::string path_;
};

} // namespace sllm::llama
