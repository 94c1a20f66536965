// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "buffer/queues/ring.hpp"
#include "native/hosts/frame.h"
#include "native/tcp/sequence.h"

namespace foretail::packets::native {

/// The segments that a sender has in flight, and RACK's judgement on them (RFC 8985): one is lost when another that was
/// sent after it is delivered, and a reordering window has passed since. That holds for retransmissions too. Counts are
/// in segments, and a FIN is one.
class Rack {
public:
    struct Segment {
        Sequence begin = 0;
        std::uint32_t bytes = 0;  ///< of data
        bool fin = false;
        bool sacked = false, lost = false;
        bool again = false;        ///< its retransmission is in flight
        bool ever_again = false;   ///< it was sent again
        std::int64_t sent_ns = 0;  ///< the last time
        [[nodiscard]] Sequence end() const { return begin + bytes + (fin ? 1U : 0U); }
    };
    /// What an acknowledgement says first.
    struct Report {
        std::uint32_t delivered = 0;  ///< segments
        bool advances = false, sacks = false;
        std::int64_t rtt_ns = -1;         ///< age of the oldest segment; -1: it may be that of a retransmission
        std::int64_t newest_rtt_ns = -1;  ///< age of the newest one
    };

    Rack() = default;
    /// Forgets all; the memory stays.
    void clear() { *this = Rack(std::move(segments_), std::move(sent_)); }

    [[nodiscard]] std::size_t size() const { return segments_.size(); }
    [[nodiscard]] bool empty() const { return segments_.empty(); }
    [[nodiscard]] const Segment& operator[](std::size_t at) const { return segments_[at]; }
    [[nodiscard]] std::uint32_t lost() const { return lost_; }
    [[nodiscard]] std::uint32_t in_flight() const {
        return static_cast<std::uint32_t>(segments_.size()) - sacked_ - lost_ + again_;
    }
    /// Whether everything in flight was sent once, and nothing is known of it.
    [[nodiscard]] bool is_orderly() const { return sacked_ + lost_ + again_ == 0; }
    [[nodiscard]] std::int64_t least_rtt_ns() const { return least_rtt_ns_; }

    void send(Sequence begin, std::uint32_t bytes, bool fin, std::int64_t now) {
        segments_.push_back({.begin = begin, .bytes = bytes, .fin = fin, .sent_ns = now});
        sent_.push_back({begin, now});
    }
    /// The segment at a place is sent again.
    const Segment& send_again(std::size_t at, std::int64_t now) {
        Segment& segment = segments_[at];
        if (!segment.again) ++again_;
        segment.again = segment.ever_again = true;
        segment.sent_ns = now;
        sent_.push_back({segment.begin, now});
        return segment;
    }
    /// The place of the first segment that is lost and was not sent again since.
    [[nodiscard]] std::optional<std::size_t> hole() {
        if (lost_ == 0) return std::nullopt;
        for (; hole_from_ < segments_.size(); ++hole_from_) {
            if (segments_[hole_from_].lost && !segments_[hole_from_].again) return hole_from_;
        }
        return std::nullopt;
    }

    Report acknowledge(Sequence acknowledged, std::span<const Range> blocks, std::int64_t now) {
        Report report;
        for (const Range& block : blocks) take(block, now, report);
        std::ranges::copy(blocks, known_.begin());
        known_blocks_ = blocks.size();
        std::int64_t oldest_ns = -1;
        bool any_again = false;
        while (!segments_.empty() && !before(acknowledged, segments_.front().end())) {
            Segment& segment = segments_.front();
            report.advances = true;
            any_again = any_again || segment.ever_again;
            if (segment.sacked) {
                --sacked_;
            } else {
                if (oldest_ns < 0) oldest_ns = now - segment.sent_ns;
                deliver(segment, now, report);
            }
            segments_.drop_front();
            if (hole_from_ > 0) --hole_from_;
        }
        if (any_again) {
            report.rtt_ns = -1;
        } else if (oldest_ns >= 0) {
            report.rtt_ns = oldest_ns;
        }
        if (report.newest_rtt_ns >= 0) least_rtt_ns_ = std::min(least_rtt_ns_, report.newest_rtt_ns);
        return report;
    }

    struct Detected {
        std::uint32_t lost = 0;    ///< segments
        bool lost_again = false;   ///< a retransmission among them
        std::int64_t wait_ns = 0;  ///< above 0: more may be lost after that time
    };
    /// Marks what is lost by now. `urgent`: losses are being repaired, so nothing is taken for reordering that has not
    /// been seen to happen. `fixed_window_ns`: the reordering window; below 0 it is Linux's.
    Detected detect(std::int64_t now, bool urgent, std::int64_t smoothed_rtt_ns, std::int64_t fixed_window_ns = -1) {
        constexpr std::uint32_t threshold = 3;
        Detected found;
        const bool at_once = !reordered_ && (urgent || sacked_ >= threshold);
        const std::int64_t own_window_ns = at_once ? 0 : std::min(least_rtt_ns_ / 4, smoothed_rtt_ns);
        const std::int64_t window_ns = fixed_window_ns < 0 ? own_window_ns : fixed_window_ns;
        while (!sent_.empty()) {
            const Sent sent = sent_.front();
            const std::optional<std::size_t> at = place_of(sent);
            if (at) {
                Segment& segment = segments_[*at];
                const bool earlier = sent.time_ns < newest_sent_ns_ ||
                                     (sent.time_ns == newest_sent_ns_ && before(segment.end(), newest_end_));
                if (!earlier) break;
                if (now - sent.time_ns < rtt_ns_ + window_ns) {
                    found.wait_ns = std::max<std::int64_t>(newest_sent_ns_ + rtt_ns_ + window_ns - now, 1);
                    break;
                }
                found.lost_again = found.lost_again || segment.again;
                ++found.lost;
                lose(*at);
            }
            sent_.drop_front();
        }
        return found;
    }
    /// After a timeout: all is lost but what was sent within the last round trip.
    void lose_all(std::int64_t now) {
        for (std::size_t at = 0; at < segments_.size(); ++at) {
            if (!segments_[at].sacked && (at == 0 || now - segments_[at].sent_ns >= rtt_ns_)) lose(at);
        }
    }

private:
    struct Sent {
        Sequence begin = 0;
        std::int64_t time_ns = 0;
    };

