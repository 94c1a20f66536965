// SPDX-License-Identifier: MIT
#include "native/tcp/send_buffer.h"

namespace foretail::packets::native {

void SendBuffer::reset(std::uint32_t segment_bytes) {
    segment_bytes_ = segment_bytes;
    head_ = size_ = sent_ = sacked_ = lost_ = sent_again_ = highest_sacked_ = lost_below_ = 0;
    any_sacked_ = false;
    hole_from_ = 0;
    segments_.clear();
    runs_.clear();
    known_.clear();
}

std::size_t SendBuffer::place_of(Sequence sequence) const {
    return first_place(segments_.size(), [&](std::size_t at) { return before(sequence, segments_[at].end()); });
}

SendBuffer::Sent SendBuffer::send(Sequence sequence, std::uint32_t bytes) {
    bytes = std::min(bytes, bytes_from(sequence));
    if (!before(sequence, unsent())) {
        segments_.push_back({.begin = sequence, .size = bytes});
        sent_ += bytes;
        if (!known_.empty()) pass_over_known();
        return {bytes, false};
    }
    Segment& segment = sent_segment(sequence, std::min(bytes, unsent() - sequence));
    segment.delivered = false;
    if (!std::exchange(segment.again, true)) sent_again_ += segment.size;
    return {segment.size, true};
}

SendBuffer::Segment& SendBuffer::sent_segment(Sequence sequence, std::uint32_t bytes) {
    const std::size_t at = place_of(sequence);
    Segment& segment = segments_[at];
    if (segment.begin == sequence) {
        const bool alike =
            at + 1 < segments_.size() && !segments_[at + 1].sacked && segments_[at + 1].lost == segment.lost;
        bytes = std::min(bytes, alike ? segment.size + segments_[at + 1].size : segment.size);
        if (bytes == segment.size) return segment;
    }
    const std::size_t cut_at = cut(sequence, bytes);
    rebuild();
    return segments_[cut_at];
}

std::size_t SendBuffer::cut(Sequence sequence, std::uint32_t bytes) {
    std::size_t at = place_of(sequence);
    if (segments_[at].begin != sequence) {
        split(at, sequence - segments_[at].begin);
        ++at;
    }
    while (segments_[at].size < bytes && at + 1 < segments_.size()) join_with_next(at);
    if (bytes < segments_[at].size) split(at, bytes);
    return at;
}

void SendBuffer::split(std::size_t at, std::uint32_t bytes) {
    Segment first = segments_[at];
    first.size = bytes;
    segments_[at].begin += bytes;
    segments_[at].size -= bytes;
    segments_.insert(at, first);
}

void SendBuffer::join_with_next(std::size_t at) {
    Segment& segment = segments_[at];
    const Segment next = segments_.erase(at + 1);
    if (segment.again != next.again) {
        sent_again_ -= segment.again ? segment.size : next.size;
        segment.again = false;
    }
    segment.size += next.size;
}

std::optional<std::size_t> SendBuffer::first_hole() {
    if (lost_ == 0) return std::nullopt;
    while (hole_from_ < segments_.size() && !segments_[hole_from_].is_hole()) ++hole_from_;
    if (hole_from_ == segments_.size()) return std::nullopt;
    return hole_from_;
}

std::optional<Range> SendBuffer::next(bool recovering, std::uint32_t window) {
    if (const auto hole = first_hole(); hole && may_be_lost(segments_[*hole].begin)) {
        const Sequence begin = segments_[*hole].begin;
        return Range{begin, begin + segment_bytes_};
    }
    if (bytes_from(unsent()) > 0) {
        if (sent_ >= window) return std::nullopt;
        return Range{unsent(), unsent() + std::min(segment_bytes_, window - sent_)};
    }
    if (!recovering) return std::nullopt;
    // All is sent, and what is known to be lost is sent again: the first other segment below the highest sacked one.
    for (std::size_t at = place_of(later(lost_below_, head_)); at < segments_.size(); ++at) {
        const Segment& segment = segments_[at];
        if (!may_be_lost(segment.begin)) break;
        if (!segment.again && !segment.sacked) return Range{segment.begin, segment.begin + segment_bytes_};
    }
    return std::nullopt;
}

void SendBuffer::remove_from_counts(const Segment& segment, std::uint32_t bytes) {
    size_ -= bytes;
    sent_ -= bytes;
    head_ += bytes;
    if (segment.sacked) sacked_ -= bytes;
    if (segment.lost) lost_ -= bytes;
    if (segment.again) sent_again_ -= bytes;
}

std::uint32_t SendBuffer::acknowledge(Sequence sequence) {
    if (!before(head_, sequence)) return 0;
    const bool lossy = sacked_ + lost_ > 0;
    bool is_cut = false;
    std::uint32_t delivered = 0;
    for (std::uint32_t left = sequence - head_; size_ > 0 && left > 0;) {
        if (segments_.empty()) send(head_, left);  // acknowledged, and never sent
        Segment& first = segments_.front();
        const std::uint32_t gone = std::min(first.size, left);
        left -= gone;
        remove_from_counts(first, gone);
        if (gone < first.size) {
            first.begin += gone;
            first.size -= gone;
            is_cut = true;
        } else {
            if (!first.delivered) delivered += gone;
            segments_.drop_front();
            if (hole_from_ > 0) --hole_from_;
        }
    }
    if (size_ == 0) head_ = sequence;  // that of a FIN
    if (lossy) {
        forget_acknowledged();
        if (is_cut) rebuild();
    }
    if (!before(head_, highest_sacked_)) {
        any_sacked_ = false;
        highest_sacked_ = 0;
    }
    return delivered;
}

void SendBuffer::forget_acknowledged() {
    std::size_t gone = 0;
    while (gone < runs_.size() && !before(head_, runs_[gone].end)) ++gone;
    runs_.erase(runs_.begin(), runs_.begin() + static_cast<std::ptrdiff_t>(gone));
    if (segments_.empty() || !segments_.front().sacked || segments_.front().low) return;
    // The receiver has the head, and does not acknowledge it: the first segment behind it that is not sacked counts as
    // sacked instead.
    segments_.front().sacked = false;
    sacked_ -= segments_.front().size;
    for (std::size_t at = 1; at < segments_.size(); ++at) {
        if (segments_[at].sacked) continue;
        segments_[at].sacked = true;
        sacked_ += segments_[at].size;
        highest_sacked_ = segments_[at].begin;
        any_sacked_ = true;
        break;
    }
    lose_head();
    rebuild();
}

std::size_t SendBuffer::after_run(std::size_t at) const {
    const auto run = std::ranges::upper_bound(runs_, segments_[at].begin, before, &Range::begin);
    return place_of(std::prev(run)->end);
}

SendBuffer::Reported SendBuffer::acknowledge(std::span<const Range> blocks) {
    if (sacked_ == 0) lost_below_ = head_;
    Reported reported;
    for (const Range& block : blocks) {
        if (before(unsent(), block.begin)) return reported;  // and nothing is counted as lost
        std::size_t at = place_of(block.begin);
        if (at < segments_.size() && before(segments_[at].begin, block.begin)) ++at;
        while (at < segments_.size() && !before(block.end, segments_[at].end())) {
            Segment& segment = segments_[at];
            if (segment.sacked && !segment.low) {
                at = after_run(at);
                continue;
            }
            if (std::exchange(segment.lost, false)) lost_ -= segment.size;
            if (!std::exchange(segment.low, false)) sacked_ += segment.size;
            segment.sacked = reported.any = true;
            if (!std::exchange(segment.delivered, true)) reported.delivered += segment.size;
            if (!any_sacked_ || !before(segment.end(), highest_sacked_)) {
                any_sacked_ = true;
                highest_sacked_ = segment.begin;
            }
            add_run({segment.begin, segment.end()});
            ++at;
        }
    }
    if (reported.any) mark_lost_below_highest();
    return reported;
}

void SendBuffer::learn(std::span<const Range> blocks) {
    for (Range block : blocks) {
        for (std::size_t at = place_of(block.begin); at < segments_.size(); ++at) {
            Segment& segment = segments_[at];
            if (before(block.end, segment.end())) break;
            if (segment.sacked || before(segment.begin, block.begin)) continue;
            if (std::exchange(segment.lost, false)) lost_ -= segment.size;
            segment.sacked = segment.low = segment.delivered = true;
            sacked_ += segment.size;
        }
        block.begin = later(block.begin, unsent());
        if (!before(block.begin, block.end)) continue;
        const auto first = std::ranges::lower_bound(known_, block.begin, before, &Range::end);
        auto last = first;
        for (; last != known_.end() && !before(block.end, last->begin); ++last) {
            if (before(last->begin, block.begin)) block.begin = last->begin;
            block.end = later(block.end, last->end);
        }
        known_.insert(known_.erase(first, last), block);
    }
    pass_over_known();
}

void SendBuffer::pass_to(Sequence sequence) {
    if (before(unsent(), sequence)) known_.insert(known_.begin(), {unsent(), sequence});
    pass_over_known();
}

void SendBuffer::pass_over_known() {
    std::size_t passed = 0;
    for (; passed < known_.size() && !before(unsent(), known_[passed].begin); ++passed) {
        if (!before(unsent(), known_[passed].end)) continue;
        const std::uint32_t bytes = std::min(known_[passed].end - unsent(), bytes_from(unsent()));
        if (bytes == 0) continue;
        segments_.push_back({.begin = unsent(), .size = bytes, .sacked = true, .delivered = true, .low = true});
        sent_ += bytes;
        sacked_ += bytes;
    }
    known_.erase(known_.begin(), known_.begin() + static_cast<std::ptrdiff_t>(passed));
}

void SendBuffer::add_run(Range segment) {
    const auto after = std::ranges::upper_bound(runs_, segment.begin, before, &Range::begin);
    const bool joins_next = after != runs_.end() && after->begin == segment.end;
    if (after != runs_.begin() && std::prev(after)->end == segment.begin) {
        std::prev(after)->end = joins_next ? after->end : segment.end;
        if (joins_next) runs_.erase(after);
    } else if (joins_next) {
        after->begin = segment.begin;
    } else {
        runs_.insert(after, segment);
    }
}

void SendBuffer::mark_lost(std::size_t at) {
    segments_[at].lost = true;
    lost_ += segments_[at].size;
    hole_from_ = std::min(hole_from_, at);
}

void SendBuffer::mark_lost_below_highest() {
    constexpr int threshold = 3;
    std::size_t at = place_of(highest_sacked_);
    int above = 0;
    for (; at > 0 && above < threshold; --at) above += segments_[at].sacked && !segments_[at].low;
    if (above < threshold) return;
    const Sequence top = segments_[at + 1].begin;
    for (; at > 0 && !before(segments_[at].begin, lost_below_); --at) {
        if (!segments_[at].sacked && !segments_[at].lost) mark_lost(at);
    }
    if (!segments_.front().lost && !segments_.front().low) mark_lost(0);
    lost_below_ = top;
}

void SendBuffer::rebuild() {
    hole_from_ = 0;
    runs_.clear();
    if (!segments_.empty()) lost_below_ = segments_.front().begin;
    for (std::size_t at = 0; at < segments_.size(); ++at) {
        if (segments_[at].sacked && !segments_[at].low) add_run({segments_[at].begin, segments_[at].end()});
    }
}

void SendBuffer::lose_all() {
    lost_ = sent_again_ = 0;
    for (std::size_t at = 0; at < segments_.size(); ++at) {
        Segment& segment = segments_[at];
        segment.again = false;
        segment.lost = !segment.sacked;
        if (segment.lost) lost_ += segment.size;
    }
    rebuild();
}

void SendBuffer::lose_head() {
    if (segments_.empty()) return;
    Segment& head = segments_.front();
    head.low = false;
    if (std::exchange(head.sacked, false)) sacked_ -= head.size;
    if (std::exchange(head.again, false)) sent_again_ -= head.size;
    if (!std::exchange(head.lost, true)) lost_ += head.size;
    hole_from_ = 0;
}

bool SendBuffer::is_lost(Sequence sequence) const {
    if (!before(sequence, highest_sacked_)) return false;
    const std::size_t at = place_of(sequence);
    return at < segments_.size() && segments_[at].lost;
}

bool SendBuffer::ends_sent_again(Sequence end) const {
    if (segments_.empty() || !before(segments_.front().begin, end)) return false;
    const std::size_t at = place_of(end - 1);
    if (at == segments_.size()) return false;
    const Segment& segment = segments_[at];
    return segment.again && !segment.sacked && segment.end() == end;
}

}  // namespace foretail::packets::native
