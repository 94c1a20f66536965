// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "native/tcp/congestion/window.h"

namespace foretail::packets::native {

/// Proportional rate reduction (RFC 6937): the window comes down to its threshold while acknowledgements come in.
/// Counts wrap after 32 bits, their products too.
class RateReduction {
public:
    void begin(Window& window, std::uint32_t delivered) {
        sent_ = delivered_ = 0;
        outstanding_ = window.in_flight;
        advance(window, delivered, true, false);
    }
    /// `progress`: an acknowledgement of data that was sent again.
    void advance(Window& window, std::uint32_t delivered, bool duplicate, bool progress) {
        if (duplicate && delivered_ < outstanding_) delivered += window.segment_bytes;
        if (delivered == 0) return;
        delivered_ += delivered;
        std::int32_t budget = 0;
        if (window.in_flight > window.slow_start_bytes) {
            const std::uint32_t product = delivered_ * window.slow_start_bytes;
            budget = static_cast<std::int32_t>(std::ceil(product * 1.0 / outstanding_) - sent_);
        } else {
            std::uint32_t limit = std::max(delivered_ - sent_, delivered);
            if (progress) limit += window.segment_bytes;
            budget = std::min(static_cast<std::int32_t>(limit),
                              static_cast<std::int32_t>(window.slow_start_bytes - window.in_flight));
        }
        // The first segment is sent at once.
        const auto least = static_cast<std::int32_t>(sent_ > 0 ? 0 : window.segment_bytes);
        window.bytes = window.in_flight + static_cast<std::uint32_t>(std::max(budget, least));
    }
    void sent(std::uint32_t bytes) { sent_ += bytes; }

private:
    std::uint32_t sent_ = 0, delivered_ = 0;
    std::uint32_t outstanding_ = 0;  ///< when the reduction began
};

}  // namespace foretail::packets::native
