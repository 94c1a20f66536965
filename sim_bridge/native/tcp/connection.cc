// SPDX-License-Identifier: MIT
#include <cstdint>
#include <string>

#include "native/hosts/flows.h"
#include "native/hosts/stack.h"
#include "native/tcp/socket.h"

namespace foretail::packets::native {

namespace {

constexpr std::uint32_t unscaled_window_bytes = 65535;
constexpr std::int64_t delayed_ack_ns = 200'000, segment_lifetime_ns = 1'000'000;

}  // namespace

void Socket::reset(Stack& stack, const TcpSettings& settings, std::int32_t number, std::int32_t connection, bool sends,
                   const std::string& control, std::uint32_t first_window_bytes) {
    SendBuffer sent = std::move(sent_);  // their memory stays
    ReceiveBuffer received = std::move(received_);
    SendTimes times = std::move(times_);
    const auto timers = timers_;
    *this = Socket();
    sent_ = std::move(sent);
    received_ = std::move(received);
    times_ = std::move(times);
    timers_ = timers;
    for (Timer& one : timers_) one.cancel();
    stack_ = &stack;
    settings_ = &settings;
    number_ = number;
    connection_ = connection;
    sends_ = sends;
    has_endpoint_ = true;
    first_window_bytes_ = first_window_bytes;
    window_.segment_bytes = settings.segment_bytes;
    congestion_ = Congestion(control, stack.now());
    marks_all_ = control == "dctcp";
    echo_ = MarkEcho(marks_all_);
    sent_.reset(settings.segment_bytes);
    received_.reset(0);
    received_.set_window(settings.window_bytes);
    times_.clear();
}

void Socket::connect() {
    state_ = State::syn_sent;
    send_empty(settings_->ecn ? syn | ece | cwr : syn);
}

void Socket::accept(const Listener& listener, bool asks_for_ecn) {
    echo_ = listener.echo;
    window_.ecn = listener.ecn;
    state_ = State::syn_received;
    received_.reset(1);
    answer_request(asks_for_ecn);
}

void Socket::answer_request(bool asks_for_ecn) {
    const bool ecn = settings_->ecn && asks_for_ecn;
    send_empty(ecn ? syn | ack | ece : syn | ack);
    window_.ecn = ecn ? Ecn::idle : Ecn::disabled;
}

void Socket::close() {
    if (received_.has_gap()) return abort();
    if (sent_.bytes_from(window_.next) > 0) {
        closes_when_empty_ = true;
        return;
    }
    if (state_ == State::syn_received || state_ == State::established) {
        send_empty(fin);
        state_ = State::fin_wait_1;
    } else if (state_ == State::close_wait) {
        send_empty(fin | ack);
        state_ = State::last_ack;
    } else if (state_ == State::syn_sent || state_ == State::closing) {
        abort();
    }
}

void Socket::abort() {
    send_empty(rst);
    forget();
}

void Socket::end() {
    state_ = State::closed;
    forget();
}

void Socket::forget() {
    has_endpoint_ = false;
    for (Timer& one : timers_) one.cancel();
}

void Socket::fire(Event event) {
    if (event == Event::retransmission) {
        repeated_flags_ != 0 ? send_empty(repeated_flags_) : time_out();
    } else if (event == Event::send_pending || event == Event::pacing) {
        begin_to_send();
    } else if (event == Event::time_wait) {
        end();
    } else {
        unacknowledged_segments_ = 0;
        echo_.acknowledged(true);
        acknowledge_data();
    }
}

bool Socket::is_out_of_range(Sequence head, Sequence tail) const {
    if (state_ == State::syn_sent || state_ == State::syn_received) return false;
    if (state_ == State::last_ack || state_ == State::closing || state_ == State::close_wait)
        return received_.next() != head;
    return before(tail, received_.next()) || !before(head, received_.limit());
}

void Socket::receive(const Frame& frame) {
    if (frame.priority > 0) return receive_low(frame);
    if (frame.payload > 0 && is_out_of_range(frame.sequence, frame.sequence + frame.payload)) return send_empty(ack);
    echo_.read(frame, received_.next(), window_.ecn, [&](bool echoes, Sequence previous) {
        const Sequence next = received_.next();
        received_.set_next(previous);
        send_empty(echoes ? ack | ece : ack);
        received_.set_next(next);
    });
    if (state_ == State::established && !frame.has(rst) && frame.has(cwr) && window_.ecn != Ecn::marked)
        window_.ecn = Ecn::idle;
    take_header(frame);
    const std::uint8_t flags = frame.flags & (fin | syn | rst | ack);
    switch (state_) {
        case State::established: return receive_established(frame, flags);
        case State::syn_sent: return receive_in_syn_sent(frame, flags);
        case State::syn_received: return receive_in_syn_received(frame, flags);
        case State::fin_wait_1:
        case State::fin_wait_2:
        case State::close_wait: return receive_in_wait(frame, flags);
        case State::closing: return receive_in_closing(frame, flags);
        case State::last_ack: return receive_in_last_ack(frame, flags);
        case State::closed:
        case State::time_wait: return;
    }
}

void Socket::take_header(const Frame& frame) {
    if (!frame.has(syn | ack)) return;
    if (frame.has(syn)) {
        peer_window_bytes_ = unscaled_window_bytes;
        window_.bytes = first_window_bytes_;
        window_.slow_start_bytes = settings_->slow_start ? ~std::uint32_t{0} : settings_->segment_bytes;
        if (!frame.has(ack)) return;
        highest_acknowledged_ = frame.acknowledged;
    }
    const SendTimes::Sample sample = times_.acknowledge(frame.acknowledged, stack_->now());
    if (sample.oldest_ns > 0) {
        rtt_.measure(sample.oldest_ns);
        if (PacedSender* paced = sends_ ? stack_->paced(*this) : nullptr) paced->sampled(sample.newest_ns);
        set_rto(rtt_.timeout_ns(settings_->min_rto_ns));
    }
    if (frame.has(syn)) return;
    peer_window_bytes_ = settings_->window_bytes;
    highest_acknowledged_ = later(highest_acknowledged_, frame.acknowledged);
}

void Socket::establish() {
    congested_ = Congested::open;
    state_ = State::established;
    cancel(Event::retransmission);
    window_.highest = ++window_.next;
    sent_.set_head(window_.next);
    // The first data packet is acknowledged at once.
    unacknowledged_segments_ = settings_->delayed_ack_segments;
}

void Socket::receive_in_syn_sent(const Frame& frame, std::uint8_t flags) {
    if (flags == (syn | ack) && frame.acknowledged == window_.next + 1) {
        received_.reset(frame.sequence + 1);
        establish();
        window_.ecn = settings_->ecn && frame.has(ece) ? Ecn::idle : Ecn::disabled;
        send_empty(ack);
        begin_to_send();
        unacknowledged_segments_ = settings_->delayed_ack_segments;
    } else if (flags != 0 && flags != ack && flags != syn) {
        if (flags != rst) abort();
        end();
    }
}

void Socket::receive_in_syn_received(const Frame& frame, std::uint8_t flags) {
    if (flags == 0 || (flags == ack && frame.acknowledged == window_.next + 1)) {
        establish();
        receive_acknowledgement(frame);
    } else if (flags == syn) {
        received_.set_next(frame.sequence + 1);
        answer_request(frame.has(ece));
    } else if (flags == (fin | ack)) {
        if (frame.sequence != received_.next()) return;
        cancel(Event::retransmission);
        window_.highest = ++window_.next;
        sent_.set_head(window_.next);
        peer_closes(frame);
    } else {
        if (flags != rst) abort();
        end();
    }
}

void Socket::receive_established(const Frame& frame, std::uint8_t flags) {
    if (flags == ack) {
        receive_acknowledgement(frame);
    } else if (flags == fin || flags == (fin | ack)) {
        peer_closes(frame);
    } else if (flags == 0) {
        receive_data(frame);
        if (received_.finished()) peer_closes(frame);
    } else if (!frame.has(syn)) {
        if (flags != rst) abort();
        end();
    }
}

void Socket::receive_in_wait(const Frame& frame, std::uint8_t flags) {
    if (frame.payload > 0 && !frame.has(ack)) {
        receive_data(frame);
    } else if (flags == ack) {
        receive_acknowledgement(frame);
        if (state_ == State::fin_wait_1 && sent_.size() == 0 && frame.acknowledged == window_.highest + 1) {
            state_ = State::fin_wait_2;
            cancel(Event::retransmission);
        }
    } else if (flags == fin || flags == (fin | ack)) {
        if (frame.has(ack)) receive_acknowledgement(frame);
        received_.expect_fin(frame.sequence);
    } else if (flags == syn || flags == (syn | ack)) {
        return;
    } else {
        if (flags != rst) abort();
        return end();
    }
    if ((state_ != State::fin_wait_1 && state_ != State::fin_wait_2) || !received_.finished()) return;
    if (state_ == State::fin_wait_2) {
        wait_for_stragglers();
    } else {
        state_ = State::closing;
        if (sent_.size() == 0 && frame.acknowledged == window_.highest + 1) wait_for_stragglers();
    }
    send_empty(ack);
}

void Socket::receive_in_closing(const Frame& frame, std::uint8_t flags) {
    if (flags == ack) {
        if (frame.sequence == received_.next()) wait_for_stragglers();
        return;
    }
    if (flags == fin || flags == (fin | ack)) {
        send_empty(ack);
    } else if (flags != rst) {
        abort();
    }
    end();
}

void Socket::receive_in_last_ack(const Frame& frame, std::uint8_t flags) {
    if (flags == 0) {
        receive_data(frame);
    } else if (flags == ack) {
        if (frame.sequence == received_.next()) end();
    } else if (flags == fin) {
        send_empty(fin | ack);
    } else {
        if (flags != (fin | ack) && flags != rst) abort();
        end();
    }
}

void Socket::wait_for_stragglers() {
    state_ = State::time_wait;
    for (Timer& one : timers_) one.cancel();
    arm(Event::time_wait, 2 * segment_lifetime_ns);
}

void Socket::peer_closes(const Frame& frame) {
    if (before(frame.sequence, received_.next()) || before(received_.limit(), frame.sequence)) return;
    received_.expect_fin(frame.sequence + frame.payload);
    if (frame.payload > 0) receive_data(frame);
    if (!received_.finished()) return;
    if (state_ == State::fin_wait_1) {
        state_ = State::closing;
        return;
    }
    answer_close();
}

void Socket::answer_close() {
    state_ = State::close_wait;
    send_empty(ack);
}

void Socket::receive_data(const Frame& frame) {
    const Sequence expected = received_.next();
    if (!received_.add(frame.sequence, frame.payload)) return acknowledge_data();
    if (before(expected, received_.next()) && deliver_from(expected) && !frame.has(fin)) return answer_close();
    const bool at_once = received_.has_gap_of_tcp() || before(expected + frame.payload, received_.next());
    if (!at_once && ++unacknowledged_segments_ < settings_->delayed_ack_segments) {
        echo_.acknowledged(true);
        if (!timer(Event::delayed_ack).is_pending()) arm(Event::delayed_ack, delayed_ack_ns);
        return;
    }
    echo_.acknowledged(false);
    acknowledge_data();
}

bool Socket::deliver_from(Sequence expected) {
    // A FIN counts as no byte of the application.
    const std::uint32_t bytes = received_.next() - expected - (received_.finished() ? 1 : 0);
    stack_->flows().receive(*this, bytes);
    return received_.finished();
}

void Socket::acknowledge_data() {
    const bool echoes = window_.ecn == Ecn::marked || window_.ecn == Ecn::echoing;
    send_empty(echoes ? ack | ece : ack);
    if (echoes) window_.ecn = Ecn::echoing;
}

}  // namespace foretail::packets::native
