// SPDX-License-Identifier: MIT
#pragma once

#include <ns3/simple-ref-count.h>

#include <array>
#include <cstddef>
#include <span>

#include "ns3/transport/congestion_law.h"

namespace foretail::packets::ns3_driver {

/// What the switches on its path wrote on a data packet; its acknowledgement carries it back. Takes no bytes on the
/// wire.
class Telemetry : public ns3::SimpleRefCount<Telemetry> {
public:
    void append(const Hop& hop) { hops_.at(count_++) = hop; }
    [[nodiscard]] std::span<const Hop> hops() const { return {hops_.data(), count_}; }

private:
    std::array<Hop, 3> hops_;  ///< leaf, spine, leaf
    std::size_t count_ = 0;
};

}  // namespace foretail::packets::ns3_driver
