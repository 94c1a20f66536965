// SPDX-License-Identifier: MIT
#include "native/tcp/socket.h"

#include "native/hosts/stack.h"

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

inline void Socket::take_header(const Frame& frame) {
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

void Socket::arm(Event event, std::int64_t delay_ns) {
    stack_->arm(number_, static_cast<Stack::Kind>(event), timer(event), delay_ns);
}

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

inline std::uint8_t Socket::flags_of(Sequence sequence, const SendBuffer::Sent& sent) {
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

void Socket::receive_acknowledgement(const Frame& frame) {
    // Duplicates that were counted while marks reduced the window are none of a loss.
    if (sends_ && (congested_ == Congested::open || congested_ == Congested::reduced)) duplicates_ = 0;
    const bool stale = !advance(frame);
    if (frame.payload > 0) receive_data(frame);
    if (!stale) send_pending();
    if (sends_ && sent_.size() > 0 && open_a_segment()) send_pending();
    if (tail_.has_begun()) close_when_known();
}

inline bool Socket::advance(const Frame& frame) {
    const Sequence acknowledged = frame.acknowledged, old_head = sent_.head();
    if (before(acknowledged, old_head)) return false;
    const SendBuffer::Reported sacked =
        frame.blocks > 0 ? sent_.acknowledge(std::span(frame.sacked).first(frame.blocks)) : SendBuffer::Reported{};
    const bool advances = acknowledged != old_head;
    if (advances && before(acknowledged, recovery_point_) && congested_ == Congested::recovery) {
        const std::uint32_t segments = (acknowledged - old_head) / settings_->segment_bytes;
        for (std::uint32_t i = 0; i < segments && !repeated_data_arrived_; ++i)
            repeated_data_arrived_ = sent_.ends_sent_again(acknowledged - i * settings_->segment_bytes);
    }
    if (tail_.has_begun() && sent_.size() > 0) {
        sent_.pass_to(acknowledged);  // the "ACK bump"
        window_.highest = later(window_.highest, sent_.unsent());
    }
    const std::uint32_t delivered = sacked.delivered + sent_.acknowledge(acknowledged);
    read_echo(frame, advances, delivered);
    in_flight();
    process_acknowledgement(acknowledged, sacked.any, delivered, old_head);
    if (PacedSender* paced = sends_ ? stack_->paced(*this) : nullptr) {
        paced->acknowledged(stack_->now(), window_.last_acknowledged, window_.highest);
        take_window(*paced);
    }
    repeated_data_arrived_ = false;
    return true;
}

inline void Socket::read_echo(const Frame& frame, bool advances, std::uint32_t delivered) {
    if (congested_ == Congested::reduced && before(recovery_point_, frame.acknowledged)) {
        congested_ = Congested::open;
        window_.bytes = window_.slow_start_bytes;
    }
    if (advances && window_.ecn != Ecn::disabled && frame.has(ece)) {
        if (!before(echoed_, frame.acknowledged)) return;
        echoed_ = frame.acknowledged;
        window_.ecn = Ecn::echo_received;
        if (congested_ != Congested::reduced) reduce_for_mark(delivered);
    } else if (window_.ecn == Ecn::echo_received && !frame.has(ece)) {
        window_.ecn = Ecn::idle;
    }
}

void Socket::reduce_for_mark(std::uint32_t delivered) {
    window_.slow_start_bytes = congestion_.threshold(window_, in_flight());
    congested_ = Congested::reduced;
    recovery_point_ = window_.highest;
    reduction_.begin(window_, delivered);
}

inline void Socket::process_acknowledgement(Sequence acknowledged, bool any_sacked, std::uint32_t delivered,
                                            Sequence old_head) {
    const std::uint32_t duplicates = duplicates_;
    window_.last_acknowledged = acknowledged;
    if (any_sacked) duplicate_acknowledgement(delivered);
    const std::int64_t now = stack_->now();
    if (acknowledged == old_head) {
        if (before(acknowledged, window_.highest)) congestion_.acknowledged(window_, 1, rtt_.estimate_ns(), now);
        return;
    }
    // Whole segments count; what remains counts with the next acknowledgement.
    std::uint32_t segments = delivered / settings_->segment_bytes;
    remainder_bytes_ += delivered % settings_->segment_bytes;
    if (remainder_bytes_ >= settings_->segment_bytes) {
        ++segments;
        remainder_bytes_ -= settings_->segment_bytes;
    }
    if (before(acknowledged, recovery_point_) && congested_ == Congested::recovery) {
        acknowledge_partially(acknowledged, segments, delivered);
    } else if (before(acknowledged, recovery_point_) && congested_ == Congested::loss) {
        congestion_.acknowledged(window_, segments, rtt_.estimate_ns(), now);
        congestion_.increase(window_, segments, now);
        new_acknowledgement(acknowledged, true);
    } else if (congested_ == Congested::reduced) {
        congestion_.acknowledged(window_, segments, rtt_.estimate_ns(), now);
        if (segments > 0) reduction_.advance(window_, delivered, false, repeated_data_arrived_);
        new_acknowledgement(acknowledged, true);
    } else {
        acknowledge_fully(acknowledged, segments, duplicates, any_sacked, old_head);
    }
}

void Socket::acknowledge_partially(Sequence acknowledged, std::uint32_t segments, std::uint32_t delivered) {
    if (segments > 0) reduction_.advance(window_, delivered, false, repeated_data_arrived_);
    if (!sent_.ends_sent_again(acknowledged + settings_->segment_bytes)) send_again();
    congestion_.acknowledged(window_, 1, rtt_.estimate_ns(), stack_->now());
    new_acknowledgement(acknowledged, first_partial_);
    first_partial_ = false;
}

inline void Socket::acknowledge_fully(Sequence acknowledged, std::uint32_t segments, std::uint32_t duplicates,
                                      bool duplicate, Sequence old_head) {
    const std::int64_t now = stack_->now(), rtt_ns = rtt_.estimate_ns();
    bool recovered = false;
    if (congested_ == Congested::open) {
        congestion_.acknowledged(window_, segments, rtt_ns, now);
    } else if (congested_ == Congested::disorder) {
        if (segments >= duplicates) congestion_.acknowledged(window_, segments - duplicates, rtt_ns, now);
        if (!duplicate) congested_ = Congested::open;
    } else if (congested_ == Congested::recovery) {
        first_partial_ = true;
        if (!has_second_loop()) segments = (acknowledged - old_head) / settings_->segment_bytes;
        congestion_.acknowledged(window_, segments, rtt_ns, now);
        congested_ = Congested::open;
        recovered = true;
        duplicates_ = 0;
    } else if (congested_ == Congested::loss) {
        first_partial_ = true;
        if (!has_second_loop()) segments = (acknowledged - recovery_point_) / settings_->segment_bytes;
        congestion_.acknowledged(window_, segments, rtt_ns, now);
        congested_ = Congested::open;
    }
    if (!before(acknowledged, recovery_point_)) recovery_point_counts_ = false;
    if (recovered) {
        new_acknowledgement(acknowledged, true);
        window_.bytes = window_.slow_start_bytes;
    }
    if (congested_ == Congested::open) {
        congestion_.increase(window_, segments, now);
        new_acknowledgement(acknowledged, true);
    }
}

void Socket::duplicate_acknowledgement(std::uint32_t delivered) {
    constexpr std::uint32_t threshold = 3;
    if (congested_ == Congested::loss) return;
    if (congested_ == Congested::recovery) return reduction_.advance(window_, delivered, true, repeated_data_arrived_);
    ++duplicates_;
    if (congested_ == Congested::open) congested_ = Congested::disorder;
    if (congested_ != Congested::disorder) return;
    const bool may_recover = !recovery_point_counts_ || !before(highest_acknowledged_, recovery_point_);
    if ((duplicates_ == threshold && may_recover) || sent_.is_lost(highest_acknowledged_)) enter_recovery(delivered);
}

void Socket::enter_recovery(std::uint32_t delivered) {
    if (!sent_.is_lost(sent_.head())) sent_.lose_head();
    recovery_point_ = window_.highest;
    recovery_point_counts_ = true;
    congested_ = Congested::recovery;
    window_.slow_start_bytes = congestion_.threshold(window_, in_flight());
    reduction_.begin(window_, delivered);
    send_segment(highest_acknowledged_, settings_->segment_bytes);
}

void Socket::new_acknowledgement(Sequence acknowledged, bool restarts_timer) {
    data_tries_ = 0;
    if (state_ != State::syn_received && restarts_timer) {
        set_rto(rtt_.timeout_ns(settings_->min_rto_ns));
        repeated_flags_ = 0;
        arm(Event::retransmission, rto_ns_);
    }
    window_.next = later(window_.next, acknowledged);
    if (sends_) stack_->flows().has_room(connection_);
    if (sent_.size() == 0 && state_ != State::fin_wait_1 && state_ != State::closing) cancel(Event::retransmission);
}

void Socket::time_out() {
    constexpr int most_tries = 6;
    constexpr std::int64_t longest_ns = 60'000'000'000;
    if (state_ == State::closed || state_ == State::time_wait) return;
    if (sent_.size() == 0) {
        if (state_ == State::fin_wait_1 || state_ == State::closing) send_empty(fin);
        return;
    }
    if (data_tries_++ == most_tries) return forget();
    const std::uint32_t flying = in_flight();
    duplicates_ = 0;
    sent_.lose_all();
    recovery_point_ = window_.highest;
    recovery_point_counts_ = true;
    set_rto(std::min(2 * rto_ns_, longest_ns));
    times_.clear();
    window_.slow_start_bytes = congestion_.threshold(window_, flying);
    congestion_.timed_out(window_, stack_->now());
    congested_ = Congested::loss;
    window_.bytes = settings_->segment_bytes;
    cancel(Event::pacing);
    send_pending();
}

// RC3 at both ends of a connection (Mittal's thesis, sections 2.1 and 2.3.1).

void Socket::begin_to_send() {
    send_pending();
    if (!has_second_loop() || tail_.has_begun() || sent_.size() == 0 || sent_.size() > SecondLoop::most_bytes) return;
    tail_.begin(sent_.head(), sent_.size());
    stack_->fill_idle_link(connection_);
}

std::optional<SecondLoop::Packet> Socket::next_of_tail() const {
    return tail_.next(sent_.unsent(), settings_->segment_bytes, settings_->rc3_edges);
}

void Socket::send_tail() {
    const SecondLoop::Packet packet = *next_of_tail();
    tail_.sent(packet);
    emit(ack, packet.begin, packet.size, false, packet.priority);
}

void Socket::receive_low(const Frame& frame) {
    if (sends_) {
        // It moves no window, and what TCP waits for comes with its own acknowledgements.
        sent_.learn(std::span(frame.sacked).first(frame.blocks));
        return close_when_known();
    }
    if (state_ != State::established) return;  // all has come, or the handshake is not over
    const Sequence expected = received_.next();
    const bool is_new = received_.add(frame.sequence, frame.payload, true);
    if (is_new && before(expected, received_.next()) && deliver_from(expected)) return answer_close();
    emit(ack, window_.next, 0, false, frame.priority);
}

void Socket::close_when_known() {
    if (sent_.size() > 0) window_.highest = later(window_.highest, sent_.unsent());
    if (!closes_when_empty_ || sent_.bytes_from(sent_.unsent()) > 0) return;
    if (state_ != State::established && state_ != State::close_wait) return;  // it was sent
    window_.next = window_.highest;
    send_empty(fin);
    state_ = state_ == State::established ? State::fin_wait_1 : State::last_ack;
}

}  // namespace foretail::packets::native
