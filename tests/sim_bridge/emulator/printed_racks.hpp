// SPDX-License-Identifier: MIT
// What programs that check racks print of their log and of their VOQs.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "packet_lines.hpp"
#include "packets/racks/fabric.h"
#include "packets/racks/rack_settings.h"

namespace foretail::packets {

struct PrintedLog {
    std::vector<PacketEvent> events;

    explicit PrintedLog(std::size_t packets) { events.reserve(10 * packets + 100'000); }

    template <class Frame>
    void departed(const Frame& frame, std::int64_t entered, std::int64_t left, bool by_circuit, int source,
                  int destination, std::int64_t waiting) {
        assert(source != destination);
        events.push_back({"left", frame.flow, left});
        events.push_back({"entered", frame.flow, entered});
        events.push_back({"by_circuit", frame.flow, by_circuit});
        events.push_back({"waiting", frame.flow, waiting});
    }
    void circuit(bool up, std::int64_t time, int source, int destination) {
        events.push_back({up ? "up" : "down", 1000 * source + destination, time});
    }
};

/// What every VOQ dropped; all `packets` have come to one, and none waits.
template <class Fabric>
void print_drops(const RackSettings& settings, const Fabric& fabric, std::size_t packets) {
    fabric.check_conservation();
    const std::size_t racks = settings.populated.size();
    std::int64_t arrived = 0;
    for (std::size_t source = 0; source < racks; ++source) {
        for (std::size_t destination = 0; destination < racks; ++destination) {
            const VoqCounts& counts = fabric.counts(source, destination);
            arrived += counts.arrived;
            std::printf("dropped %zu %lld\n", source * racks + destination, static_cast<long long>(counts.dropped));
            assert(fabric.waiting(source, destination) == 0);
        }
    }
    assert(arrived == static_cast<std::int64_t>(packets));
}

}  // namespace foretail::packets
