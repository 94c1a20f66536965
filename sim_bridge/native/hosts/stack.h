// SPDX-License-Identifier: MIT
// The hosts of the native network: flows, idle links for RC3, and the stack with all connections.
#pragma once

#include "native/balancer.h"
#include "native/linux/socket.h"
#include "native/rdma/rdma_hosts.h"
#include "packets/records/flow_ledger.h"

namespace foretail::packets::native {

class Stack;

/// Sends the planned flows over the native hosts. A copy is their state, which can be assigned to the original.
class Flows {
public:
    Flows(const Settings& settings, std::vector<PlannedFlow> plan)
        : settings_(&settings), ledger_(settings, std::move(plan)) {}

    /// Schedules all connections.
    void install(Stack& stack);
    /// It is time to open a connection.
    void connect(std::size_t connection);
    /// It is time to send a flow.
    void send(std::size_t flow);

    /// A sender has room for more bytes: gives it those of a flow that is longer than what TCP takes at once.
    void has_room(std::int32_t connection) {
        if (!unwritten_bytes_.empty()) write_more(static_cast<std::size_t>(connection));
    }
    /// A receiving end has bytes for its application, which may close it.
    template <class End>
    void receive(End& end, std::int64_t bytes);
    void classify(Frame& frame) {
        ledger_.classify(frame, static_cast<std::size_t>(frame.connection),
                         {.answer = frame.answer,
                          .syn = frame.has(syn),
                          .low = frame.priority > 0,
                          .sequence = frame.sequence,
                          .acknowledged = frame.acknowledged,
                          .payload = frame.payload});
    }
    void count_timeout(std::int32_t connection, Sequence oldest) {
        ledger_.count_timeout(static_cast<std::size_t>(connection), oldest);
    }
    [[nodiscard]] FlowLedger& ledger() { return ledger_; }
    [[nodiscard]] const FlowLedger& ledger() const { return ledger_; }

private:
    void write_more(std::size_t connection);
    void close_if_all_sent(std::size_t connection);

    const Settings* settings_;
    FlowLedger ledger_;
    std::vector<std::int64_t> unwritten_bytes_;  ///< of connections; none where no flow is so long
    Stack* stack_ = nullptr;
};

/// What servers send while TCP leaves their links idle: with RC3 answers to packets of low priorities, and the tails of
/// flows. The lowest priority number goes first; of the same, answers before tails, and tails by their age.
class IdleLinks {
public:
    explicit IdleLinks(const Settings& settings)
        : rate_(buffer::LineRate::from_bps(settings.topology.server_link_bps, settings.topology.wire_overhead_bytes)),
          links_(static_cast<std::size_t>(settings.topology.servers())) {}

    /// A server puts a packet on its link.
    void sent(const Frame& frame, std::int64_t now) {
        std::int64_t& free_ns = link(frame.source).free_ns;
        free_ns = std::max(free_ns, now) + rate_.duration(frame.size_bytes);
    }
    [[nodiscard]] std::int64_t free_ns(std::int32_t server) { return link(server).free_ns; }
    void hold(Frame* answer) { link(answer->source).answers[answer->priority].push_back(answer); }
    void add_tail(std::int32_t server, std::int32_t connection) { link(server).tails.push_back(connection); }
    /// Whether nobody waits yet for the link to be idle; from then on somebody does.
    bool begins_to_wait(std::int32_t server) { return !std::exchange(link(server).awaited, true); }
    void end_wait(std::int32_t server) { link(server).awaited = false; }

    /// A link is idle. `priority_of(connection)` is what the next packet of a tail has, 0 when the tail has ended; one
    /// of `send(answer)` and `send_tail(connection)` is called if anything waits. Returns whether it did.
    template <class PriorityOf, class Send, class SendTail>
    bool use(std::int32_t server, PriorityOf&& priority_of, Send&& send, SendTail&& send_tail) {
        Link& idle = link(server);
        std::size_t best = most_queues;
        std::int32_t tail = -1;
        std::erase_if(idle.tails, [&](std::int32_t connection) {
            const std::size_t priority = priority_of(connection);
            if (priority > 0 && priority < best) {
                best = priority;
                tail = connection;
            }
            return priority == 0;
        });
        for (std::size_t priority = 1; priority <= best && priority < most_queues; ++priority) {
            if (idle.answers[priority].empty()) continue;
            send(idle.answers[priority].pop_front());
            return true;
        }
        if (tail >= 0) send_tail(tail);
        return tail >= 0;
    }

private:
    static constexpr std::size_t most_queues = 8;
    struct Link {
        std::int64_t free_ns = 0;
        bool awaited = false;
        std::array<buffer::Ring<Frame*>, most_queues> answers;  ///< by priority
        std::vector<std::int32_t> tails;                        ///< connections
    };
    [[nodiscard]] Link& link(std::int32_t server) { return links_[static_cast<std::size_t>(server)]; }

    buffer::LineRate rate_;
    std::vector<Link> links_;  ///< of servers
};

class Flows;

/// TCP and RDMA of all servers: sockets, their timers, what they send, and queue pairs. A copy is its state, which can
/// be assigned to the original.
class Stack {
public:
    struct Outgoing {
        Frame* frame = nullptr;
        std::uint64_t order = 0;  ///< of its arrival among events at the same time
    };

    /// `telemetry`: that of frames; none where no switch writes it.
    Stack(const Settings& settings, Flows& flows, Frames& frames, EventOrder& order, FrameTelemetry* telemetry);

    /// Gets a packet at its server.
    void receive(const Frame& frame, std::int64_t now);
    /// When the next timer ends or the next flow begins.
    [[nodiscard]] Moment next() const { return events_.next(); }
    /// Lets that happen. There must be something.
    void step();
    /// What was sent since the last call, in order; the caller takes it away.
    [[nodiscard]] std::vector<Outgoing>& outgoing() { return outgoing_; }

