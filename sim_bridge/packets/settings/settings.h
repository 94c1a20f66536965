// SPDX-License-Identifier: MIT
#pragma once

#include "buffer/features.hpp"
#include "buffer/policies/any_policy.hpp"

namespace foretail::packets {

class Group;

/// Leaves and spines, or a single leaf without spines: a star.
/// A star, leaves and spines, or a fat tree: pods of leaves and spines below cores, every spine of a pod connected to
/// `cores_per_spine` of them, which no other spine of that pod has.
///
/// Switches are numbered leaves first, then spines, then cores, pod by pod. The ports of a leaf are its servers and
/// then the spines of its pod, those of a spine the leaves of its pod and then its cores, and those of a core the pods.
struct Topology {
    int leaves = 0, spines = 0, servers_per_leaf = 0;
    int pods = 1, cores = 0;         ///< 1 and 0 without cores
    int slow_spines = 0;             ///< the first so many, whose links have another rate
    double erasure_probability = 0;  ///< with which a link loses a packet
    std::int64_t server_link_bps = 0, spine_link_bps = 0, slow_spine_link_bps = 0, link_delay_ns = 0;
    std::int64_t buffer_bytes_per_port_per_gbps = 0;
    std::int64_t wire_overhead_bytes = 0;  ///< per packet on the wire, not in the buffer

    [[nodiscard]] int servers() const { return leaves * servers_per_leaf; }
    [[nodiscard]] int switches() const { return leaves + spines + cores; }
    [[nodiscard]] int leaf_of(int server) const { return server / servers_per_leaf; }
    [[nodiscard]] int pod_of(int leaf) const { return leaf / leaves_per_pod(); }
    [[nodiscard]] bool is_star() const { return spines == 0; }
    [[nodiscard]] int leaves_per_pod() const { return leaves / pods; }
    [[nodiscard]] int spines_per_pod() const { return spines / pods; }
    [[nodiscard]] int cores_per_spine() const { return cores == 0 ? 0 : cores / spines_per_pod(); }
    [[nodiscard]] std::string_view role(int node) const {
        return node < leaves ? "leaf" : node < leaves + spines ? "spine" : "core";
    }
    /// The port by which a packet goes on at a switch. The hash of its path chooses spine and core.
    [[nodiscard]] int port_towards(int node, int server, std::uint32_t path_hash) const {
        const int leaf = leaf_of(server);
        if (node < leaves) return leaf == node ? server % servers_per_leaf : port_upwards(path_hash);
        if (node >= leaves + spines) return pod_of(leaf);
        if (pod_of(leaf) == (node - leaves) / spines_per_pod()) return leaf % leaves_per_pod();
        const std::uint32_t above = path_hash / static_cast<std::uint32_t>(spines_per_pod());
        return leaves_per_pod() + static_cast<int>(above % static_cast<std::uint32_t>(cores_per_spine()));
    }
    /// The port of a leaf to the spine that the hash of a path chooses.
    [[nodiscard]] int port_upwards(std::uint32_t path_hash) const {
        return servers_per_leaf + static_cast<int>(path_hash % static_cast<std::uint32_t>(spines_per_pod()));
    }
    /// The switch and its port at the other end of a port of a switch, or of a host with `node` -1; node -1 and the
    /// host where that is a host.
    [[nodiscard]] std::pair<int, int> far_end(int node, int port) const;
    /// The rates of the links of a switch, by port.
    [[nodiscard]] std::vector<std::int64_t> port_rates_bps(int node) const;
    /// What the servers of a leaf offer at load 1: the rate of its uplinks; in a star, of all links.
    [[nodiscard]] std::int64_t offered_bps() const {
        if (is_star()) return servers_per_leaf * server_link_bps;
        return spines_per_pod() * spine_link_bps - slow_spines * (spine_link_bps - slow_spine_link_bps);
    }
    /// The shared buffer of a switch, from the rates of its own ports; a slow link takes nothing from it.
    [[nodiscard]] std::int64_t buffer_bytes(int node) const;
    /// The rates of the links between two servers, in order.
    [[nodiscard]] std::vector<buffer::LineRate> path(int source, int destination) const;
};

/// Where the other end of a flow is, seen from a server.
enum class Peers { next_leaf, other_leaves, other_servers };

struct Background {
    double load = 0;  ///< of Topology::offered_bps
    Peers destinations = Peers::next_leaf;
    std::vector<double> size_bytes, cumulative;  ///< flow sizes: linear between these points
};

struct Incast {
    double queries_per_second_per_server = 0;
    double cluster_size = 1;          ///< mean number of queries in a cluster
    std::int64_t cluster_gap_ns = 0;  ///< mean gap between two of a cluster
    double burst_fraction = 0;        ///< bytes of one query's responses, as a fraction of the leaf buffer
    int fan_in = 0;
    Peers responders = Peers::next_leaf;
    bool reused = false;  ///< one connection for all answers of a server to another
    std::int64_t connect_ahead_ns = 0;
};

/// Bytes that the settings name one by one; may share a connection, and may wait for others.
struct Message {
    std::int64_t start_ns = 0, latest_ns = 0;  ///< after the first flow may start; ready later, it is never sent
    std::int64_t size_bytes = 0;
    int source = 0, destination = 0;
    int connection = 0;              ///< messages with the same number share one
    int spine = -1;                  ///< on their way; -1: the hash chooses one. The first of a connection decides
    std::vector<std::size_t> after;  ///< messages, all before this one in the list, that must be delivered first
    std::int64_t gap_ns = 0;         ///< from the last of these deliveries to the start
};

struct TimelySettings {
    std::int64_t low_rtt_ns = 50'000, high_rtt_ns = 500'000;
    double increase_bps = 10e6;      ///< delta
    double decrease = 0.8;           ///< beta
    double gradient_weight = 0.875;  ///< alpha, of the newest difference of round-trip times
};

struct PowerTcpSettings {
    double gamma = 0.9;           ///< weight of the new window
    double expected_flows = 100;  ///< N: every flow adds HostBw tau / N per round trip
};

struct HpccSettings {
    double utilisation = 0.95;        ///< eta, of the fullest link
    std::int64_t most_increases = 5;  ///< maxStage, rounds in a row that only add
    double expected_flows = 100;      ///< N: each adds 1 / N of the rest of the link per round trip
};

struct DcqcnSettings {
    std::int64_t cnp_interval_ns = 50'000;       ///< least time between two notifications of a receiver
    double gain = 1.0 / 256;                     ///< g, of a notification in alpha
    std::int64_t alpha_interval_ns = 55'000;     ///< without a notification, after which alpha falls
    std::int64_t increase_interval_ns = 55'000;  ///< of the timer
    std::int64_t increase_bytes = 10'000'000;    ///< of the counter of bytes
    std::int64_t fast_rounds = 5;                ///< F, from which on the target rises too
    double additive_bps = 40e6, hyper_bps = 400e6;
};

inline constexpr std::string_view roce = "roce", irn = "irn", dcqcn = "dcqcn";

/// Transports of RDMA.
struct RdmaSettings {
    std::string control;  ///< law that sets window or pacing rate, or both; empty: none
    std::int64_t low_rto_ns = 0, high_rto_ns = 0;
    int few_segments = 0;              ///< with at most so many in flight the short timeout of IRN counts
    std::int64_t window_segments = 0;  ///< most in flight; 0: a bandwidth-delay product for IRN, no limit for RoCE
};

/// How senders spread the packets of a connection over spines (configs/schema/network/balancing.py).
struct Balancing {
    enum class Rule : std::uint8_t { ecmp, spray, uss, rss, sirona, flowbender };
    enum class Metric : std::uint8_t { mean, max, ewma, marks, fed_back };

