// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "buffer/records.hpp"
#include "packets/settings.h"
#include "packets/traffic.h"

namespace foretail::packets {

/// Segments of the first window of a flow's connection. An incast response is sent as one window at line rate, as the
/// paper's workload does.
inline std::int64_t first_window_segments(const Transport& transport, const PlannedFlow& flow) {
    if (flow.flow_class == buffer::FlowClass::incast) return flow.size_bytes / transport.segment_bytes + 1;
    return transport.initial_window_segments;
}

/// The planned flows of a run, their connections, and what became of them: all that does not depend on whose TCP sends.
///
/// A flow completes when its last byte reaches the receiving application. Flows may share a connection: it sends them
/// in the order in which they start. A flow may wait until others are delivered; the sender learns it at once, which
/// costs no packet.
class FlowLedger {
public:
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
        std::int64_t next_byte = 0;  ///< one past the highest ever on the wire
        bool syn_sent = false;
    };
    /// A packet of a connection, as its TCP header says.
    struct Segment {
        bool answer = false;  ///< of the receiver
        bool syn = false;
        std::uint32_t sequence = 0, acknowledged = 0, payload = 0;
    };

    FlowLedger(const Settings& settings, std::vector<PlannedFlow> plan);

    /// A flow starts: its bytes follow those that its connection has been given.
    void start(std::size_t flow, std::int64_t now);
    /// Tells switches of a packet what they need, and counts retransmissions and repeated SYNs.
    template <class Frame>
    void classify(Frame& frame, std::size_t connection, const Segment& segment);
    /// Counts a timeout for the flow of the oldest byte that is not acknowledged.
    void count_timeout(std::size_t connection, std::uint32_t oldest);
    /// The receiving application gets bytes. `use` closes its end with close(), starts a flow with start(flow, time),
    /// and closes the end of a sender without flows with close_sender(connection).
    template <class Use>
    void receive(std::size_t connection, std::int64_t bytes, std::int64_t now, Use&& use);

    void write(const std::string& path) const;
    [[nodiscard]] std::size_t planned() const { return plan_.size(); }
    [[nodiscard]] std::size_t completed() const { return completed_; }
    /// Whether nothing more becomes of any flow.
    [[nodiscard]] bool is_settled() const { return settled_ == plan_.size(); }

    [[nodiscard]] const PlannedFlow& plan(std::size_t flow) const { return plan_[flow]; }
    [[nodiscard]] std::size_t connection_of(std::size_t flow) const { return progress_[flow].connection; }
    [[nodiscard]] std::vector<Connection>& connections() { return connections_; }
    [[nodiscard]] const std::vector<Connection>& connections() const { return connections_; }
    /// Whether a flow has the transport of the background, without ECN, beside that of the others.
    [[nodiscard]] bool has_background_control(std::size_t flow) const {
        return plan_[flow].flow_class == buffer::FlowClass::background && !settings_.transport.background_name.empty();
    }

private:
    struct Progress {
        buffer::FlowRecord record;
        std::size_t connection = 0;
        std::size_t awaited = 0;              ///< flows that it still waits for
        std::vector<std::size_t> dependants;  ///< flows that wait for it
        bool settled = false;                 ///< delivered, or known never to start
    };

    void add_to_connection(std::size_t flow);
    /// Starts those that waited for a flow, at their time.
    template <class Use>
    void start_dependants(std::size_t delivered, std::int64_t now, Use& use);
    /// A flow is too late to start; nor will those that wait for it.
    template <class Use>
    void give_up(std::size_t late, Use& use);
    void settle(std::size_t flow) {
        progress_[flow].settled = true;
        ++settled_;
    }
    /// The byte of a connection, from 0, that has a sequence number: TCP counts from 1, in 32 bits.
    [[nodiscard]] static std::int64_t byte_of(const Connection& connection, std::uint32_t sequence) {
        const auto near = static_cast<std::uint32_t>(connection.next_byte);
        return connection.next_byte + static_cast<std::int32_t>(sequence - 1 - near);
    }
    /// Where a byte of a connection, or the nearest one that is sent, belongs; none before all of them.
    [[nodiscard]] static const Stretch* stretch_at(const Connection& connection, std::int64_t byte);
    /// The flow there; before all bytes the first that is planned.
    [[nodiscard]] static std::size_t flow_at(const Connection& connection, std::int64_t byte) {
        const Stretch* stretch = stretch_at(connection, byte);
        return stretch != nullptr ? stretch->flow : connection.flows.front();
    }

