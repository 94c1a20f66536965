// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "buffer/queues/ring.hpp"
#include "native/tcp/sequence.h"

namespace foretail::packets::native {

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
        std::size_t low = 0, high = sent_.size();
        while (low < high) {
            const std::size_t middle = (low + high) / 2;
            if (before(sequence, sent_[middle].begin))
                high = middle;
            else
                low = middle + 1;
        }
        // A record that ends later than it did may reach over those behind it.
        while (low > 1 && before(sequence, sent_[low - 2].end)) --low;
        if (low == 0 || !before(sequence, sent_[low - 1].end)) return;
        sent_[low - 1].end = sequence + size;
        sent_[low - 1].again = true;
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
