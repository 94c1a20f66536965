// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "native/hosts/flows.h"
#include "native/hosts/stack.h"
#include "native/linux/socket.h"

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

}  // namespace foretail::packets::native
