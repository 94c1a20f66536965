// SPDX-License-Identifier: MIT
// Flows in ns-3: its TCP with paced controls, their senders and receivers, and reports of progress.
#pragma once

#include <ns3/data-rate.h>
#include <ns3/nstime.h>
#include <ns3/object.h>
#include <ns3/simulator.h>
#include <ns3/socket.h>
#include <ns3/tcp-congestion-ops.h>
#include <ns3/tcp-socket-base.h>
#include <ns3/type-id.h>

#include "ns3/host.h"
#include "packets/program.h"
#include "packets/records/flow_ledger.h"

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

/// ns-3's TCP socket without two of its faults (ns-3 3.44). It counts duplicate acknowledgements in the CWR state,
/// where nothing uses the count, keeps it when it leaves that state, and fails an assertion on the next duplicate
/// ("From OPEN->DISORDER but with n dup ACKs"). And DCTCP may lower the window below a segment: what is to be sent
/// then, with nothing in flight, waits for ever. Here it is a segment then.
class TcpSender : public ns3::TcpSocketBase {
public:
    static ns3::TypeId GetTypeId();

    /// A socket on `node`, put together of the same parts as ns3::TcpL4Protocol puts its sockets together, except for
    /// the congestion control: `paced`, or without it one of type `control`.
    static ns3::Ptr<ns3::TcpSocketBase> create(ns3::Ptr<ns3::Node> node, ns3::Ptr<PacedControl> paced,
                                               ns3::TypeId control);

    int Send(ns3::Ptr<ns3::Packet> packet, std::uint32_t flags) override;

protected:
    void ReceivedAck(ns3::Ptr<ns3::Packet> packet, const ns3::TcpHeader& header) override;
    void EstimateRtt(const ns3::TcpHeader& header) override;

private:
    /// Whether nothing is in flight and the window, below a segment before, is one now.
    bool opened_a_segment();

    ns3::Ptr<PacedControl> paced_;  ///< none with a congestion control of ns-3
};

/// Sends the planned flows over ns-3's TCP.
class Flows {
public:
    Flows(const Settings& settings, std::vector<PlannedFlow> plan);

    /// Opens the listening sockets and schedules all flows on the servers' nodes.
    void install(const std::vector<std::unique_ptr<Host>>& servers);
    /// Reads the TCP header of a packet that leaves a server into its frame, and counts retransmissions.
    void classify(Frame& frame, const std::uint8_t* tcp_header);
    /// Hands the telemetry of an acknowledgement to the flow's congestion control.
    void echoed(const Frame& frame) {
        const std::size_t c = ledger_.connection_of(static_cast<std::size_t>(frame.flow));
        senders_[c].paced->sender().echoed(*frame.telemetry);
    }

    /// Writes flows.bin at the end of a run, and returns what its summary says of flows, ns-3 and events.
    [[nodiscard]] nlohmann::json finish(const std::string& folder) const {
        ledger_.write(folder + "/flows.bin");
        return {{"ns3_version", FORETAIL_NS3_VERSION},
                {"flows", planned()},
                {"completed_flows", completed()},
                {"end_ns", ns3::Simulator::Now().GetNanoSeconds()},
                {"events", ns3::Simulator::GetEventCount()}};
    }
    [[nodiscard]] std::size_t planned() const { return ledger_.planned(); }
    [[nodiscard]] std::size_t completed() const { return ledger_.completed(); }

private:
    /// The sending end of a connection.
    struct Sender {
        std::int64_t unwritten_bytes = 0;  ///< of a flow that is longer than a buffer of TCP can be
        ns3::Ptr<PacedControl> paced;      ///< none with a congestion control of ns-3
        ns3::Ptr<ns3::Socket> socket;      ///< until it closes
    };

    void connect(std::size_t connection);
    void send(std::size_t flow);
    /// Gives TCP what its buffer has room for of a flow that is longer than any buffer.
    void write_more(std::size_t connection);
    /// Closes the sender when no flow is left that may start.
    void close_if_all_sent(std::size_t connection);
    void accept(ns3::Ptr<ns3::Socket> socket, const ns3::Address& from);
    void receive(std::size_t connection, ns3::Ptr<ns3::Socket> socket);
    /// Counts a timeout for the flow of the oldest byte that is not acknowledged.
    void count_timeout(std::size_t connection, const ns3::TcpSocketBase* sender, ns3::Time before, ns3::Time after);
    [[nodiscard]] std::size_t connection_at(int source, std::uint16_t port) const;
    [[nodiscard]] ns3::Ptr<ns3::Node> source_of(std::size_t flow) const;

    Settings settings_;
    FlowLedger ledger_;
    std::vector<Sender> senders_;                                  ///< of connections
    std::vector<std::vector<std::size_t>> connections_of_server_;  ///< by source port - first_source_port
    std::vector<ns3::Ptr<ns3::Node>> servers_;
    bool telemetry_ = false;
};

/// Shows the progress of flows, from now on to the end of the simulation.
class FlowsProgress {
public:
    FlowsProgress(std::int64_t end_ns, const Flows& flows)
        : interval_(ns3::NanoSeconds(end_ns / 1000 + 1)), flows_(flows), report_(end_ns, flows.planned()) {
        tick();
    }

private:
    void tick() {
        report_.show(ns3::Simulator::Now().GetNanoSeconds(), static_cast<std::int64_t>(flows_.completed()));
        ns3::Simulator::Schedule(interval_, &FlowsProgress::tick, this);
    }

    ns3::Time interval_;
    const Flows& flows_;
    ProgressReport report_;
};

}  // namespace foretail::packets::ns3_driver
