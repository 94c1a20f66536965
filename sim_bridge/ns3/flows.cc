// SPDX-License-Identifier: MIT
#include "ns3/flows.h"

#include <ns3/boolean.h>
#include <ns3/config.h>
#include <ns3/data-rate.h>
#include <ns3/double.h>
#include <ns3/inet-socket-address.h>
#include <ns3/ipv4-address.h>
#include <ns3/nstime.h>
#include <ns3/packet.h>
#include <ns3/simulator.h>
#include <ns3/string.h>
#include <ns3/tcp-socket-base.h>
#include <ns3/tcp-socket-factory.h>
#include <ns3/uinteger.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "buffer/queues/port_queues.hpp"
#include "ns3/record_file.h"
#include "ns3/transport/paced_control.h"
#include "ns3/transport/powertcp.h"
#include "ns3/transport/tcp_sender.h"
#include "ns3/transport/timely.h"

namespace foretail::ns3_driver {

using namespace ns3;
using buffer::FlowClass;

namespace {

std::uint16_t read16(const std::uint8_t* bytes) { return static_cast<std::uint16_t>(bytes[0] << 8 | bytes[1]); }
std::uint32_t read32(const std::uint8_t* bytes) {
    return static_cast<std::uint32_t>(read16(bytes)) << 16 | read16(bytes + 2);
}

/// The retransmission timeout doubles when, and only when, it has expired.
void count_timeout(buffer::FlowRecord* record, Time before, Time after) {
    record->timeouts += after == before + before;
}

/// A congestion control of ours for one flow, or none for those of ns-3.
Ptr<PacedControl> make_paced(const Settings& settings, std::int64_t initial_window_bytes) {
    const std::string& name = settings.transport.name;
    const Path path = settings.path(initial_window_bytes);
    if (name == ThetaPowerTcp::name)
        return CreateObject<Paced<ThetaPowerTcp>>(ThetaPowerTcp(settings.transport.powertcp, path));
    if (name == Timely::name) return CreateObject<Paced<Timely>>(Timely(settings.transport.timely, path));
    if (name == PowerTcp::name) return CreateObject<Paced<PowerTcp>>(PowerTcp(settings.transport.powertcp, path));
    return nullptr;
}

/// ns-3's congestion control of that name.
TypeId control_of_ns3(const std::string& name) {
    return TypeId::LookupByName(name == "dctcp"   ? "ns3::TcpDctcp"
                                : name == "cubic" ? "ns3::TcpCubic"
                                                  : "ns3::TcpNewReno");
}

void set_tcp_defaults(const Settings& settings) {
    const Transport& transport = settings.transport;
    const bool paced = make_paced(settings, 0) != nullptr;
    const bool ecn = transport.mark_bytes > 0 && !paced;
    const auto flag = [](bool on) { return BooleanValue(on); };
    const auto set = [](const char* name, const AttributeValue& value) { Config::SetDefault(name, value); };
    // With a control of ours, that of ns-3 is left for the receivers, which send no data.
    set("ns3::TcpL4Protocol::SocketType", TypeIdValue(control_of_ns3(paced ? "newreno" : transport.name)));
    set("ns3::TcpSocketBase::UseEcn", StringValue(ecn ? "On" : "Off"));
    // Timestamps in milliseconds would make every round-trip sample wrong by orders of magnitude.
    set("ns3::TcpSocketBase::Timestamp", flag(false));
    set("ns3::TcpSocketBase::MinRto", TimeValue(NanoSeconds(transport.min_rto_ns)));
    set("ns3::TcpSocketBase::ClockGranularity", TimeValue(MicroSeconds(1)));
    set("ns3::TcpSocketBase::MaxSegLifetime", DoubleValue(0.001));
    set("ns3::RttEstimator::InitialEstimation", TimeValue(MicroSeconds(200)));
    set("ns3::TcpSocket::ConnTimeout", TimeValue(NanoSeconds(transport.min_rto_ns)));
    set("ns3::TcpSocket::SegmentSize", UintegerValue(static_cast<std::uint64_t>(transport.segment_bytes)));
    set("ns3::TcpSocket::DelAckCount", UintegerValue(static_cast<std::uint64_t>(transport.delayed_ack_segments)));
    set("ns3::TcpSocket::DelAckTimeout", TimeValue(MicroSeconds(200)));
    set("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 24));
    set("ns3::TcpSocketState::EnablePacing", flag(paced));
    set("ns3::TcpSocketState::PaceInitialWindow", flag(paced));
    set("ns3::TcpSocketState::MaxPacingRate",
        DataRateValue(static_cast<std::uint64_t>(settings.path(0).bytes_per_ns * 8e9)));
}

}  // namespace

Flows::Flows(const Settings& settings, std::vector<PlannedFlow> plan)
    : settings_(settings), plan_(std::move(plan)), progress_(plan_.size()) {
    flows_of_server_.resize(static_cast<std::size_t>(settings_.topology.servers()));
    for (std::size_t i = 0; i < plan_.size(); ++i) {
        const PlannedFlow& flow = plan_[i];
        auto& of_server = flows_of_server_[static_cast<std::size_t>(flow.source)];
        if (of_server.size() + first_source_port > std::numeric_limits<std::uint16_t>::max()) {
            throw std::runtime_error("server " + std::to_string(flow.source) +
                                     " has no ports left for its flows: shorten 'traffic_ns' or lower the load");
        }
        source_ports_.push_back(static_cast<std::uint16_t>(first_source_port + of_server.size()));
        of_server.push_back(i);
        progress_[i].record = {.start_ns = flow.start_ns,
                               .ideal_fct_ns = ideal_fct_ns(flow),
                               .size_bytes = flow.size_bytes,
                               .source = flow.source,
                               .destination = flow.destination,
                               .query = flow.query,
                               .flow_class = flow.flow_class,
                               .connected_in_advance = flow.connect_ns < flow.start_ns};
    }
    set_tcp_defaults(settings_);
    telemetry_ = settings_.transport.name == PowerTcp::name;
}

std::int64_t Flows::ideal_fct_ns(const PlannedFlow& flow) const {
    using buffer::LineRate;
    const Topology& topology = settings_.topology;
    const auto server = LineRate::from_bps(topology.server_link_bps, topology.wire_overhead_bytes);
    const auto spine = LineRate::from_bps(topology.spine_link_bps, topology.wire_overhead_bytes);
    std::vector<LineRate> path{server, server};
    if (topology.leaf_of(flow.source) != topology.leaf_of(flow.destination)) path = {server, spine, spine, server};

    const std::int64_t segment = settings_.transport.segment_bytes;
    const std::int64_t full = (flow.size_bytes - 1) / segment;  // segments before the last
    const std::int64_t last = settings_.packet_bytes(flow.size_bytes - full * segment);
    std::int64_t first_sent = 0, slowest = 0, last_sent = 0;
    for (const LineRate& hop : path) {
        const std::int64_t duration = hop.duration(settings_.packet_bytes(segment));
        first_sent += duration;
        slowest = std::max(slowest, duration);
        const std::int64_t before_sent = full > 0 ? first_sent + (full - 1) * slowest : 0;
        last_sent = std::max(last_sent, before_sent) + hop.duration(last) + topology.link_delay_ns;
        first_sent += topology.link_delay_ns;
    }
    return last_sent;
}

void Flows::install(const std::vector<std::unique_ptr<Host>>& servers) {
    for (const auto& server : servers) {
        servers_.push_back(server->node());
        Ptr<Socket> socket = Socket::CreateSocket(server->node(), TcpSocketFactory::GetTypeId());
        socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), listen_port));
        socket->Listen();
        socket->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                  Callback<void, Ptr<Socket>, const Address&>(
                                      [this](Ptr<Socket> accepted, const Address& from) { accept(accepted, from); }));
    }
    for (std::size_t i = 0; i < plan_.size(); ++i) {
        Simulator::ScheduleWithContext(servers_[static_cast<std::size_t>(plan_[i].source)]->GetId(),
                                       NanoSeconds(plan_[i].connect_ns), &Flows::connect, this, i);
    }
}

