// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace foretail::packets {

/// What one switch port wrote on a packet when its last bit left: in-band telemetry.
struct Hop {
    std::int64_t time_ns = 0;
    std::int64_t queue_bytes = 0;  ///< behind the packet, in this port
    std::int64_t sent_bytes = 0;   ///< on the wire since the start, the packet among them
    double bytes_per_ns = 0;       ///< rate of the link
};

/// What a sender learns from one acknowledgement that comes with a new round-trip sample.
struct Acknowledgement {
    std::int64_t time_ns = 0;
    std::int64_t rtt_ns = 0;    ///< of the newest segment that it acknowledges
    bool round_over = false;    ///< it acknowledges a segment sent after the acknowledgement that ended the last round
    std::span<const Hop> hops;  ///< of that segment, in the order of its path; empty without telemetry
};

/// What the laws know about the path, in bytes of payload.
struct Path {
    double base_rtt_ns = 0;  ///< of a full segment and its acknowledgement in the idle network
    double segment_bytes = 0;
    double bytes_per_ns = 0;  ///< at which a server's link carries payload
    double initial_window_bytes = 0;

    /// What a server can send in one base round trip, in whole segments, since TCP sends nothing less.
    [[nodiscard]] double largest_window_bytes() const {
        const double bdp = base_rtt_ns * bytes_per_ns;
        const double segments = static_cast<double>(static_cast<std::int64_t>(bdp / segment_bytes));
        return (segments * segment_bytes < bdp ? segments + 1 : segments) * segment_bytes;
    }
    [[nodiscard]] double clamped(double window_bytes) const {
        return std::clamp(window_bytes, segment_bytes, std::max(segment_bytes, largest_window_bytes()));
    }
};

}  // namespace foretail::packets
