// SPDX-License-Identifier: MIT
#include "packets/racks/rack_settings.h"

namespace foretail::packets {
namespace {

/// Those that live on losses alone, since the fabric marks nothing and sends no telemetry.
constexpr std::array<std::string_view, 2> controls = {"cubic", "newreno"};

/// The policies that may decide over a buffer that all VOQs of a rack share.
constexpr std::array<std::string_view, 5> rack_policies = {"cs", "dt", "lqd", "followlqd", "credence"};

/// `racks.matchings`: in each slot no rack sends to itself, and none receives twice.
std::vector<std::vector<int>> read_matchings(const Group& group, int racks) {
    const nlohmann::json& slots = group.items("matchings");
    if (slots.empty()) refuse("setting 'racks.matchings' must have a slot");
    std::vector<std::vector<int>> matchings;
    for (const nlohmann::json& slot : slots) {
        const std::string name = "slot " + std::to_string(matchings.size()) + " of setting 'racks.matchings' ";
        if (!slot.is_array()) refuse(name + "must be a list of racks, not " + slot.dump());
        if (slot.size() != static_cast<std::size_t>(racks))
            refuse(name + "has " + std::to_string(slot.size()) + " racks, and 'racks.racks' says " +
                   std::to_string(racks) + ": give a schedule of as many");
        std::vector<int>& matching = matchings.emplace_back();
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
    return matchings;
}

SharedBuffer read_buffer(const Group& group) {
    SharedBuffer out;
    FORETAIL_READ(bytes, alpha, tau, trace)
    out.policy = rack_policies[group.choice("policy", rack_policies)];
    out.library = group.get_or("library", std::string());
    return out;
}

Resize read_resize(const Group& group) {
    Resize out;
    FORETAIL_READ(packets, ahead_ns)
    return out;
}

/// The settings, with the flows that cross the racks.
RackSettings with_flows(const Group& group, RackSettings s) {
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
    s.flows_per_pair = group.get<int>("flows_per_pair");
    s.start_within_ns = group.get<std::int64_t>("start_within_ns");
    s.seed = group.get<std::uint64_t>("seed");
    s.populated = s.sources;
    s.populated.insert(s.populated.end(), s.destinations.begin(), s.destinations.end());
    std::ranges::sort(s.populated);
    s.populated.erase(std::unique(s.populated.begin(), s.populated.end()), s.populated.end());
    return s;
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
    RackSettings s = root.group("racks", [](const Group& group) {
        RackSettings out;
        FORETAIL_READ(racks, hosts_per_rack, host_bps, packet_bps, packet_delay_ns, circuit_bps, circuit_delay_ns)
        FORETAIL_READ(day_ns, night_ns, voq_packets)
        out.matchings = read_matchings(group, out.racks);
        if (group.is_null("voq_packets") == group.is_null("buffer"))
            refuse("one of the settings 'racks.voq_packets' and 'racks.buffer' must be null, and not the other");
        if (!group.is_null("buffer")) out.buffer = group.group("buffer", read_buffer);
        if (!group.is_null("resize")) {
            if (!out.voq_packets)
                group.refuse("resize", "must be null beside 'racks.buffer', which has no capacity to resize");
            out.resize = group.group("resize", read_resize);
        }
        return out;
    });
    return root.group("flows", [&](const Group& group) { return with_flows(group, std::move(s)); });
}

Settings read_hosts_of_racks(const Group& root) {
    if (root.get<int>("format") != 1) refuse("setting 'format' must be 1, the settings format of racks");
    Settings s;
    s.transport = root.group("transport", [](const Group& group) {
        Transport out;
        FORETAIL_READ(name, segment_bytes, initial_window_segments, min_rto_ns, delayed_ack_segments)
        out.slow_start = true;
        return out;
    });
    s.traffic_ns = root.get<std::int64_t>("traffic_ns");
    root.leave("emulation");
    root.require_all_read("means nothing to racks, whose hosts send the flows of 'flows': leave it out");
    return s;
}

Settings hosts_of_racks(const RackSettings& racks, const Group& root) {
    Settings s = read_hosts_of_racks(root);
    s.topology.leaves = static_cast<int>(racks.populated.size());
    s.topology.spines = 1;
    s.topology.servers_per_leaf = racks.hosts_per_rack;
    s.topology.server_link_bps = racks.host_bps;
    s.topology.spine_link_bps = racks.packet_bps;
    s.topology.link_delay_ns = racks.packet_delay_ns;
    const auto base_rtt_ns = racks.base_rtt_ns(s.packet_bytes(s.transport.segment_bytes), s.packet_bytes(0));
    s.scale.average_shift =
        std::clamp(static_cast<int>(std::lround(std::log2(static_cast<double>(base_rtt_ns)))), 0, 24);
    s.rules.cell_shift = s.scale.cell_shift;
    s.policy.known = &buffer::known_policy(racks.buffer ? racks.buffer->policy : "cs");  // without a buffer to share
    if (racks.buffer) {
        s.policy.settings.alpha = {racks.buffer->alpha};
        s.policy.library = racks.buffer->library;
        s.policy.tau = racks.buffer->tau;
        s.trace = racks.buffer->trace;
    }
    return s;
}

std::optional<RackRun> read_rack_run(const Group& root) {
    if (!root.has("racks")) return std::nullopt;
    RackRun run{.racks = read_racks(root), .hosts = {}};
    run.hosts = hosts_of_racks(run.racks, root);
    std::string& name = run.hosts.transport.name;
    name = controls[buffer::position(name, controls, "setting 'transport.name' is '" + name + "'")];
    return run;
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
