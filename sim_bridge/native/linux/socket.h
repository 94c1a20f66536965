// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "native/hosts/frame.h"
#include "native/hosts/timer.h"
#include "native/linux/congestion.h"
#include "native/linux/rack.h"
#include "native/tcp/congestion/window.h"
#include "native/tcp/mark_echo.h"
#include "native/tcp/receive_buffer.h"
#include "native/tcp/round_trip.h"
#include "native/tcp/socket.h"

namespace foretail::packets::native {

class Stack;

/// One end of a TCP connection that repairs losses as Linux does: RACK and its probes of the tail (RFC 8985), timeouts
/// of RFC 6298, proportional rate reduction (RFC 6937). docs/reference/native.md has what is left out.
class LinuxSocket {
public:
    using Event = Socket::Event;

    /// Makes the socket that of a connection, at its sending or its receiving end.
    void reset(Stack& stack, const TcpSettings& settings, std::int32_t number, std::int32_t connection, bool sends,
               const std::string& control, std::uint32_t first_window_bytes);

    // The application of a sender.
    void connect();
    void write(std::uint32_t bytes);
    /// No more bytes will come. A receiving end closes when its sender has, so this means nothing to it.
    void close();

    /// Answers a SYN, at the receiving end.
    void accept(const Listener& listener, bool asks_for_ecn);
    void receive(const Frame& frame);
    void fire(Event event);

    [[nodiscard]] bool is_open() const { return is_open_; }
    [[nodiscard]] std::int32_t number() const { return number_; }
    [[nodiscard]] std::int32_t connection() const { return connection_; }
    [[nodiscard]] bool sends() const { return sends_; }
    /// Bytes of its application that are not acknowledged.
    [[nodiscard]] std::int64_t buffered_bytes() const { return written_ - unacknowledged_; }
    /// The only one.
    [[nodiscard]] Timer& timer(Event) { return timer_; }

private:
    enum class State : std::uint8_t { syn_sent, syn_received, established };
    enum class Congested : std::uint8_t { open, disorder, reduced, recovery, loss };
    enum class Due : std::uint8_t { request, timeout, probe, reordering };

    // The connection and its receiving half (connection.cc).
    void request();
    void establish(bool ecn);
    void end_if_done();
    void receive_data(const Frame& frame);
    void read_mark(const Frame& frame);
    void acknowledge();
    void emit(std::uint8_t flags, Sequence sequence, std::uint32_t payload, bool first_time);

    // The sending half (sender.cc).
    void receive_acknowledgement(const Frame& frame);
    void end_probe(const Frame& frame, const Rack::Report& report);
    Rack::Detected detect();
    void change_state(bool marked, const Rack::Detected& found);
    void enter_recovery();
    void reduce(Congested kind, std::uint32_t threshold);
    void end_reduction();
    void reduce_further(std::uint32_t delivered, bool advances, bool lost);
    void time_out();
    void probe();
    void reordering_ends();
    void send_holes();
    void send_again(std::size_t at);
    void send_pending();
    /// Sends a segment that was not sent yet; there must be one.
    void send_next();
    void restart_if_idle();
    void note_window_use();
    void restart_timer();
    bool schedule_probe(std::int64_t timeout_ns);
    void set_timer(Due due, std::int64_t delay_ns);
    /// Time until the oldest segment has waited for a timeout.
    [[nodiscard]] std::int64_t left_of_timeout_ns() const;
    [[nodiscard]] bool has_unsent() const { return !fin_sent_ && (closes_ || next_ != written_); }
    [[nodiscard]] bool is_reducing() const {
        return congested_ == Congested::reduced || congested_ == Congested::recovery;
    }

    Stack* stack_ = nullptr;
    const TcpSettings* settings_ = nullptr;
    std::int32_t number_ = 0, connection_ = 0;
    bool sends_ = false;    ///< the end that opened the connection
    bool is_open_ = false;  ///< packets still reach it
    State state_ = State::syn_sent;
    bool is_dctcp_ = false;
    bool ecn_ = false;  ///< both ends agreed on it

    // Sending: numbers from `unacknowledged_` to `next_` are in flight.
    Congested congested_ = Congested::open;
    Due due_ = Due::request;
    Window window_;  ///< in segments, but for its sequence numbers
    LinuxCongestion congestion_;
    Rack rack_;
    RoundTripTime rtt_;
    std::int64_t rto_ns_ = 0, request_ns_ = 0;
    std::int64_t last_sent_ns_ = 0;
    Sequence unacknowledged_ = 0, next_ = 0, written_ = 0;
    std::uint32_t peer_window_bytes_ = 0, first_window_ = 0;
    bool closes_ = false, fin_sent_ = false;
    int tries_ = 0;                                               ///< of the SYN, or timeouts without progress
    Sequence recovery_point_ = 0;                                 ///< what was not sent when the window was reduced
    std::uint32_t window_before_ = 0, delivered_ = 0, sent_ = 0;  ///< of a reduction, in segments
    bool tells_of_reduction_ = false;
    Sequence probed_ = 0;  ///< what was not sent when the tail was
    bool probes_ = false, probe_is_new_ = false;
    std::uint32_t most_in_flight_ = 0;  ///< of the window whose use is noted
    Sequence use_noted_to_ = 0;
    bool was_limited_ = false;

    // Receiving.
    ReceiveBuffer received_;
    bool peer_closes_ = false;
    Sequence peer_end_ = 0;  ///< behind its FIN
    bool echoes_ = false;
    Timer timer_;
};

}  // namespace foretail::packets::native
