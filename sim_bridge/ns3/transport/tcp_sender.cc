// SPDX-License-Identifier: MIT
#include "ns3/transport/tcp_sender.h"

#include <ns3/object-factory.h>
#include <ns3/rtt-estimator.h>
#include <ns3/tcp-congestion-ops.h>
#include <ns3/tcp-l4-protocol.h>
#include <ns3/tcp-recovery-ops.h>
#include <ns3/tcp-tx-buffer.h>

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

}  // namespace foretail::packets::ns3_driver