    Rule rule = Rule::ecmp;
    Metric metric = Metric::mean;  ///< by which RSS knows its worst subflow
    int subflows = 16;
    std::int64_t interval_ns = 32'000;  ///< after which a subflow takes another way
    double jitter = 0.25;               ///< an interval is longer by a share that is drawn from 0 to this
    double ewma_weight = 0.9;           ///< of the newest round-trip time
    double last_share = 0.5;            ///< of an interval, in which Sirona looks
    double mark_share = 0.05;           ///< above which Flowbender leaves its way
};

/// Whose way of repairing losses senders have.
enum class Recovery { as_ns3, as_linux };

struct Transport {
    std::string name;
    std::string background_name;  ///< of background flows, as TCP without ECN; empty: as `name`
    int segment_bytes = 0;
    int initial_window_segments = 0;
    bool slow_start = false;
    std::int64_t min_rto_ns = 0;
    int delayed_ack_segments = 1;
    Recovery recovery = Recovery::as_ns3;
    std::int64_t reordering_window_ns = -1;  ///< of RACK; -1: as Linux has it
    std::int64_t mark_bytes = 0;          ///< ECN marks arrivals that find at least this much in their queue; 0: no ECN
    std::int64_t mark_full_bytes = 0;     ///< from here on all, and fewer below; 0: all from `mark_bytes` on
    double mark_probability = 0;          ///< just below `mark_full_bytes`
    std::vector<std::int64_t> rc3_edges;  ///< segments from a flow's end up to which priorities go; none: no RC3
    PowerTcpSettings powertcp;
    HpccSettings hpcc;
    TimelySettings timely;
    DcqcnSettings dcqcn;
    RdmaSettings rdma;

