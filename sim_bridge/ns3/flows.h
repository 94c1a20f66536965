// SPDX-License-Identifier: MIT
#pragma once

#include <ns3/node.h>
#include <ns3/ptr.h>
#include <ns3/socket.h>
#include <ns3/tcp-socket-base.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "buffer/records.hpp"
#include "ns3/network/frame.h"
#include "ns3/network/host.h"
#include "ns3/transport/paced_control.h"
#include "packets/settings.h"
#include "packets/traffic.h"

namespace foretail::packets::ns3_driver {

/// Sends the planned flows over ns-3's TCP and takes down what became of them.
///
/// A flow completes when its last byte reaches the receiving application. Flows may share a connection: it sends them
/// in the order in which they start, and its TCP keeps its state between them. A flow may wait until others are
/// delivered; the sender learns it at once, which costs no packet.
class Flows {
public:
    Flows(const Settings& settings, std::vector<PlannedFlow> plan);

    /// Opens the listening sockets and schedules all flows on the servers' nodes.
    void install(const std::vector<std::unique_ptr<Host>>& servers);
    /// Reads the TCP header of a packet that leaves a server into its frame, and counts retransmissions.
    void classify(Frame& frame, const std::uint8_t* tcp_header);
    /// Hands the telemetry of an acknowledgement to the flow's congestion control.
    void echoed(const Frame& frame) {
        connections_[progress_[static_cast<std::size_t>(frame.flow)].connection].paced->echoed(frame.telemetry);
    }

    void write(const std::string& path) const;
    [[nodiscard]] std::size_t planned() const { return plan_.size(); }
    [[nodiscard]] std::size_t completed() const { return completed_; }

private:
    struct Progress {
        buffer::FlowRecord record;
        std::size_t connection = 0;
        std::size_t awaited = 0;              ///< flows that it still waits for
        std::vector<std::size_t> dependants;  ///< flows that wait for it
        bool settled = false;                 ///< delivered, or known never to start
    };

    /// Bytes of a flow among those of its connection.
    struct Stretch {
        std::int64_t begin = 0, end = 0;
        std::int64_t first_rtt_end = 0;  ///< bytes before it are sent in the first round trip after a silence
        std::size_t flow = 0;
    };

    struct Connection {
        std::vector<std::size_t> flows;  ///< as planned
        std::int64_t connect_ns = 0;
        std::uint16_t source_port = 0;
        std::vector<Stretch> sent;  ///< flows that have started, in the order of their bytes
        std::size_t delivered = 0;  ///< so many of them
        std::size_t open = 0;       ///< flows that are not delivered, and may be
        std::size_t unsent = 0;     ///< flows that have not started, and may
        std::int64_t sent_bytes = 0, received_bytes = 0;
        std::int64_t next_byte = 0;        ///< one past the highest ever on the wire
        std::int64_t unwritten_bytes = 0;  ///< of a flow that is longer than a buffer of TCP can be
        bool syn_sent = false;
        ns3::Ptr<PacedControl> paced;  ///< none with a congestion control of ns-3
        ns3::Ptr<ns3::Socket> socket;  ///< of the sender, until it closes
    };

    void add_to_connection(std::size_t flow);
    void connect(std::size_t connection);
    void send(std::size_t flow);
    /// Gives TCP what its buffer has room for of a flow that is longer than any buffer.
    void write_more(std::size_t connection);
    /// Closes the sender when no flow is left that may start.
    static void close_if_all_sent(Connection& connection);
    void accept(ns3::Ptr<ns3::Socket> socket, const ns3::Address& from);
    void receive(std::size_t connection, ns3::Ptr<ns3::Socket> socket);
    /// Notes that nothing more becomes of a flow; the run ends with the last.
    void settle(std::size_t flow);
    /// Starts those that waited for a flow, at their time.
    void start_dependants(std::size_t delivered);
    /// A flow is too late to start; nor will those that wait for it.
    void give_up(std::size_t late);
    /// Counts a timeout for the flow of the oldest byte that is not acknowledged.
    void count_timeout(std::size_t connection, const ns3::TcpSocketBase* sender, ns3::Time before, ns3::Time after);
    /// Whether a flow has the transport of the background, without ECN, beside that of the others.
    [[nodiscard]] bool has_background_control(std::size_t flow) const;
    [[nodiscard]] std::size_t connection_of(int source, std::uint16_t port) const;
    /// The byte of a connection, from 0, that has a sequence number.
    [[nodiscard]] static std::int64_t byte_of(const Connection& connection, std::uint32_t sequence);
    /// Where a byte of a connection, or the nearest one that is sent, belongs; none before all of them.
    [[nodiscard]] static const Stretch* stretch_at(const Connection& connection, std::int64_t byte);
    /// The flow there; before all bytes the first that is planned.
    [[nodiscard]] static std::size_t flow_at(const Connection& connection, std::int64_t byte);

    Settings settings_;
    std::vector<PlannedFlow> plan_;
    std::vector<Progress> progress_;
    std::vector<Connection> connections_;
    std::unordered_map<std::int64_t, std::size_t> connection_of_number_;
    std::vector<std::vector<std::size_t>> connections_of_server_;  ///< by source port - first_source_port
    std::vector<ns3::Ptr<ns3::Node>> servers_;
    std::size_t completed_ = 0, settled_ = 0;
    bool telemetry_ = false;
};

}  // namespace foretail::packets::ns3_driver
