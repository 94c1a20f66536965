// SPDX-License-Identifier: MIT
// A socket that sends what ns-3's TCP sends, with RC3's second loop beside it.
#pragma once

#include "native/tcp/send_buffer.h"
#include "native/tcp/shared.h"
#include "packets/congestion_control.h"

namespace foretail::packets::native {

/// The second loop of RC3 (Mittal's thesis, section 2.1.1): sends what its connection was given from the last segment
/// backward, each segment once, until it comes to what TCP has sent. It knows no window, and reacts to nothing.
class SecondLoop {
public:
    static constexpr std::uint32_t most_bytes = std::uint32_t{1} << 30;  ///< the largest window of RFC 7323

    struct Packet {
        Sequence begin = 0;
        std::uint32_t size = 0;
        std::uint8_t priority = 0;
    };

    [[nodiscard]] bool has_begun() const { return has_begun_; }
    void begin(Sequence first, std::uint32_t bytes) {
        has_begun_ = true;
        first_ = first;
        end_ = tail_ = first + bytes;
    }
    /// What it would send next; none when it has come to `unsent`, one past the last byte that TCP has sent. `edges`:
    /// the segments from the end up to which priorities 1, 2, ... go. The last priority has all that are farther.
    [[nodiscard]] std::optional<Packet> next(Sequence unsent, std::uint32_t segment_bytes,
                                             const std::vector<std::int64_t>& edges) const {
        if (tail_ == first_) return {};
        const std::uint32_t before_it = (tail_ - first_ - 1) / segment_bytes;
        const Sequence begin = first_ + before_it * segment_bytes;
        if (before(begin, unsent)) return {};
        const std::uint32_t segments = (end_ - first_ - 1) / segment_bytes + 1;
        const auto edge = std::ranges::lower_bound(edges.begin(), edges.end() - 1, segments - before_it);
        return Packet{begin, tail_ - begin, static_cast<std::uint8_t>(edge - edges.begin() + 1)};
    }
    void sent(const Packet& packet) { tail_ = packet.begin; }

private:
    bool has_begun_ = false;
    Sequence first_ = 0, end_ = 0;
    Sequence tail_ = 0;  ///< all from here on was sent
};

class Stack;

/// What all connections have in common.
struct TcpSettings {
    std::uint32_t segment_bytes = 0;
    std::int64_t min_rto_ns = 0;
    int delayed_ack_segments = 1;
    bool slow_start = false;
    std::int64_t reordering_window_ns = -1;  ///< of RACK, in Linux's sockets; -1: as Linux has it
    bool ecn = false;
    std::uint32_t window_bytes = ReceiveBuffer::window_bytes;  ///< of receivers
    std::vector<std::int64_t> rc3_edges;  ///< segments from a flow's end up to which priorities 1, 2, ... go
};

/// One end of a TCP connection: RFC 9293, with the losses of RFC 6675, timers of RFC 6298 and ECN of RFC 3168. It
/// sends what ns-3 3.44 sends in its place; docs/reference/native.md has where that differs from the RFCs.
class Socket {
public:
    enum class State : std::uint8_t {
        closed,
        syn_sent,
        syn_received,
        established,
        close_wait,
        last_ack,
        fin_wait_1,
        fin_wait_2,
        closing,
        time_wait
    };
    enum class Event : std::uint8_t { retransmission, delayed_ack, send_pending, time_wait, pacing };

    /// Makes the socket that of a connection, at its sending or its receiving end.
    void reset(Stack& stack, const TcpSettings& settings, std::int32_t number, std::int32_t connection, bool sends,
               const std::string& control, std::uint32_t first_window_bytes);

    // The application of a sender.
    void connect();
    /// Gives bytes to send; throws std::runtime_error where the connection is gone.
    void write(std::uint32_t bytes);
    void close();

    /// Answers a SYN, at the receiving end.
    void accept(const Listener& listener, bool asks_for_ecn);
    void receive(const Frame& frame);
    void fire(Event event);

    [[nodiscard]] bool is_open() const { return has_endpoint_; }
    [[nodiscard]] std::int32_t number() const { return number_; }
    [[nodiscard]] std::int32_t connection() const { return connection_; }
    [[nodiscard]] bool sends() const { return sends_; }
    /// Bytes of its application that are not acknowledged.
    [[nodiscard]] std::int64_t buffered_bytes() const { return sent_.size(); }
    [[nodiscard]] Timer& timer(Event event) { return timers_[static_cast<std::size_t>(event)]; }

