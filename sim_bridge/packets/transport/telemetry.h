// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "packets/transport/congestion_law.h"

namespace foretail::packets {

/// What the switches on its path wrote on a data packet; its acknowledgement carries it back. Takes no bytes on the
/// wire.
class Telemetry {
public:
    void append(const Hop& hop) { hops_.at(count_++) = hop; }
    void clear() { count_ = 0; }
    [[nodiscard]] std::span<const Hop> hops() const { return {hops_.data(), count_}; }

private:
    std::array<Hop, 3> hops_;  ///< leaf, spine, leaf
    std::size_t count_ = 0;
};

/// The telemetry of frames that have a number, which stays when a frame is used again.
class FrameTelemetry {
public:
    [[nodiscard]] Telemetry& operator[](std::int32_t frame) {
        const auto place = static_cast<std::size_t>(frame);
        if (place >= of_frame_.size()) of_frame_.resize(2 * place + 1);
        return of_frame_[place];
    }

private:
    std::vector<Telemetry> of_frame_;
};

}  // namespace foretail::packets
