// SPDX-License-Identifier: MIT
#include "packets/settings.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include "buffer/names.hpp"
#include "buffer/policies/policies.hpp"
#include "buffer/queues/port_queues.hpp"
#include "buffer/records.hpp"
#include "packets/settings_group.h"

namespace foretail::packets {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 3> peer_names = {"next_leaf", "other_leaves", "other_servers"};
constexpr std::array<std::string_view, 6> transport_names = {"dctcp",          "cubic",  "newreno",
                                                             "theta_powertcp", "timely", "powertcp"};
constexpr double full_packet_bytes = 1500;  // what Credence's artifact takes off the largest threshold at a time
constexpr std::span of_ns3 = std::span(transport_names).first<3>();
constexpr std::span loss_based = of_ns3.last<2>();

/// The columns of `messages`, one entry per message in each.
std::vector<Message> read_messages(const Group& group, int servers, std::int64_t longest) {
    std::map<int, const Message*> first_of;  // message of a connection
    const std::size_t count = group.items("size_bytes").size();
    for (const char* column : {"start_ns", "latest_ns", "source", "destination", "connection", "after", "gap_ns"}) {
        if (group.items(column).size() != count)
            refuse(std::string("setting 'messages.") + column + "' must have as many entries as 'messages.size_bytes'");
    }
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
std::map<std::string, double, std::less<>> policy_numbers(const Group& policy) {
    std::map<std::string, double, std::less<>> numbers;
    for (const auto& known : buffer::Policies::known) {
        for (const std::string_view parameter : known.parameters) {
            for (const char* unit : {"", "_ns", "_bytes"}) {
                const auto key = std::string(parameter) + unit;
                if (parameter != "alpha" && policy.has(key)) numbers[std::string(parameter)] = policy.get<double>(key);
            }
        }
    }
    return numbers;
}

/// Where the run is forked; `s` has all other settings.
BranchChoice read_branches(const Group& group, const Settings& s, std::int64_t longest) {
    BranchChoice found{.rows = {},
                       .hold_ns = group.between<std::int64_t>("hold_ns", 0, longest),
                       .repeats = group.between("repeats", 1, 100),
                       .repeat_ns = group.between<std::int64_t>("repeat_ns", 1, 1'000'000),
                       .fork = group.get<bool>("fork")};
    for (std::size_t i = 0; i < group.items("rows").size(); ++i)
        found.rows.push_back(group.entry("rows", i, found.rows.empty() ? 0 : found.rows.back() + 1, longest));
    if (found.rows.empty()) group.refuse("rows", "must name an arrival");
    if (!found.fork && (found.rows.size() > 1 || found.repeats > 1))
        group.refuse("fork", "must be true with several branches");
    if (s.trace && found.fork) refuse("setting 'trace' must be false with 'branches.fork', a trace is of one run");
    if (buffer::known_policy(s.policy.name).pushes_out)
        refuse("setting 'branches' needs a policy that decides arrivals, and " + s.policy.name + " pushes out");
    return found;
}

}  // namespace

std::int64_t Topology::leaf_buffer_bytes() const {
    return buffer_bytes(servers_per_leaf * server_link_bps + spines * spine_link_bps);
}

std::int64_t Topology::spine_buffer_bytes() const { return buffer_bytes(leaves * spine_link_bps); }

std::int64_t Topology::buffer_bytes(std::int64_t bps) const {
    __extension__ using Wide = __int128;
    const auto bytes = Wide{buffer_bytes_per_port_per_gbps} * bps / 1'000'000'000;
    return static_cast<std::int64_t>(std::min<Wide>(bytes, std::numeric_limits<std::int64_t>::max()));
}

std::int64_t Settings::base_rtt_ns() const {
    using buffer::LineRate;
    const auto server = LineRate::from_bps(topology.server_link_bps, topology.wire_overhead_bytes);
    const auto spine = LineRate::from_bps(topology.spine_link_bps, topology.wire_overhead_bytes);
    const auto one_way = [&](std::int64_t payload) {
        const std::int64_t to_the_leaf = 2 * (server.duration(packet_bytes(payload)) + topology.link_delay_ns);
        if (topology.is_star()) return to_the_leaf;
        return to_the_leaf + 2 * (spine.duration(packet_bytes(payload)) + topology.link_delay_ns);
    };
    return one_way(transport.segment_bytes) + one_way(0);
}

std::int64_t Settings::first_rtt_bytes() const {
    return static_cast<std::int64_t>(static_cast<double>(base_rtt_ns()) *
                                     static_cast<double>(topology.server_link_bps) / 8e9);
}

Settings read_settings(const std::string& path) {
    const json document = read_document(path);
    const Group root(document, "");
    if (root.get<int>("format") != 1) refuse("setting 'format' must be 1, the settings format of this driver");

    Settings s;
    s.seed = root.get<std::uint64_t>("seed");

    constexpr std::int64_t second = 1'000'000'000, fastest = 1'000'000'000'000'000, longest = std::int64_t{1} << 60;
    constexpr std::int64_t largest_buffer = std::int64_t{1} << 30;
    constexpr std::int64_t shortest_alpha_interval = 10'000, longest_alpha_interval = second;
    const Group topology = root.group("topology");
    s.topology = {.leaves = topology.between("leaves", 1, 1024),
                  .spines = topology.between("spines", 0, 1024),
                  .servers_per_leaf = topology.between("servers_per_leaf", 1, 1024),
                  .server_link_bps = topology.between<std::int64_t>("server_link_bps", 1'000'000, fastest),
                  .spine_link_bps = topology.between<std::int64_t>("spine_link_bps", 1'000'000, fastest),
                  .link_delay_ns = topology.between<std::int64_t>("link_delay_ns", 0, second),
                  .buffer_bytes_per_port_per_gbps =
                      topology.between<std::int64_t>("buffer_bytes_per_port_per_gbps", 1, largest_buffer),
                  .wire_overhead_bytes = topology.between<std::int64_t>("wire_overhead_bytes", 0, 256)};
    if ((s.topology.leaves == 1) != s.topology.is_star())
        refuse("setting 'topology.spines' must be 0 with one leaf, a star, and above 0 with several");
    if (s.topology.servers() > 65535) refuse("setting 'topology' has more than 65535 servers");

    const Group background = root.group("background");
    s.background = {.load = background.between("load", 0.0, 2.0),
                    .destinations = background.choice<Peers>("destinations", peer_names),
                    .size_bytes = background.get<std::vector<double>>("size_bytes"),
                    .cumulative = background.get<std::vector<double>>("cumulative")};
    const auto& sizes = s.background.size_bytes;
    const auto& shares = s.background.cumulative;
    if (sizes.size() != shares.size() || sizes.size() < 2 || shares.front() != 0 || shares.back() != 1) {
        refuse(
            "settings 'background.size_bytes' and 'background.cumulative' must be equally long, from share 0 to share "
            "1");
    }
    if (sizes.back() > std::ldexp(1.0, 40)) refuse("setting 'background.size_bytes' must end at 2^40 or less");
    if (sizes.front() < 0 || std::ranges::adjacent_find(sizes, std::greater_equal{}) != sizes.end())
        refuse("setting 'background.size_bytes' must increase from 0 or more");
    if (!std::ranges::is_sorted(shares)) refuse("setting 'background.cumulative' must not decrease");

    const Group incast = root.group("incast");
    s.incast = {.queries_per_second_per_server = incast.between("queries_per_second_per_server", 0.0, 1e9),
                .cluster_size = incast.between("cluster_size", 1.0, 1e6),
                .cluster_gap_ns = incast.between<std::int64_t>("cluster_gap_ns", 0, longest),
                .burst_fraction = incast.positive("burst_fraction", 100),
                .fan_in = incast.between("fan_in", 1, 65535),
                .responders = incast.choice<Peers>("responders", peer_names),
                .reused = incast.choice("connections", std::array<std::string_view, 2>{"new", "reused"}) == 1,
                .connect_ahead_ns = incast.between<std::int64_t>("connect_ahead_ns", 0, longest)};
    s.messages = read_messages(root.group("messages"), s.topology.servers(), longest);
    if (s.background.load == 0 && s.incast.queries_per_second_per_server == 0 && s.messages.empty()) {
        refuse(
            "settings 'background.load' and 'incast.queries_per_second_per_server' are both 0, and there are no "
            "'messages'");
    }
    if (s.topology.is_star() &&
        (s.background.destinations != Peers::other_servers || s.incast.responders != Peers::other_servers))
        refuse("settings 'background.destinations' and 'incast.responders' must be other_servers in a star");
    const int responders = s.incast.responders == Peers::other_servers ? s.topology.servers() - 1
                           : s.incast.responders == Peers::next_leaf
                               ? s.topology.servers_per_leaf
                               : s.topology.servers_per_leaf * (s.topology.leaves - 1);
    if (s.incast.fan_in > responders) {
        refuse("setting 'incast.fan_in' is " + std::to_string(s.incast.fan_in) + " but only " +
               std::to_string(responders) + " servers can respond");
    }

    const Group transport = root.group("transport");
    const Group powertcp = transport.group("powertcp"), timely = transport.group("timely");
    const std::size_t control = transport.choice("name", transport_names);
    s.transport = {
        .name = std::string(transport_names[control]),
        .background_name = transport.is_null("background_name")
                               ? ""
                               : std::string(loss_based[transport.choice("background_name", loss_based)]),
        .segment_bytes = transport.between("segment_bytes", 64, 1460),
        .initial_window_segments = transport.between("initial_window_segments", 1, 10'000),
        .slow_start = transport.get<bool>("slow_start"),
        .min_rto_ns = transport.between<std::int64_t>("min_rto_ns", 1000, 60 * second),
        .delayed_ack_segments = transport.between("delayed_ack_segments", 1, 100),
        .mark_bytes = transport.between<std::int64_t>("mark_bytes", 0, largest_buffer),
        .powertcp = {.gamma = powertcp.positive("gamma", 1), .expected_flows = powertcp.between("expected_flows", 1.0)},
        .timely = {.low_rtt_ns = timely.between<std::int64_t>("low_rtt_ns", 0, longest),
                   .high_rtt_ns = timely.between<std::int64_t>("high_rtt_ns", 1, longest),
                   .increase_bps = timely.between("increase_bps", 1000.0, static_cast<double>(fastest)),
                   .decrease = timely.positive("decrease", 1),
                   .gradient_weight = timely.positive("gradient_weight", 1)}};
    if (s.transport.timely.high_rtt_ns <= s.transport.timely.low_rtt_ns)
        refuse("setting 'transport.timely.high_rtt_ns' must be above 'transport.timely.low_rtt_ns'");
    if (s.transport.name == "timely" && s.transport.timely.high_rtt_ns <= s.base_rtt_ns()) {
        refuse("setting 'transport.timely.high_rtt_ns' must be above the base round trip of " +
               std::to_string(s.base_rtt_ns()) + " ns, or every flow slows down for ever");
    }
    if (!s.transport.background_name.empty() && control >= of_ns3.size())
        refuse("setting 'transport.background_name' must be null beside " + s.transport.name +
               ", which paces all senders");
    if (s.transport.name == "dctcp" && s.transport.mark_bytes == 0)
        refuse("setting 'transport.mark_bytes' must be above 0 for dctcp, which lives on ECN marks");
    if (s.topology.leaf_buffer_bytes() < 2 * s.transport.segment_bytes)
        refuse("setting 'topology.buffer_bytes_per_port_per_gbps' leaves a leaf less than two segments of buffer");
    if (std::max(s.topology.leaf_buffer_bytes(), s.topology.spine_buffer_bytes()) > largest_buffer)
        refuse("setting 'topology.buffer_bytes_per_port_per_gbps' gives a switch more than 2^30 bytes of buffer");
    if (s.incast.burst_fraction * static_cast<double>(s.topology.leaf_buffer_bytes()) < s.incast.fan_in)
        refuse("setting 'incast.burst_fraction' is less than a byte per responder");

    s.traffic_ns = root.between<std::int64_t>("traffic_ns", 1, longest);
    s.drain_ns = root.between<std::int64_t>("drain_ns", 0, longest);

    const Group queues = root.group("queues");
    s.queues = {.count = queues.between("count", 1, 8),
                .scheduler = queues.choice<buffer::Scheduler>("scheduler", buffer::scheduler_names),
                .quantum_bytes = queues.get<std::vector<std::int64_t>>("quantum_bytes")};
    const auto count = static_cast<std::size_t>(s.queues.count);
    for (const auto& [key, flow_class] : {std::pair{"background", buffer::FlowClass::background},
                                          {"incast", buffer::FlowClass::incast},
                                          {"control", buffer::FlowClass::control}}) {
        s.queues.queue_of[static_cast<std::size_t>(flow_class)] =
            static_cast<std::uint8_t>(queues.between(key, 0, s.queues.count - 1));
    }
    auto& quanta = s.queues.quantum_bytes;
    if (s.queues.scheduler == buffer::Scheduler::deficit_round_robin) {
        if (quanta.empty()) quanta.assign(count, s.packet_bytes(s.transport.segment_bytes));
        if (quanta.size() != count)
            refuse("setting 'queues.quantum_bytes' must hold one number for each of the " + std::to_string(count) +
                   " queues");
        if (std::ranges::min(quanta) < 1 || std::ranges::max(quanta) > largest_buffer)
            refuse("setting 'queues.quantum_bytes' must hold numbers from 1 to 2^30");
    } else if (!quanta.empty()) {
        refuse("setting 'queues.quantum_bytes' must be empty unless 'queues.scheduler' is deficit_round_robin");
    }

    const Group policy = root.group("policy");
    s.policy.name = policy.get<std::string>("name");
    s.policy.name.erase(0, s.policy.name.rfind(':') + 1);  // HEADER.hpp:TYPE, a policy from outside
    s.policy.settings = {buffer::Alphas(count, policy.positive("alpha")), policy_numbers(policy)};
    s.policy.settings.numbers["rtt"] = static_cast<double>(s.base_rtt_ns());
    s.policy.settings.numbers["artifact_cut"] = full_packet_bytes;
    if (!policy.is_null("incast_alpha")) {
        const auto [control, background, incast] = s.queues.queue_of;
        if (incast == background || incast == control)
            refuse("setting 'policy.incast_alpha' must be null unless 'queues.incast' is a queue of incast alone");
        s.policy.settings.alpha[incast] = policy.positive("incast_alpha");
    }
    const auto slack = policy.between<std::int64_t>("fluid_slack_bytes", 0, largest_buffer);
    if (policy.choice("virtual_lqd", std::array<std::string_view, 2>{"exact", "fluid"}) == 1)
        s.policy.fluid_slack_bytes = slack;
    if (s.policy.fluid_slack_bytes && count > 1)
        refuse("setting 'policy.virtual_lqd' must be exact with several queues: fluid counters know one per port");
    const bool given = policy.choice("predictor", std::array<std::string_view, 2>{"accept", "library"}) == 1;
    if (given) s.policy.library = policy.get<std::string>("library");
    if (!policy.is_null("tau")) s.policy.tau = policy.get<std::int64_t>("tau");
    s.policy.flip_probability = policy.between("flip_probability", 0.0, 1.0);
    s.policy.alpha_interval_ns =
        policy.between<std::int64_t>("alpha_interval_ns", shortest_alpha_interval, longest_alpha_interval);
    const auto& known = buffer::known_policy(s.policy.name);
    s.policy.takes_alpha = known.takes_alpha;
    if (given && !known.asks && !s.policy.takes_alpha)
        refuse("setting 'policy.predictor' names a library, which " + s.policy.name + " does not ask");

    using namespace buffer;
    const Group rules = root.group("rules");
    s.rules = {.counting = rules.choice<Counting>("counting", counting_names),
               .tie = rules.choice<Tie>("tie", tie_names),
               .victim = rules.choice<Victim>("victim", victim_names),
               .seed = s.seed,
               .order = rules.choice<Order>("order", order_names)};
    if (s.rules.order == Order::any_queue && !goes_by_tags(s.rules.victim))
        refuse("setting 'rules.order' any_queue compares tags: choose the victim spare_first_rtt or most_left");
    if (s.rules.order == Order::lower_classes_first && count == 1)
        refuse("setting 'rules.order' lower_classes_first needs classes, and a port has one queue");
    const auto oracle_alpha = rules.positive("oracle_alpha");
    if (rules.choice<Oracle>("oracle", oracle_names) == Oracle::occamy) {
        if (s.policy.fluid_slack_bytes)
            refuse("setting 'policy.virtual_lqd' must be exact with 'rules.oracle' occamy: fluid counters know LQD");
        s.occamy_oracle = buffer::occamy_of_its_authors(buffer::Alphas(count, oracle_alpha));
    }

    const Group features = root.group("features");
    const auto cell_bytes = features.between<std::int64_t>("cell_bytes", 1, 65'536);
    if (!std::has_single_bit(static_cast<std::uint64_t>(cell_bytes)))
        refuse("setting 'features.cell_bytes' must be a power of two");
    const int nearest = static_cast<int>(std::lround(std::log2(static_cast<double>(s.base_rtt_ns()))));
    s.scale = {.cell_shift = std::countr_zero(static_cast<std::uint64_t>(cell_bytes)),
               .average_shift = features.is_null("average_shift") ? nearest : features.between("average_shift", 0, 24),
               .tick_shift = 10};
    s.rules.cell_shift = s.scale.cell_shift;
    if (s.scale.average_shift > 24)
        refuse("the base round trip of " + std::to_string(s.base_rtt_ns()) +
               " ns is longer than averages can be: set 'features.average_shift'");

    s.trace = root.get<bool>("trace");
    if (root.has("branches")) s.branches = read_branches(root.group("branches"), s, longest);
    s.counters = root.get<bool>("counters");
    if (s.counters && !s.policy.takes_alpha)
        refuse("setting 'counters' is for a policy whose alphas can be predicted, which " + s.policy.name + " is not");
    s.occupancy_interval_ns = root.between<std::int64_t>("occupancy_interval_ns", 1000, longest);
    return s;
}

}  // namespace foretail::packets
