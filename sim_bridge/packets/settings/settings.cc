// SPDX-License-Identifier: MIT
#include "packets/settings/settings.h"

#include <cmath>
#include <numeric>

#include "buffer/policies/dynamic_thresholds.hpp"
#include "buffer/records.hpp"
#include "packets/settings/settings_group.h"

namespace foretail::packets {

std::int64_t Settings::headroom_needed_bytes(const buffer::LineRate& link) const {
    const std::int64_t packet = packet_bytes(transport.segment_bytes);
    const auto reaction_ns = static_cast<double>(2 * link.duration(packet) + link.duration(Pauses::frame_bytes) +
                                                 2 * topology.link_delay_ns);
    return packet + static_cast<std::int64_t>(std::ceil(reaction_ns * link.bytes_per_tick()));
}

bool Settings::has_headroom_for_all() const {
    using buffer::LineRate;
    const auto server = LineRate::from_bps(topology.server_link_bps, topology.wire_overhead_bytes);
    const auto spine = LineRate::from_bps(topology.spine_link_bps, topology.wire_overhead_bytes);
    const auto is_enough = [&](int servers, int switches) {
        std::int64_t all = 0;
        for (const auto& [ports, link] : {std::pair(servers, server), {switches, spine}}) {
            if (ports == 0) continue;
            const std::int64_t needed = headroom_needed_bytes(link), own = pfc.headroom_bytes.value_or(needed);
            if (own < needed) return false;
            all += ports * std::popcount(queues.lossless) * own;
        }
        return pfc.headroom_pool_bytes.value_or(all) >= all;
    };
    return is_enough(topology.servers_per_leaf, topology.spines_per_pod()) &&
           (topology.is_star() || (is_enough(0, topology.leaves_per_pod() + topology.cores_per_spine()) &&
                                   is_enough(0, topology.cores > 0 ? topology.pods : 0)));
}

std::optional<buffer::PauseSettings> Settings::pause_settings(const std::vector<buffer::LineRate>& rates) const {
    if (queues.lossless == 0) return {};
    buffer::PauseSettings pauses{.lossless = queues.lossless,
                                 .alpha = pfc.alpha,
                                 .headroom = {},
                                 .xon = pfc.xon_bytes,
                                 .makes_room = pfc.makes_room};
    std::int64_t all = 0;
    for (const buffer::LineRate& link : rates) {
        pauses.headroom.push_back(pfc.headroom_bytes.value_or(headroom_needed_bytes(link)));
        all += pauses.headroom.back() * std::popcount(queues.lossless);
    }
    pauses.headroom_pool = pfc.headroom_pool_bytes.value_or(all);
    pauses.xon_offset = pfc.xon_offset_bytes.value_or(2 * packet_bytes(transport.segment_bytes));
    return pauses;
}

void Settings::set_headroom_aside(buffer::Shape& shape) const {
    shape.pause = pause_settings(shape.rates);
    if (!shape.pause) return;
    const buffer::Bytes whole = shape.capacity;
    shape.capacity -= shape.pause->headroom_pool;
    if (shape.capacity < 2 * packet_bytes(transport.segment_bytes))
        refuse("the headroom of a switch takes " + std::to_string(shape.pause->headroom_pool) + " of its " +
               std::to_string(whole) + " bytes, which leaves less than two packets: lower setting " +
               "'pfc.headroom_pool_bytes', or give the switch a larger buffer");
}

namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 3> peer_names = {"next_leaf", "other_leaves", "other_servers"};
constexpr std::array<std::string_view, 9> transport_names = {
    "dctcp", "cubic", "newreno", "theta_powertcp", "timely", "powertcp", "hpcc", roce, irn};
constexpr std::array<std::string_view, 2> recovery_names = {"ns3", "linux"};
constexpr std::array<std::string_view, 7> balancing_names = {"ecmp",   "spray",      "uss",     "rss",
                                                             "sirona", "flowbender", "ethereal"};
constexpr std::array<std::string_view, 5> metric_names = {"mean", "max", "ewma", "marks", "fed_back"};
constexpr double full_packet_bytes = 1500;  // what Credence's artifact takes off the largest threshold at a time
constexpr std::span of_ns3 = std::span(transport_names).first<3>();
constexpr std::array<std::string_view, 4> background_names = {"cubic", "newreno", roce, irn};
constexpr std::array<std::string_view, 5> rdma_controls = {"theta_powertcp", "timely", "powertcp", "hpcc", dcqcn};

/// The columns of `messages`, one entry per message in each.
std::vector<Message> read_messages(const Group& group, const Topology& topology, std::int64_t longest) {
    const std::int64_t servers = std::int64_t{topology.leaves} * topology.servers_per_leaf;
    std::map<int, const Message*> first_of;  // message of a connection
    const std::size_t count = group.items("size_bytes").size();
    for (const char* column : {"start_ns", "latest_ns", "source", "destination", "connection", "after", "gap_ns"}) {
        if (group.items(column).size() != count)
            refuse(std::string("setting 'messages.") + column + "' must have as many entries as 'messages.size_bytes'");
    }
    group.leave("round");  // of a collective, which those who read the results need
    const bool has_spines = group.has("spine");
    if (has_spines && group.items("spine").size() != count)
        refuse("setting 'messages.spine' must have as many entries as 'messages.size_bytes'");
    std::vector<Message> messages;
    messages.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        const auto server = [&](const char* column) {
            return static_cast<int>(group.entry(column, i, 0, servers - 1));
        };
        messages.push_back(
            {.start_ns = group.entry("start_ns", i, 0, longest),
             .latest_ns = group.entry("latest_ns", i, 0, longest),
             .size_bytes = group.entry("size_bytes", i, 1, std::numeric_limits<std::uint32_t>::max()),
             .source = server("source"),
             .destination = server("destination"),
             .connection = static_cast<int>(group.entry("connection", i, 0, std::numeric_limits<std::int32_t>::max())),
             .spine = has_spines ? static_cast<int>(group.entry("spine", i, -1, topology.spines - 1)) : -1,
             .after = {},
             .gap_ns = group.entry("gap_ns", i, 0, longest)});
        Message& message = messages.back();
        const std::string name = "message " + std::to_string(i) + " of setting 'messages' ";
        if (message.source == message.destination) refuse(name + "goes from a server to itself");
        const Message& first = *first_of.emplace(message.connection, &message).first->second;
        if (first.source != message.source || first.destination != message.destination)
            refuse(name + "has other ends than those before it on its connection " +
                   std::to_string(message.connection));
        const json& after = group.items("after")[i];
        if (!after.is_array()) refuse(name + "must have a list in 'after', not " + after.dump());
        for (const json& other : after) {
            if (!other.is_number_unsigned() || other.get<std::uint64_t>() >= i)
                refuse(name + "waits for message " + other.dump() + ", which is none before it in the list");
            message.after.push_back(other.get<std::size_t>());
        }
    }
    return messages;
}

