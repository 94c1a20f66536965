// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace foretail::packets::native {

/// A sequence number of TCP, which counts bytes and wraps after 32 bits (RFC 9293, section 3.4).
using Sequence = std::uint32_t;

inline bool before(Sequence a, Sequence b) { return static_cast<std::int32_t>(a - b) < 0; }
inline Sequence later(Sequence a, Sequence b) { return before(a, b) ? b : a; }

/// Bytes from `begin` to before `end`.
struct Range {
    Sequence begin = 0, end = 0;
    [[nodiscard]] std::uint32_t size() const { return end - begin; }
};

}  // namespace foretail::packets::native
