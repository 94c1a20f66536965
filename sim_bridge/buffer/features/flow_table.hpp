// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "buffer/types.hpp"

namespace foretail::buffer {

/// What a switch counts of flows, where no sender tells it anything.
///
/// An entry has 32 bits: the bytes of a message that have come, in 24 bits, and when the last of them came, in 8 bits
/// of 2^18 ns. A message begins after a pause of 3 to 4 of these units, and after a packet that is shorter than the
/// longest that the switch has seen, for such a packet ends one. A port remembers the length of the message that ended
/// last. Packets that are sent again count again, and a flow that is met in its middle begins there. A pause of a
/// multiple of 2^26 ns (67 ms) is not noticed.
class FlowTable {
public:
    /// So many entries, which flows share by a hash; 0: one for every flow, more of them whenever a flow has none.
    FlowTable(std::size_t entries, Port ports)
        : hashed_(entries > 0), entries_(std::max<std::size_t>(entries, 1)), ended_(static_cast<std::size_t>(ports)) {}

    /// Tells a data arrival what is known of its flow, and counts it.
    void arrive(Arrival& arrival, std::uint32_t flow) {
        Entry& entry = entry_of(flow);
        Bytes& ended = ended_[static_cast<std::size_t>(arrival.port)];
        const auto tick = static_cast<std::uint8_t>(arrival.time >> tick_shift);
        if (static_cast<std::uint8_t>(tick - entry.tick) >= idle_ticks) entry.bytes = 0;
        entry.tick = tick;
        longest_ = std::max(longest_, arrival.size);
        arrival.short_packet = arrival.size < longest_;
        arrival.flow_sent = entry.bytes;
        const Bytes sent = arrival.flow_sent + arrival.size;
        arrival.left_like_last = sent <= ended ? ended - sent : not_said_how_much;
        if (arrival.short_packet) ended = sent;
        entry.bytes = arrival.short_packet ? 0 : static_cast<std::uint32_t>(std::min(sent, most_bytes));
    }

private:
    struct Entry {
        std::uint32_t bytes : 24 = 0;
        std::uint32_t tick : 8 = 0;
    };
    static_assert(sizeof(Entry) == 4);
    static constexpr int tick_shift = 18, idle_ticks = 4;
    static constexpr Bytes most_bytes = (1 << 24) - 1;

    [[nodiscard]] Entry& entry_of(std::uint32_t flow) {
        if (hashed_) return entries_[mixed(flow) % entries_.size()];
        if (flow >= entries_.size()) entries_.resize(2 * std::size_t{flow} + 1);
        return entries_[flow];
    }
    /// The finaliser of MurmurHash3.
    [[nodiscard]] static std::uint32_t mixed(std::uint32_t x) {
        x = (x ^ x >> 16) * 0x85EBCA6BU;
        x = (x ^ x >> 13) * 0xC2B2AE35U;
        return x ^ x >> 16;
    }

    bool hashed_;
    std::vector<Entry> entries_;
    std::vector<Bytes> ended_;
    Bytes longest_ = 0;
};

}  // namespace foretail::buffer
