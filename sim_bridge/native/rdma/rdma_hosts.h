// SPDX-License-Identifier: MIT
// Connections of RDMA: queue pairs, and the network cards that send for them.
#pragma once

#include "native/tcp/shared.h"
#include "packets/congestion_control.h"
#include "packets/traffic.h"

namespace foretail::packets::native {

/// A stretch of the bytes of a connection, which count from 0.
struct Bytes64 {
    std::int64_t begin = 0, end = 0;
    [[nodiscard]] std::int64_t size() const { return end - begin; }
};

/// Stretches that do not touch, in order.
class ByteSet {
public:
    void add(Bytes64 more) {
        const auto first = std::ranges::lower_bound(parts_, more.begin, {}, &Bytes64::end);
        auto last = first;
        for (; last != parts_.end() && last->begin <= more.end; ++last) {
            more.begin = std::min(more.begin, last->begin);
            more.end = std::max(more.end, last->end);
        }
        parts_.insert(parts_.erase(first, last), more);
    }
    /// Forgets what lies before a byte.
    void drop_before(std::int64_t byte) {
        parts_.erase(parts_.begin(), std::ranges::upper_bound(parts_, byte, {}, &Bytes64::end));
        if (!parts_.empty()) parts_.front().begin = std::max(parts_.front().begin, byte);
    }
    /// The first byte from `byte` on that is not in it.
    [[nodiscard]] std::int64_t first_missing(std::int64_t byte) const {
        const auto after = std::ranges::upper_bound(parts_, byte, {}, &Bytes64::end);
        return after == parts_.end() || byte < after->begin ? byte : after->end;
    }
    /// One past its last byte; 0 where it is empty.
    [[nodiscard]] std::int64_t end() const { return parts_.empty() ? 0 : parts_.back().end; }

private:
    std::vector<Bytes64> parts_;
};

/// How a sender repairs losses: RoCE goes back to the first packet that is missing, IRN sends missing ones alone.
enum class Repair : std::uint8_t { go_back, selective };

/// The sending end of a queue pair, without clock or network: which packet comes next, and what answers change. IRN as
/// in section 4.3 of Mittal's thesis: in recovery the first missing packet is sent again, and any other when a later
/// one has arrived; recovery ends when all is acknowledged that was sent before it began.
class QueuePairSender {
public:
    QueuePairSender(Repair repair, std::int64_t segment_bytes) : repair_(repair), segment_bytes_(segment_bytes) {}

    /// A message follows those before it; packets do not reach from one into the next.
    void add(std::int64_t bytes) {
        total_ += bytes;
        ends_.push_back(total_);
    }
    /// What may be sent now with at most `window_bytes` between the first missing byte and the last one sent; one
    /// packet may always be on its way.
    [[nodiscard]] std::optional<Bytes64> next(std::int64_t window_bytes) const {
        if (recovering_) {
            const std::int64_t begin = sacked_.first_missing(std::max(repair_from_, acknowledged_));
            if (begin < next_ && (begin < sacked_.end() || (first_repair_ && begin == acknowledged_)))
                return packet_at(begin);
        }
        if (next_ == total_) return {};
        const Bytes64 fresh = packet_at(next_);
        if (next_ > acknowledged_ && fresh.end - acknowledged_ > window_bytes) return {};
        return fresh;
    }
    /// A packet of `next` was sent.
    void sent(Bytes64 packet) {
        if (packet.begin == next_) {
            next_ = packet.end;
        } else {
            repair_from_ = packet.end;
            first_repair_ = false;
        }
    }
    /// Everything before `acknowledged` has arrived; `missing` tells that this byte has not, while `arrived`, unless it
    /// is empty, has. Returns whether that acknowledges anything new.
    bool take(std::int64_t acknowledged, bool missing, Bytes64 arrived) {
        const bool advances = acknowledged > acknowledged_;
        if (advances) {
            acknowledged_ = acknowledged;
            next_ = std::max(next_, acknowledged_);
            sacked_.drop_before(acknowledged_);
            while (!ends_.empty() && ends_.front() <= acknowledged_) ends_.drop_front();
            if (is_done()) ends_ = {};  // most never send again
            if (recovering_ && acknowledged_ >= recovery_end_) {
                recovering_ = false;
                if (sacked_.end() > acknowledged_) recover();  // losses of packets that were sent in the meantime
            }
        }
        if (!missing || acknowledged < acknowledged_) return advances;
        if (repair_ == Repair::go_back) {
            next_ = acknowledged_;
        } else {
            sacked_.add(arrived);
            if (!recovering_) recover();
        }
        return advances;
    }
    void time_out() {
        if (repair_ == Repair::go_back) {
            next_ = acknowledged_;
        } else {
            recover();
        }
    }

    [[nodiscard]] std::int64_t acknowledged() const { return acknowledged_; }
    [[nodiscard]] std::int64_t in_flight() const { return next_ - acknowledged_; }
    [[nodiscard]] bool is_done() const { return acknowledged_ == total_; }

private:
    void recover() {
        recovering_ = first_repair_ = true;
        recovery_end_ = next_;
        repair_from_ = acknowledged_;
    }
    [[nodiscard]] Bytes64 packet_at(std::int64_t begin) const {
        const std::size_t message = first_place(ends_.size() - 1, [&](std::size_t at) { return ends_[at] > begin; });
        return {begin, std::min(begin + segment_bytes_, ends_[message])};
    }

