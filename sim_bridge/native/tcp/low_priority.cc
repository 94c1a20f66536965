// SPDX-License-Identifier: MIT
// RC3 at both ends of a connection (Mittal's thesis, sections 2.1 and 2.3.1).
#include <cstdint>
#include <optional>
#include <span>

#include "native/hosts/stack.h"
#include "native/tcp/socket.h"

namespace foretail::packets::native {

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
