// SPDX-License-Identifier: MIT
#pragma once

#include "packets/settings/settings_group.h"
#include "packets/traffic.h"

namespace foretail::packets {

/// VOQs that are larger shortly before and while their circuit is up.
struct Resize {
    std::int64_t packets = 0;   ///< capacity then
    std::int64_t ahead_ns = 0;  ///< so long before the circuit
};

/// A buffer that all VOQs of a rack share.
struct SharedBuffer {
    std::string policy;
    std::int64_t bytes = 0;
    double alpha = 0;                 ///< of dt
    std::string library;              ///< that credence asks; empty: always accept
    std::optional<std::int64_t> tau;  ///< its threshold; the library's own
    bool trace = false;
};

/// Racks around a packet switch and a circuit switch: the group `racks` of the settings. Racks count from 0.
struct RackSettings {
    int racks = 0;
    int hosts_per_rack = 0;
    std::int64_t host_bps = 0;
    std::int64_t packet_bps = 0, packet_delay_ns = 0;    ///< of a rack's link to the packet switch, each way
    std::int64_t circuit_bps = 0, circuit_delay_ns = 0;  ///< of a circuit, from rack to rack
    std::int64_t day_ns = 0, night_ns = 0;
    std::vector<std::vector<int>> matchings;  ///< [slot][rack], the rack it sends to or -1
    std::optional<std::int64_t> voq_packets;  ///< capacity of a virtual output queue; or they share:
    std::optional<SharedBuffer> buffer;
    std::optional<Resize> resize;            ///< with a capacity
    std::vector<int> sources, destinations;  ///< pairs of racks with flows
    int flows_per_pair = 0;
    std::int64_t start_within_ns = 0;  ///< flows start at random within this time; 0: together
    std::uint64_t seed = 0;            ///< of their starts
    std::vector<int> populated;        ///< racks of these pairs, rising: only they have hosts

    /// Round trip of a packet of `packet_bytes` and its acknowledgement of `ack_bytes` by the idle packet network.
    [[nodiscard]] std::int64_t base_rtt_ns(std::int64_t packet_bytes, std::int64_t ack_bytes) const;
};

/// Reads the groups `racks` and `flows` of a document that Foretail has checked; throws std::runtime_error with one
/// sentence naming the setting.
RackSettings read_racks(const Group& root);

/// The TCP of the hosts, how long they send, and nothing else: whatever the document has beside these is refused.
Settings read_hosts_of_racks(const Group& root);

/// Of a document with racks what hosts and switches have to know: how many hosts there are, their TCP, how long they
/// send, the predictor, the trace and the arithmetic of features. Leaves stand for the racks with hosts.
Settings hosts_of_racks(const RackSettings& racks, const Group& root);

/// Racks with circuits, and what their simulated hosts have to know.
struct RackRun {
    RackSettings racks;
    Settings hosts;
};

/// Reads and checks settings with a group `racks` for a simulation, none when there is no such group; throws
/// std::runtime_error with one sentence naming the setting.
std::optional<RackRun> read_rack_run(const Group& root);

/// Flows of every pair in order of their start, which never end; they take the hosts of their racks in turn.
std::vector<PlannedFlow> plan_long_flows(const RackSettings& settings);

}  // namespace foretail::packets
