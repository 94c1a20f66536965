// SPDX-License-Identifier: MIT
#include "ns3/network/network.h"

#include <ns3/internet-stack-helper.h>
#include <ns3/node.h>

#include <utility>

#include "ns3/network/host.h"

namespace foretail::packets::ns3_driver {

using namespace ns3;
using buffer::LineRate;
using buffer::Port;

namespace {

std::unique_ptr<SwitchNode> make_switch(const Settings& s, int index, std::vector<LineRate> rates,
                                        std::int64_t buffer_bytes, Predictor& predictor, AlphaPredictor& alphas,
                                        ArrivalTrace* trace) {
    std::vector<SwitchLink> links;
    for (const LineRate& rate : rates) links.push_back({rate, s.topology.link_delay_ns, nullptr});
    const buffer::SwitchSettings settings =
        buffer_settings(s, std::move(rates), buffer_bytes, predictor, trace != nullptr);
    return std::make_unique<SwitchNode>(s, index, std::move(links), settings, predictor, alphas, trace);
}

}  // namespace

Network build_network(const Settings& s, Flows& flows, Predictor& predictor, AlphaPredictor& alphas,
                      ArrivalTrace* trace) {
    const Topology& t = s.topology;
    const auto server_rate = LineRate::from_bps(t.server_link_bps, t.wire_overhead_bytes);
    const auto spine_rate = LineRate::from_bps(t.spine_link_bps, t.wire_overhead_bytes);
    Network network;
    network.leaves = t.leaves;

    for (int leaf = 0; leaf < t.leaves; ++leaf) {
        std::vector<LineRate> rates(static_cast<std::size_t>(t.servers_per_leaf), server_rate);
        rates.insert(rates.end(), static_cast<std::size_t>(t.spines), spine_rate);
        network.switches.push_back(
            make_switch(s, leaf, std::move(rates), t.leaf_buffer_bytes(), predictor, alphas, trace));
    }
    for (int spine = 0; spine < t.spines; ++spine) {
        const std::vector<LineRate> rates(static_cast<std::size_t>(t.leaves), spine_rate);
        network.switches.push_back(
            make_switch(s, t.leaves + spine, rates, t.spine_buffer_bytes(), predictor, alphas, trace));
    }
    for (int leaf = 0; leaf < t.leaves; ++leaf) {
        for (int spine = 0; spine < t.spines; ++spine) {
            auto& leaf_switch = network.switches[static_cast<std::size_t>(leaf)];
            auto& spine_switch = network.switches[static_cast<std::size_t>(t.leaves + spine)];
            leaf_switch->connect(t.servers_per_leaf + spine, spine_switch.get());
            spine_switch->connect(leaf, leaf_switch.get());
        }
    }

    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    for (int server = 0; server < t.servers(); ++server) {
        auto node = CreateObject<Node>();
        stack.Install(node);
        auto& leaf_switch = network.switches[static_cast<std::size_t>(t.leaf_of(server))];
        network.servers.push_back(std::make_unique<LinkedHost>(
            server, node, server_rate, t.link_delay_ns, leaf_switch.get(),
            [&flows](Frame& frame, const std::uint8_t* tcp_header) { flows.classify(frame, tcp_header); },
            [&flows](const Frame& frame) { flows.echoed(frame); }));
        leaf_switch->connect(server % t.servers_per_leaf, network.servers.back().get());
    }
    return network;
}

}  // namespace foretail::packets::ns3_driver
