#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "script.hpp"

namespace sllm::sim {

/// Where a key may stand: on the command line only, or in a prompt as well.
enum class Place : unsigned char { option, directive };

/// Do what one key says to `script`. Returns an empty string, or what is wrong.
///
/// `value` is none if there was no "=VALUE". In a name "-" is the same as "_".
[[nodiscard]] std::string apply(Script &script, std::string_view name,
                                std::optional<std::string_view> value, Place place);

/// Whether this key is one that takes a value.
[[nodiscard]] bool takes_value(std::string_view name);

/// The text of --help.
[[nodiscard]] std::string help();

} // namespace sllm::sim
