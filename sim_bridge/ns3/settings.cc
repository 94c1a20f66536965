// SPDX-License-Identifier: MIT
#include "ns3/settings.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>

#include "buffer/queues/port_queues.hpp"
#include "ns3/transport/timely.h"

namespace foretail::ns3_driver {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& what) { throw std::runtime_error(what); }

/// One group of the settings, which knows its name for error messages.
class Group {
public:
    Group(const json& node, std::string name) : node_(node), name_(std::move(name)) {
        if (!node_.is_object()) refuse("setting '" + name_ + "' must be an object");
    }
    [[nodiscard]] Group group(const std::string& key) const { return {value(key), path(key)}; }
    [[nodiscard]] bool is_null(const std::string& key) const { return value(key).is_null(); }

    template <class T>
    [[nodiscard]] T get(const std::string& key) const {
        try {
            return value(key).get<T>();
        } catch (const json::exception&) {
            refuse("setting '" + path(key) + "' has the wrong type: " + value(key).dump());
        }
    }
    template <class T>
    [[nodiscard]] T at_least(const std::string& key, T least) const {
        const T found = get<T>(key);
        if (!(found >= least))
            refuse("setting '" + path(key) + "' must be at least " + json(least).dump() + ", not " + value(key).dump());
        return found;
    }
    template <class Enum>
    [[nodiscard]] Enum choice(const std::string& key, std::initializer_list<std::pair<const char*, Enum>> known) const {
        const auto found = get<std::string>(key);
        std::string names;
        for (const auto& [name, value] : known) {
            if (found == name) return value;
            names += (names.empty() ? "" : ", ") + std::string(name);
        }
        refuse("setting '" + path(key) + "' is '" + found + "': choose one of " + names);
    }

private:
    [[nodiscard]] std::string path(const std::string& key) const { return name_.empty() ? key : name_ + "." + key; }
    [[nodiscard]] const json& value(const std::string& key) const {
        const auto found = node_.find(key);
        if (found == node_.end()) refuse("setting '" + path(key) + "' is missing");
        return *found;
    }

    const json& node_;
    std::string name_;
};

Peers peers(const Group& group, const std::string& key) {
    return group.choice<Peers>(key, {{"next_leaf", Peers::next_leaf}, {"other_leaves", Peers::other_leaves}});
}

}  // namespace

std::int64_t Topology::leaf_buffer_bytes() const {
    const std::int64_t bps = servers_per_leaf * server_link_bps + spines * spine_link_bps;
    return buffer_bytes_per_port_per_gbps * bps / 1'000'000'000;
}

std::int64_t Topology::spine_buffer_bytes() const {
    return buffer_bytes_per_port_per_gbps * leaves * spine_link_bps / 1'000'000'000;
}

std::int64_t Settings::base_rtt_ns() const {
    using buffer::LineRate;
    const auto server = LineRate::from_bps(topology.server_link_bps, topology.wire_overhead_bytes);
    const auto spine = LineRate::from_bps(topology.spine_link_bps, topology.wire_overhead_bytes);
    const auto one_way = [&](std::int64_t payload) {
        return 2 * (server.duration(packet_bytes(payload)) + spine.duration(packet_bytes(payload))) +
               4 * topology.link_delay_ns;
    };
    return one_way(transport.segment_bytes) + one_way(0);
}

std::int64_t Settings::first_rtt_bytes() const {
    return static_cast<std::int64_t>(static_cast<double>(base_rtt_ns()) *
                                     static_cast<double>(topology.server_link_bps) / 8e9);
}

Path Settings::path(std::int64_t initial_window_bytes) const {
    const auto segment = static_cast<double>(transport.segment_bytes);
    const auto on_the_wire = static_cast<double>(packet_bytes(transport.segment_bytes) + topology.wire_overhead_bytes);
    return {.base_rtt_ns = static_cast<double>(base_rtt_ns()),
            .segment_bytes = segment,
            .bytes_per_ns = static_cast<double>(topology.server_link_bps) / 8e9 * segment / on_the_wire,
            .initial_window_bytes = static_cast<double>(initial_window_bytes)};
}

