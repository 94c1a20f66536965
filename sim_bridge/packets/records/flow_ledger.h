// SPDX-License-Identifier: MIT
#pragma once

#include "packets/traffic.h"

namespace foretail::packets {

/// Bytes that TCP takes at once; a longer flow is handed over in pieces, more of them in the buffer than the receiver's
/// window has room for.
inline constexpr std::int64_t most_at_once = std::numeric_limits<std::uint32_t>::max();
inline constexpr std::int64_t piece_segments = 1024, pieces_in_buffer = 8;

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
/// costs no packet. Copies share the plan.
class FlowLedger {
public:
    /// Bytes of a flow among those of its connection.
    struct Stretch {
        std::int64_t begin = 0, end = 0;
        std::int64_t first_rtt_end = 0;  ///< bytes before it are sent in the first round trip after a silence
        std::size_t flow = 0;
    };
    struct PlannedConnection {
        std::vector<std::size_t> flows;
        std::int64_t connect_ns = 0;
        std::uint16_t source_port = 0;
        std::size_t first_stretch = 0;  ///< the place of its first flow that starts, among those of all connections
        std::int32_t source = 0, destination = 0;
        std::uint32_t path_hash = 0, path_hash_back = 0;  ///< of its packets, and of the answers
    };
    /// What becomes of one.
    struct Connection {
        std::size_t sent = 0;       ///< flows that have started
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
        bool low = false;  ///< sent by the second loop of RC3, which says nothing of what TCP has sent
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
    [[nodiscard]] std::size_t planned() const { return progress_.size(); }
    [[nodiscard]] std::size_t completed() const { return delivered_.size(); }
    /// Whether nothing more becomes of any flow.
    [[nodiscard]] bool is_settled() const { return settled_ == progress_.size(); }

    /// What became of every flow, as planned.
    [[nodiscard]] std::vector<buffer::FlowRecord> records() const;
    [[nodiscard]] const buffer::FlowRecord& record(std::size_t flow) const { return progress_[flow].record; }
    /// Flows that have been delivered, in this order.
    [[nodiscard]] const std::vector<std::size_t>& delivered() const { return delivered_; }

    [[nodiscard]] const PlannedFlow& plan(std::size_t flow) const { return plan_->flows[flow]; }
    [[nodiscard]] const PlannedConnection& planned_connection(std::size_t connection) const {
        return plan_->connections[connection];
    }
    [[nodiscard]] std::size_t connection_of(std::size_t flow) const { return plan_->connection_of[flow]; }
    [[nodiscard]] std::vector<Connection>& connections() { return connections_; }
    [[nodiscard]] const std::vector<Connection>& connections() const { return connections_; }
    /// Whether a flow has the transport of the background beside that of the others.
    [[nodiscard]] bool has_background_control(std::size_t flow) const {
        return plan_->has_background_control && plan(flow).flow_class == buffer::FlowClass::background;
    }
    /// Whether a flow goes by RDMA, and not by TCP.
    [[nodiscard]] bool goes_by_rdma(std::size_t flow) const {
        return has_background_control(flow) ? plan_->background_by_rdma : plan_->others_by_rdma;
    }

private:
    /// What does not change during a run, nor from one copy to another.
    struct Plan {
        std::vector<PlannedFlow> flows;
        std::vector<PlannedConnection> connections;
        std::vector<std::size_t> connection_of;            ///< flows
        std::vector<std::vector<std::size_t>> dependants;  ///< flows that wait for a flow
        std::int64_t first_rtt_bytes = 0;
        bool has_background_control = false, background_by_rdma = false, others_by_rdma = false;
    };
    struct Progress {
        buffer::FlowRecord record;
        std::size_t awaited = 0;  ///< flows that it still waits for
        bool settled = false;     ///< delivered, or known never to start
    };