    Repair repair_;
    std::int64_t segment_bytes_;
    std::int64_t total_ = 0, next_ = 0, acknowledged_ = 0;
    buffer::Ring<std::int64_t> ends_;  ///< of messages that are not acknowledged
    bool recovering_ = false, first_repair_ = false;
    std::int64_t recovery_end_ = 0, repair_from_ = 0;
    ByteSet sacked_;
};

/// The receiving end. RoCE drops what comes too early and asks once for what is missing; IRN keeps it and tells of
/// each.
class QueuePairReceiver {
public:
    explicit QueuePairReceiver(Repair repair) : repair_(repair) {}

    struct Answer {
        bool sent = true;        ///< an answer goes back
        bool missing = false;    ///< it tells that something is missing
        Bytes64 arrived;         ///< beyond what is missing; empty with RoCE
        std::int64_t fresh = 0;  ///< bytes that the application gets
    };
    Answer take(Bytes64 packet) {
        if (packet.begin > expected_) {
            if (repair_ == Repair::selective) {
                early_.add(packet);
                return {.missing = true, .arrived = packet};
            }
            return {.sent = !std::exchange(told_, true), .missing = true, .arrived = {}};
        }
        const std::int64_t before = expected_;
        if (packet.end > expected_) {
            expected_ = early_.first_missing(packet.end);
            early_.drop_before(expected_);
            told_ = false;
        }
        return {.arrived = {}, .fresh = expected_ - before};
    }
    /// The first byte that has not arrived.
    [[nodiscard]] std::int64_t expected() const { return expected_; }

private:
    Repair repair_;
    std::int64_t expected_ = 0;
    bool told_ = false;
    ByteSet early_;
};

class Stack;

/// Queue pairs of all servers, their timers, and the network cards that send for them: a card sends one packet at a
/// time at the rate of its link, and takes turns between the queue pairs that have something to send. There is no
/// handshake. A copy is its state, which can be assigned to the original.
class RdmaHosts {
public:
    RdmaHosts(const Settings& settings, Stack& stack, std::size_t connections);

    /// The end of a connection that gets the data; nobody has to close it.
    struct ReceivingEnd {
        std::int32_t number = 0;
        [[nodiscard]] std::int32_t connection() const { return number; }
        void close() {}
    };

    /// Gives bytes to send.
    void write(std::int32_t connection, std::int64_t bytes);
    /// Gets a packet at its server; `echo` is the telemetry that an answer brings back.
    void receive(const Frame& frame, const Telemetry* echo);
    /// A server's card has to stop sending to a queue, or may go on.
    void set_paused(std::int32_t server, int queue, bool paused);

    // For the stack, whose events these are.
    [[nodiscard]] Timer& timer(std::int32_t connection) { return pair(connection).timer; }
    void time_out(std::int32_t connection);
    void want_to_send(std::int32_t connection);
    /// The card of a server may send again.
    void card_is_free(std::int32_t server);

private:
    struct QueuePair {
        QueuePair(Repair repair, std::int64_t segment_bytes) : sender(repair, segment_bytes), receiver(repair) {}

        QueuePairSender sender;
        QueuePairReceiver receiver;
        Timer timer;
        SendTimes times;
        std::optional<PacedSender> law;
        std::optional<Dcqcn> dcqcn;     ///< instead of such a law
        std::int64_t highest_sent = 0;  ///< one past the last byte that was ever sent
        std::int64_t paced_until_ns = 0;
        std::int64_t may_notify_ns = 0;  ///< from then on a mark makes a notification of congestion
        bool waits_for_card = false;
        bool extended = false;  ///< the timer has run for the short time, and goes on to the long one
    };
    struct Card {
        buffer::Ring<std::int32_t> turns;  ///< of connections that have something to send
        std::vector<std::int32_t> held;    ///< connections whose turn came while their queue was paused
        std::uint8_t paused = 0;           ///< queues, one bit each
        std::int64_t free_at_ns = 0;
        bool awaited = false;
    };

    void arm(std::int32_t connection, std::int64_t delay_ns);
    void restart_timer(std::int32_t connection);
    /// What a queue pair may send now.
    [[nodiscard]] std::optional<Bytes64> ready(const QueuePair& pair) const;
    void send_from(std::int32_t server);
    void send(std::int32_t connection, Bytes64 packet);
    /// How long a queue pair waits after a packet that it sends now.
    [[nodiscard]] std::int64_t pause_ns(QueuePair& pair, std::int64_t bytes) const;
    /// A packet with a congestion mark has come: tells its sender, but not too often.
    void notify(std::int32_t connection);
    void answer(std::int32_t connection, const QueuePairReceiver::Answer& answer);
    [[nodiscard]] QueuePair& pair(std::int32_t connection) { return pairs_[static_cast<std::size_t>(connection)]; }
    [[nodiscard]] const PlannedFlow& first_flow(std::int32_t connection) const;
    [[nodiscard]] std::int32_t server_of(std::int32_t connection) const { return first_flow(connection).source; }
    /// Whether neither its packets nor the answers to them may be lost, so that it needs no timer.
    [[nodiscard]] bool cannot_lose(std::int32_t connection) const;
    /// The queue of its data at every port.
    [[nodiscard]] int queue_of(std::int32_t connection) const;

    const Settings* settings_;
    Stack* stack_;
    bool has_dcqcn_;
    bool has_headroom_;  ///< for all that may come to lossless queues
    buffer::LineRate link_;
    std::int64_t window_bytes_;
    std::vector<QueuePair> pairs_;  ///< of connections
    std::vector<Card> cards_;       ///< of servers
};

}  // namespace foretail::packets::native
