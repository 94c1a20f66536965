// SPDX-License-Identifier: MIT
#include "packets/traffic.h"

#include <numeric>

namespace foretail::packets {
namespace {

double mean_size(const Background& background) {
    double mean = 0;
    for (std::size_t i = 1; i < background.size_bytes.size(); ++i) {
        mean += (background.cumulative[i] - background.cumulative[i - 1]) *
                (background.size_bytes[i] + background.size_bytes[i - 1]) / 2;
    }
    return mean;
}

std::int64_t draw_size(const Background& background, double share) {
    const auto& shares = background.cumulative;
    const auto upper =
        static_cast<std::size_t>(std::upper_bound(shares.begin(), shares.end() - 1, share) - shares.begin());
    const double low = background.size_bytes[upper - 1], high = background.size_bytes[upper];
    const double width = shares[upper] - shares[upper - 1];
    const double size = width > 0 ? low + (high - low) * (share - shares[upper - 1]) / width : high;
    return std::max<std::int64_t>(1, std::llround(size));
}

/// The servers that may be at the other end of a flow with `server`.
std::vector<int> peers_of(int server, Peers peers, const Topology& topology) {
    const int leaf = topology.leaf_of(server);
    std::vector<int> others;
    for (int other = 0; other < topology.servers(); ++other) {
        const int other_leaf = topology.leaf_of(other);
        const bool is_peer = peers == Peers::other_servers  ? other != server
                             : peers == Peers::other_leaves ? other_leaf != leaf
                                                            : other_leaf == (leaf + 1) % topology.leaves;
        if (is_peer) others.push_back(other);
    }
    return others;
}

void plan_background(const Settings& s, std::vector<PlannedFlow>& flows) {
    if (s.background.load <= 0) return;
    const double flows_per_second = s.background.load * static_cast<double>(s.topology.offered_bps()) /
                                    s.topology.servers_per_leaf / (8 * mean_size(s.background));
    for (int server = 0; server < s.topology.servers(); ++server) {
        const auto peers = peers_of(server, s.background.destinations, s.topology);
        RandomStream random(s.seed, RandomStream::Purpose::background, static_cast<std::uint32_t>(server));
        double time = random.exponential(1e9 / flows_per_second);
        for (; time < static_cast<double>(s.traffic_ns); time += random.exponential(1e9 / flows_per_second)) {
            const std::int64_t start = s.incast.connect_ahead_ns + static_cast<std::int64_t>(time);
            const int peer = peers[static_cast<std::size_t>(random.below(static_cast<int>(peers.size())))];
            flows.push_back({.start_ns = start,
                             .connect_ns = start,
                             .size_bytes = draw_size(s.background, random.uniform()),
                             .source = server,
                             .destination = peer,
                             .after = {}});
        }
    }
}

void plan_incast(const Settings& s, std::vector<PlannedFlow>& flows) {
    if (s.incast.queries_per_second_per_server <= 0) return;
    const double burst = s.incast.burst_fraction * static_cast<double>(s.topology.buffer_bytes(0));
    const auto response = std::max<std::int64_t>(1, static_cast<std::int64_t>(burst / s.incast.fan_in));
    const auto pair = [&](int source, int destination) {
        return std::int64_t{source} * s.topology.servers() + destination;
    };
    int query = 0;
    for (int server = 0; server < s.topology.servers(); ++server) {
        auto peers = peers_of(server, s.incast.responders, s.topology);
        RandomStream random(s.seed, RandomStream::Purpose::incast, static_cast<std::uint32_t>(server));
        const auto ask = [&](double time) {
            const std::int64_t start = s.incast.connect_ahead_ns + static_cast<std::int64_t>(time);
            for (int i = 0; i < s.incast.fan_in; ++i) {
                const int left = static_cast<int>(peers.size()) - i;
                std::swap(peers[static_cast<std::size_t>(i)], peers[static_cast<std::size_t>(i + random.below(left))]);
                flows.push_back({.start_ns = start,
                                 .connect_ns = start - s.incast.connect_ahead_ns,
                                 .size_bytes = response,
                                 .source = peers[static_cast<std::size_t>(i)],
                                 .destination = server,
                                 .query = query,
                                 .flow_class = buffer::FlowClass::incast,
                                 .connection = s.incast.reused ? pair(peers[static_cast<std::size_t>(i)], server) : -1,
                                 .after = {}});
            }
            ++query;
        };
        const double mean_gap = 1e9 * s.incast.cluster_size / s.incast.queries_per_second_per_server;
        const double end = static_cast<double>(s.traffic_ns), more = 1 - 1 / s.incast.cluster_size;
        for (double first = random.exponential(mean_gap); first < end; first += random.exponential(mean_gap)) {
            double time = first;
            for (ask(time); more > 0 && random.uniform() < more; ask(time)) {
                time += random.exponential(static_cast<double>(s.incast.cluster_gap_ns));
                if (time >= end) break;
            }
        }
    }
}

void append_messages(const Settings& s, std::vector<PlannedFlow>& flows) {
    const std::size_t first = flows.size();
    const std::int64_t of_pairs = std::int64_t{s.topology.servers()} * s.topology.servers();
    for (const Message& message : s.messages) {
        PlannedFlow flow{.start_ns = s.incast.connect_ahead_ns + message.start_ns,
                         .connect_ns = message.start_ns,
                         .size_bytes = message.size_bytes,
                         .source = message.source,
                         .destination = message.destination,
                         .spine = message.spine,
                         .connection = of_pairs + message.connection,
                         .after = message.after,
                         .gap_ns = message.gap_ns,
                         .latest_ns = s.incast.connect_ahead_ns + message.latest_ns};
        for (std::size_t& other : flow.after) other += first;
        flows.push_back(std::move(flow));
    }
}

}  // namespace

std::uint32_t path_hash(int source, int destination, std::uint16_t source_port, std::uint16_t destination_port) {
    const auto address = [](int server) { return first_address + static_cast<std::uint32_t>(server); };
    std::uint64_t tuple =
        (static_cast<std::uint64_t>(address(source)) << 32 | address(destination)) * 0x9E3779B97F4A7C15U;
    tuple = (tuple ^ (tuple >> 29) ^ (static_cast<std::uint64_t>(source_port) << 16 | destination_port)) *
            0xBF58476D1CE4E5B9U;
    return static_cast<std::uint32_t>(tuple >> 32);
}

std::int64_t ideal_fct_ns(const Settings& settings, const PlannedFlow& flow) {
    if (flow.size_bytes >= endless_bytes) return 0;
    const Topology& topology = settings.topology;
    const std::vector<buffer::LineRate> path = topology.path(flow.source, flow.destination);

    const std::int64_t segment = settings.transport.segment_bytes;
    const std::int64_t full = (flow.size_bytes - 1) / segment;  // segments before the last
    const std::int64_t last = settings.packet_bytes(flow.size_bytes - full * segment);
    std::int64_t first_sent = 0, slowest = 0, last_sent = 0;
    for (const buffer::LineRate& hop : path) {
        const std::int64_t duration = hop.duration(settings.packet_bytes(segment));
        first_sent += duration;
        slowest = std::max(slowest, duration);
        const std::int64_t before_sent = full > 0 ? first_sent + (full - 1) * slowest : 0;
        last_sent = std::max(last_sent, before_sent) + hop.duration(last) + topology.link_delay_ns;
        first_sent += topology.link_delay_ns;
    }
    return last_sent;
}

std::vector<PlannedFlow> plan_traffic(const Settings& settings) {
    std::vector<PlannedFlow> flows;
    plan_background(settings, flows);
    plan_incast(settings, flows);
    std::stable_sort(flows.begin(), flows.end(), [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
    append_messages(settings, flows);
    return flows;
}

}  // namespace foretail::packets
