// SPDX-License-Identifier: MIT
#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "native/hosts/flows.h"
#include "native/hosts/stack.h"
#include "native/tcp/socket.h"

namespace foretail::packets::native {

void Socket::arm(Event event, std::int64_t delay_ns) { stack_->arm(number_, event, timer(event), delay_ns); }

void Socket::set_rto(std::int64_t rto_ns) {
    const std::int64_t before_ns = std::exchange(rto_ns_, rto_ns);
    if (sends_ && before_ns > 0 && rto_ns == 2 * before_ns) stack_->flows().count_timeout(connection_, sent_.head());
}

void Socket::emit(std::uint8_t flags, Sequence sequence, std::uint32_t payload, bool ecn_capable,
                  std::uint8_t priority) {
    const Stack::Header header{.connection = connection_,
                               .answer = !sends_,
                               .flags = flags,
                               .payload = payload,
                               .sequence = sequence,
                               .acknowledged = received_.next(),
                               .ecn_capable = ecn_capable,
                               .priority = priority};
    stack_->send(header, received_.blocks(priority > 0));
}

void Socket::send_empty(std::uint8_t flags) {
    if (!has_endpoint_) return;
    Sequence sequence = window_.next;
    if ((flags & fin) != 0) {
        flags |= ack;
    } else if (state_ == State::fin_wait_1 || state_ == State::last_ack || state_ == State::closing) {
        ++sequence;
    }
    set_rto(rtt_.timeout_ns(settings_->min_rto_ns));
    if ((flags & syn) != 0) {
        constexpr int most_tries = 6;
        if (syn_tries_ == most_tries) {
            end();
            return;
        }
        if (syn_tries_ == 0) times_.sent(sequence, 0, stack_->now());
        set_rto(settings_->min_rto_ns << syn_tries_++);
    }
    if ((flags & ack) != 0) {
        cancel(Event::delayed_ack);
        unacknowledged_segments_ = 0;
    }
    emit(flags, sequence, 0, settings_->ecn && marks_all_);
    if (timer(Event::retransmission).is_pending() || (flags & (syn | fin)) == 0) return;
    repeated_flags_ = flags;
    arm(Event::retransmission, rto_ns_);
}

std::uint8_t Socket::flags_of(Sequence sequence, const SendBuffer::Sent& sent) {
    std::uint8_t flags = ack;
    if (window_.ecn == Ecn::echo_received && before(answered_echo_, echoed_) && !sent.again) {
        flags |= cwr;
        answered_echo_ = sequence;
        window_.ecn = Ecn::reduced;
    }
    if (closes_when_empty_ && sent_.bytes_from(sequence + sent.size) == 0) {
        flags |= fin;
        if (state_ == State::established) {
            state_ = State::fin_wait_1;
        } else if (state_ == State::close_wait) {
            state_ = State::last_ack;
        }
    }
    return flags;
}

std::uint32_t Socket::send_segment(Sequence sequence, std::uint32_t most_bytes) {
    PacedSender* const paced = stack_->paced(*this);
    if (in_flight() == 0 && paced) take_window(*paced);
    const SendBuffer::Sent sent = sent_.send(sequence, most_bytes);
    if (paced && !timer(Event::pacing).is_pending()) pace(*paced, sent.size);
    cancel(Event::delayed_ack);
    unacknowledged_segments_ = 0;
    const std::uint8_t flags = flags_of(sequence, sent);
    const bool ecn_capable = settings_->ecn && (marks_all_ || (window_.ecn != Ecn::disabled && !sent.again));
    if (!timer(Event::retransmission).is_pending()) {
        repeated_flags_ = 0;
        arm(Event::retransmission, rto_ns_);
    }
    emit(flags, sequence, sent.size, ecn_capable);
    if (sent.again) {
        times_.sent_again(sequence, sent.size);
    } else {
        times_.sent(sequence, sent.size, stack_->now());
    }
    if (congested_ == Congested::recovery || congested_ == Congested::reduced) reduction_.sent(sent.size);
    window_.highest = later(sequence + sent.size, window_.highest);
    window_.is_full = window_.bytes < in_flight() + settings_->segment_bytes;
    return sent.size;
}

std::uint32_t Socket::available_window() {
    const std::uint32_t window = std::min(peer_window_bytes_, window_.bytes), flying = in_flight();
    return flying > window ? 0 : window - flying;
}

void Socket::send_pending() {
    if (sent_.size() == 0 || !has_endpoint_) return;
    for (std::uint32_t room = available_window(); room > 0; room = available_window()) {
        if (timer(Event::pacing).is_pending()) break;
        if (congested_ == Congested::open && state_ == State::fin_wait_1) break;  // all is sent
        const auto next = sent_.next(congested_ == Congested::recovery, peer_window_bytes_);
        if (!next) break;
        const std::uint32_t data = sent_.bytes_from(next->begin);
        if (room < settings_->segment_bytes && data > room) break;  // no silly windows
        window_.next = next->begin;
        window_.next += send_segment(next->begin, std::min({room, settings_->segment_bytes, next->size()}));
    }
}

void Socket::send_again() {
    const auto next = sent_.next(false, peer_window_bytes_);
    window_.next = next ? next->begin : sent_.head();
    send_segment(window_.next, next ? next->size() : settings_->segment_bytes);
}

void Socket::pace(const PacedSender& paced, std::uint32_t bytes) {
    const std::uint64_t bits = std::uint64_t{8'000'000'000} * bytes, rate = paced.pacing_bps();
    arm(Event::pacing, static_cast<std::int64_t>((2 * bits + rate - 1) / (2 * rate)));  // a half is rounded down
}

bool Socket::open_a_segment() {
    if (timer(Event::retransmission).is_pending() || in_flight() > 0 || window_.bytes >= settings_->segment_bytes)
        return false;
    window_.bytes = settings_->segment_bytes;
    return true;
}

void Socket::write(std::uint32_t bytes) {
    if (state_ == State::established) open_a_segment();  // before, no window is set
    if (state_ != State::established && state_ != State::syn_sent && state_ != State::close_wait)
        throw std::runtime_error("a connection is closed before all its flows have begun");
    if (bytes > std::numeric_limits<std::uint32_t>::max() - sent_.size())
        throw std::runtime_error("a connection has more than 4 GiB to send: give its messages several connections");
    sent_.add(bytes);
    if (state_ != State::syn_sent && !timer(Event::send_pending).is_pending()) arm(Event::send_pending, 1);
}

}  // namespace foretail::packets::native