/// The parameters of policies among the settings of a policy, by their names in C++, which have no unit.
buffer::PolicySettings policy_settings(const Group& group, buffer::Alphas alpha) {
    buffer::PolicySettings settings{std::move(alpha), {}};
    for (const buffer::KnownPolicy* known : buffer::policies()) {
        for (const std::string_view parameter : known->parameters) {
            for (const char* unit : {"", "_ns", "_bytes"}) {
                const auto key = std::string(parameter) + unit;
                if (parameter == "alpha" || !group.has(key) || group.is_null(key)) continue;
                if (group.is_list(key)) {
                    settings.lists[std::string(parameter)] = group.get<std::vector<double>>(key);
                } else {
                    settings.numbers[std::string(parameter)] = group.get<double>(key);
                }
            }
        }
    }
    return settings;
}

Topology read_topology(const Group& group) {
    Topology out;
    FORETAIL_READ(leaves, spines, servers_per_leaf, pods, cores, slow_spines, erasure_probability, server_link_bps)
    FORETAIL_READ(spine_link_bps, slow_spine_link_bps, link_delay_ns, buffer_bytes_per_port_per_gbps,
                  wire_overhead_bytes)
    return out;
}

Background read_background(const Group& group) {
    Background out;
    FORETAIL_READ(load, size_bytes, cumulative)
    out.destinations = group.choice<Peers>("destinations", peer_names);
    return out;
}

