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
#include <ns3/tcp-tx-buffer.h>
#include <ns3/uinteger.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "ns3/transport/paced_control.h"
#include "ns3/transport/powertcp.h"
#include "ns3/transport/tcp_sender.h"
#include "ns3/transport/timely.h"
#include "packets/record_file.h"

namespace foretail::packets::ns3_driver {

using namespace ns3;
using buffer::FlowClass;

namespace {

/// Bytes that TCP takes at once; a longer flow is handed over in pieces, more of them in the buffer than the receiver's
/// window has room for.
constexpr std::int64_t most_at_once = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t window_bytes = 1 << 24, piece_segments = 1024, pieces_in_buffer = 8;

std::uint16_t read16(const std::uint8_t* bytes) { return static_cast<std::uint16_t>(bytes[0] << 8 | bytes[1]); }
std::uint32_t read32(const std::uint8_t* bytes) {
    return static_cast<std::uint32_t>(read16(bytes)) << 16 | read16(bytes + 2);
}

/// What a paced sender knows of the network.
Path path_of(const Settings& s, std::int64_t initial_window_bytes) {
    const auto segment = static_cast<double>(s.transport.segment_bytes);
    const auto on_the_wire =
        static_cast<double>(s.packet_bytes(s.transport.segment_bytes) + s.topology.wire_overhead_bytes);
    return {.base_rtt_ns = static_cast<double>(s.base_rtt_ns()),
            .segment_bytes = segment,
            .bytes_per_ns = static_cast<double>(s.topology.server_link_bps) / 8e9 * segment / on_the_wire,
            .initial_window_bytes = static_cast<double>(initial_window_bytes)};
}

/// A congestion control of ours for one flow, or none for those of ns-3.
Ptr<PacedControl> make_paced(const Settings& settings, std::int64_t initial_window_bytes) {
    const std::string& name = settings.transport.name;
    const Path path = path_of(settings, initial_window_bytes);
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
    set("ns3::TcpSocket::RcvBufSize", UintegerValue(window_bytes));
    set("ns3::TcpSocketState::EnablePacing", flag(paced));
    set("ns3::TcpSocketState::PaceInitialWindow", flag(paced));
    set("ns3::TcpSocketState::MaxPacingRate",
        DataRateValue(static_cast<std::uint64_t>(path_of(settings, 0).bytes_per_ns * 8e9)));
}

}  // namespace

Flows::Flows(const Settings& settings, std::vector<PlannedFlow> plan)
    : settings_(settings), plan_(std::move(plan)), progress_(plan_.size()) {
    connections_of_server_.resize(static_cast<std::size_t>(settings_.topology.servers()));
    for (std::size_t i = 0; i < plan_.size(); ++i) {
        add_to_connection(i);
        const PlannedFlow& flow = plan_[i];
        progress_[i].awaited = flow.after.size();
        for (const std::size_t other : flow.after) progress_[other].dependants.push_back(i);
    }
    for (std::size_t i = 0; i < plan_.size(); ++i) {
        const PlannedFlow& flow = plan_[i];
        progress_[i].record = {
            .start_ns = flow.after.empty() ? flow.start_ns : -1,
            .ideal_fct_ns = ideal_fct_ns(settings_, flow),
            .size_bytes = flow.size_bytes,
            .source = flow.source,
            .destination = flow.destination,
            .query = flow.query,
            .flow_class = flow.flow_class,
            .connected_in_advance = connections_[progress_[i].connection].connect_ns < flow.start_ns};
    }
    set_tcp_defaults(settings_);
    telemetry_ = settings_.transport.name == PowerTcp::name;
}

void Flows::add_to_connection(std::size_t i) {
    const PlannedFlow& flow = plan_[i];
    std::size_t found = connections_.size();
    if (flow.connection >= 0) found = connection_of_number_.emplace(flow.connection, found).first->second;
    progress_[i].connection = found;
    if (found == connections_.size()) {
        auto& of_server = connections_of_server_[static_cast<std::size_t>(flow.source)];
        if (of_server.size() + first_source_port > std::numeric_limits<std::uint16_t>::max()) {
            throw std::runtime_error("server " + std::to_string(flow.source) +
                                     " has no ports left for its flows: shorten 'traffic_ns' or lower the load");
        }
        connections_.emplace_back();
        connections_[found].connect_ns = flow.connect_ns;
        connections_[found].source_port = static_cast<std::uint16_t>(first_source_port + of_server.size());
        of_server.push_back(found);
    }
    Connection& connection = connections_[found];
    connection.flows.push_back(i);
    connection.unsent = connection.open = connection.flows.size();
    connection.connect_ns = std::min(connection.connect_ns, flow.connect_ns);
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
    for (std::size_t i = 0; i < connections_.size(); ++i) {
        const int source = plan_[connections_[i].flows.front()].source;
        Simulator::ScheduleWithContext(servers_[static_cast<std::size_t>(source)]->GetId(),
                                       NanoSeconds(connections_[i].connect_ns), &Flows::connect, this, i);
    }
}

void Flows::connect(std::size_t c) {
    Connection& connection = connections_[c];
    const std::size_t first = connection.flows.front();
    const PlannedFlow& flow = plan_[first];
    const Transport& transport = settings_.transport;
    // An incast response is sent as one window at line rate, as the paper's workload does.
    const std::int64_t segments = flow.flow_class == FlowClass::incast ? flow.size_bytes / transport.segment_bytes + 1
                                                                       : transport.initial_window_segments;
    connection.paced = make_paced(settings_, segments * transport.segment_bytes);
    const TypeId control = control_of_ns3(connection.paced                ? "newreno"
                                          : has_background_control(first) ? transport.background_name
                                                                          : transport.name);
    Ptr<TcpSocketBase> socket =
        TcpSender::create(servers_[static_cast<std::size_t>(flow.source)], connection.paced, control);
    connection.socket = socket;
    socket->SetAttribute("InitialCwnd", UintegerValue(static_cast<std::uint64_t>(segments)));
    if (!transport.slow_start)
        socket->SetAttribute("InitialSlowStartThreshold",
                             UintegerValue(static_cast<std::uint64_t>(transport.segment_bytes)));
    std::int64_t bytes = 1 << 17;
    for (std::int64_t all = 0; const std::size_t i : connection.flows)
        bytes = std::max(bytes, all += plan_[i].size_bytes);
    if (flow.size_bytes > most_at_once) {
        bytes = pieces_in_buffer * piece_segments * transport.segment_bytes;
        socket->SetSendCallback(
            Callback<void, Ptr<Socket>, std::uint32_t>([this, c](Ptr<Socket>, std::uint32_t) { write_more(c); }));
    }
    bytes = std::min(bytes, most_at_once);
    socket->SetAttribute("SndBufSize", UintegerValue(static_cast<std::uint64_t>(bytes)));
    socket->TraceConnectWithoutContext(
        "RTO", Callback<void, Time, Time>([this, c, sender = PeekPointer(socket)](Time before, Time after) {
            count_timeout(c, sender, before, after);
        }));
    socket->Bind(InetSocketAddress(Host::address_of(flow.source), connection.source_port));
    socket->Connect(InetSocketAddress(Host::address_of(flow.destination), listen_port));
    for (const std::size_t i : connection.flows) {
        if (!plan_[i].after.empty()) continue;
        if (plan_[i].start_ns == connection.connect_ns) {
            send(i);
        } else {
            Simulator::Schedule(NanoSeconds(plan_[i].start_ns - connection.connect_ns), &Flows::send, this, i);
        }
    }
}

void Flows::send(std::size_t i) {
    Progress& progress = progress_[i];
    Connection& connection = connections_[progress.connection];
    progress.record.start_ns = Simulator::Now().GetNanoSeconds();
    const std::int64_t begin = connection.sent_bytes, end = begin + plan_[i].size_bytes;
    const bool was_silent = connection.delivered == connection.sent.size();
    connection.sent.push_back({.begin = begin,
                               .end = end,
                               .first_rtt_end = was_silent ? begin + settings_.first_rtt_bytes() : begin,
                               .flow = i});
    connection.sent_bytes = end;
    if (plan_[i].size_bytes > most_at_once) {
        connection.unwritten_bytes = plan_[i].size_bytes;
        return write_more(progress.connection);
    }
    const auto size = static_cast<std::uint32_t>(plan_[i].size_bytes);
    if (connection.socket->Send(Create<Packet>(size)) != static_cast<int>(size)) {
        throw std::runtime_error("ns-3 refused to send flow " + std::to_string(i) + " of " +
                                 std::to_string(plan_[i].size_bytes) + " bytes");
    }
    --connection.unsent;
    close_if_all_sent(connection);
}

void Flows::write_more(std::size_t c) {
    Connection& connection = connections_[c];
    const std::int64_t piece = piece_segments * settings_.transport.segment_bytes;
    while (connection.unwritten_bytes > 0) {
        const std::int64_t size = std::min(connection.unwritten_bytes, piece);
        if (connection.socket->GetTxAvailable() < size) return;
        connection.unwritten_bytes -= size;
        connection.socket->Send(Create<Packet>(static_cast<std::uint32_t>(size)));
        if (connection.unwritten_bytes > 0) continue;
        --connection.unsent;
        close_if_all_sent(connection);
    }
}

void Flows::close_if_all_sent(Connection& connection) {
    if (connection.unsent > 0 || !connection.socket) return;
    connection.socket->Close();
    connection.socket = nullptr;
}

bool Flows::has_background_control(std::size_t i) const {
    return plan_[i].flow_class == FlowClass::background && !settings_.transport.background_name.empty();
}

std::size_t Flows::connection_of(int source, std::uint16_t port) const {
    return connections_of_server_[static_cast<std::size_t>(source)][static_cast<std::size_t>(port - first_source_port)];
}

std::int64_t Flows::byte_of(const Connection& connection, std::uint32_t sequence) {
    // ns-3 counts the bytes of a connection from 1, in 32 bits.
    const auto near = static_cast<std::uint32_t>(connection.next_byte);
    return connection.next_byte + static_cast<std::int32_t>(sequence - 1 - near);
}

const Flows::Stretch* Flows::stretch_at(const Connection& connection, std::int64_t byte) {
    const auto& sent = connection.sent;
    if (sent.empty()) return nullptr;
    const auto after = std::ranges::upper_bound(sent, byte, {}, &Stretch::begin);
    return &(after == sent.begin() ? *after : *std::prev(after));
}

std::size_t Flows::flow_at(const Connection& connection, std::int64_t byte) {
    const Stretch* stretch = stretch_at(connection, byte);
    return stretch != nullptr ? stretch->flow : connection.flows.front();
}

void Flows::count_timeout(std::size_t c, const TcpSocketBase* sender, Time before, Time after) {
    if (after != before + before) return;  // it doubles when, and only when, it has expired
    const std::uint32_t oldest = sender->GetTxBuffer()->HeadSequence().GetValue();
    ++progress_[flow_at(connections_[c], byte_of(connections_[c], oldest))].record.timeouts;
}

void Flows::accept(Ptr<Socket> socket, const Address& from) {
    const auto peer = InetSocketAddress::ConvertFrom(from);
    const std::size_t connection = connection_of(Host::server_of(peer.GetIpv4()), peer.GetPort());
    socket->SetRecvCallback(
        Callback<void, Ptr<Socket>>([this, connection](Ptr<Socket> receiving) { receive(connection, receiving); }));
}

void Flows::receive(std::size_t c, Ptr<Socket> socket) {
    Connection& connection = connections_[c];
    if (const Ptr<Packet> packet = socket->Recv()) connection.received_bytes += packet->GetSize();
    while (connection.delivered < connection.sent.size() &&
           connection.received_bytes >= connection.sent[connection.delivered].end) {
        const std::size_t i = connection.sent[connection.delivered++].flow;
        progress_[i].record.fct_ns = Simulator::Now().GetNanoSeconds() - progress_[i].record.start_ns;
        if (--connection.open == 0) socket->Close();
        ++completed_;
        settle(i);
        start_dependants(i);
    }
}

void Flows::settle(std::size_t i) {
    progress_[i].settled = true;
    if (++settled_ == plan_.size()) Simulator::Stop();
}

void Flows::start_dependants(std::size_t delivered) {
    const std::int64_t now = Simulator::Now().GetNanoSeconds();
    for (const std::size_t i : progress_[delivered].dependants) {
        const PlannedFlow& flow = plan_[i];
        if (--progress_[i].awaited > 0) continue;
        const std::int64_t start = std::max(flow.start_ns, now + flow.gap_ns);
        if (start > flow.latest_ns) {
            give_up(i);
        } else {
            Simulator::ScheduleWithContext(servers_[static_cast<std::size_t>(flow.source)]->GetId(),
                                           NanoSeconds(start - now), &Flows::send, this, i);
        }
    }
}

void Flows::give_up(std::size_t late) {
    std::vector<std::size_t> never{late};
    while (!never.empty()) {
        const std::size_t i = never.back();
        never.pop_back();
        if (progress_[i].settled) continue;
        settle(i);
        never.insert(never.end(), progress_[i].dependants.begin(), progress_[i].dependants.end());
        Connection& connection = connections_[progress_[i].connection];
        --connection.open;
        --connection.unsent;
        close_if_all_sent(connection);
    }
}

void Flows::classify(Frame& frame, const std::uint8_t* tcp) {
    const std::uint16_t source_port = read16(tcp), destination_port = read16(tcp + 2);
    frame.path_hash = path_hash(frame.source, frame.destination, source_port, destination_port);

    const bool answer = destination_port != listen_port;  // of the receiver
    Connection& connection = connections_[answer ? connection_of(frame.destination, destination_port)
                                                 : connection_of(frame.source, source_port)];
    const std::uint32_t payload =
        static_cast<std::uint32_t>(frame.size_bytes) - 20 - static_cast<std::uint32_t>(tcp[12] >> 4) * 4;
    // An acknowledgement belongs to the last byte that it acknowledges.
    const std::int64_t byte = byte_of(connection, answer ? read32(tcp + 8) - 1 : read32(tcp + 4));
    const std::size_t i = flow_at(connection, byte);
    frame.flow = static_cast<std::int32_t>(i);
    // UseEcn off at the sender's socket was not enough beside DCTCP's receivers: it still reacted to marks.
    if (has_background_control(i)) frame.ecn_capable = false;
    if (answer) return;
    if (payload == 0) {
        const bool syn = (tcp[13] & 0x02) != 0;
        progress_[i].record.timeouts += syn && connection.syn_sent;  // a lost handshake costs a connection timeout
        connection.syn_sent = connection.syn_sent || syn;
        return;
    }
    if (telemetry_) frame.telemetry = Create<Telemetry>();
    frame.flow_class = plan_[i].flow_class;
    const Stretch& message = *stretch_at(connection, byte);
    frame.first_rtt = byte < message.first_rtt_end;
    frame.sent_bytes = byte - message.begin;
    frame.left_bytes = std::max<std::int64_t>(0, message.end - byte - payload);  // a segment may reach into the next
    progress_[i].record.retransmissions += byte < connection.next_byte;
    connection.next_byte = std::max(connection.next_byte, byte + payload);
}

void Flows::write(const std::string& path) const {
    RecordFile<buffer::FlowRecord> file(path);
    for (const Progress& progress : progress_) file.write(progress.record);
    file.close();
}

}  // namespace foretail::packets::ns3_driver
