// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "buffer/queues/line_rate.hpp"
#include "buffer/queues/ring.hpp"
#include "native/hosts/frame.h"
#include "native/hosts/timer.h"
#include "native/rdma/queue_pair.h"
#include "native/tcp/round_trip.h"
#include "packets/network/event_queue.h"
#include "packets/settings/settings.h"
#include "packets/traffic.h"
#include "packets/transport/dcqcn.h"
#include "packets/transport/paced_sender.h"

namespace foretail::packets::native {

class Stack;

/// Queue pairs of all servers, their timers, and the network cards that send for them: a card sends one packet at a
/// time at the rate of its link, and takes turns between the queue pairs that have something to send. There is no
/// handshake. A copy is its state, which can be assigned to the original.
class RdmaHosts {
public:
    RdmaHosts(const Settings& settings, Stack& stack, EventOrder& order, std::size_t connections);

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
    /// When the next timer ends or a card is free.
    [[nodiscard]] Moment next() const { return events_.next(); }
    /// Lets that happen. There must be something.
    void step();

private:
    enum class Kind : std::uint8_t { timeout, paced, card };
    enum class Only { kind };
    static constexpr std::size_t kind_bits = 2;

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

    void schedule(std::int64_t time, Kind kind, std::int32_t what);
    void arm(std::int32_t connection, std::int64_t delay_ns);
    void restart_timer(std::int32_t connection);
    void time_out(std::int32_t connection);
    /// What a queue pair may send now.
    [[nodiscard]] std::optional<Bytes64> ready(const QueuePair& pair) const;
    void want_to_send(std::int32_t connection);
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
    EventOrder* order_;
    bool has_dcqcn_;
    bool has_headroom_;  ///< for all that may come to lossless queues
    buffer::LineRate link_;
    std::int64_t window_bytes_;
    EventQueue<Only> events_;
    std::vector<QueuePair> pairs_;  ///< of connections
    std::vector<Card> cards_;       ///< of servers
};

}  // namespace foretail::packets::native