    [[nodiscard]] static bool is_rdma(std::string_view transport) { return transport == roce || transport == irn; }
    /// Whether background flows, the others or all go by RDMA.
    [[nodiscard]] bool has_rdma() const { return is_rdma(name) || is_rdma(background_name); }
    /// The transport of those that do.
    [[nodiscard]] const std::string& rdma_name() const { return is_rdma(background_name) ? background_name : name; }
    /// Of a law of ours, if one sets the window or the rate of senders.
    [[nodiscard]] const std::string& law() const { return has_rdma() ? rdma.control : name; }
};

struct PolicyChoice {
    const buffer::KnownPolicy* known = nullptr;
    buffer::PolicySettings settings;     ///< the interval is one base round trip
    std::string library;                 ///< that it asks for drops, or for alphas; empty: always accept
    std::int64_t alpha_interval_ns = 0;  ///< between two predictions of alphas
    std::optional<std::int64_t> tau;
    double flip_probability = 0;
    std::string message_end;       ///< a library that tells the last packets of a message; empty: senders tell them
    std::size_t flow_entries = 0;  ///< of the table in which a switch counts flows; 0: one for each
};

/// The queues of every port, and which of them each class of traffic has.
struct PortQueueing {
    int count = 1;
    buffer::Scheduler scheduler = buffer::Scheduler::round_robin;
    std::vector<std::int64_t> quantum_bytes;  ///< deficit round robin: one for each queue
    std::array<std::uint8_t, 3> queue_of{};   ///< by buffer::FlowClass
    std::uint8_t lossless = 0;                ///< those that may not lose a packet, one bit each
    std::uint8_t marking = 0;  ///< those whose own length decides on marks, one bit each; 0: all, by the port's length
};

/// Priority flow control: how switches pause those who send to lossless queues.
struct Pauses {
    double alpha = 1;  ///< of the threshold at ingress of policies that have none of their own
    std::optional<std::int64_t> headroom_bytes;       ///< of a queue at ingress; none: what its link needs
    std::optional<std::int64_t> headroom_pool_bytes;  ///< of a switch; none: that of all its queues
    std::int64_t xon_bytes = 0;
    std::optional<std::int64_t> xon_offset_bytes;  ///< none: two full packets
    buffer::MakesRoom makes_room = buffer::MakesRoom::longer_queues;

    static constexpr int frame_bytes = 64;  ///< of the frame that pauses or resumes
};

/// Arrivals at which the run divides (branches.h).
struct BranchChoice {
    std::vector<std::int64_t> rows;  ///< positions among all arrivals, in order
    std::int64_t hold_ns = 0;        ///< how long the other decision holds for the port and class; 0: that packet alone
    int repeats = 1;                 ///< branches with each decision, the run itself among them
    std::int64_t repeat_ns = 0;      ///< each makes the link of the port so much longer than the one before
    bool fork = true;                ///< false: the run itself is the branch of the one row
};

struct Settings {
    std::uint64_t seed = 0;
    Topology topology;
    Background background;
    Incast incast;
    std::vector<Message> messages;
    Transport transport;
    Balancing balancing;
    std::int64_t traffic_ns = 0, drain_ns = 0;
    PortQueueing queues;
    Pauses pfc;
    PolicyChoice policy;
    buffer::PushOutRules rules;
    std::optional<buffer::PolicySettings> occamy_oracle;
    buffer::FeatureScale scale;
    bool trace = false, counters = false;
    std::optional<BranchChoice> branches;
    std::int64_t occupancy_interval_ns = 0;

    static constexpr int header_bytes = 40;         ///< IPv4 and TCP without options
    static constexpr int most_packet_bytes = 9000;  ///< of an IPv4 packet: a jumbo frame's

    [[nodiscard]] std::int64_t packet_bytes(std::int64_t payload) const { return payload + header_bytes; }
    /// Round trip of a full segment and its acknowledgement between the servers farthest apart in an idle network.
    [[nodiscard]] std::int64_t base_rtt_ns() const;
    /// Throws std::runtime_error on what only the native network simulates, in another one.
    void require_simulated(const std::string& network) const;
    /// What a server can send in one base round trip.
    [[nodiscard]] std::int64_t first_rtt_bytes() const;
    /// What may still come after a queue at ingress of a link has paused its sender: the packet that makes it do so,
    /// and what the link carries while each end is sending a packet when the other has something to say, in the time of
    /// the frame that says it, and on the way there and back.
    [[nodiscard]] std::int64_t headroom_needed_bytes(const buffer::LineRate& link) const;
    /// Whether every switch has that for all of its lossless queues at once, so that they lose nothing.
    [[nodiscard]] bool has_headroom_for_all() const;
    /// How a switch with ports of these rates pauses, if it does.
    [[nodiscard]] std::optional<buffer::PauseSettings> pause_settings(const std::vector<buffer::LineRate>& rates) const;
    /// Takes the headroom of a switch with lossless queues from its shared buffer.
    void set_headroom_aside(buffer::Shape& shape) const;
};

Balancing read_balancing(const Group& group);

/// The settings in a document that Foretail has resolved and checked (configs/schema/). Here only its structure is
/// checked: throws std::runtime_error with one sentence that has the path of what is missing, unknown or of another
/// type. An entry `emulation` is left to the emulator.
Settings read_settings(const Group& root);

/// With what the settings leave to the round trip and the segments of the network.
Settings resolved(Settings settings);

}  // namespace foretail::packets
