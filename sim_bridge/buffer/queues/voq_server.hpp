// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "buffer/queues/circuit_times.hpp"
#include "buffer/queues/line_rate.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

/// The links of a rack's switch, whose ports are virtual output queues (VOQs), one for each rack with hosts.
struct RackLinks {
    std::shared_ptr<const CircuitTimes> times;
    std::vector<int> racks;  ///< of each port, rising; numbers of the schedule
    int source = 0;          ///< the own rack
    LineRate uplink;         ///< to the packet switch
    LineRate circuit;

    /// Time to the next circuit of a port: 0 while it is up, CircuitTimes::never when there never is one.
    [[nodiscard]] Tick until_circuit(Port port, Tick now) const {
        return times->until_circuit(source, racks[static_cast<std::size_t>(port)], now);
    }
};

/// Serves the VOQs of a rack, real ones and virtual ones: the circuit those of the rack that the schedule names, with
/// packets whose last bit leaves before night; the uplink those whose packet path is open, in turn.
///
/// A packet leaves its VOQ as it is sent. At one instant circuits change first, then links take packets, then packets
/// arrive, and what arrives may be taken at that instant.
class VoqServer {
public:
    explicit VoqServer(RackLinks links) : links_(std::move(links)) {}

    [[nodiscard]] const RackLinks& links() const { return links_; }
    /// Lets links take packets up to `now`, in order of time: take(port, time) removes the head of a queue.
    template <class Queues, class Take>
    void advance(Tick now, const Queues& queues, Take&& take) {
        const Tick begun = served_;
        while (queues.occupancy() > 0) {
            // What two periods with idle links have not moved never will, such as a packet that no day has time for.
            if (served_ - std::max({begun, circuit_free_at_, uplink_free_at_}) > 2 * links_.times->period_ns()) break;
            serve(served_, queues, take);
            Tick next = links_.times->next_change(served_);
            for (const Tick free_at : {circuit_free_at_, uplink_free_at_}) {
                if (free_at > served_) next = std::min(next, free_at);
            }
            if (next > now) break;
            served_ = next;
        }
        served_ = now;
    }

private:
    template <class Queues, class Take>
    void serve(Tick now, const Queues& queues, Take& take) {
        const CircuitTimes& times = *links_.times;
        const std::vector<int>& racks = links_.racks;
        if (circuit_free_at_ <= now) {
            const int up = times.destination(links_.source, now);
            const auto found = std::ranges::lower_bound(racks, up);
            const auto port = static_cast<Port>(found - racks.begin());
            if (up != CircuitTimes::idle && found != racks.end() && *found == up && queues.length(port) > 0) {
                const Tick sent = now + links_.circuit.duration(queues.head(port).size);
                if (sent <= times.day_end(now)) {
                    circuit_free_at_ = sent;
                    take(port, now);
                }
            }
        }
        if (uplink_free_at_ > now) return;
        for (std::size_t i = 0; i < racks.size(); ++i) {
            const std::size_t place = (turn_ + i) % racks.size();
            const auto port = static_cast<Port>(place);
            if (queues.length(port) == 0 || !times.packet_path_open(links_.source, racks[place], now)) continue;
            turn_ = place + 1;
            uplink_free_at_ = now + links_.uplink.duration(queues.head(port).size);
            take(port, now);
            return;
        }
    }

    RackLinks links_;
    std::size_t turn_ = 0;  // the VOQ that the uplink looks at first
    Tick circuit_free_at_ = 0, uplink_free_at_ = 0;
    Tick served_ = 0;  // up to when
};

}  // namespace foretail::buffer
