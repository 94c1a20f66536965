// SPDX-License-Identifier: MIT
// Parts that both kinds of sockets share: the echo of ECN marks, the receive buffer, the estimate of the round trip.
#pragma once

#include "native/tcp/congestion.h"

namespace foretail::packets::native {

/// What the end of a connection remembers of congestion marks. With DCTCP it tells its sender at which byte they began
/// or ended: an acknowledgement that waits is sent first, with the echo of before (RFC 8257, section 3.2).
class MarkEcho {
public:
    explicit MarkEcho(bool dctcp = false) : dctcp_(dctcp) {}

    /// Reads the mark of a packet. `next` is the number that this end waits for; `send_previous(echo, number)`
    /// acknowledges all before a number.
    template <class Send>
    void read(const Frame& frame, Sequence next, Ecn& ecn, Send&& send_previous) {
        // A mark on a segment below the highest one that was marked counts as none.
        if (frame.congestion_experienced && before(highest_marked_, frame.sequence)) {
            highest_marked_ = frame.sequence;
            ecn = Ecn::marked;
            if (dctcp_) turn(true, next, ecn, send_previous);
        } else if (dctcp_ && frame.ecn_capable && ecn != Ecn::disabled) {
            turn(false, next, ecn, send_previous);
        }
    }
    void acknowledged(bool later) { waits_ = later; }

private:
    template <class Send>
    void turn(bool marked, Sequence next, Ecn& ecn, Send&& send_previous) {
        if (marked != marked_ && waits_ && knows_previous_) send_previous(marked_, previous_);
        knows_previous_ = true;
        previous_ = next;
        marked_ = marked;
        if (marked) {
            ecn = Ecn::marked;
        } else if (ecn == Ecn::marked || ecn == Ecn::echoing) {
            ecn = Ecn::idle;
        }
    }

    bool dctcp_;
    Sequence highest_marked_ = 0;
    bool marked_ = false;  ///< the last packet was
    bool waits_ = false;   ///< an acknowledgement does
    bool knows_previous_ = false;
    Sequence previous_ = 0;  ///< what this end waited for when the last packet came
};

/// A server's listening end, which hands what it remembers on to the ends that it makes.
struct Listener {
    MarkEcho echo;
    Ecn ecn = Ecn::disabled;
};

/// What a receiver has of its connection: all bytes before `next`, and segments beyond. The application takes bytes as
/// soon as they are in order, so the buffer holds only what is out of order.
///
/// What comes at low priorities of RC3 is acknowledged apart: its blocks are not among those of TCP's own segments, and
/// a segment of TCP has its block even if all of its bytes had come before.
class ReceiveBuffer {
public:
    static constexpr std::uint32_t window_bytes = std::uint32_t{1} << 24;

    void reset(Sequence next) {
        next_ = next;
        has_fin_ = has_low_ = false;
        segments_.clear();
        blocks_ = low_blocks_ = {};
    }
    void set_window(std::uint32_t bytes) { window_bytes_ = bytes; }

    [[nodiscard]] Sequence next() const { return next_; }
    void set_next(Sequence next) { next_ = next; }
    /// One past the last byte that may come.
    [[nodiscard]] Sequence limit() const { return has_fin_ ? fin_ : next_ + window_bytes_; }
    [[nodiscard]] bool has_gap() const { return !segments_.empty(); }
    /// Whether a segment of TCP has come beyond `next`.
    [[nodiscard]] bool has_gap_of_tcp() const { return has_low_ ? blocks_.count > 0 : has_gap(); }
    [[nodiscard]] std::span<const Range> blocks(bool low = false) const { return (low ? low_blocks_ : blocks_).all(); }

    /// The sender's FIN has this number.
    void expect_fin(Sequence fin) {
        has_fin_ = true;
        fin_ = fin;
        if (next_ == fin_) ++next_;
    }
    /// Whether everything up to the FIN is here.
    [[nodiscard]] bool finished() const { return has_fin_ && before(fin_, next_); }

    /// Takes a segment, of TCP or of low priority; returns whether any of its bytes was new.
    bool add(Sequence begin, std::uint32_t size, bool low = false) {
        has_low_ |= low;
        Sequence head = later(begin, next_), tail = begin + size;
        std::size_t at = 0;
        if (!segments_.empty()) {
            tail = earlier(tail, segments_.front().begin + window_bytes_);
            head = earlier(head, tail);
            at = trim(head, tail);
        }
        if (!before(head, tail)) {
            if (has_low_ && !low && before(next_, begin)) blocks_.report({begin, begin + size});
            return false;
        }
        if (before(next_, head)) {
            if (low && at < segments_.size() && segments_[at].begin == tail) {
                segments_[at].begin = head;  // many come from the last one backward
            } else {
                segments_.insert(segments_.begin() + static_cast<std::ptrdiff_t>(at), {head, tail});
            }
            (low ? low_blocks_ : blocks_).report({head, tail});
            return true;
        }
        next_ = tail;
        deliver_following();
        if (has_fin_ && next_ == fin_) ++next_;
        return true;
    }

private:
    /// Blocks of selective acknowledgements, the newest first.
    struct Blocks {
        std::array<Range, Frame::most_blocks> ranges;
        std::size_t count = 0;

