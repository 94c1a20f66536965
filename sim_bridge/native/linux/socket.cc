// SPDX-License-Identifier: MIT
#include "native/linux/socket.h"

#include "native/hosts/stack.h"

namespace foretail::packets::native {

void LinuxSocket::reset(Stack& stack, const TcpSettings& settings, std::int32_t number, std::int32_t connection,
                        bool sends, const std::string& control, std::uint32_t first_window_bytes) {
    Rack rack = std::move(rack_);  // their memory stays
    ReceiveBuffer received = std::move(received_);
    const Timer timer = timer_;
    *this = LinuxSocket();
    rack_ = std::move(rack);
    received_ = std::move(received);
    timer_ = timer;
    timer_.cancel();
    rack_.clear();
    received_.reset(1);
    stack_ = &stack;
    settings_ = &settings;
    number_ = number;
    connection_ = connection;
    sends_ = sends;
    is_open_ = true;
    is_dctcp_ = control == "dctcp";
    congestion_ = LinuxCongestion(control, stack.now());
    window_.segment_bytes = 1;
    window_.bytes = first_window_ = std::max<std::uint32_t>(1, first_window_bytes / settings.segment_bytes);
    window_.slow_start_bytes = settings.slow_start ? ~std::uint32_t{0} : 1;
    unacknowledged_ = next_ = written_ = use_noted_to_ = 1;
    peer_window_bytes_ = 65535;
}

void LinuxSocket::connect() {
    state_ = State::syn_sent;
    ecn_ = settings_->ecn;
    request();
}

void LinuxSocket::accept(const Listener&, bool asks_for_ecn) {
    state_ = State::syn_received;
    ecn_ = settings_->ecn && asks_for_ecn;
    request();
}

void LinuxSocket::request() {
    if (state_ == State::syn_sent) {
        emit(ecn_ ? syn | ece | cwr : syn, 0, 0, false);
    } else {
        emit(ecn_ ? syn | ack | ece : syn | ack, 0, 0, false);
    }
    request_ns_ = stack_->now();
    constexpr int most_doublings = 16;
    set_timer(Due::request, settings_->min_rto_ns << std::min(tries_++, most_doublings));
}

void LinuxSocket::establish(bool ecn) {
    state_ = State::established;
    ecn_ = ecn;
    timer_.cancel();
    if (tries_ == 1) rtt_.measure(stack_->now() - request_ns_);
    tries_ = 0;
    rto_ns_ = rtt_.timeout_above_ns(settings_->min_rto_ns);
}

void LinuxSocket::receive(const Frame& frame) {
    if (frame.has(rst)) {
        is_open_ = false;
        timer_.cancel();
        return;
    }
    if (state_ == State::syn_sent) {
        if (!frame.has(syn)) return;
        establish(ecn_ && frame.has(ece));
        acknowledge();
        // Data that waits goes before the application closes: a FIN rides only on what the window holds back.
        const bool closes = std::exchange(closes_, false);
        send_pending();
        closes_ = closes;
        return send_pending();
    }
    if (frame.has(syn)) return state_ == State::syn_received ? request() : acknowledge();
    if (state_ == State::syn_received) establish(ecn_);
    receive_acknowledgement(frame);
    if (frame.payload > 0 || frame.has(fin)) receive_data(frame);
    end_if_done();
}

void LinuxSocket::end_if_done() {
    const bool all_received = peer_closes_ && received_.next() == peer_end_;
    if (!all_received || !fin_sent_ || !rack_.empty()) return;
    is_open_ = false;
    timer_.cancel();
}

void LinuxSocket::receive_data(const Frame& frame) {
    if (frame.has(fin)) {
        peer_closes_ = true;
        peer_end_ = frame.sequence + frame.payload + 1;
    }
    read_mark(frame);
    const Sequence expected = received_.next();
    received_.add(frame.sequence, frame.payload + (frame.has(fin) ? 1 : 0));
    const bool ends = peer_closes_ && expected != peer_end_ && received_.next() == peer_end_;
    const std::uint32_t bytes = received_.next() - expected - (ends ? 1 : 0);
    if (bytes > 0) stack_->flows().receive(*this, bytes);
    acknowledge();
    if (ends && !sends_) {
        closes_ = true;
        send_pending();
    }
}

/// With DCTCP an acknowledgement says of its segment whether that was marked (RFC 8257); else marks are echoed until
/// the sender says that its window is smaller (RFC 3168).
void LinuxSocket::read_mark(const Frame& frame) {
    if (frame.has(cwr) || (is_dctcp_ && frame.ecn_capable)) echoes_ = false;
    if (ecn_ && frame.congestion_experienced) echoes_ = true;
}

void LinuxSocket::acknowledge() { emit(echoes_ ? ack | ece : ack, next_, 0, false); }

void LinuxSocket::emit(std::uint8_t flags, Sequence sequence, std::uint32_t payload, bool first_time) {
    const bool ecn_capable = settings_->ecn && (is_dctcp_ || (ecn_ && payload > 0 && first_time));
    const bool requests = (flags & syn) != 0;
    const Stack::Header header{.connection = connection_,
                               .answer = !sends_,
                               .flags = flags,
                               .payload = payload,
                               .sequence = sequence,
                               .acknowledged = requests && sends_ ? 0 : received_.next(),
                               .ecn_capable = ecn_capable};
    stack_->send(header, received_.blocks());
}

void LinuxSocket::write(std::uint32_t bytes) {
    if (bytes > std::numeric_limits<std::uint32_t>::max() - (written_ - unacknowledged_))
        throw std::runtime_error("a connection has more than 4 GiB to send: give its messages several connections");
    written_ += bytes;
    if (state_ != State::established) return;
    restart_if_idle();
    send_pending();
}

void LinuxSocket::close() {
    if (!sends_) return;
    closes_ = true;
    send_pending();
}

void LinuxSocket::fire(Event) {
    switch (due_) {
        case Due::request: return request();
        case Due::timeout: return time_out();
        case Due::probe: return probe();
        case Due::reordering: return reordering_ends();
    }
}

void LinuxSocket::receive_acknowledgement(const Frame& frame) {
    peer_window_bytes_ = ReceiveBuffer::window_bytes;
    const std::int64_t now = stack_->now();
    const Rack::Report report = rack_.acknowledge(frame.acknowledged, std::span(frame.sacked).first(frame.blocks), now);
    if (report.advances) {
        unacknowledged_ = window_.last_acknowledged = frame.acknowledged;
        tries_ = 0;
        if (sends_) stack_->flows().has_room(connection_);
    }
    if (report.rtt_ns >= 0) {
        rtt_.measure(report.rtt_ns);
        rto_ns_ = rtt_.timeout_above_ns(settings_->min_rto_ns);
    }
    window_.next = window_.highest = next_;
    const bool marked = ecn_ && frame.has(ece);
    congestion_.acknowledged(window_, report.delivered, marked, report.newest_rtt_ns, now);
    if (probes_) end_probe(frame, report);
    const Rack::Detected detected = detect();
    change_state(marked, detected);
    if (report.advances && detected.wait_ns == 0) restart_timer();
    if (is_reducing()) {
        reduce_further(report.delivered, report.advances, detected.lost > 0);
    } else if (report.advances) {
        congestion_.increase(window_, report.delivered, now);
    }
    send_holes();
    send_pending();
}

/// A probe ends when all that was sent before it is acknowledged. If it repaired a loss, the window shrinks.
void LinuxSocket::end_probe(const Frame& frame, const Rack::Report& report) {
    if (before(frame.acknowledged, probed_)) return;
    const bool beyond = before(probed_, frame.acknowledged);
    const bool is_duplicate = !report.advances && frame.blocks == 0 && frame.payload == 0;
    if (!probe_is_new_ && !beyond && !is_duplicate) return;
    probes_ = false;
    if (probe_is_new_ || !beyond || congested_ >= Congested::reduced) return;
    reduce(Congested::reduced, congestion_.threshold(window_));
    end_reduction();
}

Rack::Detected LinuxSocket::detect() {
    const bool urgent = congested_ >= Congested::recovery;
    const Rack::Detected detected =
        rack_.detect(stack_->now(), urgent, rtt_.estimate_ns(), settings_->reordering_window_ns);
    if (detected.wait_ns > 0) set_timer(Due::reordering, detected.wait_ns);
    return detected;
}

void LinuxSocket::change_state(bool marked, const Rack::Detected& detected) {
    const bool is_over = !before(unacknowledged_, recovery_point_);
    if (congested_ == Congested::recovery && is_over) end_reduction();
    if (congested_ == Congested::reduced && before(recovery_point_, unacknowledged_)) end_reduction();
    if (congested_ == Congested::loss && is_over) congested_ = Congested::open;
    if (congested_ == Congested::recovery || (congested_ == Congested::loss && !detected.lost_again)) return;
    if (rack_.lost() > 0) return enter_recovery();
    if (congested_ < Congested::reduced && marked) reduce(Congested::reduced, congestion_.threshold(window_));
    if (congested_ < Congested::reduced) congested_ = rack_.is_orderly() ? Congested::open : Congested::disorder;
}

void LinuxSocket::enter_recovery() {
    const bool reduced = congested_ == Congested::reduced;
    const std::uint32_t threshold = congestion_.threshold_after_loss(window_, reduced);
    if (!reduced) return reduce(Congested::recovery, threshold);
    window_.slow_start_bytes = threshold;
    congested_ = Congested::recovery;
    recovery_point_ = next_;
}

void LinuxSocket::reduce(Congested kind, std::uint32_t threshold) {
    window_before_ = window_.bytes;
    window_.slow_start_bytes = threshold;
    delivered_ = sent_ = 0;
    recovery_point_ = next_;
    congested_ = kind;
    tells_of_reduction_ = ecn_;
}

void LinuxSocket::end_reduction() {
    window_.bytes = window_.slow_start_bytes;
    congested_ = Congested::open;
}

/// Proportional rate reduction (RFC 6937). It lets the window grow as in slow start up to its threshold, where what is
/// acknowledged says of no further loss.
void LinuxSocket::reduce_further(std::uint32_t delivered, bool advances, bool lost) {
    if (delivered == 0) return;
    delivered_ += delivered;
    const std::uint32_t flying = rack_.in_flight(), threshold = window_.slow_start_bytes;
    std::int64_t room = 0;
    if (flying > threshold) {
        const std::uint64_t product = std::uint64_t{threshold} * delivered_;
        room = static_cast<std::int64_t>((product + window_before_ - 1) / window_before_) - sent_;
    } else {
        room = std::max(std::int64_t{delivered_} - sent_, std::int64_t{delivered});
        if (advances && !lost) ++room;
        room = std::min(room, std::int64_t{threshold} - flying);
    }
    // The first segment is sent at once.
    window_.bytes = flying + static_cast<std::uint32_t>(std::max<std::int64_t>(room, sent_ > 0 ? 0 : 1));
}

void LinuxSocket::reordering_ends() {
    if (rack_.empty()) return;
    due_ = Due::timeout;
    if (const Rack::Detected detected = detect(); detected.lost > 0) {
        if (congested_ != Congested::recovery) {
            enter_recovery();
            reduce_further(1, false, true);
        }
        send_holes();
    }
    if (!timer_.is_pending()) set_timer(Due::timeout, left_of_timeout_ns());
}

void LinuxSocket::time_out() {
    constexpr std::int64_t longest_ns = 120'000'000'000;
    if (rack_.empty()) return;
    if (sends_) stack_->flows().count_timeout(connection_, unacknowledged_);
    const std::int64_t now = stack_->now();
    rack_.lose_all(now);
    const bool is_new = congested_ <= Congested::disorder || !before(unacknowledged_, recovery_point_) ||
                        (congested_ == Congested::loss && tries_ == 0);
    ++tries_;
    if (is_new) window_.slow_start_bytes = congestion_.threshold_after_loss(window_, false);
    congestion_.timed_out(window_, now);
    window_.bytes = rack_.in_flight() + 1;
    recovery_point_ = next_;
    congested_ = Congested::loss;
    tells_of_reduction_ = ecn_;
    probes_ = false;
    rto_ns_ = std::min(2 * rto_ns_, longest_ns);
    send_again(0);
    set_timer(Due::timeout, rto_ns_);
}

/// Asks what became of the end of the flight: by new data, else by its last segment again.
void LinuxSocket::probe() {
    if (rack_.empty()) return;
    if (!probes_) {
        probes_ = true;
        probe_is_new_ = has_unsent();
        if (probe_is_new_) {
            send_next();
        } else {
            send_again(rack_.size() - 1);
        }
        probed_ = next_;
    }
    due_ = Due::timeout;
    set_timer(Due::timeout, probes_ ? rto_ns_ : left_of_timeout_ns());
}

void LinuxSocket::send_again(std::size_t at) {
    const Rack::Segment& segment = rack_.send_again(at, stack_->now());
    if (is_reducing()) ++sent_;
    last_sent_ns_ = stack_->now();
    std::uint8_t flags = segment.fin ? ack | fin : ack;
    if (echoes_) flags |= ece;
    emit(flags, segment.begin, segment.bytes, false);
}

void LinuxSocket::send_holes() {
    bool is_oldest = false;
    while (rack_.in_flight() < window_.bytes) {
        const auto at = rack_.hole();
        if (!at) break;
        is_oldest = is_oldest || *at == 0;
        send_again(*at);
    }
    const bool reorders = due_ == Due::reordering && timer_.is_pending();
    if (is_oldest && !reorders) set_timer(Due::timeout, rto_ns_);
}

void LinuxSocket::send_next() {
    const bool was_empty = rack_.empty();
    const std::uint32_t bytes = std::min(written_ - next_, settings_->segment_bytes);
    const bool ends = closes_ && next_ + bytes == written_;
    rack_.send(next_, bytes, ends, stack_->now());
    if (is_reducing()) ++sent_;
    last_sent_ns_ = stack_->now();
    std::uint8_t flags = ends ? ack | fin : ack;
    if (echoes_) flags |= ece;
    if (bytes > 0 && std::exchange(tells_of_reduction_, false)) flags |= cwr;
    const Sequence begin = next_;
    next_ += bytes + (ends ? 1 : 0);
    fin_sent_ = fin_sent_ || ends;
    emit(flags, begin, bytes, true);
    if (was_empty) set_timer(Due::timeout, rto_ns_);
}

void LinuxSocket::send_pending() {
    if (state_ != State::established || !is_open_) return;
    bool any = false;
    while (has_unsent()) {
        if (rack_.in_flight() >= window_.bytes) break;
        if (next_ - unacknowledged_ >= peer_window_bytes_) break;
        send_next();
        any = true;
    }
    note_window_use();
    if (any) schedule_probe(left_of_timeout_ns());
}

/// A window grows where it was used up, or in slow start where half of it was.
void LinuxSocket::note_window_use() {
    const bool limited = rack_.in_flight() >= window_.bytes;
    const auto flying = static_cast<std::uint32_t>(rack_.size());
    if (limited || !before(unacknowledged_, use_noted_to_) || (!was_limited_ && flying > most_in_flight_)) {
        was_limited_ = limited;
        most_in_flight_ = flying;
        use_noted_to_ = next_;
    }
    window_.is_full = was_limited_ || (window_.bytes < window_.slow_start_bytes && window_.bytes < 2 * most_in_flight_);
}

/// After a silence the window is halved for every timeout that it lasted, down to the first one.
void LinuxSocket::restart_if_idle() {
    if (!rack_.empty() || last_sent_ns_ == 0) return;
    std::int64_t idle_ns = stack_->now() - last_sent_ns_;
    const std::uint32_t least = std::min(first_window_, window_.bytes);
    if (idle_ns > rto_ns_)
        window_.slow_start_bytes = std::max(window_.slow_start_bytes, window_.bytes - window_.bytes / 4);
    for (; idle_ns > rto_ns_ && window_.bytes > least; idle_ns -= rto_ns_) window_.bytes /= 2;
    window_.bytes = std::max(window_.bytes, least);
}

void LinuxSocket::restart_timer() {
    if (schedule_probe(rto_ns_)) return;
    if (rack_.empty()) {
        timer_.cancel();
        return;
    }
    const bool follows = timer_.is_pending() && due_ != Due::timeout;
    set_timer(Due::timeout, follows ? left_of_timeout_ns() : rto_ns_);
}

bool LinuxSocket::schedule_probe(std::int64_t timeout_ns) {
    if (rack_.empty() || (congested_ != Congested::open && congested_ != Congested::reduced)) return false;
    std::int64_t delay_ns = 2 * rtt_.estimate_ns();
    if (rack_.size() == 1) delay_ns += settings_->min_rto_ns;  // its acknowledgement may be held back
    set_timer(Due::probe, std::min(delay_ns, timeout_ns));
    return true;
}

std::int64_t LinuxSocket::left_of_timeout_ns() const {
    return std::max<std::int64_t>(rack_[0].sent_ns + rto_ns_ - stack_->now(), 1);
}

void LinuxSocket::set_timer(Due due, std::int64_t delay_ns) {
    due_ = due;
    stack_->arm(number_, Stack::Kind::retransmission, timer_, delay_ns);
}

}  // namespace foretail::packets::native
