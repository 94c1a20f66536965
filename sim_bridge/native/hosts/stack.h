// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "native/balancer.h"
#include "native/hosts/frame.h"
#include "native/idle_links.h"
#include "native/linux/socket.h"
#include "native/rdma/rdma_hosts.h"
#include "native/tcp/mark_echo.h"
#include "native/tcp/socket.h"
#include "packets/network/event_queue.h"
#include "packets/settings/settings.h"
#include "packets/transport/paced_sender.h"
#include "packets/transport/telemetry.h"

namespace foretail::packets::native {

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
    [[nodiscard]] Moment next() const { return rdma_ ? std::min(events_.next(), rdma_->next()) : events_.next(); }
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
    void set_now(std::int64_t now) { now_ = now; }
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
    /// Arms a timer of the socket with this number.
    void arm(std::int32_t socket, Socket::Event event, Timer& timer, std::int64_t delay_ns);

private:
    enum class Kind : std::uint8_t {
        retransmission,
        delayed_ack,
        send_pending,
        time_wait,
        pacing,
        connect,
        send,
        accept,
        idle_link
    };
    enum class Only { kind };  // of the queue, which orders by time and number alone
    static constexpr std::size_t kind_bits = 4;

    void schedule(std::int64_t time, Kind kind, std::int32_t what) {
        events_.push(time, Only::kind, static_cast<std::size_t>(what) << kind_bits | static_cast<std::size_t>(kind),
                     order_->take());
    }
    void send(Frame* frame);
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
    void receive(const Frame& frame, std::size_t connection, std::int32_t socket);
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
    EventQueue<Only> events_;
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
    std::deque<Socket> sockets_;
    std::deque<LinuxSocket> linux_sockets_;
    std::vector<PacedSender> paced_;                 ///< of sockets, with laws of ours
    std::vector<std::int32_t> free_;                 ///< sockets
    std::vector<std::int32_t> senders_, receivers_;  ///< sockets of connections; -1: none
    std::vector<std::uint8_t> request_flags_;        ///< of the SYN of a connection that is being accepted
    std::vector<Listener> listeners_;                ///< of servers
};

}  // namespace foretail::packets::native