        [[nodiscard]] std::span<const Range> all() const { return {ranges.data(), count}; }
        /// Forgets those before a number.
        void forget(Sequence next) {
            std::size_t left = 0;
            for (std::size_t i = 0; i < count; ++i) {
                if (before(next, ranges[i].end)) ranges[left++] = ranges[i];
            }
            count = left;
        }
        /// Puts the block of the newest segment before the others, joined with those that touch it (RFC 2018, section
        /// 4).
        void report(Range block) {
            for (std::size_t i = 0; i < count;) {
                const Range other = ranges[i];
                if (other.end != block.begin && other.begin != block.end) {
                    ++i;
                    continue;
                }
                if (other.end == block.begin)
                    block.begin = other.begin;
                else
                    block.end = other.end;
                std::shift_left(ranges.begin() + static_cast<std::ptrdiff_t>(i), ranges.end(), 1);
                --count;
                i = 0;  // what was passed may touch the larger block
            }
            std::shift_right(ranges.begin(), ranges.end(), 1);
            ranges[0] = block;
            count = std::min(count + 1, ranges.size());
        }
    };

    static Sequence earlier(Sequence a, Sequence b) { return before(a, b) ? a : b; }

    /// Leaves of a new segment what no other has: from the first of its bytes that is missing, without those segments
    /// that it contains, to the next one that is here. Returns where it belongs.
    std::size_t trim(Sequence& head, Sequence& tail) {
        const auto after = std::ranges::upper_bound(segments_, head, before, &Range::begin);
        auto at = static_cast<std::size_t>(after - segments_.begin());
        if (at > 0) --at;
        while (at < segments_.size() && !before(tail, segments_[at].begin)) {
            const Range segment = segments_[at];
            if (before(head, segment.end)) {
                if (before(head, segment.begin) && before(segment.end, tail)) {
                    segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(at));
                    continue;
                }
                if (!before(head, segment.begin)) head = segment.end;
                if (!before(segment.end, tail)) tail = segment.begin;
            }
            ++at;
        }
        const auto place = std::ranges::lower_bound(segments_, head, before, &Range::begin);
        return static_cast<std::size_t>(place - segments_.begin());
    }

    /// Moves on over the segments that are in order now.
    void deliver_following() {
        std::size_t in_order = 0;
        for (; in_order < segments_.size() && segments_[in_order].begin == next_; ++in_order)
            next_ = segments_[in_order].end;
        segments_.erase(segments_.begin(), segments_.begin() + static_cast<std::ptrdiff_t>(in_order));
        blocks_.forget(next_);
        if (has_low_) low_blocks_.forget(next_);
    }

    Sequence next_ = 0, fin_ = 0;
    bool has_fin_ = false;
    bool has_low_ = false;  ///< something has come at a low priority
    std::uint32_t window_bytes_ = window_bytes;
    std::vector<Range> segments_;  ///< out of order, by their beginning
    Blocks blocks_, low_blocks_;
};

/// Smoothed round-trip time and its mean deviation, by Jacobson's integers (RFC 6298 with shifts 3 and 2).
class RoundTripTime {
public:
    void measure(std::int64_t sample_ns) {
        if (!measured_) {
            measured_ = true;
            estimate_ns_ = sample_ns;
            deviation_ns_ = sample_ns / 2;
            return;
        }
        const std::int64_t error = sample_ns - estimate_ns_;
        estimate_ns_ = ((estimate_ns_ << 3) + error) >> 3;
        deviation_ns_ = ((deviation_ns_ << 2) + std::abs(error) - deviation_ns_) >> 2;
    }
    [[nodiscard]] std::int64_t estimate_ns() const { return estimate_ns_; }
    /// Timeout for the estimate, at least `least_ns`.
    [[nodiscard]] std::int64_t timeout_ns(std::int64_t least_ns) const {
        constexpr std::int64_t granularity_ns = 1000;
        return std::max(estimate_ns_ + std::max(granularity_ns, 4 * deviation_ns_), least_ns);
    }
    /// Linux's, which adds at least `least_ns` to the estimate.
    [[nodiscard]] std::int64_t timeout_above_ns(std::int64_t least_ns) const {
        return estimate_ns_ + std::max(least_ns, 4 * deviation_ns_);
    }

private:
    bool measured_ = false;
    std::int64_t estimate_ns_ = 200'000, deviation_ns_ = 0;
};

/// When segments were sent, for samples of the round-trip time.
class SendTimes {
public:
    void clear() { sent_.clear(); }
    void sent(Sequence sequence, std::uint32_t size, std::int64_t now) {
        sent_.push_back({sequence, sequence + size, now, false});
    }
    /// A segment is sent again: the record of its first byte gives no sample, and ends where the segment ends.
    void sent_again(Sequence sequence, std::uint32_t size) {
        std::size_t behind =
            first_place(sent_.size(), [&](std::size_t at) { return before(sequence, sent_[at].begin); });
        // A record that ends later than it did may reach over those behind it.
        while (behind > 1 && before(sequence, sent_[behind - 2].end)) --behind;
        if (behind == 0 || !before(sequence, sent_[behind - 1].end)) return;
        sent_[behind - 1].end = sequence + size;
        sent_[behind - 1].again = true;
    }
    /// The ages of what an acknowledgement is the first to acknowledge; -1 where it gives no sample.
    struct Sample {
        std::int64_t oldest_ns = -1, newest_ns = -1;
    };
    /// Forgets what is acknowledged.
    Sample acknowledge(Sequence acknowledged, std::int64_t now) {
        Sample sample;
        if (!sent_.empty() && !before(acknowledged, sent_.front().end) && !sent_.front().again)
            sample.oldest_ns = now - sent_.front().time_ns;
        for (; !sent_.empty() && !before(acknowledged, sent_.front().end); sent_.drop_front()) {
            if (!sent_.front().again) sample.newest_ns = now - sent_.front().time_ns;
        }
        return sample;
    }

private:
    struct Record {
        Sequence begin = 0, end = 0;
        std::int64_t time_ns = 0;
        bool again = false;
    };
    buffer::Ring<Record> sent_;
};

}  // namespace foretail::packets::native