Incast read_incast(const Group& group) {
    Incast out;
    FORETAIL_READ(queries_per_second_per_server, cluster_size, cluster_gap_ns, burst_fraction, fan_in, connect_ahead_ns)
    out.responders = group.choice<Peers>("responders", peer_names);
    out.reused = group.choice("connections", std::array<std::string_view, 2>{"new", "reused"}) == 1;
    return out;
}

PowerTcpSettings read_powertcp(const Group& group) {
    PowerTcpSettings out;
    FORETAIL_READ(gamma, expected_flows)
    return out;
}

HpccSettings read_hpcc(const Group& group) {
    HpccSettings out;
    FORETAIL_READ(utilisation, most_increases, expected_flows)
    return out;
}

TimelySettings read_timely(const Group& group) {
    TimelySettings out;
    FORETAIL_READ(low_rtt_ns, high_rtt_ns, increase_bps, decrease, gradient_weight)
    return out;
}

DcqcnSettings read_dcqcn(const Group& group) {
    DcqcnSettings out;
    FORETAIL_READ(cnp_interval_ns, gain, alpha_interval_ns, increase_interval_ns, increase_bytes, fast_rounds)
    FORETAIL_READ(additive_bps, hyper_bps)
    return out;
}

RdmaSettings read_rdma(const Group& group) {
    RdmaSettings out;
    FORETAIL_READ(low_rto_ns, high_rto_ns, few_segments, window_segments)
    if (!group.is_null("control")) out.control = rdma_controls[group.choice("control", rdma_controls)];
    return out;
}

Transport read_transport(const Group& group) {
    Transport out;
    FORETAIL_READ(segment_bytes, initial_window_segments, slow_start, min_rto_ns, delayed_ack_segments, mark_bytes)
    FORETAIL_READ(mark_full_bytes, mark_probability)
    out.name = transport_names[group.choice("name", transport_names)];
    if (!group.is_null("background_name"))
        out.background_name = background_names[group.choice("background_name", background_names)];
    out.recovery = group.choice<Recovery>("recovery", recovery_names);
    out.reordering_window_ns = group.get_or<std::int64_t>("reordering_window_ns", -1);
    out.rc3_edges = group.group("rc3", [](const Group& rc3) { return rc3.get<std::vector<std::int64_t>>("edges"); });
    out.powertcp = group.group("powertcp", read_powertcp);
    out.hpcc = group.group("hpcc", read_hpcc);
    out.timely = group.group("timely", read_timely);
    out.dcqcn = group.group("dcqcn", read_dcqcn);
    out.rdma = group.group("rdma", read_rdma);
    const bool is_tcp = std::ranges::find(of_ns3, out.name) != of_ns3.end();
    if (out.recovery == Recovery::as_linux && !is_tcp) group.refuse("recovery", "must be ns3 with " + out.name);
    if (Transport::is_rdma(out.background_name) && !is_tcp)
        group.refuse("background_name", "must be a TCP or null with " + out.name);
    return out;
}