    Rack(buffer::Ring<Segment> segments, buffer::Ring<Sent> sent)
        : segments_(std::move(segments)), sent_(std::move(sent)) {
        segments_.clear();
        sent_.clear();
    }

    /// The place of the segment that ends behind a number, or the end.
    [[nodiscard]] std::size_t place_of(Sequence sequence) const {
        std::size_t low = 0, high = segments_.size();
        while (low < high) {
            const std::size_t middle = (low + high) / 2;
            if (before(sequence, segments_[middle].end())) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        return low;
    }
    /// The segment that was sent then, if it is in flight since.
    [[nodiscard]] std::optional<std::size_t> place_of(const Sent& sent) const {
        if (segments_.empty() || before(sent.begin, segments_.front().begin)) return std::nullopt;
        const std::size_t at = place_of(sent.begin);
        const Segment& segment = segments_[at];
        if (segment.sacked || segment.sent_ns != sent.time_ns || (segment.lost && !segment.again)) return std::nullopt;
        return at;
    }
    void take(const Range& block, std::int64_t now, Report& report) {
        std::size_t at = place_of(block.begin);
        if (at < segments_.size() && before(segments_[at].begin, block.begin)) ++at;
        while (at < segments_.size() && !before(block.end, segments_[at].end())) {
            Segment& segment = segments_[at];
            if (segment.sacked) {
                at = after_known(at);
                continue;
            }
            if (!segment.ever_again && report.rtt_ns < 0) report.rtt_ns = now - segment.sent_ns;
            deliver(segment, now, report);
            segment.sacked = report.sacks = true;
            ++sacked_;
            ++at;
        }
    }
    /// Passes over a segment that is sacked, and those beside it that the acknowledgement before named too.
    [[nodiscard]] std::size_t after_known(std::size_t at) const {
        for (std::size_t i = 0; i < known_blocks_; ++i) {
            if (!before(segments_[at].begin, known_[i].begin) && before(segments_[at].begin, known_[i].end))
                return std::max(place_of(known_[i].end), at + 1);
        }
        return at + 1;
    }
    void deliver(Segment& segment, std::int64_t now, Report& report) {
        ++report.delivered;
        if (segment.lost) --lost_;
        if (segment.again) --again_;
        segment.lost = segment.again = false;
        const std::int64_t age_ns = now - segment.sent_ns;
        if (!segment.ever_again) {
            report.newest_rtt_ns = age_ns;
            reordered_ = reordered_ || (any_delivered_ && before(segment.end(), highest_));
        }
        highest_ = any_delivered_ ? later(highest_, segment.end()) : segment.end();
        any_delivered_ = true;
        if (segment.ever_again && age_ns < least_rtt_ns_) return;  // of the transmission before
        rtt_ns_ = age_ns;
        if (segment.sent_ns < newest_sent_ns_ ||
            (segment.sent_ns == newest_sent_ns_ && before(segment.end(), newest_end_)))
            return;
        newest_sent_ns_ = segment.sent_ns;
        newest_end_ = segment.end();
    }
    void lose(std::size_t at) {
        Segment& segment = segments_[at];
        if (!segment.lost) ++lost_;
        if (segment.again) --again_;
        segment.lost = true;
        segment.again = false;
        hole_from_ = std::min(hole_from_, at);
    }

    buffer::Ring<Segment> segments_;
    buffer::Ring<Sent> sent_;  ///< in the order of time; old entries of what was sent again or delivered stay a while
    std::uint32_t sacked_ = 0, lost_ = 0, again_ = 0;
    std::size_t hole_from_ = 0;                    ///< no segment before it is a hole
    std::array<Range, Frame::most_blocks> known_;  ///< of the last acknowledgement
    std::size_t known_blocks_ = 0;

    std::int64_t newest_sent_ns_ = -1;  ///< of all that was delivered, what was sent last,
    Sequence newest_end_ = 0;           ///< and where it ends
    std::int64_t rtt_ns_ = 0;           ///< of what was delivered last
    std::int64_t least_rtt_ns_ = std::numeric_limits<std::int64_t>::max() / 4;
    bool any_delivered_ = false, reordered_ = false;
    Sequence highest_ = 0;  ///< one past the highest byte that was delivered
};

}  // namespace foretail::packets::native
