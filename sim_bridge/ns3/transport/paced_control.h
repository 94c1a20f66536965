// SPDX-License-Identifier: MIT
#pragma once

#include <ns3/data-rate.h>
#include <ns3/object.h>
#include <ns3/simulator.h>
#include <ns3/tcp-congestion-ops.h>
#include <ns3/type-id.h>

#include <cstdint>
#include <string>
#include <utility>

#include "packets/transport/paced_sender.h"

namespace foretail::packets::ns3_driver {

/// ns-3's congestion control for paced senders.
class PacedControl final : public ns3::TcpCongestionOps {
public:
    static ns3::TypeId GetTypeId() {
        static ns3::TypeId id = ns3::TypeId("foretail::PacedControl").SetParent<TcpCongestionOps>();
        return id;
    }
    explicit PacedControl(PacedSender sender) : sender_(std::move(sender)) {}

    /// What TCP tells it.
    [[nodiscard]] PacedSender& sender() { return sender_; }

    std::string GetName() const override { return "paced"; }
    ns3::Ptr<TcpCongestionOps> Fork() override { return ns3::CopyObject<PacedControl>(this); }
    bool HasCongControl() const override { return true; }
    std::uint32_t GetSsThresh(ns3::Ptr<const ns3::TcpSocketState> tcb, std::uint32_t) override { return tcb->m_cWnd; }

    /// Also after a timeout, where ns-3 has set the window to one segment.
    void CwndEvent(ns3::Ptr<ns3::TcpSocketState> tcb, ns3::TcpSocketState::TcpCAEvent_t event) override {
        if (event == ns3::TcpSocketState::CA_EVENT_TX_START) apply(*tcb);
    }
    void CongControl(ns3::Ptr<ns3::TcpSocketState> tcb, const ns3::TcpRateOps::TcpRateConnection&,
                     const ns3::TcpRateOps::TcpRateSample&) override {
        sender_.acknowledged(ns3::Simulator::Now().GetNanoSeconds(), tcb->m_lastAckedSeq.GetValue(),
                             tcb->m_highTxMark.Get().GetValue());
        apply(*tcb);
    }

private:
    void apply(ns3::TcpSocketState& tcb) const {
        tcb.m_cWnd = sender_.window_bytes();
        tcb.m_pacingRate = ns3::DataRate(sender_.pacing_bps());
    }

    PacedSender sender_;
};

}  // namespace foretail::packets::ns3_driver