    // The second loop of RC3.
    /// What it would send next; none when it has ended.
    [[nodiscard]] std::optional<SecondLoop::Packet> next_of_tail() const;
    void send_tail();

private:
    // By state of the connection.
    void receive_in_syn_sent(const Frame& frame, std::uint8_t flags);
    void receive_in_syn_received(const Frame& frame, std::uint8_t flags);
    void receive_established(const Frame& frame, std::uint8_t flags);
    void receive_in_wait(const Frame& frame, std::uint8_t flags);
    void receive_in_closing(const Frame& frame, std::uint8_t flags);
    void receive_in_last_ack(const Frame& frame, std::uint8_t flags);
    void answer_request(bool asks_for_ecn);
    void establish();
    [[gnu::always_inline]] inline void take_header(const Frame& frame);
    [[nodiscard]] bool is_out_of_range(Sequence head, Sequence tail) const;
    void peer_closes(const Frame& frame);
    void answer_close();
    void wait_for_stragglers();
    /// Tells the peer that the connection is gone.
    void abort();
    void end();
    void forget();

    // Data at the receiving end.
    void receive_data(const Frame& frame);
    /// Hands on what has come in order since `expected` was next; returns whether all up to the FIN has.
    bool deliver_from(Sequence expected);
    void acknowledge_data();

    // Low priorities.
    [[nodiscard]] bool has_second_loop() const { return !settings_->rc3_edges.empty(); }
    void begin_to_send();
    void receive_low(const Frame& frame);
    /// Sends the FIN when all else was sent, or has come at a low priority.
    void close_when_known();

    // Acknowledgements at the sending end.
    void receive_acknowledgement(const Frame& frame);
    [[gnu::always_inline]] inline bool advance(const Frame& frame);
    [[gnu::always_inline]] inline void read_echo(const Frame& frame, bool advances, std::uint32_t delivered);
    [[gnu::always_inline]] inline void process_acknowledgement(Sequence acknowledged, bool any_sacked,
                                                               std::uint32_t delivered, Sequence old_head);
    void acknowledge_partially(Sequence acknowledged, std::uint32_t segments, std::uint32_t delivered);
    [[gnu::always_inline]] inline void acknowledge_fully(Sequence acknowledged, std::uint32_t segments,
                                                         std::uint32_t duplicates, bool duplicate, Sequence old_head);
    void duplicate_acknowledgement(std::uint32_t delivered);
    void enter_recovery(std::uint32_t delivered);
    void reduce_for_mark(std::uint32_t delivered);
    void new_acknowledgement(Sequence acknowledged, bool restarts_timer);
    void time_out();

    // Sending.
    void send_empty(std::uint8_t flags);
    /// Those of a segment that is sent now, and what they change here.
    [[gnu::always_inline]] inline std::uint8_t flags_of(Sequence sequence, const SendBuffer::Sent& sent);
    std::uint32_t send_segment(Sequence sequence, std::uint32_t most_bytes);
    void send_pending();
    void send_again();
    bool open_a_segment();
    /// Takes the window that the law of a paced sender has set.
    void take_window(const PacedSender& paced) { window_.bytes = paced.window_bytes(); }
    /// Keeps the next segment back until these bytes would have been sent at the rate of the law.
    void pace(const PacedSender& paced, std::uint32_t bytes);
    void emit(std::uint8_t flags, Sequence sequence, std::uint32_t payload, bool ecn_capable,
              std::uint8_t priority = 0);
    std::uint32_t in_flight() { return window_.in_flight = sent_.in_flight(); }
    [[nodiscard]] std::uint32_t available_window();
    void set_rto(std::int64_t rto_ns);
    void arm(Event event, std::int64_t delay_ns);
    void cancel(Event event) { timer(event).cancel(); }

    enum class Congested : std::uint8_t { open, disorder, reduced, recovery, loss };

    Stack* stack_ = nullptr;
    const TcpSettings* settings_ = nullptr;
    std::int32_t number_ = 0, connection_ = 0;
    bool sends_ = false;         ///< the end that opened the connection
    bool has_endpoint_ = false;  ///< packets still reach it
    State state_ = State::closed;
    Congested congested_ = Congested::open;
    std::uint32_t first_window_bytes_ = 0;
    bool marks_all_ = false;  ///< DCTCP: every packet may be marked, not only new data

    Window window_;
    Congestion congestion_;
    RateReduction reduction_;
    SendBuffer sent_;
    SecondLoop tail_;
    ReceiveBuffer received_;
    SendTimes times_;
    RoundTripTime rtt_;
    MarkEcho echo_;
    std::int64_t rto_ns_ = 0;
    std::uint8_t repeated_flags_ = 0;  ///< what the retransmission timer sends; 0: data
    int syn_tries_ = 0, data_tries_ = 0;

    std::uint32_t peer_window_bytes_ = 0;
    Sequence highest_acknowledged_ = 0;  ///< by the peer
    Sequence recovery_point_ = 0;
    bool recovery_point_counts_ = false;
    bool first_partial_ = true;  ///< the next partial acknowledgement is the first of its recovery
    bool repeated_data_arrived_ = false;
    bool closes_when_empty_ = false;
    std::uint32_t duplicates_ = 0;
    std::uint32_t remainder_bytes_ = 0;  ///< acknowledged, and not yet counted as a segment
    Sequence echoed_ = 0, answered_echo_ = 0;
    int unacknowledged_segments_ = 0;  ///< at the receiving end
    std::array<Timer, 5> timers_;
};

}  // namespace foretail::packets::native
