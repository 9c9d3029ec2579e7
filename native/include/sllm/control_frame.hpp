#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sllm {

/// Reads cancel frames: 8 bytes each, a little-endian request id, nothing between them.
///
/// There is no way to find the start of a frame again after a lost byte; that a pipe takes 8 bytes
/// as a whole or not at all is what keeps the stream in step.
class FrameParser {
  public:
    /// Call `receive(id)` for each frame that these bytes complete. At most 7 bytes are kept.
    template <typename Receive> void feed(std::span<const unsigned char> bytes, Receive receive) {
        for (const unsigned char byte : bytes) {
            value_ |= static_cast<std::uint64_t>(byte) << (8 * held_);
            if (++held_ == 8) {
                receive(value_);
                value_ = 0;
                held_ = 0;
            }
        }
    }

  private:
    std::uint64_t value_ = 0;
    std::size_t held_ = 0;
};

} // namespace sllm
