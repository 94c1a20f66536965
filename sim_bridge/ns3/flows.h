// SPDX-License-Identifier: MIT
#pragma once

#include <ns3/node.h>
#include <ns3/ptr.h>
#include <ns3/socket.h>
#include <ns3/tcp-socket-base.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ns3/network/frame.h"
#include "ns3/network/host.h"
#include "ns3/transport/paced_control.h"
#include "packets/records/flow_ledger.h"
#include "packets/settings/settings.h"
#include "packets/traffic.h"

namespace foretail::packets::ns3_driver {

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

    void write(const std::string& path) const { ledger_.write(path); }
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

}  // namespace foretail::packets::ns3_driver