void Flows::connect(std::size_t i) {
    const PlannedFlow& flow = plan_[i];
    const Transport& transport = settings_.transport;
    // An incast response is sent as one window at line rate, as the paper's workload does.
    const std::int64_t segments = flow.flow_class == FlowClass::incast ? flow.size_bytes / transport.segment_bytes + 1
                                                                       : transport.initial_window_segments;
    progress_[i].paced = make_paced(settings_, segments * transport.segment_bytes);
    const TypeId control = control_of_ns3(progress_[i].paced          ? "newreno"
                                          : has_background_control(i) ? transport.background_name
                                                                      : transport.name);
    Ptr<Socket> socket =
        TcpSender::create(servers_[static_cast<std::size_t>(flow.source)], progress_[i].paced, control);
    socket->SetAttribute("InitialCwnd", UintegerValue(static_cast<std::uint64_t>(segments)));
    if (!transport.slow_start)
        socket->SetAttribute("InitialSlowStartThreshold",
                             UintegerValue(static_cast<std::uint64_t>(transport.segment_bytes)));
    socket->SetAttribute("SndBufSize",
                         UintegerValue(static_cast<std::uint64_t>(std::max<std::int64_t>(flow.size_bytes, 1 << 17))));
    socket->TraceConnectWithoutContext("RTO", MakeBoundCallback(&count_timeout, &progress_[i].record));
    socket->Bind(InetSocketAddress(Host::address_of(flow.source), source_ports_[i]));
    socket->Connect(InetSocketAddress(Host::address_of(flow.destination), listen_port));
    if (flow.start_ns == flow.connect_ns) {
        send(i, socket);
    } else {
        Simulator::Schedule(NanoSeconds(flow.start_ns - flow.connect_ns), &Flows::send, this, i, socket);
    }
}