    /// A server has to stop sending to a queue, or may go on. Only cards that send by RDMA know; what TCP sends waits
    /// in the server's interface.
    void set_paused(std::int32_t server, int queue, bool paused, std::int64_t now) {
        now_ = now;
        if (rdma_) rdma_->set_paused(server, queue, paused);
    }

    // For flows.
    void connect_at(std::int64_t time, std::int32_t connection) { schedule(time, Kind::connect, connection); }
    void send_at(std::int64_t time, std::int32_t flow) { schedule(time, Kind::send, flow); }
    void open(std::int32_t connection, const std::string& control, std::uint32_t first_window_bytes);
    /// The sender of a connection gets bytes to send.
    void write(std::int32_t connection, std::uint32_t bytes);
    /// What it has got and the other end has not acknowledged; nothing without TCP, which takes all at once.
    [[nodiscard]] std::int64_t buffered_bytes(std::int32_t connection);
    /// It will get no more.
    void close(std::int32_t connection);
    [[nodiscard]] std::int64_t now() const { return now_; }

    // For sockets and queue pairs.
    [[nodiscard]] Flows& flows() { return *flows_; }
    /// The law of a socket that sends; none with a congestion control of TCP.
    [[nodiscard]] PacedSender* paced(const Socket& socket) {
        return paced_.empty() ? nullptr : &paced_[static_cast<std::size_t>(socket.number())];
    }
    /// What they say of a packet.
    struct Header {
        std::int32_t connection = 0;
        bool answer = false;
        std::uint8_t flags = 0;
        std::uint32_t payload = 0;
        Sequence sequence = 0, acknowledged = 0;
        bool ecn_capable = false;
        std::uint8_t priority = 0;  ///< of RC3
    };
    /// Sends a packet; one without data acknowledges the blocks too.
    void send(const Header& header, std::span<const Range> blocks);
    /// The tail of what a connection sends waits for the link of its server to be idle.
    void fill_idle_link(std::int32_t connection);
    /// What happens at a moment: timers of sockets, as Socket::Event has them, that of a queue pair, and all else.
    enum class Kind : std::uint8_t {
        retransmission,
        delayed_ack,
        send_pending,
        time_wait,
        pacing,
        rdma_timeout,
        rdma_paced,
        rdma_card,
        connect,
        send,
        accept,
        idle_link
    };
    void schedule(std::int64_t time, Kind kind, std::int32_t what) {
        events_.push(
            {{time, order_->take()}, static_cast<std::size_t>(what) << kind_bits | static_cast<std::size_t>(kind)});
    }
    /// Arms a timer of the socket or the queue pair with this number.
    void arm(std::int32_t number, Kind kind, Timer& timer, std::int64_t delay_ns);

private:
    static constexpr std::size_t kind_bits = 4;

    /// Whether a timer fires at an event of its own, whose time is now from then on.
    bool fires(Timer& timer, const Event& event);
    [[gnu::always_inline]] inline void send(Frame* frame);
    // With RC3: an answer of low priority waits for the link to be idle, and all else goes on it at once.
    [[gnu::noinline]] void send_by_priority(Frame* frame);
    void put_on_link(Frame* frame);
    void await_idle_link(std::int32_t server);
    void use_idle_link(std::int32_t server);
    /// Puts a packet on the way that the balancer chooses, or an answer on that of its packet.
    void balance(Frame& frame);
    /// Lets `use` have the socket with a number, of the kind that the settings choose.
    template <class Use>
    decltype(auto) with_socket(std::size_t number, Use&& use) {
        return as_linux_ ? use(linux_sockets_[number]) : use(sockets_[number]);
    }
    [[nodiscard]] std::size_t sender(std::int32_t connection) const;
    /// The hosts that send a connection by RDMA, such as those of all background flows; none where TCP sends it.
    [[nodiscard]] RdmaHosts* rdma_of(std::size_t connection);
    [[gnu::always_inline]] inline void receive(const Frame& frame, std::size_t connection, std::int32_t socket);
    std::int32_t make_socket();
    void receive_at_listener(const Frame& frame);
    void accept(std::int32_t connection);
    void refuse(const Frame& frame);
    /// Takes back the socket of an end that no packet reaches any more.
    template <class Any>
    void release_if_closed(Any& socket);

    const Settings* settings_;
    TcpSettings tcp_;
    Flows* flows_;
    Frames* frames_;
    EventOrder* order_;
    EventQueue events_;
    FrameTelemetry* telemetry_;
    std::array<std::uint8_t, 3> queue_of_;  ///< of a port, by FlowClass
    std::int32_t echo_ = -1;  ///< the data packet that TCP handles now, whose telemetry is for what it sends in answer
    std::optional<Balancer> balancer_;  ///< none where flows are hashed to their ways
    const Frame* answered_ = nullptr;   ///< the data packet that is received now, which answers follow back
    std::vector<Outgoing> outgoing_;
    std::int64_t now_ = 0;

    std::optional<IdleLinks> idle_links_;  ///< with RC3
    std::optional<RdmaHosts> rdma_;
    bool as_linux_;  ///< which of these are used
    std::vector<Socket> sockets_;
    std::vector<LinuxSocket> linux_sockets_;
    std::vector<PacedSender> paced_;                 ///< of sockets, with laws of ours
    std::vector<std::int32_t> free_;                 ///< sockets
    std::vector<std::int32_t> senders_, receivers_;  ///< sockets of connections; -1: none
    std::vector<std::uint8_t> request_flags_;        ///< of the SYN of a connection that is being accepted
    std::vector<Listener> listeners_;                ///< of servers
};

}  // namespace foretail::packets::native
