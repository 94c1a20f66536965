// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdint>
#include <span>

#include "native/hosts/flows.h"
#include "native/hosts/stack.h"
#include "native/tcp/socket.h"

namespace foretail::packets::native {

void Socket::receive_acknowledgement(const Frame& frame) {
    // Duplicates that were counted while marks reduced the window are none of a loss.
    if (sends_ && (congested_ == Congested::open || congested_ == Congested::reduced)) duplicates_ = 0;
    const bool stale = !advance(frame);
    if (frame.payload > 0) receive_data(frame);
    if (!stale) send_pending();
    if (sends_ && sent_.size() > 0 && open_a_segment()) send_pending();
    if (tail_.has_begun()) close_when_known();
}

bool Socket::advance(const Frame& frame) {
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

void Socket::read_echo(const Frame& frame, bool advances, std::uint32_t delivered) {
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

void Socket::process_acknowledgement(Sequence acknowledged, bool any_sacked, std::uint32_t delivered,
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

void Socket::acknowledge_fully(Sequence acknowledged, std::uint32_t segments, std::uint32_t duplicates, bool duplicate,
                               Sequence old_head) {
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

}  // namespace foretail::packets::native