    const Settings& settings_;
    std::vector<PlannedFlow> plan_;
    std::vector<Progress> progress_;
    std::vector<Connection> connections_;
    std::unordered_map<std::int64_t, std::size_t> connection_of_number_;
    std::vector<std::uint32_t> connections_of_server_;  ///< how many leave from it
    std::int64_t first_rtt_bytes_;
    std::size_t completed_ = 0, settled_ = 0;
};

template <class Frame>
void FlowLedger::classify(Frame& frame, std::size_t c, const Segment& segment) {
    Connection& connection = connections_[c];
    const PlannedFlow& first = plan_[connection.flows.front()];
    frame.source = segment.answer ? first.destination : first.source;
    frame.destination = segment.answer ? first.source : first.destination;
    frame.path_hash = segment.answer ? path_hash(frame.source, frame.destination, listen_port, connection.source_port)
                                     : path_hash(frame.source, frame.destination, connection.source_port, listen_port);
    // An acknowledgement belongs to the last byte that it acknowledges.
    const std::int64_t byte = byte_of(connection, segment.answer ? segment.acknowledged - 1 : segment.sequence);
    const std::size_t i = flow_at(connection, byte);
    frame.flow = static_cast<std::int32_t>(i);
    frame.flow_class = buffer::FlowClass::control;
    frame.first_rtt = false;
    frame.sent_bytes = frame.left_bytes = 0;
    if (has_background_control(i)) frame.ecn_capable = false;
    if (segment.answer) return;
    buffer::FlowRecord& record = progress_[i].record;
    if (segment.payload == 0) {
        record.timeouts += segment.syn && connection.syn_sent;  // a lost handshake costs a connection timeout
        connection.syn_sent = connection.syn_sent || segment.syn;
        return;
    }
    frame.flow_class = plan_[i].flow_class;
    const Stretch& message = *stretch_at(connection, byte);
    frame.first_rtt = byte < message.first_rtt_end;
    frame.sent_bytes = byte - message.begin;
    // A segment may reach into the next message.
    frame.left_bytes = std::max<std::int64_t>(0, message.end - byte - segment.payload);
    record.retransmissions += byte < connection.next_byte;
    connection.next_byte = std::max(connection.next_byte, byte + segment.payload);
}

template <class Use>
void FlowLedger::receive(std::size_t c, std::int64_t bytes, std::int64_t now, Use&& use) {
    Connection& connection = connections_[c];
    connection.received_bytes += bytes;
    while (connection.delivered < connection.sent.size() &&
           connection.received_bytes >= connection.sent[connection.delivered].end) {
        const std::size_t i = connection.sent[connection.delivered++].flow;
        progress_[i].record.fct_ns = now - progress_[i].record.start_ns;
        if (--connection.open == 0) use.close();
        ++completed_;
        settle(i);
        start_dependants(i, now, use);
    }
}

template <class Use>
void FlowLedger::start_dependants(std::size_t delivered, std::int64_t now, Use& use) {
    for (const std::size_t i : progress_[delivered].dependants) {
        const PlannedFlow& flow = plan_[i];
        if (--progress_[i].awaited > 0) continue;
        const std::int64_t start = std::max(flow.start_ns, now + flow.gap_ns);
        if (start > flow.latest_ns) {
            give_up(i, use);
        } else {
            use.start(i, start);
        }
    }
}

template <class Use>
void FlowLedger::give_up(std::size_t late, Use& use) {
    std::vector<std::size_t> never{late};
    while (!never.empty()) {
        const std::size_t i = never.back();
        never.pop_back();
        if (progress_[i].settled) continue;
        settle(i);
        never.insert(never.end(), progress_[i].dependants.begin(), progress_[i].dependants.end());
        Connection& connection = connections_[progress_[i].connection];
        --connection.open;
        if (--connection.unsent == 0) use.close_sender(progress_[i].connection);
    }
}

}  // namespace foretail::packets
