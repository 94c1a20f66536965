// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

#include "buffer/policies/policy.hpp"
#include "buffer/queues/congested_queues.hpp"
#include "buffer/queues/ingress_queues.hpp"
#include "buffer/queues/port_queues.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

/// Low-pass filter of a length that is constant between its changes (thesis equation 5.11, applied once per tick):
/// after `held` for dt ticks, average = held + (average - held) * keep^dt.
class LowPass {
public:
    /// Takes in that the signal was `held` since the last call.
    void observe(Tick now, Bytes held, double keep) {
        const Tick elapsed = now - last_;
        if (elapsed <= 0) return;
        const double kept = elapsed == 1 ? keep : std::pow(keep, static_cast<double>(elapsed));
        value_ = static_cast<double>(held) + (value_ - static_cast<double>(held)) * kept;
        last_ = now;
    }
    [[nodiscard]] double value() const { return value_; }

private:
    double value_ = 0;
    Tick last_ = 0;
};

/// Reverie (thesis equations 5.10-5.12): the low-passed length of the queue against alpha times the free buffer over
/// the number of congested queues. The queue is that at egress for lossy packets, and at ingress for those that may not
/// be lost. The buffer's end is a limit of its own.
class Reverie : public PolicyTraits {
public:
    static constexpr std::string_view name = "reverie";
    static constexpr std::array<std::string_view, 3> parameters = {"alpha", "rtt", "low_pass"};

    Reverie(const PolicySettings& settings, const Shape& shape)
        : alpha_(settings.alpha),
          congested_(alpha_.size(), settings.whole("rtt")),
          congested_at_ingress_(congested_),
          keep_(1 - 1 / settings.number("low_pass")),
          averages_(static_cast<std::size_t>(shape.queues())),
          ingress_averages_(averages_) {}

    void about_to_change(QueueIndex queue, Tick time, Bytes length) {
        averages_[static_cast<std::size_t>(queue)].observe(time, length, keep_);
    }

    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues) {
        const auto threshold = [&](QueueIndex, std::size_t priority) {
            return alpha_[priority] * static_cast<double>(queues.capacity() - queues.occupancy()) /
                   congested_.of(priority);
        };
        congested_.count(arrival.time, queues, threshold);
        if (!queues.fits(arrival.size)) return Outcome::buffer_full;
        const QueueIndex queue = queues.queue_of(arrival);
        return averages_[static_cast<std::size_t>(queue)].value() <= threshold(queue, arrival.priority)
                   ? Outcome::accepted
                   : Outcome::over_threshold;
    }

    void ingress_about_to_change(QueueIndex queue, Tick time, Bytes length) {
        ingress_averages_[static_cast<std::size_t>(queue)].observe(time, length, keep_);
    }
    [[nodiscard]] bool pauses(QueueIndex queue, Bytes reserve, Tick now, const QueueLengths& queues,
                              const IngressQueues& ingress) {
        const double shared = ingress.settings().alpha * static_cast<double>(queues.capacity() - queues.occupancy());
        const auto threshold = [&](QueueIndex, std::size_t priority) {
            return shared / congested_at_ingress_.of(priority);
        };
        congested_at_ingress_.count(now, ingress, threshold);
        ingress_about_to_change(queue, now, ingress.length(queue));
        return ingress_averages_[static_cast<std::size_t>(queue)].value() + static_cast<double>(reserve) >
               threshold(queue, static_cast<std::size_t>(ingress.priority_of(queue)));
    }

private:
    Alphas alpha_;
    CongestedQueues congested_, congested_at_ingress_;
    double keep_;
    std::vector<LowPass> averages_, ingress_averages_;
};

}  // namespace foretail::buffer
