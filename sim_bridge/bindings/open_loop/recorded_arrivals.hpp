// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/columns.hpp"
#include "bindings/open_loop/runs.hpp"
#include "buffer/names.hpp"
#include "buffer/queues/circuit_times.hpp"
#include "buffer/queues/ingress_queues.hpp"
#include "buffer/queues/line_rate.hpp"
#include "buffer/queues/port_queues.hpp"
#include "buffer/queues/voq_server.hpp"

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

/// Racks whose switches have a port for each of them, a VOQ: their numbers in the schedule, its matchings, day and
/// night in ns, and bits per second of an uplink and of a circuit.
using Voqs = std::tuple<std::vector<Integer>, std::vector<std::vector<Integer>>, Integer, Integer, Integer, Integer>;

/// Gives switches, one for each rack, the links of racks.
inline void serve_voqs(std::vector<Shape>& switches, const Voqs& voqs) {
    const auto& [racks_given, slots, day, night, packet_bps, circuit_bps] = voqs;
    const std::int64_t day_ns = checked("day_ns", day, 1, longest), night_ns = checked("night_ns", night, 0, longest);
    between("number of slots", static_cast<std::int64_t>(slots.size()), 1, 1 << 20);
    const std::size_t width = slots.front().size();
    std::vector<std::vector<int>> matchings;
    for (const auto& slot : slots) {
        if (slot.size() != width) throw std::invalid_argument("the slots of a schedule have different racks");
        std::vector<int>& matching = matchings.emplace_back();
        for (const auto to : slot)
            matching.push_back(checked<int>("rack of a slot", to, -1, static_cast<std::int64_t>(width) - 1));
    }
    std::vector<int> racks;
    for (const auto rack : racks_given) {
        racks.push_back(checked<int>("number of a rack", rack, 0, static_cast<std::int64_t>(width) - 1));
        if (racks.size() > 1 && racks[racks.size() - 2] >= racks.back())
            throw std::invalid_argument("the numbers of racks must rise");
    }
    constexpr std::int64_t fastest = 1'000'000'000'000'000;
    const RackLinks links{std::make_shared<const CircuitTimes>(std::move(matchings), day_ns, night_ns), racks, 0,
                          LineRate::from_bps(checked("packet_bps", packet_bps, 1000, fastest), 0),
                          LineRate::from_bps(checked("circuit_bps", circuit_bps, 1000, fastest), 0)};
    if (switches.size() != racks.size()) throw std::invalid_argument("every rack has one switch: give as many");
    for (std::size_t i = 0; i < racks.size(); ++i) {
        if (static_cast<std::size_t>(switches[i].ports()) != racks.size())
            throw std::invalid_argument("the switch of a rack has a port for every rack: give as many");
        switches[i].voqs = links;
        switches[i].voqs->source = racks[i];
    }
}

/// Queues of a port that may not lose a packet, alpha at ingress, the two bounds below which a sender goes on, out of
/// which queues LQD makes room for them; and what of its buffer each switch sets aside as headroom.
using Pauses = std::tuple<std::vector<Integer>, double, Integer, Integer, std::string, std::vector<Integer>>;

/// Lets switches keep what may not be lost. Senders are recorded and do not hear of pauses, so headroom has no end.
inline void keep_lossless(std::vector<Shape>& switches, const Pauses& pauses) {
    const auto& [queues, alpha, xon, xon_offset, makes_room, headroom] = pauses;
    constexpr Bytes most = Bytes{1} << 30;
    if (!std::isfinite(alpha) || alpha <= 0) throw std::invalid_argument("alpha of pauses must be a number above 0");
    if (headroom.size() != switches.size()) throw std::invalid_argument("headroom is for other switches: give as many");
    for (std::size_t i = 0; i < switches.size(); ++i) {
        Shape& shape = switches[i];
        PauseSettings settings{.alpha = alpha,
                               .headroom = std::vector<Bytes>(shape.rates.size()),
                               .xon_offset = checked("xon_offset_bytes", xon_offset, 0, most),
                               .xon = checked("xon_bytes", xon, 0, most),
                               .makes_room = static_cast<MakesRoom>(
                                   position(makes_room, makes_room_names, "unknown makes_room '" + makes_room + "'"))};
        for (const auto queue : queues)
            settings.lossless |=
                static_cast<std::uint8_t>(1U << checked<int>("lossless queue", queue, 0, shape.priorities - 1));
        shape.pause = settings.unheard();
        shape.capacity -= checked("headroom of a switch, in bytes,", headroom[i], 0, shape.capacity - 1);
    }
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
