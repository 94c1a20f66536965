// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "buffer/records.hpp"
#include "packets/network/frame_pool.h"
#include "packets/settings/settings.h"

namespace foretail::packets::emulator {

/// An IPv4 packet of a host's kernel, with what switches need of its headers read once.
struct Frame {
    std::int32_t size_bytes = 0;
    std::int32_t source = 0, destination = 0;  ///< hosts
    std::int32_t flow = -1;                    ///< index in the plan
    std::uint32_t path_hash = 0;
    buffer::FlowClass flow_class = buffer::FlowClass::control;
    bool first_rtt = false;
    bool ecn_capable = false;
    std::int64_t sent_bytes = 0;  ///< of its message, before it
    std::int64_t left_bytes = 0;  ///< of its message, after it
    std::array<std::uint8_t, Settings::most_packet_bytes> bytes;
};

/// Copies the beginning of the packet, as far as there is room.
inline void copy_beginning(const Frame& frame, std::span<std::uint8_t> room) {
    const auto size = std::min(room.size(), static_cast<std::size_t>(frame.size_bytes));
    std::copy_n(frame.bytes.begin(), size, room.begin());
}

using FramePool = packets::FramePool<Frame>;

}  // namespace foretail::packets::emulator
