#include "model.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <system_error>
#include <utility>

namespace sllm::llama {
namespace {

constexpr const char *remedy = "; give --model the path of a GGUF file";

/// Why the file cannot be a model, told by its first bytes; empty if it can. llama.cpp would say
/// "failed to load" for all of these.
std::string look_at(const std::string &path) {
    std::error_code unknown;
    if (std::filesystem::is_directory(path, unknown)) {
        return std::strerror(EISDIR);
    }
    const std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(std::fopen(path.c_str(), "rb"),
                                                                &std::fclose);
    if (!file) {
        return std::strerror(errno);
    }
    std::array<char, 4> magic{};
    const std::size_t got = std::fread(magic.data(), 1, magic.size(), file.get());
    if (got != magic.size() || std::memcmp(magic.data(), "GGUF", magic.size()) != 0) {
        return "it is not a GGUF file";
    }
    return {};
}

bool report(float done, void *progress) {
    (*static_cast<const std::function<void(float)> *>(progress))(done);
    return true;
}

} // namespace

Model::Model(llama_model_ptr model, std::string path)
    : model_(std::move(model)), path_(std::move(path)) {}

std::variant<Model, Failed> Model::load(const Options &options, const Log &log,
                                        const std::function<void(float)> &progress) {
    const std::string subject = "cannot load model '" + options.model + "': ";
    if (const std::string reason = look_at(options.model); !reason.empty()) {
        return Failed{subject + reason + remedy};
    }
    if (options.gpu_layers > 0 && !llama_supports_gpu_offload()) {
        return Failed{"cannot put layers on a GPU: this llama.cpp is built without one; leave out "
                      "--gpu-layers"};
    }
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = options.gpu_layers;
    params.load_mode = options.map ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
    // Rearranged weights are a private copy; mapped ones are to stay the one that all share.
    params.use_extra_bufts = !options.map;
    params.progress_callback = &report;
    params.progress_callback_user_data =
        const_cast<void *>(static_cast<const void *>(&progress)); // handed back to report() only
    llama_model_ptr model(llama_model_load_from_file(options.model.c_str(), params));
    if (!model) {
        const std::string &reason = log.last_error();
        return Failed{subject + (reason.empty() ? "llama.cpp gives no reason" : reason) + remedy};
    }
    const llama_vocab *vocab = llama_model_get_vocab(model.get());
    if (!llama_model_has_decoder(model.get()) || llama_model_has_encoder(model.get()) ||
        llama_model_is_diffusion(model.get()) || llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE) {
        return Failed{subject + "it is not a decoder-only language model; give --model one"};
    }
    return Model(std::move(model), options.model);
}

std::uint32_t Model::trained_context() const {
    return static_cast<std::uint32_t>(llama_model_n_ctx_train(get()));
}

ModelInfo Model::info(std::uint32_t context) const {
    const char *chat_template = llama_model_chat_template(get(), nullptr);
    return {
        .id = name(),
        .context_length = context,
        .chat_template = chat_template == nullptr ? "" : chat_template,
        .bos_token = token_text(llama_vocab_bos(vocab())),
        .eos_token = token_text(llama_vocab_eos(vocab())),
        .parameters = llama_model_n_params(get()),
        .quantization = llama_ftype_name(llama_model_ftype(get())),
    };
}

std::string Model::name() const {
    std::array<char, 256> text{};
    if (llama_model_meta_val_str(get(), "general.name", text.data(), text.size()) > 0) {
        return text.data();
    }
    return std::filesystem::path(path_).stem().string();
}

std::string Model::token_text(llama_token token) const {
    return token == LLAMA_TOKEN_NULL ? "" : llama_vocab_get_text(vocab(), token);
}

bool Model::ends_answer(llama_token token) const { return llama_vocab_is_eog(vocab(), token); }

std::variant<std::vector<Token>, Failed> Model::tokenize(const Prompt &prompt) const {
    std::vector<Token> tokens;
    for (const Segment &segment : prompt.segments) {
        const auto *given = std::get_if<std::vector<Token>>(&segment);
        if (given != nullptr) {
            if (std::optional<Failed> failed = check(*given)) {
                return *std::move(failed);
            }
            tokens.insert(tokens.end(), given->begin(), given->end());
            continue;
        }
        auto encoded = encode(std::get<std::string>(segment));
        if (auto *failed = std::get_if<Failed>(&encoded)) {
            return std::move(*failed);
        }
        const auto &more = std::get<std::vector<Token>>(encoded);
        tokens.insert(tokens.end(), more.begin(), more.end());
    }
    const llama_token begin = llama_vocab_bos(vocab());
    if (prompt.whole && llama_vocab_get_add_bos(vocab()) && begin != LLAMA_TOKEN_NULL &&
        (tokens.empty() || tokens.front() != begin)) {
        tokens.insert(tokens.begin(), begin);
    }
    return tokens;
}

std::optional<Failed> Model::check(const std::vector<Token> &tokens) const {
    const std::int32_t count = llama_vocab_n_tokens(vocab());
    for (const Token token : tokens) {
        if (token < 0 || token >= count) {
            return Failed{"cannot use the token id " + std::to_string(token) +
                          "; give ids from 0 to " + std::to_string(count - 1)};
        }
    }
    return std::nullopt;
}

std::variant<std::vector<Token>, Failed> Model::encode(std::string_view text) const {
    const Failed too_long{"cannot read a prompt of " + std::to_string(text.size()) +
                          " bytes; send a shorter one"};
    if (text.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max() / 2)) {
        return too_long;
    }
    std::vector<Token> tokens(text.size() / 2 + 16); // more than most texts need
    const auto fill = [&] {
        // Not llama.cpp's add_special: it would also end some models' prompts with a token after
        // which they say nothing more.
        return llama_tokenize(vocab(), text.data(), static_cast<std::int32_t>(text.size()),
                              tokens.data(), static_cast<std::int32_t>(tokens.size()),
                              /*add_special=*/false, /*parse_special=*/true);
    };
    std::int32_t count = fill();
    if (count < 0 && count != std::numeric_limits<std::int32_t>::min()) {
        tokens.resize(static_cast<std::size_t>(-count)); // which is how many there are
        count = fill();
    }
    if (count < 0) {
        return too_long;
    }
    tokens.resize(static_cast<std::size_t>(count));
    return tokens;
}

std::string Model::piece(llama_token token) const {
    std::string text(32, '\0');
    for (;;) {
        const int length = llama_token_to_piece(vocab(), token, text.data(),
                                                static_cast<std::int32_t>(text.size()), 0, false);
        if (length >= 0) {
            text.resize(static_cast<std::size_t>(length));
            return text;
        }
        text.resize(static_cast<std::size_t>(-length));
    }
}

} // namespace sllm::llama
