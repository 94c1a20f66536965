// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "buffer/types.hpp"

namespace foretail::buffer {

/// How long a port takes to send a packet: ceil((size + overhead) * ticks / per_bytes).
struct LineRate {
    std::int64_t ticks = 1;
    std::int64_t per_bytes = 1;
    Bytes overhead = 0;

    /// A link of `bps` bits per second with times in nanoseconds; `overhead` bytes travel but use no buffer.
    static constexpr LineRate from_bps(std::int64_t bps, Bytes overhead) { return {8'000'000'000, bps, overhead}; }
    /// One unit packet per slot.
    static constexpr LineRate one_per_slot() { return {}; }

    [[nodiscard]] constexpr Tick duration(Bytes size) const {
        return ((size + overhead) * ticks + per_bytes - 1) / per_bytes;
    }
    [[nodiscard]] constexpr double bytes_per_tick() const {
        return static_cast<double>(per_bytes) / static_cast<double>(ticks);
    }
};

}  // namespace foretail::buffer