    static Plan planned(const Settings& settings, std::vector<PlannedFlow> flows);
    [[nodiscard]] std::span<const Stretch> sent(std::size_t connection) const {
        return std::span(stretches_)
            .subspan(plan_->connections[connection].first_stretch, connections_[connection].sent);
    }
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
    [[nodiscard]] const Stretch* stretch_at(std::size_t connection, std::int64_t byte) const {
        const std::size_t sent = connections_[connection].sent;
        if (sent == 0) return nullptr;
        const Stretch* const first = &stretches_[plan_->connections[connection].first_stretch];
        if (sent == 1) return first;
        const Stretch* const after = std::ranges::upper_bound(first, first + sent, byte, {}, &Stretch::begin);
        return after == first ? first : after - 1;
    }
    /// The flow there; before all bytes the first that is planned.
    [[nodiscard]] std::size_t flow_at(std::size_t connection, std::int64_t byte) const {
        const Stretch* stretch = stretch_at(connection, byte);
        return stretch != nullptr ? stretch->flow : plan_->connections[connection].flows.front();
    }

    std::shared_ptr<const Plan> plan_;
    std::vector<Progress> progress_;
    std::vector<Connection> connections_;
    std::vector<Stretch> stretches_;  ///< of connections one after the other, as many as each has flows
    std::vector<std::size_t> delivered_;
    std::size_t settled_ = 0;
};

template <class Frame>
void FlowLedger::classify(Frame& frame, std::size_t c, const Segment& segment) {
    Connection& connection = connections_[c];
    const PlannedConnection& ends = plan_->connections[c];
    frame.source = segment.answer ? ends.destination : ends.source;
    frame.destination = segment.answer ? ends.source : ends.destination;
    frame.path_hash = segment.answer ? ends.path_hash_back : ends.path_hash;
    // An acknowledgement belongs to the last byte that it acknowledges.
    const std::int64_t byte = byte_of(connection, segment.answer ? segment.acknowledged - 1 : segment.sequence);
    const Stretch* const message = stretch_at(c, byte);
    const std::size_t i = message != nullptr ? message->flow : ends.flows.front();
    frame.flow = static_cast<std::int32_t>(i);
    frame.connection = static_cast<std::int32_t>(c);
    frame.flow_class = buffer::FlowClass::control;
    frame.first_rtt = false;
    frame.sent_bytes = frame.left_bytes = 0;
    if (has_background_control(i) && !plan_->background_by_rdma) frame.ecn_capable = false;
    if (segment.answer) return;
    buffer::FlowRecord& record = progress_[i].record;
    if (segment.payload == 0) {
        record.timeouts += segment.syn && connection.syn_sent;  // a lost handshake costs a connection timeout
        connection.syn_sent = connection.syn_sent || segment.syn;
        return;
    }
    frame.flow_class = plan(i).flow_class;
    frame.first_rtt = byte < message->first_rtt_end;
    frame.sent_bytes = byte - message->begin;
    // A segment may reach into the next message.
    frame.left_bytes = std::max<std::int64_t>(0, message->end - byte - segment.payload);
    if (segment.low) return;
    record.retransmissions += byte < connection.next_byte;
    connection.next_byte = std::max(connection.next_byte, byte + segment.payload);
}

template <class Use>
void FlowLedger::receive(std::size_t c, std::int64_t bytes, std::int64_t now, Use&& use) {
    Connection& connection = connections_[c];
    connection.received_bytes += bytes;
    while (connection.delivered < connection.sent && connection.received_bytes >= sent(c)[connection.delivered].end) {
        const std::size_t i = sent(c)[connection.delivered++].flow;
        progress_[i].record.fct_ns = now - progress_[i].record.start_ns;
        if (--connection.open == 0) use.close();
        delivered_.push_back(i);
        settle(i);
        start_dependants(i, now, use);
    }
}

template <class Use>
void FlowLedger::start_dependants(std::size_t delivered, std::int64_t now, Use& use) {
    for (const std::size_t i : plan_->dependants[delivered]) {
        const PlannedFlow& flow = plan(i);
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
        never.insert(never.end(), plan_->dependants[i].begin(), plan_->dependants[i].end());
        Connection& connection = connections_[connection_of(i)];
        --connection.open;
        if (--connection.unsent == 0) use.close_sender(connection_of(i));
    }
}

}  // namespace foretail::packets
