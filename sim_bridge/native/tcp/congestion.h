// SPDX-License-Identifier: MIT
// Congestion windows of TCP: New Reno, Cubic, DCTCP, and the proportional rate reduction.
#pragma once

#include <cmath>
#include <variant>

#include "native/hosts/frame.h"

namespace foretail::packets::native {

/// What a sender or receiver knows of marks (RFC 3168).
enum class Ecn : std::uint8_t {
    disabled,
    idle,
    marked,         ///< a mark was received, and will be echoed
    echoing,        ///< it was echoed
    echo_received,  ///< the window is to be reduced
    reduced         ///< the receiver was told so
};

/// What congestion control has to know of its sender, and what it decides.
struct Window {
    std::uint32_t segment_bytes = 0;
    std::uint32_t bytes = 0;             ///< congestion window
    std::uint32_t slow_start_bytes = 0;  ///< threshold below which it grows fast
    std::uint32_t in_flight = 0;         ///< as it was last estimated
    Sequence next = 0;                   ///< SND.NXT
    Sequence highest = 0;                ///< one past the highest number ever sent
    Sequence last_acknowledged = 0;
    Ecn ecn = Ecn::disabled;
    bool is_full = false;  ///< after the last segment there was no room for another

    [[nodiscard]] std::uint32_t segments() const { return bytes / segment_bytes; }
};

/// Proportional rate reduction (RFC 6937): the window comes down to its threshold while acknowledgements come in.
/// Counts wrap after 32 bits, their products too.
class RateReduction {
public:
    void begin(Window& window, std::uint32_t delivered) {
        sent_ = delivered_ = 0;
        outstanding_ = window.in_flight;
        advance(window, delivered, true, false);
    }
    /// `progress`: an acknowledgement of data that was sent again.
    void advance(Window& window, std::uint32_t delivered, bool duplicate, bool progress) {
        if (duplicate && delivered_ < outstanding_) delivered += window.segment_bytes;
        if (delivered == 0) return;
        delivered_ += delivered;
        std::int32_t budget = 0;
        if (window.in_flight > window.slow_start_bytes) {
            const std::uint32_t product = delivered_ * window.slow_start_bytes;
            budget = static_cast<std::int32_t>(std::ceil(product * 1.0 / outstanding_) - sent_);
        } else {
            std::uint32_t limit = std::max(delivered_ - sent_, delivered);
            if (progress) limit += window.segment_bytes;
            budget = std::min(static_cast<std::int32_t>(limit),
                              static_cast<std::int32_t>(window.slow_start_bytes - window.in_flight));
        }
        // The first segment is sent at once.
        const auto least = static_cast<std::int32_t>(sent_ > 0 ? 0 : window.segment_bytes);
        window.bytes = window.in_flight + static_cast<std::uint32_t>(std::max(budget, least));
    }
    void sent(std::uint32_t bytes) { sent_ += bytes; }

private:
    std::uint32_t sent_ = 0, delivered_ = 0;
    std::uint32_t outstanding_ = 0;  ///< when the reduction began
};

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

/// RFC 5681 and 6582.
class NewReno {
public:
    void acknowledged(Window&, std::uint32_t, std::int64_t, std::int64_t) {}
    void increase(Window& window, std::uint32_t segments, std::int64_t) {
        if (window.bytes < window.slow_start_bytes && segments > 0) {
            window.bytes += window.segment_bytes;
            --segments;
        } else if (window.bytes < window.slow_start_bytes) {
            return;
        }
        if (window.bytes < window.slow_start_bytes || segments == 0) return;
        const double squared = static_cast<double>(window.segment_bytes) * window.segment_bytes;
        window.bytes += static_cast<std::uint32_t>(std::max(1.0, squared / window.bytes));
    }
    [[nodiscard]] std::uint32_t threshold(const Window& window, std::uint32_t in_flight) {
        return std::max(2 * window.segment_bytes, in_flight / 2);
    }
    void timed_out(const Window&, std::int64_t) {}
};

/// RFC 8257 over the window growth of Linux's Reno.
class Dctcp {
public:
    void acknowledged(Window& window, std::uint32_t segments, std::int64_t, std::int64_t) {
        acknowledged_bytes_ += segments * window.segment_bytes;
        if (window.ecn == Ecn::echo_received) marked_bytes_ += segments * window.segment_bytes;
        if (!observes_) {
            observes_ = true;
            end_of_observation_ = window.next;
        }
        if (before(window.last_acknowledged, end_of_observation_)) return;
        const double share = acknowledged_bytes_ > 0 ? static_cast<double>(marked_bytes_) / acknowledged_bytes_ : 0.0;
        alpha_ = (1.0 - gain) * alpha_ + gain * share;
        end_of_observation_ = window.next;
        acknowledged_bytes_ = marked_bytes_ = 0;
    }
    void increase(Window& window, std::uint32_t segments, std::int64_t) {
        if (window.bytes < window.slow_start_bytes) {
            window.bytes = std::min(window.bytes + segments * window.segment_bytes, window.slow_start_bytes);
            return;
        }
        const std::uint32_t width = std::max<std::uint32_t>(1, window.segments());
        if (counted_ >= width) {
            counted_ = 0;
            window.bytes += window.segment_bytes;
        }
        counted_ += segments;
        window.bytes += counted_ / width * window.segment_bytes;
        counted_ %= width;
    }
    [[nodiscard]] std::uint32_t threshold(const Window& window, std::uint32_t) {
        return static_cast<std::uint32_t>((1 - alpha_ / 2.0) * window.bytes);
    }
    void timed_out(const Window&, std::int64_t) {}

private:
    static constexpr double gain = 0.0625;

    double alpha_ = 1.0;
    std::uint32_t acknowledged_bytes_ = 0, marked_bytes_ = 0;
    std::uint32_t counted_ = 0;  ///< segments since the window grew
    bool observes_ = false;
    Sequence end_of_observation_ = 0;
};

/// The congestion control of one sender.
class Congestion {
    template <class Use>
    auto apply(Use&& use) {
        if (auto* law = std::get_if<NewReno>(&law_)) return use(*law);
        if (auto* law = std::get_if<Dctcp>(&law_)) return use(*law);
        return use(*std::get_if<Cubic>(&law_));
    }

public:
    /// That of a sender that opens its connection `now`.
    explicit Congestion(const std::string& name = "newreno", std::int64_t now = 0) {
        if (name == "dctcp") law_.emplace<Dctcp>();
        if (name == "cubic") law_.emplace<Cubic>(now);
    }
    /// Segments were acknowledged.
    void acknowledged(Window& window, std::uint32_t segments, std::int64_t rtt_ns, std::int64_t now) {
        apply([&](auto& law) { law.acknowledged(window, segments, rtt_ns, now); });
    }
    /// The window may grow for them.
    void increase(Window& window, std::uint32_t segments, std::int64_t now) {
        apply([&](auto& law) { law.increase(window, segments, now); });
    }
    /// The threshold after a loss or a mark.
    [[nodiscard]] std::uint32_t threshold(const Window& window, std::uint32_t in_flight) {
        return apply([&](auto& law) { return law.threshold(window, in_flight); });
    }
    void timed_out(const Window& window, std::int64_t now) {
        apply([&](auto& law) { law.timed_out(window, now); });
    }

private:
    std::variant<NewReno, Dctcp, Cubic> law_;
};

}  // namespace foretail::packets::native
