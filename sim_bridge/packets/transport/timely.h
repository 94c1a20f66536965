// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>

#include "packets/settings/settings.h"
#include "packets/transport/congestion_law.h"

namespace foretail::packets {

/// TIMELY (Mittal's thesis, Algorithm 1 in section 3.3): a rate that follows the gradient of round-trip times.
///
/// The rate changes at most once per base round trip, with the newest sample: what scaling every change by the
/// completions per round trip comes to. The window is only the static limit on outstanding data: what a server sends in
/// `high_rtt_ns`.
class Timely {
public:
    static constexpr const char* name = "timely";

    Timely(const TimelySettings& settings, const Path& path)
        : settings_(settings),
          path_(path),
          step_(settings.increase_bps / 8e9),
          rate_(clamped(path.initial_window_bytes / path.base_rtt_ns)) {}

    [[nodiscard]] double window_bytes() const {
        return std::max(path_.segment_bytes, path_.bytes_per_ns * static_cast<double>(settings_.high_rtt_ns));
    }
    [[nodiscard]] double bytes_per_ns() const { return rate_; }

    void acknowledge(const Acknowledgement& ack) {
        if (static_cast<double>(ack.time_ns - last_update_ns_) < path_.base_rtt_ns) return;
        last_update_ns_ = ack.time_ns;
        const auto rtt = static_cast<double>(ack.rtt_ns);
        if (last_rtt_ns_ > 0) difference_ns_ += settings_.gradient_weight * (rtt - last_rtt_ns_ - difference_ns_);
        last_rtt_ns_ = rtt;
        rate_ = clamped(next_rate(rtt, difference_ns_ / path_.base_rtt_ns));
    }

private:
    double next_rate(double rtt_ns, double gradient) {
        falling_ = gradient < 0 ? falling_ + 1 : 0;
        if (rtt_ns < static_cast<double>(settings_.low_rtt_ns)) return rate_ + step_;
        if (rtt_ns > static_cast<double>(settings_.high_rtt_ns))
            return rate_ * (1 - settings_.decrease * (1 - static_cast<double>(settings_.high_rtt_ns) / rtt_ns));
        if (gradient <= 0) return rate_ + (falling_ >= hyperactive ? hyperactive : 1) * step_;
        return rate_ * (1 - settings_.decrease * gradient);
    }
    [[nodiscard]] double clamped(double rate) const {
        return std::clamp(rate, std::min(step_, path_.bytes_per_ns), path_.bytes_per_ns);
    }

    static constexpr int hyperactive =
        5;  ///< N, and the falling gradients in a row after which an increase is N times as large

    TimelySettings settings_;
    Path path_;
    double step_, rate_;
    double last_rtt_ns_ = 0, difference_ns_ = 0;
    std::int64_t last_update_ns_ = 0;
    int falling_ = 0;  ///< gradients below 0 in a row
};

}  // namespace foretail::packets
