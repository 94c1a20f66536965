// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "packets/settings/settings.h"
#include "packets/transport/congestion_law.h"
#include "packets/transport/telemetry.h"

namespace foretail::packets {

/// What both versions share: the window of equation 2.16, paced over one base round trip, and the smoothed power.
class PowerWindow {
public:
    PowerWindow(const PowerTcpSettings& settings, const Path& path)
        : path_(path),
          gamma_(settings.gamma),
          increase_bytes_(path.base_rtt_ns * path.bytes_per_ns / settings.expected_flows),
          window_bytes_(path.clamped(path.initial_window_bytes)) {}

    [[nodiscard]] double window_bytes() const { return window_bytes_; }
    [[nodiscard]] double bytes_per_ns() const { return window_bytes_ / path_.base_rtt_ns; }

protected:
    /// Power relative to that of a full link without a queue, over the last `interval_ns`.
    void smooth(double power, double interval_ns) {
        const double weight = std::min(interval_ns, path_.base_rtt_ns) / path_.base_rtt_ns;
        power_ += weight * (power - power_);
    }
    void update(double old_window_bytes) {
        const double scaled = old_window_bytes / power_ + increase_bytes_;
        window_bytes_ = path_.clamped(gamma_ * scaled + (1 - gamma_) * window_bytes_);
    }

    /// Of the link's rate. A window cut below what is in flight silences its sender: without a bound, as in the thesis,
    /// the power measured over the silence would open the window wide. The authors' public simulator bounds it so too.
    static constexpr double smallest_current = 0.5;

    Path path_;

private:
    double gamma_, increase_bytes_, window_bytes_;
    double power_ = 1;
};

/// theta-PowerTCP: power from round-trip times alone, one update per round trip (thesis, Algorithm 2, equation 2.27).
class ThetaPowerTcp : public PowerWindow {
public:
    static constexpr const char* name = "theta_powertcp";
    using PowerWindow::PowerWindow;

    void acknowledge(const Acknowledgement& ack) {
        if (last_rtt_ns_ == 0) {
            last_time_ns_ = ack.time_ns;
            last_rtt_ns_ = ack.rtt_ns;
        } else if (ack.time_ns > last_time_ns_) {
            const auto interval = static_cast<double>(ack.time_ns - last_time_ns_);
            const double gradient = static_cast<double>(ack.rtt_ns - last_rtt_ns_) / interval;
            const double current = std::max(smallest_current, gradient + 1);
            smooth(current * static_cast<double>(ack.rtt_ns) / path_.base_rtt_ns, interval);
            last_time_ns_ = ack.time_ns;
            last_rtt_ns_ = ack.rtt_ns;
        }
        if (ack.round_over) update(window_bytes());
    }

private:
    std::int64_t last_time_ns_ = 0, last_rtt_ns_ = 0;
};

/// PowerTCP: power from in-band telemetry of every hop, an update at every acknowledgement (thesis, Algorithm 1).
class PowerTcp : public PowerWindow {
public:
    static constexpr const char* name = "powertcp";
    PowerTcp(const PowerTcpSettings& settings, const Path& path)
        : PowerWindow(settings, path), old_window_bytes_(window_bytes()) {}

    void acknowledge(const Acknowledgement& ack) {
        if (ack.hops.empty()) return;
        if (last_.hops().size() == ack.hops.size()) {
            smooth_largest(ack.hops);
            update(old_window_bytes_);
        }
        last_.clear();
        for (const Hop& hop : ack.hops) last_.append(hop);
        if (ack.round_over) old_window_bytes_ = window_bytes();
    }

private:
    /// Each hop's power is relative to that of its own full link; the largest one counts.
    void smooth_largest(std::span<const Hop> hops) {
        double largest = 0, bounded = 0, interval = 0;
        for (std::size_t i = 0; i < hops.size(); ++i) {
            const Hop &now = hops[i], &last = last_.hops()[i];
            const auto time = static_cast<double>(now.time_ns - last.time_ns);
            if (time <= 0) continue;
            const auto arrived =
                static_cast<double>(now.queue_bytes - last.queue_bytes + now.sent_bytes - last.sent_bytes);
            const double current = arrived / time / now.bytes_per_ns;
            const double voltage = 1 + static_cast<double>(now.queue_bytes) / (now.bytes_per_ns * path_.base_rtt_ns);
            if (current * voltage > largest) {
                largest = current * voltage;
                bounded = std::max(smallest_current, current) * voltage;
                interval = time;
            }
        }
        smooth(bounded, interval);
    }

    Telemetry last_;  ///< of the acknowledgement before
    double old_window_bytes_;
};

}  // namespace foretail::packets
