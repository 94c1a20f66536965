// SPDX-License-Identifier: MIT
#pragma once

#include <ns3/node.h>
#include <ns3/ptr.h>
#include <ns3/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "buffer/records.hpp"
#include "ns3/network/frame.h"
#include "ns3/network/host.h"
#include "ns3/settings.h"
#include "ns3/traffic.h"
#include "ns3/transport/paced_control.h"

namespace foretail::ns3_driver {

/// Sends the planned flows over ns-3's TCP and takes down what became of them.
///
/// A flow completes when its last byte reaches the receiving application. Its ideal completion time is that of its
/// segments sent back to back at line rate through an idle network, store and forward at every switch, connection
/// set-up not included; both kinds of traffic are measured from the instant the application sends.
class Flows {
public:
    Flows(const Settings& settings, std::vector<PlannedFlow> plan);

    /// Opens the listening sockets and schedules all flows on the servers' nodes.
    void install(const std::vector<std::unique_ptr<Host>>& servers);
    /// Reads the TCP header of a packet that leaves a server into its frame, and counts retransmissions.
    void classify(Frame& frame, const std::uint8_t* tcp_header);
    /// Hands the telemetry of an acknowledgement to the flow's congestion control.
    void echoed(const Frame& frame) { progress_[static_cast<std::size_t>(frame.flow)].paced->echoed(frame.telemetry); }

    void write(const std::string& path) const;
    [[nodiscard]] std::size_t planned() const { return plan_.size(); }
    [[nodiscard]] std::size_t completed() const { return completed_; }
    [[nodiscard]] std::int64_t ideal_fct_ns(const PlannedFlow& flow) const;

private:
    struct Progress {
        buffer::FlowRecord record;
        std::int64_t received_bytes = 0;
        std::uint32_t next_sequence = 0;  ///< one past the highest byte ever sent
        bool syn_sent = false;
        ns3::Ptr<PacedControl> paced;  ///< none with a congestion control of ns-3
    };

    void connect(std::size_t flow);
    void send(std::size_t flow, ns3::Ptr<ns3::Socket> socket);
    void accept(ns3::Ptr<ns3::Socket> socket, const ns3::Address& from);
    void receive(std::size_t flow, ns3::Ptr<ns3::Socket> socket);
    /// Whether a flow has the transport of the background, without ECN, beside that of the others.
    [[nodiscard]] bool has_background_control(std::size_t flow) const;
    [[nodiscard]] std::size_t flow_of(int source, std::uint16_t port) const;

    static constexpr std::uint16_t listen_port = 5000, first_source_port = 10000;

    Settings settings_;
    std::vector<PlannedFlow> plan_;
    std::vector<Progress> progress_;
    std::vector<std::uint16_t> source_ports_;
    std::vector<std::vector<std::size_t>> flows_of_server_;  ///< by source port - first_source_port
    std::vector<ns3::Ptr<ns3::Node>> servers_;
    std::size_t completed_ = 0;
    bool telemetry_ = false;
};

}  // namespace foretail::ns3_driver
