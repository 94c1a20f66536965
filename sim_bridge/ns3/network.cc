// SPDX-License-Identifier: MIT
#include "ns3/network.h"

#include <ns3/internet-stack-helper.h>
#include <ns3/ipv4-header.h>
#include <ns3/ipv4-l3-protocol.h>
#include <ns3/ipv4-routing-protocol.h>

namespace foretail::packets::ns3_driver {

using namespace ns3;

namespace {

constexpr std::uint32_t ip_header_bytes = 20, tcp_header_bytes = 20;

/// Tells TCP, which asks for every packet, that the way out starts at the server's address.
class OneRoute final : public Ipv4RoutingProtocol {
public:
    static TypeId GetTypeId() {
        static TypeId id = TypeId("foretail::OneRoute").SetParent<Ipv4RoutingProtocol>();
        return id;
    }
    explicit OneRoute(Ipv4Address source) : route_(Create<Ipv4Route>()) { route_->SetSource(source); }

    Ptr<Ipv4Route> RouteOutput(Ptr<Packet>, const Ipv4Header&, Ptr<NetDevice>, Socket::SocketErrno&) override {
        return route_;
    }
    bool RouteInput(Ptr<const Packet>, const Ipv4Header&, Ptr<const NetDevice>, const UnicastForwardCallback&,
                    const MulticastForwardCallback&, const LocalDeliverCallback&, const ErrorCallback&) override {
        return false;
    }
    void NotifyInterfaceUp(std::uint32_t) override {}
    void NotifyInterfaceDown(std::uint32_t) override {}
    void NotifyAddAddress(std::uint32_t, Ipv4InterfaceAddress) override {}
    void NotifyRemoveAddress(std::uint32_t, Ipv4InterfaceAddress) override {}
    void SetIpv4(Ptr<Ipv4>) override {}
    void PrintRoutingTable(Ptr<OutputStreamWrapper>, Time::Unit) const override {}

private:
    Ptr<Ipv4Route> route_;
};

}  // namespace

void copy_beginning(const Frame& frame, std::span<std::uint8_t> room) {
    constexpr std::uint8_t version_and_words = 0x45, time_to_live = 64, tcp = 6;
    std::array<std::uint8_t, ip_header_bytes> header{};
    header[0] = version_and_words;
    header[2] = static_cast<std::uint8_t>(frame.size_bytes >> 8);
    header[3] = static_cast<std::uint8_t>(frame.size_bytes);
    header[8] = time_to_live;
    header[9] = tcp;
    const std::size_t size = std::min(room.size(), header.size());
    std::copy_n(header.begin(), size, room.begin());
    frame.packet->CopyData(room.data() + size, static_cast<std::uint32_t>(room.size() - size));
}

Host::Host(int index, Flows& flows, WayOut way_out) : flows_(flows), way_out_(std::move(way_out)) {
    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.Install(node_);
    auto ip = node_->GetObject<Ipv4L3Protocol>();
    ip->SetRoutingProtocol(CreateObject<OneRoute>(address_of(index)));
    interface_ = ip->GetInterface(0);
    tcp_ = node_->GetObject<TcpL4Protocol>();
    tcp_->SetDownTarget(MakeCallback(&Host::send, this));
}

void Host::send(Ptr<Packet> packet, Ipv4Address source, Ipv4Address destination, std::uint8_t, Ptr<Ipv4Route>) {
    auto frame = std::make_unique<Frame>();
    frame->size_bytes = static_cast<std::int32_t>(packet->GetSize() + ip_header_bytes);
    frame->source = server_of(source);
    frame->destination = server_of(destination);
    SocketIpTosTag type_of_service;
    frame->ecn_capable = packet->PeekPacketTag(type_of_service) && (type_of_service.GetTos() & 0x3) != 0;
    std::array<std::uint8_t, tcp_header_bytes> header{};
    packet->CopyData(header.data(), tcp_header_bytes);
    frame->packet = std::move(packet);
    flows_.classify(*frame, header.data());
    if (echo_ && frame->flow_class == buffer::FlowClass::control) frame->telemetry = echo_;
    way_out_(std::move(frame));
}

void Host::receive(std::unique_ptr<Frame> frame) {
    Ipv4Header header;
    header.SetSource(address_of(frame->source));
    header.SetDestination(address_of(frame->destination));
    header.SetEcn(frame->congestion_experienced ? Ipv4Header::ECN_CE
                  : frame->ecn_capable          ? Ipv4Header::ECN_ECT0
                                                : Ipv4Header::ECN_NotECT);
    if (frame->telemetry) {
        if (frame->flow_class == buffer::FlowClass::control)
            flows_.echoed(*frame);
        else
            echo_ = frame->telemetry;
    }
    tcp_->Receive(frame->packet, header, interface_);
    echo_ = nullptr;
}

using buffer::LineRate;
using buffer::Port;

namespace {

/// A way out over an unbounded queue and a link. A packet costs one event, the arrival at the other end, since nothing
/// can change its departure once it is queued.
Host::WayOut link_to(FrameReceiver* peer, LineRate rate, std::int64_t delay_ns) {
    return [=, free_at = buffer::Tick{0}](std::unique_ptr<Frame> frame) mutable {
        const buffer::Tick now = Simulator::Now().GetNanoSeconds();
        free_at = std::max(now, free_at) + rate.duration(frame->size_bytes);
        Simulator::ScheduleWithContext(peer->context(), NanoSeconds(free_at + delay_ns - now),
                                       new FrameArrival(peer, std::move(frame)));
    };
}

std::unique_ptr<SwitchNode> make_switch(const Settings& s, int index, Predictor& predictor, AlphaPredictor& alphas,
                                        ArrivalTrace* trace) {
    std::vector<SwitchLink> links;
    std::vector<LineRate> rates;
    for (const std::int64_t bps : s.topology.port_rates_bps(index)) {
        rates.push_back(LineRate::from_bps(bps, s.topology.wire_overhead_bytes));
        links.push_back({rates.back(), s.topology.link_delay_ns, nullptr});
    }
    const buffer::SwitchSettings settings =
        buffer_settings(s, std::move(rates), s.topology.buffer_bytes(index), predictor, trace != nullptr);
    return std::make_unique<SwitchNode>(s, index, std::move(links), settings, predictor, alphas, trace);
}

}  // namespace

Network build_network(const Settings& s, Flows& flows, Predictor& predictor, AlphaPredictor& alphas,
                      ArrivalTrace* trace) {
    const Topology& t = s.topology;
    const auto server_rate = LineRate::from_bps(t.server_link_bps, t.wire_overhead_bytes);
    Network network;

    for (int node = 0; node < t.switches(); ++node)
        network.switches.push_back(make_switch(s, node, predictor, alphas, trace));
    for (int node = 0; node < t.switches(); ++node) {
        for (std::size_t port = 0; port < t.port_rates_bps(node).size(); ++port) {
            const int far = t.far_end(node, static_cast<Port>(port)).first;
            if (far >= 0)
                network.switches[static_cast<std::size_t>(node)]->connect(
                    static_cast<Port>(port), network.switches[static_cast<std::size_t>(far)].get());
        }
    }

    for (int server = 0; server < t.servers(); ++server) {
        auto& leaf_switch = network.switches[static_cast<std::size_t>(t.leaf_of(server))];
        network.servers.push_back(
            std::make_unique<Host>(server, flows, link_to(leaf_switch.get(), server_rate, t.link_delay_ns)));
        leaf_switch->connect(server % t.servers_per_leaf, network.servers.back().get());
    }
    return network;
}

}  // namespace foretail::packets::ns3_driver
