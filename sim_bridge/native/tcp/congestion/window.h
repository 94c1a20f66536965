// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "native/tcp/sequence.h"

namespace foretail::packets::native {

/// What a sender or receiver knows of marks (RFC 3168).
enum class Ecn : std::uint8_t {
    disabled,
    idle,
    marked,         ///< a mark was received, and will be echoed
    echoing,        ///< it was echoed
    echo_received,  ///< the window is to be reduced
    reduced         ///< the receiver was told so
};

/// What congestion control has to know of its sender, and what it decides.
struct Window {
    std::uint32_t segment_bytes = 0;
    std::uint32_t bytes = 0;             ///< congestion window
    std::uint32_t slow_start_bytes = 0;  ///< threshold below which it grows fast
    std::uint32_t in_flight = 0;         ///< as it was last estimated
    Sequence next = 0;                   ///< SND.NXT
    Sequence highest = 0;                ///< one past the highest number ever sent
    Sequence last_acknowledged = 0;
    Ecn ecn = Ecn::disabled;
    bool is_full = false;  ///< after the last segment there was no room for another

    [[nodiscard]] std::uint32_t segments() const { return bytes / segment_bytes; }
};

}  // namespace foretail::packets::native
