// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "packets/settings/settings.h"
#include "packets/transport/congestion_law.h"

namespace foretail::packets {

/// The sender of DCQCN (Zhu et al., SIGCOMM 2015): a rate that falls at notifications of congestion, and rises again
/// by a timer and by a counter of bytes.
///
/// A sender begins at the rate of its link, and neither timer runs before the first notification. Timers are worked
/// out when a packet is sent or a notification comes: only then does the rate matter, so they need no events.
class Dcqcn {
public:
    static constexpr std::string_view name = dcqcn;

    Dcqcn(const DcqcnSettings& settings, const Path& path)
        : settings_(settings),
          line_(path.bytes_per_ns),
          additive_(settings.additive_bps / 8e9),
          hyper_(settings.hyper_bps / 8e9),
          rate_(line_),
          target_(line_) {}

    /// That of now, if `sent` or `notified` was called now.
    [[nodiscard]] double bytes_per_ns() const { return rate_; }

    /// A packet leaves; the rate is that by which the next one has to wait.
    void sent(std::int64_t now, std::int64_t bytes) {
        if (notified_ns_ < 0) return;
        let_timer_run(now);
        for (counted_bytes_ += bytes; counted_bytes_ >= settings_.increase_bytes;
             counted_bytes_ -= settings_.increase_bytes) {
            ++byte_rounds_;
            increase();
        }
    }
    /// A notification of congestion comes.
    void notified(std::int64_t now) {
        if (notified_ns_ >= 0) {
            let_timer_run(now);
            alpha_ *= power(1 - settings_.gain, (now - notified_ns_) / settings_.alpha_interval_ns);
        }
        target_ = rate_;
        rate_ = std::max(rate_ * (1 - alpha_ / 2), std::min(additive_, line_));
        alpha_ = (1 - settings_.gain) * alpha_ + settings_.gain;
        notified_ns_ = now;
        timer_rounds_ = byte_rounds_ = counted_bytes_ = 0;
    }

private:
    void let_timer_run(std::int64_t now) {
        const std::int64_t due = (now - notified_ns_) / settings_.increase_interval_ns;
        while (timer_rounds_ < due) {
            const double before = rate_;
            ++timer_rounds_;
            increase();
            if (rate_ == before && target_ == line_) timer_rounds_ = due;  // nothing changes any more
        }
    }
    void increase() {
        if (std::min(timer_rounds_, byte_rounds_) > settings_.fast_rounds) {
            target_ += hyper_;
        } else if (std::max(timer_rounds_, byte_rounds_) >= settings_.fast_rounds) {
            target_ += additive_;
        }
        target_ = std::min(target_, line_);
        rate_ = (rate_ + target_) / 2;
    }
    /// Without std::pow, which need not round alike everywhere.
    static double power(double base, std::int64_t exponent) {
        double found = 1;
        for (; exponent > 0; exponent /= 2, base *= base) {
            if (exponent % 2 == 1) found *= base;
        }
        return found;
    }

    DcqcnSettings settings_;
    double line_, additive_, hyper_;
    double rate_, target_;
    double alpha_ = 1;                ///< as of the last notification
    std::int64_t notified_ns_ = -1;   ///< of the last notification; -1: there was none
    std::int64_t timer_rounds_ = 0;   ///< of the timer since then
    std::int64_t byte_rounds_ = 0;    ///< of the counter of bytes since then
    std::int64_t counted_bytes_ = 0;  ///< in its round that has begun
};

}  // namespace foretail::packets
