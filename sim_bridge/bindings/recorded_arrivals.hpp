// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "bindings/columns.hpp"
#include "bindings/runs.hpp"
#include "buffer/queues/port_queues.hpp"

namespace foretail::bindings {

/// One entry per switch of a network: its buffer in bytes and its ports' rates in bits per second.
using Switches = std::vector<std::pair<Integer, std::vector<Integer>>>;

/// Within these bounds no time can overflow.
inline std::vector<Shape> shapes_of(const Switches& switches, Integer wire_overhead_bytes, Tie tie,
                                    const Queueing& queueing = {}) {
    const Bytes overhead = checked("wire_overhead_bytes", wire_overhead_bytes, 0, 256);
    between("number of switches", static_cast<std::int64_t>(switches.size()), 1, max_ports);
    std::vector<Shape> shapes;
    for (const auto& [buffer, rates] : switches) {
        between("number of ports", static_cast<std::int64_t>(rates.size()), 1, max_ports);
        const Bytes capacity = checked("buffer of a switch, in bytes,", buffer, 1, Bytes{1} << 30);
        shapes.push_back({capacity, {}, tie, false, queueing.count, queueing.scheduler, queueing.quanta});
        for (const auto rate : rates) {
            const auto bps = checked("port rate in bits per second", rate, 1000, 1'000'000'000'000'000);
            shapes.back().rates.push_back(LineRate::from_bps(bps, overhead));
        }
    }
    return shapes;
}

/// Recorded arrivals of a network in order of time, column by column.
struct RecordedArrivals {
    Column<std::int64_t> time_ns;
    Column<std::int16_t> switch_index, port;
    Column<std::int32_t> size_bytes;
    Column<std::uint8_t> data;

    /// Checks them against the network; `last_time` is that of the arrival before, and then of the last of these.
    void check(const std::vector<Port>& ports, Tick& last_time) const {
        const std::size_t n = time_ns.shape(0);
        for (const std::size_t rows : {switch_index.shape(0), port.shape(0), size_bytes.shape(0), data.shape(0)}) {
            if (rows != n) throw std::invalid_argument("the columns of the arrivals differ in length");
        }
        Tick last = last_time;
        for (std::size_t i = 0; i < n; ++i) {
            if (switch_index(i) < 0 || static_cast<std::size_t>(switch_index(i)) >= ports.size()) {
                throw std::invalid_argument("row " + std::to_string(i) + " has switch " +
                                            std::to_string(switch_index(i)) + ", outside 0 to " +
                                            std::to_string(ports.size() - 1));
            }
            in_range(port(i), ports[static_cast<std::size_t>(switch_index(i))], i);
            in_order("time", time_ns(i), last, i);
            if (size_bytes(i) < 1) throw std::invalid_argument("row " + std::to_string(i) + " has no size");
            last = time_ns(i);
        }
        last_time = last;
    }
};

}  // namespace foretail::bindings
