// SPDX-License-Identifier: MIT
#pragma once

#include <ns3/data-rate.h>
#include <ns3/nstime.h>
#include <ns3/object.h>
#include <ns3/simulator.h>
#include <ns3/tcp-congestion-ops.h>
#include <ns3/type-id.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "ns3/transport/congestion_law.h"
#include "ns3/transport/telemetry.h"

namespace foretail::packets::ns3_driver {

/// ns-3's congestion control for senders that set window and pacing rate at every acknowledgement themselves: losses
/// are repaired by ns-3, but change neither.
class PacedControl : public ns3::TcpCongestionOps {
public:
    /// A new round-trip sample, taken from the acknowledgement that TCP handles next.
    void sampled(ns3::Time rtt) { rtt_ns_ = rtt.GetNanoSeconds(); }
    /// What that acknowledgement brought back.
    void echoed(ns3::Ptr<Telemetry> telemetry) { telemetry_ = std::move(telemetry); }

    bool HasCongControl() const override { return true; }
    std::uint32_t GetSsThresh(ns3::Ptr<const ns3::TcpSocketState> tcb, std::uint32_t) override { return tcb->m_cWnd; }

protected:
    std::optional<std::int64_t> rtt_ns_;  ///< not yet used
    ns3::Ptr<Telemetry> telemetry_;       ///< likewise
};

template <class Law>
class Paced final : public PacedControl {
public:
    static ns3::TypeId GetTypeId() {
        static ns3::TypeId id = ns3::TypeId(std::string("foretail::Paced:") + Law::name).SetParent<TcpCongestionOps>();
        return id;
    }
    explicit Paced(Law law) : law_(std::move(law)) {}

    std::string GetName() const override { return Law::name; }
    ns3::Ptr<TcpCongestionOps> Fork() override { return ns3::CopyObject<Paced>(this); }

    /// Also after a timeout, where ns-3 has set the window to one segment.
    void CwndEvent(ns3::Ptr<ns3::TcpSocketState> tcb, ns3::TcpSocketState::TcpCAEvent_t event) override {
        if (event == ns3::TcpSocketState::CA_EVENT_TX_START) apply(*tcb);
    }
    void CongControl(ns3::Ptr<ns3::TcpSocketState> tcb, const ns3::TcpRateOps::TcpRateConnection&,
                     const ns3::TcpRateOps::TcpRateSample&) override {
        if (rtt_ns_) {
            const bool round_over = tcb->m_lastAckedSeq > round_end_;
            if (round_over) round_end_ = tcb->m_highTxMark;
            law_.acknowledge({.time_ns = ns3::Simulator::Now().GetNanoSeconds(),
                              .rtt_ns = *rtt_ns_,
                              .round_over = round_over,
                              .hops = telemetry_ ? telemetry_->hops() : std::span<const Hop>()});
            rtt_ns_.reset();
        }
        telemetry_ = nullptr;
        apply(*tcb);
    }

private:
    void apply(ns3::TcpSocketState& tcb) const {
        tcb.m_cWnd = static_cast<std::uint32_t>(law_.window_bytes());
        tcb.m_pacingRate =
            std::min(ns3::DataRate(static_cast<std::uint64_t>(law_.bytes_per_ns() * 8e9)), tcb.m_maxPacingRate);
    }

    Law law_;
    ns3::SequenceNumber32 round_end_{0};
};

}  // namespace foretail::packets::ns3_driver
