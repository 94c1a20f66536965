// SPDX-License-Identifier: MIT
#pragma once

#include "native/hosts/frame.h"

namespace foretail::packets::native {

/// A sender's bytes from the oldest that is not acknowledged, and the scoreboard of RFC 6675 over those in flight.
///
/// A segment is lost when three above it were acknowledged selectively; with any of those the oldest is lost too. What
/// was sent again counts as in flight until a timeout, whatever becomes of it.
///
/// With RC3 it may learn that segments have come at a low priority, beyond what TCP has sent too. They are no evidence
/// of a loss. TCP passes over what it knows: that counts as sent and acknowledged selectively.
class SendBuffer {
public:
    void reset(std::uint32_t segment_bytes);
    /// Numbers the first byte. Nothing may be in flight.
    void set_head(Sequence head) { head_ = head; }
    /// Takes bytes from the application.
    void add(std::uint32_t bytes) { size_ += bytes; }

    [[nodiscard]] Sequence head() const { return head_; }
    [[nodiscard]] std::uint32_t size() const { return size_; }
    /// One past the last byte that was ever sent.
    [[nodiscard]] Sequence unsent() const { return head_ + sent_; }
    /// Bytes from a number on.
    [[nodiscard]] std::uint32_t bytes_from(Sequence sequence) const {
        return before(sequence, head_ + size_) ? head_ + size_ - sequence : 0;
    }
    /// Bytes in flight as RFC 6675 estimates them, "pipe".
    [[nodiscard]] std::uint32_t in_flight() const { return sent_ - sacked_ - lost_ + sent_again_; }

    struct Sent {
        std::uint32_t size = 0;
        bool again = false;
    };
    /// Counts up to `bytes` from `sequence` on as sent now: new ones, or some that are in flight.
    Sent send(Sequence sequence, std::uint32_t bytes);
    /// What to send next, by rules 1 to 3 of NextSeg in RFC 6675; the third only with `recovering`.
    [[nodiscard]] std::optional<Range> next(bool recovering, std::uint32_t window);

    /// Takes a cumulative acknowledgement; returns the bytes of segments that it reports first.
    std::uint32_t acknowledge(Sequence sequence);
    struct Reported {
        bool any = false;             ///< whether a segment was not sacked before
        std::uint32_t delivered = 0;  ///< bytes of segments that were not known to be delivered
    };
    /// Takes selective acknowledgements.
    Reported acknowledge(std::span<const Range> blocks);
    /// Learns what has come at a low priority.
    void learn(std::span<const Range> blocks);
    /// Passes over all before a number, which has come.
    void pass_to(Sequence sequence);

    /// After a timeout: all that was not acknowledged selectively is lost, and nothing was sent again.
    void lose_all();
    void lose_head();
    [[nodiscard]] bool is_lost(Sequence sequence) const;
    /// Whether a segment that ends at `end` is in flight, was sent again and was not acknowledged selectively.
    [[nodiscard]] bool ends_sent_again(Sequence end) const;

private:
    struct Segment {
        Sequence begin = 0;
        std::uint32_t size = 0;
        bool sacked = false, lost = false;
        bool again = false;      ///< sent again
        bool delivered = false;  ///< known to be, since it was last sent
        bool low = false;        ///< sacked because it has come at a low priority
        [[nodiscard]] Sequence end() const { return begin + size; }
        [[nodiscard]] bool is_hole() const { return lost && !sacked && !again; }
    };

    Segment& sent_segment(Sequence sequence, std::uint32_t bytes);
    /// Cuts segments or joins them until one has exactly these bytes, or is the last; returns its place.
    std::size_t cut(Sequence sequence, std::uint32_t bytes);
    void split(std::size_t at, std::uint32_t bytes);
    void join_with_next(std::size_t at);
    /// The segment with a number, or the first one behind it.
    [[nodiscard]] std::size_t place_of(Sequence sequence) const;
    /// Passes over what is known of the bytes that follow.
    [[gnu::noinline]] void pass_over_known();
    void mark_lost(std::size_t at);
    void mark_lost_below_highest();
    void add_run(Range segment);
    void forget_acknowledged();
    /// Passes over the segments that are acknowledged selectively.
    [[nodiscard]] std::size_t after_run(std::size_t at) const;
    [[nodiscard]] std::optional<std::size_t> first_hole();
    void rebuild();
    void remove_from_counts(const Segment& segment, std::uint32_t bytes);
    [[nodiscard]] bool may_be_lost(Sequence begin) const { return !any_sacked_ || before(begin, highest_sacked_); }

    std::uint32_t segment_bytes_ = 0;
    Sequence head_ = 0;
    std::uint32_t size_ = 0, sent_ = 0;                     ///< bytes in the buffer, and in flight
    std::uint32_t sacked_ = 0, lost_ = 0, sent_again_ = 0;  ///< bytes of segments that are so marked
    bool any_sacked_ = false;
    Sequence highest_sacked_ = 0;  ///< beginning of a segment
    Sequence lost_below_ = 0;      ///< segments that begin below it are lost or sacked
    std::size_t hole_from_ = 0;    ///< no segment before it is a hole
    buffer::Ring<Segment> segments_;
    std::vector<Range> runs_;   ///< of neighbouring segments that are sacked, without those of low priority
    std::vector<Range> known_;  ///< what has come at a low priority of what is not sent
};

}  // namespace foretail::packets::native
