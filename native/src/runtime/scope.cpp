#include "sllm/scope.hpp"

#include "sllm/reply.hpp"

namespace sllm {

bool RequestScope::emit(std::string_view text) {
    return text.empty() || output_->write_line(token_line(text));
}

} // namespace sllm