void Flows::send(std::size_t i, Ptr<Socket> socket) {
    const auto size = static_cast<std::uint32_t>(plan_[i].size_bytes);
    if (socket->Send(Create<Packet>(size)) != static_cast<int>(size)) {
        throw std::runtime_error("ns-3 refused to send flow " + std::to_string(i) + " of " + std::to_string(size) +
                                 " bytes");
    }
    socket->Close();
}

bool Flows::has_background_control(std::size_t i) const {
    return plan_[i].flow_class == FlowClass::background && !settings_.transport.background_name.empty();
}

std::size_t Flows::flow_of(int source, std::uint16_t port) const {
    return flows_of_server_[static_cast<std::size_t>(source)][static_cast<std::size_t>(port - first_source_port)];
}

void Flows::accept(Ptr<Socket> socket, const Address& from) {
    const auto peer = InetSocketAddress::ConvertFrom(from);
    const std::size_t flow = flow_of(Host::server_of(peer.GetIpv4()), peer.GetPort());
    socket->SetRecvCallback(
        Callback<void, Ptr<Socket>>([this, flow](Ptr<Socket> receiving) { receive(flow, receiving); }));
}

void Flows::receive(std::size_t i, Ptr<Socket> socket) {
    Progress& progress = progress_[i];
    if (const Ptr<Packet> packet = socket->Recv()) progress.received_bytes += packet->GetSize();
    if (progress.received_bytes < plan_[i].size_bytes || progress.record.fct_ns >= 0) return;
    progress.record.fct_ns = Simulator::Now().GetNanoSeconds() - plan_[i].start_ns;
    socket->Close();
    if (++completed_ == plan_.size()) Simulator::Stop();
}

void Flows::classify(Frame& frame, const std::uint8_t* tcp) {
    const std::uint16_t source_port = read16(tcp), destination_port = read16(tcp + 2);
    std::uint64_t tuple = (static_cast<std::uint64_t>(Host::address_of(frame.source).Get()) << 32 |
                           Host::address_of(frame.destination).Get()) *
                          0x9E3779B97F4A7C15U;
    tuple = (tuple ^ (tuple >> 29) ^ (static_cast<std::uint64_t>(source_port) << 16 | destination_port)) *
            0xBF58476D1CE4E5B9U;
    frame.path_hash = static_cast<std::uint32_t>(tuple >> 32);

    const bool answer = destination_port != listen_port;  // of the receiver
    const std::size_t i = answer ? flow_of(frame.destination, destination_port) : flow_of(frame.source, source_port);
    frame.flow = static_cast<std::int32_t>(i);
    // UseEcn off at the sender's socket was not enough beside DCTCP's receivers: it still reacted to marks.
    if (has_background_control(i)) frame.ecn_capable = false;
    if (answer) return;
    Progress& progress = progress_[i];
    const std::uint32_t payload =
        static_cast<std::uint32_t>(frame.size_bytes) - 20 - static_cast<std::uint32_t>(tcp[12] >> 4) * 4;
    if (payload == 0) {
        const bool syn = (tcp[13] & 0x02) != 0;
        progress.record.timeouts += syn && progress.syn_sent;  // a lost handshake costs a connection timeout
        progress.syn_sent = progress.syn_sent || syn;
        return;
    }
    if (telemetry_) frame.telemetry = Create<Telemetry>();
    const std::uint32_t sequence = read32(tcp + 4);  // ns-3 counts a flow's bytes from 1
    frame.flow_class = plan_[i].flow_class;
    frame.first_rtt = sequence <= settings_.first_rtt_bytes();
    progress.record.retransmissions += sequence < progress.next_sequence;
    progress.next_sequence = std::max(progress.next_sequence, sequence + payload);
}

void Flows::write(const std::string& path) const {
    RecordFile<buffer::FlowRecord> file(path);
    for (const Progress& progress : progress_) file.write(progress.record);
    file.close();
}

}  // namespace foretail::ns3_driver