PortQueueing read_queues(const Group& group) {
    PortQueueing queues{.count = group.get<int>("count"),
                        .scheduler = group.choice<buffer::Scheduler>("scheduler", buffer::scheduler_names),
                        .quantum_bytes = group.get<std::vector<std::int64_t>>("quantum_bytes")};
    for (const auto& [key, flow_class] : {std::pair{"background", buffer::FlowClass::background},
                                          {"incast", buffer::FlowClass::incast},
                                          {"control", buffer::FlowClass::control}}) {
        const auto queue = group.get<std::uint8_t>(key);
        if (queue >= queues.count) group.refuse(key, "must be one of the queues of a port");
        queues.queue_of[static_cast<std::size_t>(flow_class)] = queue;
    }
    for (std::size_t i = 0; i < group.items("lossless").size(); ++i)
        queues.lossless |= static_cast<std::uint8_t>(1U << group.entry("lossless", i, 0, queues.count - 1));
    for (std::size_t i = 0; i < group.items("marking").size(); ++i)
        queues.marking |= static_cast<std::uint8_t>(1U << group.entry("marking", i, 0, queues.count - 1));
    return queues;
}

Pauses read_pauses(const Group& group) {
    Pauses out;
    FORETAIL_READ(alpha, headroom_bytes, headroom_pool_bytes, xon_bytes, xon_offset_bytes)
    out.makes_room = group.choice<buffer::MakesRoom>("makes_room", buffer::makes_room_names);
    return out;
}

PolicyChoice read_policy(const Group& group, const PortQueueing& queues) {
    PolicyChoice out;
    FORETAIL_READ(tau, flip_probability, alpha_interval_ns)
    // The name of a policy from outside, HEADER.hpp:TYPE, says nothing here.
    const auto name = group.get<std::string>("name");
    out.known = &buffer::known_policy(group.has("compiled") ? group.get<std::string>("compiled") : name);
    const auto alpha = group.get<double>("alpha");
    out.settings = policy_settings(group, buffer::Alphas(static_cast<std::size_t>(queues.count), alpha));
    out.settings.alpha[queues.queue_of[static_cast<std::size_t>(buffer::FlowClass::incast)]] =
        group.get_or("incast_alpha", alpha);
    const auto library = group.get_or("library", std::string());
    if (group.choice("predictor", std::array<std::string_view, 2>{"accept", "library"}) == 1) out.library = library;
    out.message_end = group.get_or("message_end", std::string());
    out.flow_entries = static_cast<std::size_t>(group.get<std::uint64_t>("flow_entries"));
    return out;
}

buffer::PushOutRules read_rules(const Group& group, Settings& s) {
    using namespace buffer;
    const auto alpha = group.get<double>("oracle_alpha");
    if (group.choice<Oracle>("oracle", oracle_names) == Oracle::occamy)
        s.occamy_oracle = occamy_of_its_authors(Alphas(static_cast<std::size_t>(s.queues.count), alpha));
    return {.counting = group.choice<Counting>("counting", counting_names),
            .tie = group.choice<Tie>("tie", tie_names),
            .victim = group.choice<Victim>("victim", victim_names),
            .seed = s.seed,
            .order = group.choice<Order>("order", order_names)};
}

/// Where the run is forked; `s` has all other settings.
BranchChoice read_branches(const Group& group, const Settings& s, std::int64_t longest) {
    BranchChoice out;
    FORETAIL_READ(hold_ns, repeats, repeat_ns, fork)
    for (std::size_t i = 0; i < group.items("rows").size(); ++i)
        out.rows.push_back(group.entry("rows", i, out.rows.empty() ? 0 : out.rows.back() + 1, longest));
    if (out.rows.empty()) group.refuse("rows", "must name an arrival");
    if (!out.fork && (out.rows.size() > 1 || out.repeats > 1))
        group.refuse("fork", "must be true with several branches");
    if (s.trace && out.fork) refuse("setting 'trace' must be false with 'branches.fork', a trace is of one run");
    if (s.policy.known->removes_packets())
        refuse("setting 'branches' needs a policy that decides arrivals, and " + std::string(s.policy.known->name) +
               " pushes out");
    return out;
}

}  // namespace

Balancing read_balancing(const Group& group) {
    const std::size_t name = group.choice("name", balancing_names);
    // The messages of Ethereal name their spines, and whatever else is sent is hashed.
    const bool is_ethereal = name + 1 == balancing_names.size();
    Balancing out;
    FORETAIL_READ(subflows, interval_ns, jitter, ewma_weight, last_share, mark_share)
    out.rule = is_ethereal ? Balancing::Rule::ecmp : static_cast<Balancing::Rule>(name);
    out.metric = group.choice<Balancing::Metric>("metric", metric_names);
    return out;
}

