// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

#include "buffer/types.hpp"

namespace foretail::buffer {

/// Units of the features: cells of 2^cell_shift bytes, averages over 2^average_shift ticks, times in 2^tick_shift
/// ticks. The lengths of queues and packets are in 2^unit_shift bytes. An interval shorter than a tick is one tick.
struct FeatureScale {
    int cell_shift = 8;
    int average_shift = 15;
    int tick_shift = 10;
    int unit_shift = 0;

    /// Fast averages run over a quarter of the interval.
    [[nodiscard]] FeatureScale fast() const {
        return {cell_shift, std::max(average_shift - 2, 0), tick_shift, unit_shift};
    }
    /// Slow arrival rates fade over an interval 2^7 times as long.
    [[nodiscard]] FeatureScale slow() const { return {cell_shift, average_shift + 7, tick_shift, unit_shift}; }
    [[nodiscard]] std::int64_t cells(Bytes length) const { return length << unit_shift >> cell_shift; }
};

/// Exponentially weighted average over 2^s ticks, at least one, in fixed point with 8 fractional bits and power-of-two
/// weights: no multiplication, so that a switch pipeline computes the same bits.
class ShiftAverage {
public:
    /// Takes in that the signal was `held` since the last call.
    [[gnu::always_inline]] void observe(Tick now, std::int64_t held, int s) {
        const Tick elapsed = now - last_;
        if (elapsed <= 0) return;
        s = std::max(s, 0);
        const auto capped = static_cast<std::uint64_t>(std::min(elapsed, Tick{1} << s));
        const int h = std::bit_width(capped) - 1;
        value_ += ((held << 8) - value_) >> (s - h);
        last_ = now;
    }
    /// The same one tick after the last call.
    void observe_next(std::int64_t held, int s) {
        value_ += ((held << 8) - value_) >> std::max(s, 0);
        ++last_;
    }
    /// Takes in an amount, in 1/256, that came at once.
    void add(std::int64_t amount) { value_ += amount; }
    [[nodiscard]] std::int64_t whole() const { return value_ >> 8; }
    /// How much more this is than another average, rounded down.
    [[nodiscard]] std::int64_t above(const ShiftAverage& other) const { return (value_ - other.value_) >> 8; }
    /// Time of the last observation.
    [[nodiscard]] Tick last() const { return last_; }

private:
    std::int64_t value_ = 0;
    Tick last_ = 0;
};

/// The averages of every queue and of their sum, in cells. Observe before each change of a queue.
class QueueAverages {
public:
    QueueAverages(QueueIndex queues, FeatureScale scale) : queues_(static_cast<std::size_t>(queues)), scale_(scale) {}

    void observe(QueueIndex queue, Tick now, Bytes length, Bytes sum) {
        queues_[static_cast<std::size_t>(queue)].observe(now, scale_.cells(length), scale_.average_shift);
        sum_.observe(now, scale_.cells(sum), scale_.average_shift);
    }
    [[nodiscard]] std::int64_t queue(QueueIndex queue) const {
        return queues_[static_cast<std::size_t>(queue)].whole();
    }
    [[nodiscard]] std::int64_t sum() const { return sum_.whole(); }
    /// How much these averages are above slower ones.
    [[nodiscard]] std::int64_t above(const QueueAverages& slow, QueueIndex queue) const {
        return queues_[static_cast<std::size_t>(queue)].above(slow.queues_[static_cast<std::size_t>(queue)]);
    }
    [[nodiscard]] std::int64_t sum_above(const QueueAverages& slow) const { return sum_.above(slow.sum_); }

private:
    std::vector<ShiftAverage> queues_;
    ShiftAverage sum_;
    FeatureScale scale_;
};

/// The largest value in the present window of 2^s ticks and in the one before. A window shorter than a tick has one
/// tick at most, and the ticks before and after it are not in the windows beside it.
class WindowedPeak {
public:
    void raise(Tick now, std::int64_t value, int s) {
        const Tick window = s < 0 ? now << -s : now >> s;
        if (window != window_) {
            before_ = window == window_ + 1 ? present_ : 0;
            present_ = 0;
            window_ = window;
        }
        present_ = std::max(present_, value);
    }
    [[nodiscard]] std::int64_t value() const { return std::max(present_, before_); }

private:
    Tick window_ = 0;
    std::int64_t present_ = 0, before_ = 0;
};

/// Cells that arrived for each queue and for all of them in about 2^average_shift ticks, and for all of them in an
/// interval of the slow scale, whatever became of them: every arrival adds its bytes to sums that fade between arrivals
/// as an average does. The peak of a queue's sum is that in windows of the slow scale.
class ArrivalRates {
public:
    ArrivalRates(QueueIndex queues, FeatureScale scale) : queues_(static_cast<std::size_t>(queues)), scale_(scale) {}

    void arrive(QueueIndex queue, const Arrival& arrival) {
        ShiftAverage& own = queues_[static_cast<std::size_t>(queue)];
        const std::int64_t amount = scale_.cells(arrival.size << 8);
        const int slow = scale_.slow().average_shift;
        add(own, arrival.time, amount, scale_.average_shift);
        add(sum_, arrival.time, amount, scale_.average_shift);
        add(slow_sum_, arrival.time, amount, slow);
        peak_.raise(arrival.time, own.whole(), slow);
    }
    /// Of a queue with an arrival now.
    [[nodiscard]] std::int64_t queue(QueueIndex queue) const {
        return queues_[static_cast<std::size_t>(queue)].whole();
    }
    [[nodiscard]] std::int64_t sum() const { return sum_.whole(); }
    [[nodiscard]] std::int64_t slow_sum() const { return slow_sum_.whole(); }
    /// The largest of any queue.
    [[nodiscard]] std::int64_t peak() const { return peak_.value(); }

private:
    [[gnu::always_inline]] static void add(ShiftAverage& rate, Tick now, std::int64_t amount, int s) {
        rate.observe(now, 0, s);
        rate.add(amount);
    }

    std::vector<ShiftAverage> queues_;
    ShiftAverage sum_, slow_sum_;
    WindowedPeak peak_;
    FeatureScale scale_;
};

}  // namespace foretail::buffer