Settings read_settings(const std::string& path) {
    std::ifstream file(path);
    if (!file) refuse("cannot read the settings file '" + path + "'");
    json document;
    try {
        document = json::parse(file);
    } catch (const json::exception& error) {
        refuse("the settings file '" + path + "' is not JSON: " + error.what());
    }
    const Group root(document, "");
    if (root.get<int>("format") != 1) refuse("setting 'format' must be 1, the settings format of this driver");

    Settings s;
    s.seed = root.get<std::uint64_t>("seed");

    const Group topology = root.group("topology");
    s.topology = {
        .leaves = topology.at_least("leaves", 2),
        .spines = topology.at_least("spines", 1),
        .servers_per_leaf = topology.at_least("servers_per_leaf", 1),
        .server_link_bps = topology.at_least<std::int64_t>("server_link_bps", 1),
        .spine_link_bps = topology.at_least<std::int64_t>("spine_link_bps", 1),
        .link_delay_ns = topology.at_least<std::int64_t>("link_delay_ns", 0),
        .buffer_bytes_per_port_per_gbps = topology.at_least<std::int64_t>("buffer_bytes_per_port_per_gbps", 1),
        .wire_overhead_bytes = topology.at_least<std::int64_t>("wire_overhead_bytes", 0)};
    if (s.topology.servers() > 65535 || s.topology.spines > 4096)
        refuse("setting 'topology' has more than 65535 servers or 4096 spines");

    const Group background = root.group("background");
    s.background = {.load = background.at_least("load", 0.0),
                    .destinations = peers(background, "destinations"),
                    .size_bytes = background.get<std::vector<double>>("size_bytes"),
                    .cumulative = background.get<std::vector<double>>("cumulative")};
    const auto& sizes = s.background.size_bytes;
    const auto& shares = s.background.cumulative;
    if (sizes.size() != shares.size() || sizes.size() < 2 || shares.front() != 0 || shares.back() != 1) {
        refuse(
            "settings 'background.size_bytes' and 'background.cumulative' must be equally long, from share 0 to share "
            "1");
    }
    for (std::size_t i = 1; i < sizes.size(); ++i) {
        if (sizes[i] < sizes[i - 1] || shares[i] < shares[i - 1] || sizes[0] < 0) {
            refuse("settings 'background.size_bytes' and 'background.cumulative' must not decrease");
        }
    }

    const Group incast = root.group("incast");
    s.incast = {.queries_per_second_per_server = incast.at_least("queries_per_second_per_server", 0.0),
                .burst_fraction = incast.get<double>("burst_fraction"),
                .fan_in = incast.at_least("fan_in", 1),
                .responders = peers(incast, "responders"),
                .connect_ahead_ns = incast.at_least<std::int64_t>("connect_ahead_ns", 0)};
    if (!(s.incast.burst_fraction > 0)) refuse("setting 'incast.burst_fraction' must be above 0");
    const int responders =
        s.topology.servers_per_leaf * (s.incast.responders == Peers::next_leaf ? 1 : s.topology.leaves - 1);
    if (s.incast.fan_in > responders) {
        refuse("setting 'incast.fan_in' is " + std::to_string(s.incast.fan_in) + " but only " +
               std::to_string(responders) + " servers can respond");
    }

    const Group transport = root.group("transport");
    const Group powertcp = transport.group("powertcp"), timely = transport.group("timely");
    s.transport = {
        .name = transport.get<std::string>("name"),
        .background_name = transport.is_null("background_name") ? "" : transport.get<std::string>("background_name"),
        .segment_bytes = transport.at_least("segment_bytes", 64),
        .initial_window_segments = transport.at_least("initial_window_segments", 1),
        .slow_start = transport.get<bool>("slow_start"),
        .min_rto_ns = transport.at_least<std::int64_t>("min_rto_ns", 1000),
        .delayed_ack_segments = transport.at_least("delayed_ack_segments", 1),
        .mark_bytes = transport.at_least<std::int64_t>("mark_bytes", 0),
        .powertcp = {.gamma = powertcp.get<double>("gamma"),
                     .expected_flows = powertcp.at_least("expected_flows", 1.0)},
        .timely = {.low_rtt_ns = timely.at_least<std::int64_t>("low_rtt_ns", 0),
                   .high_rtt_ns = timely.at_least<std::int64_t>("high_rtt_ns", 1),
                   .increase_bps = timely.at_least("increase_bps", 1000.0),
                   .decrease = timely.get<double>("decrease"),
                   .gradient_weight = timely.get<double>("gradient_weight")}};
    if (s.transport.segment_bytes > 1460) refuse("setting 'transport.segment_bytes' must be at most 1460");
    if (!(s.transport.powertcp.gamma > 0 && s.transport.powertcp.gamma <= 1))
        refuse("setting 'transport.powertcp.gamma' must be above 0 and at most 1");
    for (const auto& [name, share] : {std::pair{"decrease", s.transport.timely.decrease},
                                      std::pair{"gradient_weight", s.transport.timely.gradient_weight}}) {
        if (!(share > 0 && share <= 1))
            refuse("setting 'transport.timely." + std::string(name) + "' must be above 0 and at most 1");
    }
    if (s.transport.timely.high_rtt_ns <= s.transport.timely.low_rtt_ns)
        refuse("setting 'transport.timely.high_rtt_ns' must be above 'transport.timely.low_rtt_ns'");
    if (s.transport.name == Timely::name && s.transport.timely.high_rtt_ns <= s.base_rtt_ns()) {
        refuse("setting 'transport.timely.high_rtt_ns' must be above the base round trip of " +
               std::to_string(s.base_rtt_ns()) + " ns, or every flow slows down for ever");
    }
    const auto& [name, beside] = std::tie(s.transport.name, s.transport.background_name);
    if (!beside.empty() && beside != "cubic" && beside != "newreno")
        refuse("setting 'transport.background_name' is '" + beside + "': choose one of cubic, newreno");
    if (!beside.empty() && name != "dctcp" && name != "cubic" && name != "newreno")
        refuse("setting 'transport.background_name' must be null beside " + name + ", which paces all senders");
    if (s.transport.name == "dctcp" && s.transport.mark_bytes == 0) {
        refuse("setting 'transport.mark_bytes' must be above 0 for dctcp, which lives on ECN marks");
    }

    s.traffic_ns = root.at_least<std::int64_t>("traffic_ns", 1);
    s.drain_ns = root.at_least<std::int64_t>("drain_ns", 0);

    const Group policy = root.group("policy");
    s.policy.name = policy.get<std::string>("name");
    s.policy.settings = {.alpha = {policy.get<double>("alpha")},
                         .first_rtt_alpha = policy.get<double>("first_rtt_alpha"),
                         .interval = 1,
                         .low_pass = policy.at_least<std::int64_t>("low_pass_ns", 1)};
    if (!policy.is_null("incast_alpha")) s.policy.settings.alpha.push_back(policy.get<double>("incast_alpha"));
    const auto& alphas = s.policy.settings.alpha;
    if (std::any_of(alphas.begin(), alphas.end(), [](double alpha) { return !(alpha > 0); }) ||
        !(s.policy.settings.first_rtt_alpha > 0))
        refuse("settings 'policy.alpha', 'policy.incast_alpha' and 'policy.first_rtt_alpha' must be above 0");
    if (policy.choice<bool>("virtual_lqd", {{"exact", false}, {"fluid", true}})) {
        s.policy.fluid_slack_bytes = policy.at_least<std::int64_t>("fluid_slack_bytes", 0);
    }
    if (policy.choice<bool>("predictor", {{"accept", false}, {"library", true}}))
        s.policy.library = policy.get<std::string>("library");
    if (!policy.is_null("tau")) s.policy.tau = policy.get<std::int64_t>("tau");
    s.policy.flip_probability = policy.at_least("flip_probability", 0.0);
    if (s.policy.flip_probability > 1) refuse("setting 'policy.flip_probability' must be at most 1");

    using namespace buffer;
    const Group rules = root.group("rules");
    s.rules = {
        .counting =
            rules.choice<Counting>("counting", {{"counted", Counting::counted}, {"uncounted", Counting::uncounted}}),
        .tie = rules.choice<Tie>("tie", {{"lowest_port", Tie::lowest_port}, {"highest_port", Tie::highest_port}}),
        .victim = rules.choice<Victim>("victim", {{"tail", Victim::tail},
                                                  {"tail_kept", Victim::tail_kept},
                                                  {"head", Victim::head},
                                                  {"random", Victim::random}}),
        .seed = s.seed};

    const Group features = root.group("features");
    const auto cell_bytes = features.at_least<std::int64_t>("cell_bytes", 1);
    if (!std::has_single_bit(static_cast<std::uint64_t>(cell_bytes)))
        refuse("setting 'features.cell_bytes' must be a power of two");
    s.policy.settings.interval = s.base_rtt_ns();
    const int nearest = static_cast<int>(std::lround(std::log2(static_cast<double>(s.base_rtt_ns()))));
    s.scale = {.cell_shift = std::countr_zero(static_cast<std::uint64_t>(cell_bytes)),
               .average_shift = features.is_null("average_shift") ? nearest : features.at_least("average_shift", 0),
               .tick_shift = 10};
    if (s.scale.average_shift > 24) refuse("setting 'features.average_shift' must be at most 24");

    s.trace = root.get<bool>("trace");
    s.occupancy_interval_ns = root.at_least<std::int64_t>("occupancy_interval_ns", 1);
    return s;
}

}  // namespace foretail::ns3_driver