std::pair<int, int> Topology::far_end(int node, int port) const {
    if (node < 0) return {leaf_of(port), port % servers_per_leaf};
    if (node < leaves) {
        if (port < servers_per_leaf) return {-1, node * servers_per_leaf + port};
        return {leaves + pod_of(node) * spines_per_pod() + port - servers_per_leaf, node % leaves_per_pod()};
    }
    const int spine = node - leaves;
    if (spine < spines) {
        const int pod = spine / spines_per_pod(), place = spine % spines_per_pod(), core = port - leaves_per_pod();
        if (core < 0) return {pod * leaves_per_pod() + port, servers_per_leaf + place};
        return {leaves + spines + place * cores_per_spine() + core, pod};
    }
    const int core = spine - spines;
    return {leaves + port * spines_per_pod() + core / cores_per_spine(), leaves_per_pod() + core % cores_per_spine()};
}

std::vector<std::int64_t> Topology::port_rates_bps(int node) const {
    const auto many = [](int links, std::int64_t bps) {
        return std::vector<std::int64_t>(static_cast<std::size_t>(links), bps);
    };
    const int spine = node - leaves;
    if (spine >= spines) return many(pods, spine_link_bps);
    if (spine >= 0)
        return many(leaves_per_pod() + cores_per_spine(), spine < slow_spines ? slow_spine_link_bps : spine_link_bps);
    std::vector<std::int64_t> rates = many(servers_per_leaf, server_link_bps);
    for (int above = 0; above < spines_per_pod(); ++above)
        rates.push_back(above < slow_spines ? slow_spine_link_bps : spine_link_bps);
    return rates;
}

std::int64_t Topology::buffer_bytes(int node) const {
    __extension__ using Wide = __int128;
    Topology fast = *this;
    fast.slow_spines = 0;
    const std::vector<std::int64_t> rates = fast.port_rates_bps(node);
    const auto bytes =
        buffer_bytes_per_port_per_gbps * std::accumulate(rates.begin(), rates.end(), Wide{0}) / 1'000'000'000;
    return static_cast<std::int64_t>(std::min<Wide>(bytes, std::numeric_limits<std::int64_t>::max()));
}

std::vector<buffer::LineRate> Topology::path(int source, int destination) const {
    const auto server = buffer::LineRate::from_bps(server_link_bps, wire_overhead_bytes);
    const auto spine = buffer::LineRate::from_bps(spine_link_bps, wire_overhead_bytes);
    const int leaf = leaf_of(source), last = leaf_of(destination);
    if (leaf == last) return {server, server};
    if (pod_of(leaf) == pod_of(last)) return {server, spine, spine, server};
    return {server, spine, spine, spine, spine, server};
}

std::int64_t Settings::base_rtt_ns() const {
    const std::vector<buffer::LineRate> farthest = topology.path(0, topology.servers() - 1);
    const auto one_way = [&](std::int64_t payload) {
        std::int64_t ns = 0;
        for (const buffer::LineRate& link : farthest)
            ns += link.duration(packet_bytes(payload)) + topology.link_delay_ns;
        return ns;
    };
    return one_way(transport.segment_bytes) + one_way(0);
}

std::int64_t Settings::first_rtt_bytes() const {
    return static_cast<std::int64_t>(static_cast<double>(base_rtt_ns()) *
                                     static_cast<double>(topology.server_link_bps) / 8e9);
}

