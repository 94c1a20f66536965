// SPDX-License-Identifier: MIT
// The drop-tail policies. Each decides one data arrival from the queues before it; the switch has already found that
// control packets need no decision. Longest Queue Drop, the only push-out policy, is in longest_queue_drop.hpp.
#pragma once

#include <algorithm>

#include "port_queues.hpp"
#include "types.hpp"

namespace foretail::buffer {

/// Accepts whatever fits. (N + 1)-competitive.
struct CompleteSharing {
    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues) const {
        return queues.fits(arrival.size) ? Outcome::accepted : Outcome::buffer_full;
    }
};

/// Choudhury and Hahne's Dynamic Thresholds: a queue may grow while it is shorter than alpha times the free buffer.
struct DynamicThresholds {
    double alpha = 0.5;

    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues) const {
        if (!queues.fits(arrival.size)) return Outcome::buffer_full;
        const auto free = static_cast<double>(queues.capacity() - queues.occupancy());
        return static_cast<double>(queues.length(arrival.port)) < alpha * free ? Outcome::accepted
                                                                               : Outcome::over_threshold;
    }
};

/// ABM (thesis equation 4.9) with one priority: Dynamic Thresholds over the number of congested queues, counted once
/// per round trip. With one priority a queue has the whole drain rate of its port, so that factor is 1.
class Abm {
public:
    Abm(double alpha, double first_rtt_alpha, Tick interval)
        : alpha_(alpha), first_rtt_alpha_(first_rtt_alpha), interval_(interval) {}

    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues) {
        if (arrival.time >= next_count_) count_congested(arrival.time, queues);
        if (!queues.fits(arrival.size)) return Outcome::buffer_full;
        const double alpha = arrival.first_rtt ? first_rtt_alpha_ : alpha_;
        return static_cast<double>(queues.length(arrival.port)) < threshold(alpha, queues) ? Outcome::accepted
                                                                                           : Outcome::over_threshold;
    }

private:
    template <class Queues>
    [[nodiscard]] double threshold(double alpha, const Queues& queues) const {
        return alpha * static_cast<double>(queues.capacity() - queues.occupancy()) / congested_;
    }
    /// A queue is congested from 0.9 of the threshold of the last interval on; none congested counts as one.
    template <class Queues>
    void count_congested(Tick now, const Queues& queues) {
        const double enough = 0.9 * threshold(alpha_, queues);
        int congested = 0;
        for (Port port = 0; port < queues.ports(); ++port) {
            const Bytes length = queues.length(port);
            congested += length > 0 && static_cast<double>(length) >= enough;
        }
        congested_ = std::max(congested, 1);
        next_count_ = (now / interval_ + 1) * interval_;
    }

    double alpha_, first_rtt_alpha_;
    Tick interval_;
    Tick next_count_ = 0;
    double congested_ = 1;
};

/// Follows the thresholds of a virtual LQD without predictions (Credence section 3.2).
struct FollowLqd {
    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues, Bytes threshold) const {
        if (!queues.fits(arrival.size)) return Outcome::buffer_full;
        return queues.length(arrival.port) + arrival.size <= threshold ? Outcome::accepted : Outcome::over_threshold;
    }
};

/// Credence (Algorithm 1): a safeguard that asks nobody, then the threshold of the virtual LQD, then the prediction.
struct Credence {
    /// The safeguard: even the longest queue is within an equal share, so any drop-tail policy may accept.
    template <class Queues>
    [[nodiscard]] static bool safe(const Arrival& arrival, const Queues& queues) {
        return queues.ports() * (queues.longest() + arrival.size) <= queues.capacity();
    }

    /// `predicts_drop()` is called at most once, and only when the answer decides.
    template <class Queues, class Ask>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues, Bytes threshold,
                                 Ask&& predicts_drop) const {
        if (safe(arrival, queues)) return Outcome::accepted;
        const Outcome followed = FollowLqd{}.decide(arrival, queues, threshold);
        if (followed != Outcome::accepted) return followed;
        return predicts_drop() ? Outcome::predicted : Outcome::accepted;
    }
};

/// Marks a switch that pushes out (LongestQueueDrop does the work).
struct PushOut {};

}  // namespace foretail::buffer
