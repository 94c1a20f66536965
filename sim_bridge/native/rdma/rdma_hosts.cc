// SPDX-License-Identifier: MIT
#include "native/rdma/rdma_hosts.h"

#include "native/hosts/stack.h"

namespace foretail::packets::native {

namespace {

Repair repair_of(const Transport& transport) {
    return transport.rdma_name() == irn ? Repair::selective : Repair::go_back;
}

/// The most bytes of a queue pair in flight.
std::int64_t window_of(const Settings& s) {
    if (s.transport.rdma.window_segments > 0) return s.transport.rdma.window_segments * s.transport.segment_bytes;
    if (repair_of(s.transport) != Repair::selective) return std::numeric_limits<std::int64_t>::max();
    return static_cast<std::int64_t>(path_of(s, 0).largest_window_bytes());
}

/// A sequence number of TCP for a byte of a connection, which counts from 0.
Sequence sequence_of(std::int64_t byte) { return static_cast<Sequence>(byte) + 1; }
/// The byte with a sequence number, of those within 2 GiB of another byte.
std::int64_t byte_near(std::int64_t near, Sequence sequence) {
    return near + static_cast<std::int32_t>(sequence - sequence_of(near));
}

}  // namespace

RdmaHosts::RdmaHosts(const Settings& settings, Stack& stack, std::size_t connections)
    : settings_(&settings),
      stack_(&stack),
      has_dcqcn_(settings.transport.rdma.control == Dcqcn::name),
      has_headroom_(settings.has_headroom_for_all()),
      link_(buffer::LineRate::from_bps(settings.topology.server_link_bps, settings.topology.wire_overhead_bytes)),
      window_bytes_(window_of(settings)),
      pairs_(connections, QueuePair(repair_of(settings.transport), settings.transport.segment_bytes)),
      cards_(static_cast<std::size_t>(settings.topology.servers())) {}

void RdmaHosts::arm(std::int32_t connection, std::int64_t delay_ns) {
    stack_->arm(connection, Stack::Kind::rdma_timeout, timer(connection), delay_ns);
}

void RdmaHosts::restart_timer(std::int32_t connection) {
    QueuePair& own = pair(connection);
    own.extended = false;
    if (own.sender.in_flight() == 0 || cannot_lose(connection)) return own.timer.cancel();
    const RdmaSettings& rdma = settings_->transport.rdma;
    arm(connection, repair_of(settings_->transport) == Repair::selective ? rdma.low_rto_ns : rdma.high_rto_ns);
}

void RdmaHosts::time_out(std::int32_t connection) {
    QueuePair& own = pair(connection);
    const RdmaSettings& rdma = settings_->transport.rdma;
    const std::int64_t few_bytes = rdma.few_segments * settings_->transport.segment_bytes;
    if (repair_of(settings_->transport) == Repair::selective && !own.extended && own.sender.in_flight() > few_bytes &&
        rdma.high_rto_ns > rdma.low_rto_ns) {
        own.extended = true;
        return arm(connection, rdma.high_rto_ns - rdma.low_rto_ns);
    }
    stack_->flows().count_timeout(connection, sequence_of(own.sender.acknowledged()));
    own.sender.time_out();
    restart_timer(connection);
    want_to_send(connection);
}

std::optional<Bytes64> RdmaHosts::ready(const QueuePair& pair) const {
    if (stack_->now() < pair.paced_until_ns) return {};
    const std::int64_t window =
        pair.law ? std::min<std::int64_t>(window_bytes_, pair.law->window_bytes()) : window_bytes_;
    return pair.sender.next(window);
}

void RdmaHosts::write(std::int32_t connection, std::int64_t bytes) {
    QueuePair& own = pair(connection);
    const Transport& transport = settings_->transport;
    if (has_dcqcn_) {
        if (!own.dcqcn) own.dcqcn.emplace(transport.dcqcn, path_of(*settings_, 0));
    } else if (!transport.rdma.control.empty() && !own.law) {
        own.law.emplace(*settings_, transport.initial_window_segments * std::int64_t{transport.segment_bytes});
    }
    own.sender.add(bytes);
    want_to_send(connection);
}

void RdmaHosts::want_to_send(std::int32_t connection) {
    QueuePair& own = pair(connection);
    if (own.waits_for_card || !ready(own)) return;
    own.waits_for_card = true;
    const std::int32_t server = server_of(connection);
    cards_[static_cast<std::size_t>(server)].turns.push_back(connection);
    send_from(server);
}

void RdmaHosts::send_from(std::int32_t server) {
    Card& card = cards_[static_cast<std::size_t>(server)];
    while (!card.turns.empty()) {
        if (stack_->now() < card.free_at_ns) {
            if (!card.awaited) stack_->schedule(card.free_at_ns, Stack::Kind::rdma_card, server);
            card.awaited = true;
            return;
        }
        const std::int32_t connection = card.turns.pop_front();
        if ((card.paused >> queue_of(connection) & 1) != 0) {
            card.held.push_back(connection);
            continue;
        }
        QueuePair& own = pair(connection);
        own.waits_for_card = false;
        const auto packet = ready(own);
        if (!packet) continue;
        send(connection, *packet);
        card.free_at_ns = stack_->now() + link_.duration(settings_->packet_bytes(packet->size()));
        if (!ready(own)) continue;
        own.waits_for_card = true;
        card.turns.push_back(connection);
    }
}

void RdmaHosts::card_is_free(std::int32_t server) {
    cards_[static_cast<std::size_t>(server)].awaited = false;
    send_from(server);
}

void RdmaHosts::set_paused(std::int32_t server, int queue, bool paused) {
    Card& card = cards_[static_cast<std::size_t>(server)];
    const auto bit = static_cast<std::uint8_t>(1U << queue);
    card.paused = static_cast<std::uint8_t>(paused ? card.paused | bit : card.paused & ~bit);
    if (paused) return;
    for (const std::int32_t connection : card.held) card.turns.push_back(connection);
    card.held.clear();
    send_from(server);
}

void RdmaHosts::send(std::int32_t connection, Bytes64 packet) {
    QueuePair& own = pair(connection);
    own.sender.sent(packet);
    const auto size = static_cast<std::uint32_t>(packet.size());
    if (packet.begin < own.highest_sent) {
        own.times.sent_again(sequence_of(packet.begin), size);
    } else {
        own.times.sent(sequence_of(packet.begin), size, stack_->now());
        own.highest_sent = packet.end;
    }
    stack_->send({.connection = connection,
                  .payload = size,
                  .sequence = sequence_of(packet.begin),
                  .ecn_capable = has_dcqcn_ && settings_->transport.mark_bytes > 0},
                 {});
    if (!own.timer.is_pending()) restart_timer(connection);
    if (!own.law && !own.dcqcn) return;
    own.paced_until_ns = stack_->now() + pause_ns(own, packet.size());
    stack_->schedule(own.paced_until_ns, Stack::Kind::rdma_paced, connection);
}

std::int64_t RdmaHosts::pause_ns(QueuePair& pair, std::int64_t bytes) const {
    const auto size = static_cast<double>(bytes);
    if (!pair.dcqcn) return static_cast<std::int64_t>(8e9 * size / static_cast<double>(pair.law->pacing_bps()));
    pair.dcqcn->sent(stack_->now(), bytes);
    return static_cast<std::int64_t>(size / pair.dcqcn->bytes_per_ns());
}

void RdmaHosts::receive(const Frame& frame, const Telemetry* echo) {
    QueuePair& own = pair(frame.connection);
    if (frame.has(cnp)) return own.dcqcn->notified(stack_->now());
    if (!frame.answer) {
        if (frame.congestion_experienced) notify(frame.connection);
        const std::int64_t begin = byte_near(own.receiver.expected(), frame.sequence);
        return answer(frame.connection, own.receiver.take({begin, begin + frame.payload}));
    }
    const std::int64_t acknowledged = byte_near(own.sender.acknowledged(), frame.acknowledged);
    Bytes64 arrived;
    if (frame.blocks > 0) {
        arrived.begin = byte_near(acknowledged, frame.sacked[0].begin);
        arrived.end = arrived.begin + frame.sacked[0].size();
    }
    const SendTimes::Sample sample = own.times.acknowledge(frame.acknowledged, stack_->now());
    if (own.sender.take(acknowledged, frame.has(nack), arrived)) restart_timer(frame.connection);
    if (own.sender.is_done()) own.times = {};
    if (own.law) {
        if (sample.newest_ns > 0) own.law->sampled(sample.newest_ns);
        if (echo) own.law->echoed(*echo);
        own.law->acknowledged(stack_->now(), frame.acknowledged, sequence_of(own.highest_sent));
    }
    want_to_send(frame.connection);
}

void RdmaHosts::notify(std::int32_t connection) {
    QueuePair& own = pair(connection);
    if (stack_->now() < own.may_notify_ns) return;
    own.may_notify_ns = stack_->now() + settings_->transport.dcqcn.cnp_interval_ns;
    const Sequence expected = sequence_of(own.receiver.expected());
    stack_->send({.connection = connection, .answer = true, .flags = cnp, .acknowledged = expected}, {});
}

void RdmaHosts::answer(std::int32_t connection, const QueuePairReceiver::Answer& answer) {
    if (answer.sent) {
        const Range arrived{sequence_of(answer.arrived.begin), sequence_of(answer.arrived.end)};
        const std::span<const Range> blocks(&arrived, arrived.size() > 0 ? 1 : 0);
        const auto flags = static_cast<std::uint8_t>(answer.missing ? ack | nack : ack);
        const Sequence acknowledged = sequence_of(pair(connection).receiver.expected());
        stack_->send({.connection = connection, .answer = true, .flags = flags, .acknowledged = acknowledged}, blocks);
    }
    ReceivingEnd end{connection};
    if (answer.fresh > 0) stack_->flows().receive(end, answer.fresh);
}

const PlannedFlow& RdmaHosts::first_flow(std::int32_t connection) const {
    const FlowLedger& ledger = stack_->flows().ledger();
    return ledger.plan(ledger.planned_connection(static_cast<std::size_t>(connection)).flows.front());
}

bool RdmaHosts::cannot_lose(std::int32_t connection) const {
    const PortQueueing& queues = settings_->queues;
    const int control = queues.queue_of[static_cast<std::size_t>(buffer::FlowClass::control)];
    return has_headroom_ && (queues.lossless >> queue_of(connection) & queues.lossless >> control & 1) != 0;
}

int RdmaHosts::queue_of(std::int32_t connection) const {
    return settings_->queues.queue_of[static_cast<std::size_t>(first_flow(connection).flow_class)];
}

}  // namespace foretail::packets::native