Settings read_settings(const Group& root) {
    if (root.get<int>("format") != 1) refuse("setting 'format' must be 1, the settings format of this driver");
    constexpr std::int64_t longest = std::int64_t{1} << 60;

    Settings s;
    s.seed = root.get<std::uint64_t>("seed");
    s.topology = root.group("topology", read_topology);
    s.background = root.group("background", read_background);
    s.incast = root.group("incast", read_incast);
    s.messages = root.group("messages", [&](const Group& group) { return read_messages(group, s.topology, longest); });
    s.transport = root.group("transport", read_transport);
    s.balancing = root.group("balancing", read_balancing);
    s.traffic_ns = root.get<std::int64_t>("traffic_ns");
    s.drain_ns = root.get<std::int64_t>("drain_ns");
    s.queues = root.group("queues", read_queues);
    if (!s.transport.rc3_edges.empty() && s.transport.rc3_edges.size() >= static_cast<std::size_t>(s.queues.count))
        refuse("setting 'transport.rc3.edges' has more priorities than a port has queues beside the first: raise " +
               std::string("'queues.count'"));
    s.pfc = root.group("pfc", read_pauses);
    s.policy = root.group("policy", [&](const Group& group) { return read_policy(group, s.queues); });
    s.rules = root.group("rules", [&](const Group& group) { return read_rules(group, s); });
    const auto [cell_shift, average_shift] = root.group("features", [](const Group& group) {
        return std::pair(std::countr_zero(static_cast<std::uint64_t>(group.get<std::int64_t>("cell_bytes"))),
                         group.get_or("average_shift", -1));
    });
    s.scale = {.cell_shift = cell_shift, .average_shift = average_shift, .tick_shift = 10};
    s.rules.cell_shift = cell_shift;
    s.trace = root.get<bool>("trace");
    s.counters = root.get<bool>("counters");
    s.occupancy_interval_ns = root.get<std::int64_t>("occupancy_interval_ns");
    if (root.has("branches")) {
        s.branches = root.group("branches", [&](const Group& group) { return read_branches(group, s, longest); });
    }
    root.leave("emulation");
    root.require_all_read("is unknown: leave it out");
    return s;
}

void Settings::require_simulated(const std::string& network) const {
    const auto refuse_if = [&](bool is_set, const std::string& setting, const std::string& instead) {
        if (is_set)
            refuse("setting '" + setting + "' is not simulated by " + network + ": run it in the native network, or " +
                   instead);
    };
    refuse_if(Transport::is_rdma(transport.name), "transport.name", "set it to a TCP");
    refuse_if(Transport::is_rdma(transport.background_name), "transport.background_name", "set it to null");
    refuse_if(!transport.rc3_edges.empty(), "transport.rc3.edges", "set it to []");
    refuse_if(policy.known->sees_ingress, "policy.name", "choose one that need not know where packets came in");
    refuse_if(queues.lossless != 0, "queues.lossless", "set it to []");
    refuse_if(branches.has_value(), "branches", "leave it out");
    refuse_if(topology.slow_spines > 0, "topology.slow_spines", "set it to 0");
    refuse_if(topology.erasure_probability > 0, "topology.erasure_probability", "set it to 0");
    refuse_if(balancing.rule != Balancing::Rule::ecmp, "balancing.name", "set it to ecmp");
    refuse_if(std::ranges::any_of(messages, [](const Message& message) { return message.spine >= 0; }),
              "messages.spine", "leave it out");
}

Settings resolved(Settings s) {
    const auto rtt = static_cast<double>(s.base_rtt_ns());
    if (s.scale.average_shift < 0) s.scale.average_shift = static_cast<int>(std::lround(std::log2(rtt)));
    if (s.queues.scheduler == buffer::Scheduler::deficit_round_robin && s.queues.quantum_bytes.empty())
        s.queues.quantum_bytes.assign(static_cast<std::size_t>(s.queues.count),
                                      s.packet_bytes(s.transport.segment_bytes));
    const auto resolve = [&](PolicyChoice& policy) {
        policy.settings.numbers["rtt"] = rtt;
        policy.settings.numbers["artifact_cut"] = full_packet_bytes;
        policy.settings.scale = s.scale;
    };
    resolve(s.policy);
    return s;
}

}  // namespace foretail::packets
