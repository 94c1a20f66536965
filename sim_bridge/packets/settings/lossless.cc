// SPDX-License-Identifier: MIT
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "buffer/policies/any_policy.hpp"
#include "packets/settings/settings.h"
#include "packets/settings/settings_group.h"

namespace foretail::packets {

std::int64_t Settings::headroom_needed_bytes(const buffer::LineRate& link) const {
    const std::int64_t packet = packet_bytes(transport.segment_bytes);
    const auto reaction_ns = static_cast<double>(2 * link.duration(packet) + link.duration(Pauses::frame_bytes) +
                                                 2 * topology.link_delay_ns);
    return packet + static_cast<std::int64_t>(std::ceil(reaction_ns * link.bytes_per_tick()));
}

bool Settings::has_headroom_for_all() const {
    using buffer::LineRate;
    const auto server = LineRate::from_bps(topology.server_link_bps, topology.wire_overhead_bytes);
    const auto spine = LineRate::from_bps(topology.spine_link_bps, topology.wire_overhead_bytes);
    const auto is_enough = [&](int servers, int switches) {
        std::int64_t all = 0;
        for (const auto& [ports, link] : {std::pair(servers, server), {switches, spine}}) {
            if (ports == 0) continue;
            const std::int64_t needed = headroom_needed_bytes(link), own = pfc.headroom_bytes.value_or(needed);
            if (own < needed) return false;
            all += ports * std::popcount(queues.lossless) * own;
        }
        return pfc.headroom_pool_bytes.value_or(all) >= all;
    };
    return is_enough(topology.servers_per_leaf, topology.spines) &&
           (topology.is_star() || is_enough(0, topology.leaves));
}

std::optional<buffer::PauseSettings> Settings::pause_settings(const std::vector<buffer::LineRate>& rates) const {
    if (queues.lossless == 0) return {};
    buffer::PauseSettings pauses{.lossless = queues.lossless,
                                 .alpha = pfc.alpha,
                                 .headroom = {},
                                 .xon = pfc.xon_bytes,
                                 .makes_room = pfc.makes_room};
    std::int64_t all = 0;
    for (const buffer::LineRate& link : rates) {
        pauses.headroom.push_back(pfc.headroom_bytes.value_or(headroom_needed_bytes(link)));
        all += pauses.headroom.back() * std::popcount(queues.lossless);
    }
    pauses.headroom_pool = pfc.headroom_pool_bytes.value_or(all);
    pauses.xon_offset = pfc.xon_offset_bytes.value_or(2 * packet_bytes(transport.segment_bytes));
    return pauses;
}

void Settings::set_headroom_aside(buffer::Shape& shape) const {
    shape.pause = pause_settings(shape.rates);
    if (!shape.pause) return;
    const buffer::Bytes whole = shape.capacity;
    shape.capacity -= shape.pause->headroom_pool;
    if (shape.capacity < 2 * packet_bytes(transport.segment_bytes))
        refuse("the headroom of a switch takes " + std::to_string(shape.pause->headroom_pool) + " of its " +
               std::to_string(whole) + " bytes, which leaves less than two packets: lower setting " +
               "'pfc.headroom_pool_bytes', or give the switch a larger buffer");
}

void Settings::require_lossy(const std::string& network) const {
    if (policy.known->sees_ingress)
        refuse("policy '" + std::string(policy.known->name) + "' has to know where packets came in, and switches of " +
               network + " do not: run it in the native network");
    if (queues.lossless != 0)
        refuse("setting 'queues.lossless' names a queue that may not lose, and " + network +
               " pauses no senders: run it in the native network, or set it to []");
}

}  // namespace foretail::packets
