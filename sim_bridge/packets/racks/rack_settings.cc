// SPDX-License-Identifier: MIT
#include "packets/racks/rack_settings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "buffer/queues/line_rate.hpp"
#include "packets/random.h"

namespace foretail::packets {
namespace {

constexpr std::int64_t fastest = 1'000'000'000'000'000, second = 1'000'000'000;
constexpr std::int64_t most_voq_packets = 100'000;
constexpr int most_racks = 250, most_slots = 100'000;
/// Of a document, whoever reads it.
constexpr std::array<std::string_view, 6> known_groups = {"format",    "racks",      "flows",
                                                          "transport", "traffic_ns", "emulation"};

/// `racks.matchings`: in each slot no rack sends to itself, and none receives twice.
std::vector<std::vector<int>> read_matchings(const Group& group, int racks) {
    const nlohmann::json& slots = group.items("matchings");
    if (slots.empty() || slots.size() > most_slots)
        refuse("setting 'racks.matchings' must have 1 to " + std::to_string(most_slots) + " slots");
    std::vector<std::vector<int>> found;
    for (const nlohmann::json& slot : slots) {
        const std::string name = "slot " + std::to_string(found.size()) + " of setting 'racks.matchings' ";
        if (!slot.is_array()) refuse(name + "must be a list of racks, not " + slot.dump());
        if (slot.size() != static_cast<std::size_t>(racks))
            refuse(name + "has " + std::to_string(slot.size()) + " racks, and 'racks.racks' says " +
                   std::to_string(racks) + ": give a schedule of as many");
        std::vector<int>& matching = found.emplace_back();
        std::vector<bool> receives(slot.size(), false);
        for (const nlohmann::json& given : slot) {
            const std::size_t source = matching.size();
            matching.push_back(-1);
            const bool is_natural = given.is_number_unsigned();  // as signed 2^64 - 1 would be -1
            if (!is_natural && given.is_number_integer() && given.get<std::int64_t>() == -1) continue;
            const bool is_rack = is_natural && given.get<std::uint64_t>() < slot.size();
            if (!is_rack || given.get<std::size_t>() == source)
                refuse(name + "sends from rack " + std::to_string(source) + " to " + given.dump() +
                       ", which is no other rack");
            matching.back() = given.get<int>();
            if (receives[given.get<std::size_t>()]) refuse(name + "reaches rack " + given.dump() + " twice");
            receives[given.get<std::size_t>()] = true;
        }
    }
    return found;
}

SharedBuffer read_buffer(const Group& group) {
    const std::size_t policy = group.choice("policy", RackPolicies::names);
    SharedBuffer found{
        .policy = std::string(RackPolicies::names[policy]),
        .bytes = group.between<std::int64_t>("bytes", Settings::most_packet_bytes, std::int64_t{1} << 30),
        .alpha = group.positive("alpha", 1024),
        .library = group.is_null("library") ? "" : group.get<std::string>("library"),
        .tau = {},
        .trace = group.get<bool>("trace")};
    if (!found.library.empty() && found.policy != buffer::Credence::name)
        group.refuse("library", "must be null, for " + found.policy + " asks no predictor");
    if (!group.is_null("tau")) found.tau = group.get<std::int64_t>("tau");
    return found;
}

void read_flows(const Group& group, RackSettings& s) {
    const std::size_t pairs = group.items("source").size();
    if (pairs == 0 || group.items("destination").size() != pairs)
        refuse(
            "settings 'flows.source' and 'flows.destination' must name one rack each per pair, of at least one pair");
    for (std::size_t i = 0; i < pairs; ++i) {
        const auto rack = [&](const char* end) { return static_cast<int>(group.entry(end, i, 0, s.racks - 1)); };
        const int source = rack("source"), destination = rack("destination");
        if (source == destination)
            refuse("entry " + std::to_string(i) + " of setting 'flows.destination' is the rack " +
                   std::to_string(source) + " that the flows come from: they would cross no VOQ");
        s.sources.push_back(source);
        s.destinations.push_back(destination);
    }
    s.flows_per_pair = group.between("flows_per_pair", 1, 1024);
    s.start_within_ns = group.between<std::int64_t>("start_within_ns", 0, second);
    s.seed = group.get<std::uint64_t>("seed");
    s.populated = s.sources;
    s.populated.insert(s.populated.end(), s.destinations.begin(), s.destinations.end());
    std::ranges::sort(s.populated);
    s.populated.erase(std::unique(s.populated.begin(), s.populated.end()), s.populated.end());
}

}  // namespace

std::int64_t RackSettings::base_rtt_ns(std::int64_t packet_bytes, std::int64_t ack_bytes) const {
    const auto host = buffer::LineRate::from_bps(host_bps, 0), network = buffer::LineRate::from_bps(packet_bps, 0);
    const auto one_way = [&](std::int64_t bytes) {
        return 2 * (host.duration(bytes) + network.duration(bytes) + packet_delay_ns);
    };
    return one_way(packet_bytes) + one_way(ack_bytes);
}

RackSettings read_racks(const Group& root) {
    root.require_only(known_groups, "means nothing to racks, whose hosts send the flows of 'flows': leave it out");
    const Group group = root.group("racks");
    RackSettings s;
    s.racks = group.between("racks", 3, most_racks);
    s.hosts_per_rack = group.between("hosts_per_rack", 1, 128);
    s.host_bps = group.between<std::int64_t>("host_bps", 1'000'000, fastest);
    s.packet_bps = group.between<std::int64_t>("packet_bps", 1'000'000, fastest);
    s.packet_delay_ns = group.between<std::int64_t>("packet_delay_ns", 0, second);
    s.circuit_bps = group.between<std::int64_t>("circuit_bps", 1'000'000, fastest);
    s.circuit_delay_ns = group.between<std::int64_t>("circuit_delay_ns", 0, second);
    s.day_ns = group.between<std::int64_t>("day_ns", 1, second);
    s.night_ns = group.between<std::int64_t>("night_ns", 0, second);
    if (s.night_ns > s.day_ns) group.refuse("night_ns", "must not be longer than 'racks.day_ns'");
    s.matchings = read_matchings(group, s.racks);
    if (group.is_null("voq_packets") == group.is_null("buffer"))
        refuse("one of the settings 'racks.voq_packets' and 'racks.buffer' must be null, and not the other");
    if (!group.is_null("buffer")) {
        s.buffer = read_buffer(group.group("buffer"));
        // Else it might wait for ever, and its label would never be known.
        const auto circuit = buffer::LineRate::from_bps(s.circuit_bps, 0);
        if (circuit.duration(Settings::most_packet_bytes) > s.day_ns)
            group.refuse("day_ns", "must be long enough for a circuit to send a packet of " +
                                       std::to_string(Settings::most_packet_bytes) + " bytes, beside 'racks.buffer'");
    } else {
        s.voq_packets = group.between<std::int64_t>("voq_packets", 1, most_voq_packets);
    }
    if (!group.is_null("resize")) {
        if (!s.voq_packets)
            group.refuse("resize", "must be null beside 'racks.buffer', which has no capacity to resize");
        const Group resize = group.group("resize");
        const std::int64_t period = static_cast<std::int64_t>(s.matchings.size()) * (s.day_ns + s.night_ns);
        s.resize = {.packets = resize.between<std::int64_t>("packets", *s.voq_packets, most_voq_packets),
                    .ahead_ns = resize.between<std::int64_t>("ahead_ns", 0)};
        if (s.resize->ahead_ns >= period)
            resize.refuse("ahead_ns", "must be less than the " + std::to_string(period) + " ns of the schedule");
    }
    read_flows(root.group("flows"), s);
    return s;
}

Settings hosts_of_racks(const RackSettings& racks, const Group& root) {
    if (root.get<int>("format") != 1) refuse("setting 'format' must be 1, the settings format of racks");
    Settings s;
    s.topology.leaves = static_cast<int>(racks.populated.size());
    s.topology.spines = 1;
    s.topology.servers_per_leaf = racks.hosts_per_rack;
    s.topology.server_link_bps = racks.host_bps;
    s.topology.spine_link_bps = racks.packet_bps;
    s.topology.link_delay_ns = racks.packet_delay_ns;
    const Group transport = root.group("transport");
    const int most = Settings::most_packet_bytes - Settings::header_bytes;
    s.transport.segment_bytes = transport.between("segment_bytes", 64, most);
    s.transport.initial_window_segments = transport.between("initial_window_segments", 1, 10'000);
    s.transport.slow_start = true;
    s.transport.min_rto_ns = transport.between<std::int64_t>("min_rto_ns", 1000, 60 * second);
    s.transport.delayed_ack_segments = transport.between("delayed_ack_segments", 1, 2);
    s.traffic_ns = root.between<std::int64_t>("traffic_ns", 1, std::int64_t{1} << 60);
    const auto base_rtt_ns = racks.base_rtt_ns(s.packet_bytes(s.transport.segment_bytes), s.packet_bytes(0));
    s.scale.average_shift =
        std::clamp(static_cast<int>(std::lround(std::log2(static_cast<double>(base_rtt_ns)))), 0, 24);
    s.rules.cell_shift = s.scale.cell_shift;
    if (racks.buffer) {
        s.policy.library = racks.buffer->library;
        s.policy.tau = racks.buffer->tau;
        s.trace = racks.buffer->trace;
    }
    return s;
}

std::vector<PlannedFlow> plan_long_flows(const RackSettings& s) {
    const auto first_host = [&](int rack) {
        const auto place = std::ranges::lower_bound(s.populated, rack) - s.populated.begin();
        return static_cast<int>(place) * s.hosts_per_rack;
    };
    RandomStream random(s.seed, RandomStream::Purpose::starts, 0);
    std::vector<PlannedFlow> flows;
    for (std::size_t pair = 0; pair < s.sources.size(); ++pair) {
        for (int i = 0; i < s.flows_per_pair; ++i) {
            const auto start = static_cast<std::int64_t>(random.uniform() * static_cast<double>(s.start_within_ns));
            flows.push_back({.start_ns = start,
                             .connect_ns = start,
                             .size_bytes = endless_bytes,
                             .source = first_host(s.sources[pair]) + i % s.hosts_per_rack,
                             .destination = first_host(s.destinations[pair]) + i % s.hosts_per_rack,
                             .after = {}});
        }
    }
    std::ranges::stable_sort(flows, {}, &PlannedFlow::start_ns);
    return flows;
}

}  // namespace foretail::packets
