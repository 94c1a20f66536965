// SPDX-License-Identifier: MIT
// What programs that check networks read and print.
#pragma once

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <vector>

namespace foretail::packets {

struct Sent {
    std::int64_t time = 0;
    int source = 0, destination = 0;
    std::int32_t size = 0;
};

struct PacketEvent {
    const char* what;
    std::int32_t packet;
    std::int64_t time;
};

/// One packet per line of standard input, in order of time: clock ns, source, destination, bytes.
inline std::vector<Sent> read_packets() {
    std::vector<Sent> packets;
    for (Sent one; std::cin >> one.time >> one.source >> one.destination >> one.size;) packets.push_back(one);
    return packets;
}

inline void print(const std::vector<PacketEvent>& events) {
    for (const PacketEvent& event : events)
        std::printf("%s %d %lld\n", event.what, event.packet, static_cast<long long>(event.time));
}

}  // namespace foretail::packets
