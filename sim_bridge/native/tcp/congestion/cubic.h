// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "native/tcp/congestion/window.h"

namespace foretail::packets::native {

/// When HyStart leaves slow start: after a train of acknowledgements of 1/`train_part` of the smallest round trip, or
/// when the round trip is longer than the smallest by 1/`delay_part` of it, within bounds.
struct HyStart {
    std::int64_t train_part, delay_part;
    std::int64_t least_delay_ns, most_delay_ns;
};
inline constexpr HyStart hystart_of_ns3{1, 1, 4'000'000, 1'000'000'000};
inline constexpr HyStart hystart_of_linux{2, 8, 4'000'000, 16'000'000};

/// RFC 9438 with windows in segments, as Linux counts them, and HyStart to leave slow start.
class Cubic {
public:
    /// Of a sender that opens its connection `now`.
    explicit Cubic(std::int64_t now, const HyStart& hystart = hystart_of_ns3)
        : hystart_(&hystart), round_begin_ns_(now), last_of_train_ns_(now) {}

    void acknowledged(Window& window, std::uint32_t, std::int64_t rtt_ns, std::int64_t now) {
        // Samples right after a recovery are of the queue that caused it.
        if (epoch_ns_ && now - *epoch_ns_ < quiet_ns) return;
        if (!least_rtt_ns_ || *least_rtt_ns_ > rtt_ns) least_rtt_ns_ = rtt_ns;
        const bool slow_start = window.bytes <= window.slow_start_bytes;
        if (slow_start && window.bytes >= hystart_segments * window.segment_bytes) observe(window, rtt_ns, now);
    }
    void increase(Window& window, std::uint32_t segments, std::int64_t now) {
        if (!window.is_full) return;
        if (window.bytes < window.slow_start_bytes) {
            if (before(round_end_, window.last_acknowledged)) begin_round(window, now);
            window.bytes += segments * window.segment_bytes;
            return;
        }
        if (segments == 0) return;
        counted_ += segments;
        const std::uint32_t needed = segments_per_growth(window.segments(), segments, now);
        if (counted_ < needed) return;
        window.bytes += window.segment_bytes;
        counted_ -= needed;
    }
    [[nodiscard]] std::uint32_t threshold(const Window& window, std::uint32_t) {
        const std::uint32_t width = window.segments();
        // Fast convergence (section 4.7): who has less than before leaves more to others.
        most_ = width < most_ ? static_cast<std::uint32_t>(width * (1 + decrease) / 2) : width;
        epoch_ns_.reset();
        return std::max(static_cast<std::uint32_t>(width * decrease), 2U) * window.segment_bytes;
    }
    void timed_out(const Window& window, std::int64_t now) {
        origin_ = acknowledged_ = reno_ = 0;
        delay_ = 0;
        least_rtt_ns_.reset();
        leaves_slow_start_ = false;
        begin_round(window, now);
    }

private:
    static constexpr double scale = 0.4, decrease = 0.7;  ///< C and beta
    static constexpr std::uint32_t hystart_segments = 16, hystart_samples = 8;
    static constexpr std::int64_t train_ns = 2'000'000, quiet_ns = 10'000'000;
    static constexpr std::uint32_t first_growth = 20;  ///< at most so many segments, before anything was lost

    /// How many segments have to be acknowledged until the window of `width` segments grows by one.
    std::uint32_t segments_per_growth(std::uint32_t width, std::uint32_t segments, std::int64_t now) {
        acknowledged_ += segments;
        if (!epoch_ns_) begin_epoch(width, segments, now);
        const double seconds = static_cast<double>(now + least_rtt_ns_.value_or(0) - *epoch_ns_) / 1e9;
        const bool rises_to_origin = seconds < delay_;
        const double offset = rises_to_origin ? delay_ - seconds : seconds - delay_;
        const auto change = static_cast<std::uint32_t>(scale * std::pow(offset, 3));
        const std::uint32_t target = rises_to_origin ? origin_ - change : origin_ + change;
        std::uint32_t needed = target > width ? width / (target - width) : 100 * width;
        if (most_ == 0) needed = std::min(needed, first_growth);
        return std::max(reno_friendly(needed, width), 2U);
    }
    void begin_epoch(std::uint32_t width, std::uint32_t segments, std::int64_t now) {
        epoch_ns_ = now;
        acknowledged_ = segments;
        reno_ = width;
        delay_ = most_ <= width ? 0.0 : std::pow((most_ - width) / scale, 1 / 3.);
        origin_ = std::max(most_, width);
    }
    /// No fewer than Reno would have (section 4.3).
    std::uint32_t reno_friendly(std::uint32_t needed, std::uint32_t width) {
        constexpr auto share = static_cast<std::uint32_t>(8 * (1024 + decrease * 1024) / 3 / (1024 - decrease * 1024));
        const std::uint32_t per_growth = (width * share) >> 3;
        while (acknowledged_ > per_growth) {
            acknowledged_ -= per_growth;
            ++reno_;
        }
        return reno_ > width ? std::min(needed, width / (reno_ - width)) : needed;
    }

    void begin_round(const Window& window, std::int64_t now) {
        round_begin_ns_ = last_of_train_ns_ = now;
        round_end_ = window.highest;
        round_rtt_ns_ = 0;
        samples_ = 0;
    }
    /// HyStart: leaves slow start when a train of acknowledgements is as long as the path, or the path grows longer.
    void observe(Window& window, std::int64_t rtt_ns, std::int64_t now) {
        if (leaves_slow_start_) return;
        if (now - last_of_train_ns_ <= train_ns) {
            last_of_train_ns_ = now;
            if (now - round_begin_ns_ > *least_rtt_ns_ / hystart_->train_part) leaves_slow_start_ = true;
        }
        if (samples_ < hystart_samples) {
            if (round_rtt_ns_ == 0 || round_rtt_ns_ > rtt_ns) round_rtt_ns_ = rtt_ns;
            ++samples_;
        } else if (round_rtt_ns_ > *least_rtt_ns_ + std::clamp(*least_rtt_ns_ / hystart_->delay_part,
                                                               hystart_->least_delay_ns, hystart_->most_delay_ns)) {
            leaves_slow_start_ = true;
        }
        if (leaves_slow_start_) window.slow_start_bytes = window.bytes;
    }

    const HyStart* hystart_;
    std::uint32_t counted_ = 0;  ///< segments since the window grew
    std::uint32_t most_ = 0;     ///< W_max: segments before the last reduction
    std::uint32_t origin_ = 0;   ///< segments that the curve is level at
    double delay_ = 0;           ///< K: seconds from a reduction until it is there
    std::optional<std::int64_t> epoch_ns_;
    std::uint32_t acknowledged_ = 0;  ///< segments, since the epoch began or Reno's window grew
    std::uint32_t reno_ = 0;          ///< segments that Reno would have
    std::optional<std::int64_t> least_rtt_ns_;

    bool leaves_slow_start_ = false;
    std::int64_t round_begin_ns_, last_of_train_ns_, round_rtt_ns_ = 0;
    Sequence round_end_ = 0;
    std::uint32_t samples_ = 0;
};

}  // namespace foretail::packets::native
