// SPDX-License-Identifier: MIT
#include "ns3/flows.h"

#include <ns3/boolean.h>
#include <ns3/config.h>
#include <ns3/double.h>
#include <ns3/inet-socket-address.h>
#include <ns3/object-factory.h>
#include <ns3/rtt-estimator.h>
#include <ns3/string.h>
#include <ns3/tcp-recovery-ops.h>
#include <ns3/tcp-socket-factory.h>
#include <ns3/tcp-tx-buffer.h>
#include <ns3/uinteger.h>

namespace foretail::packets::ns3_driver {

using namespace ns3;

TypeId TcpSender::GetTypeId() {
    static TypeId id = TypeId("foretail::TcpSender").SetParent<TcpSocketBase>();
    return id;
}

Ptr<TcpSocketBase> TcpSender::create(Ptr<Node> node, Ptr<PacedControl> paced, TypeId control) {
    auto tcp = node->GetObject<TcpL4Protocol>();
    const auto make = [&](const char* attribute) {
        TypeIdValue type;
        tcp->GetAttribute(attribute, type);
        ObjectFactory factory;
        factory.SetTypeId(type.Get());
        return factory.Create();
    };
    auto socket = CreateObject<TcpSender>();
    socket->SetNode(node);
    socket->SetTcp(tcp);
    socket->SetRtt(make("RttEstimatorType")->GetObject<RttEstimator>());
    socket->paced_ = paced;
    ObjectFactory of_ns3;
    of_ns3.SetTypeId(control);
    socket->SetCongestionControlAlgorithm(paced ? Ptr<TcpCongestionOps>(paced) : of_ns3.Create<TcpCongestionOps>());
    socket->SetRecoveryAlgorithm(make("RecoveryType")->GetObject<TcpRecoveryOps>());
    tcp->AddSocket(socket);
    return socket;
}

void TcpSender::ReceivedAck(Ptr<Packet> packet, const TcpHeader& header) {
    const auto state = m_tcb->m_congState;
    if (state == TcpSocketState::CA_OPEN || state == TcpSocketState::CA_CWR) m_dupAckCount = 0;
    TcpSocketBase::ReceivedAck(packet, header);
    if (m_txBuffer->Size() > 0 && opened_a_segment()) SendPendingData(m_connected);
}

int TcpSender::Send(Ptr<Packet> packet, std::uint32_t flags) {
    if (m_state == ESTABLISHED) opened_a_segment();  // before, no window is set
    return TcpSocketBase::Send(packet, flags);
}

bool TcpSender::opened_a_segment() {
    if (m_retxEvent.IsPending() || BytesInFlight() > 0 || m_tcb->m_cWnd >= m_tcb->m_segmentSize) return false;
    m_tcb->m_cWnd = m_tcb->m_cWndInfl = m_tcb->m_segmentSize;
    return true;
}

void TcpSender::EstimateRtt(const TcpHeader& header) {
    const auto samples = m_rtt->GetNSamples();
    TcpSocketBase::EstimateRtt(header);
    if (paced_ && m_rtt->GetNSamples() > samples) paced_->sender().sampled(m_tcb->m_lastRtt.Get().GetNanoSeconds());
}

using namespace ns3;

namespace {

constexpr std::int64_t window_bytes = 1 << 24;

std::uint16_t read16(const std::uint8_t* bytes) { return static_cast<std::uint16_t>(bytes[0] << 8 | bytes[1]); }
std::uint32_t read32(const std::uint8_t* bytes) {
    return static_cast<std::uint32_t>(read16(bytes)) << 16 | read16(bytes + 2);
}

/// ns-3's congestion control of that name.
TypeId control_of_ns3(const std::string& name) {
    return TypeId::LookupByName(name == "dctcp"   ? "ns3::TcpDctcp"
                                : name == "cubic" ? "ns3::TcpCubic"
                                                  : "ns3::TcpNewReno");
}

void set_tcp_defaults(const Settings& settings) {
    const Transport& transport = settings.transport;
    const bool paced = PacedSender::has(transport.name);
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
    set("ns3::TcpSocketState::MaxPacingRate", DataRateValue(PacedSender::largest_pacing_bps(settings)));
}

}  // namespace

Flows::Flows(const Settings& settings, std::vector<PlannedFlow> plan)
    : settings_(settings), ledger_(settings_, std::move(plan)), senders_(ledger_.connections().size()) {
    connections_of_server_.resize(static_cast<std::size_t>(settings_.topology.servers()));
    for (std::size_t c = 0; c < senders_.size(); ++c) {
        const int source = ledger_.plan(ledger_.planned_connection(c).flows.front()).source;
        connections_of_server_[static_cast<std::size_t>(source)].push_back(c);
    }
    set_tcp_defaults(settings_);
    telemetry_ = PacedSender::reads_telemetry(settings_.transport.name);
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
    for (std::size_t i = 0; i < senders_.size(); ++i) {
        const FlowLedger::PlannedConnection& connection = ledger_.planned_connection(i);
        Simulator::ScheduleWithContext(source_of(connection.flows.front())->GetId(), NanoSeconds(connection.connect_ns),
                                       &Flows::connect, this, i);
    }
}

Ptr<Node> Flows::source_of(std::size_t flow) const {
    return servers_[static_cast<std::size_t>(ledger_.plan(flow).source)];
}

void Flows::connect(std::size_t c) {
    const FlowLedger::PlannedConnection& connection = ledger_.planned_connection(c);
    Sender& sender = senders_[c];
    const std::size_t first = connection.flows.front();
    const PlannedFlow& flow = ledger_.plan(first);
    const Transport& transport = settings_.transport;
    const std::int64_t segments = first_window_segments(transport, flow);
    if (PacedSender::has(transport.name))
        sender.paced = CreateObject<PacedControl>(PacedSender(settings_, segments * transport.segment_bytes));
    const TypeId control = control_of_ns3(sender.paced                            ? "newreno"
                                          : ledger_.has_background_control(first) ? transport.background_name
                                                                                  : transport.name);
    Ptr<TcpSocketBase> socket = TcpSender::create(source_of(first), sender.paced, control);
    sender.socket = socket;
    socket->SetAttribute("InitialCwnd", UintegerValue(static_cast<std::uint64_t>(segments)));
    if (!transport.slow_start)
        socket->SetAttribute("InitialSlowStartThreshold",
                             UintegerValue(static_cast<std::uint64_t>(transport.segment_bytes)));
    std::int64_t bytes = 1 << 17;
    for (std::int64_t all = 0; const std::size_t i : connection.flows)
        bytes = std::max(bytes, all += ledger_.plan(i).size_bytes);
    if (flow.size_bytes > most_at_once) {
        bytes = pieces_in_buffer * piece_segments * transport.segment_bytes;
        socket->SetSendCallback(
            Callback<void, Ptr<Socket>, std::uint32_t>([this, c](Ptr<Socket>, std::uint32_t) { write_more(c); }));
    }
    bytes = std::min(bytes, most_at_once);
    socket->SetAttribute("SndBufSize", UintegerValue(static_cast<std::uint64_t>(bytes)));
    socket->TraceConnectWithoutContext(
        "RTO", Callback<void, Time, Time>([this, c, tcp = PeekPointer(socket)](Time before, Time after) {
            count_timeout(c, tcp, before, after);
        }));
    socket->Bind(InetSocketAddress(Host::address_of(flow.source), connection.source_port));
    socket->Connect(InetSocketAddress(Host::address_of(flow.destination), listen_port));
    for (const std::size_t i : connection.flows) {
        const PlannedFlow& planned = ledger_.plan(i);
        if (!planned.after.empty()) continue;
        if (planned.start_ns == connection.connect_ns) {
            send(i);
        } else {
            Simulator::Schedule(NanoSeconds(planned.start_ns - connection.connect_ns), &Flows::send, this, i);
        }
    }
}

void Flows::send(std::size_t i) {
    const std::size_t c = ledger_.connection_of(i);
    const std::int64_t size_bytes = ledger_.plan(i).size_bytes;
    ledger_.start(i, Simulator::Now().GetNanoSeconds());
    if (size_bytes > most_at_once) {
        senders_[c].unwritten_bytes = size_bytes;
        return write_more(c);
    }
    const auto size = static_cast<std::uint32_t>(size_bytes);
    if (senders_[c].socket->Send(Create<Packet>(size)) != static_cast<int>(size)) {
        throw std::runtime_error("ns-3 refused to send flow " + std::to_string(i) + " of " +
                                 std::to_string(size_bytes) + " bytes");
    }
    --ledger_.connections()[c].unsent;
    close_if_all_sent(c);
}

void Flows::write_more(std::size_t c) {
    Sender& sender = senders_[c];
    const std::int64_t piece = piece_segments * settings_.transport.segment_bytes;
    while (sender.unwritten_bytes > 0) {
        const std::int64_t size = std::min(sender.unwritten_bytes, piece);
        if (sender.socket->GetTxAvailable() < size) return;
        sender.unwritten_bytes -= size;
        sender.socket->Send(Create<Packet>(static_cast<std::uint32_t>(size)));
        if (sender.unwritten_bytes > 0) continue;
        --ledger_.connections()[c].unsent;
        close_if_all_sent(c);
    }
}

void Flows::close_if_all_sent(std::size_t c) {
    Sender& sender = senders_[c];
    if (ledger_.connections()[c].unsent > 0 || !sender.socket) return;
    sender.socket->Close();
    sender.socket = nullptr;
}

std::size_t Flows::connection_at(int source, std::uint16_t port) const {
    return connections_of_server_[static_cast<std::size_t>(source)][static_cast<std::size_t>(port - first_source_port)];
}

void Flows::count_timeout(std::size_t c, const TcpSocketBase* sender, Time before, Time after) {
    if (after != before + before) return;  // it doubles when, and only when, it has expired
    ledger_.count_timeout(c, sender->GetTxBuffer()->HeadSequence().GetValue());
}

void Flows::accept(Ptr<Socket> socket, const Address& from) {
    const auto peer = InetSocketAddress::ConvertFrom(from);
    const std::size_t connection = connection_at(Host::server_of(peer.GetIpv4()), peer.GetPort());
    socket->SetRecvCallback(
        Callback<void, Ptr<Socket>>([this, connection](Ptr<Socket> receiving) { receive(connection, receiving); }));
}

void Flows::receive(std::size_t c, Ptr<Socket> socket) {
    struct Use {
        Flows& flows;
        Socket& socket;
        std::int64_t now;
        void close() { socket.Close(); }
        void start(std::size_t flow, std::int64_t time) {
            Simulator::ScheduleWithContext(flows.source_of(flow)->GetId(), NanoSeconds(time - now), &Flows::send,
                                           &flows, flow);
        }
        void close_sender(std::size_t connection) { flows.close_if_all_sent(connection); }
    };
    const std::int64_t now = Simulator::Now().GetNanoSeconds();
    const Ptr<Packet> packet = socket->Recv();
    ledger_.receive(c, packet ? packet->GetSize() : 0, now, Use{*this, *socket, now});
    if (ledger_.is_settled()) Simulator::Stop();
}

void Flows::classify(Frame& frame, const std::uint8_t* tcp) {
    const std::uint16_t source_port = read16(tcp), destination_port = read16(tcp + 2);
    const bool answer = destination_port != listen_port;  // of the receiver
    const std::size_t connection =
        answer ? connection_at(frame.destination, destination_port) : connection_at(frame.source, source_port);
    const std::uint32_t payload =
        static_cast<std::uint32_t>(frame.size_bytes) - 20 - static_cast<std::uint32_t>(tcp[12] >> 4) * 4;
    // UseEcn off at the sender's socket was not enough beside DCTCP's receivers: it still reacted to marks.
    ledger_.classify(frame, connection,
                     {.answer = answer,
                      .syn = (tcp[13] & 0x02) != 0,
                      .sequence = read32(tcp + 4),
                      .acknowledged = read32(tcp + 8),
                      .payload = payload});
    if (telemetry_ && !answer && payload > 0) frame.telemetry = std::make_shared<Telemetry>();
}

}  // namespace foretail::packets::ns3_driver
