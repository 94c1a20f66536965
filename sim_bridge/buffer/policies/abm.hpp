// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <string_view>
#include <vector>

#include "buffer/policies/policy.hpp"
#include "buffer/queues/congested_queues.hpp"
#include "buffer/queues/ingress_queues.hpp"
#include "buffer/queues/port_queues.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

/// ABM (thesis equation 4.9): Dynamic Thresholds over the number of congested queues of the priority, times the queue's
/// share of its port. Of the port's non-empty queues, its own always among them, every one has the same share under
/// round robin, one as its quantum under deficit round robin, and the first has all of it under strict priority.
class Abm : public PolicyTraits {
public:
    static constexpr std::string_view name = "abm";
    static constexpr std::array<std::string_view, 3> parameters = {"alpha", "first_rtt_alpha", "rtt"};

    Abm(const PolicySettings& settings, const Shape& shape)
        : alpha_(settings.alpha),
          strict_(shape.scheduler == Scheduler::strict),
          weights_(shape.scheduler == Scheduler::deficit_round_robin ? shape.quanta
                                                                     : std::vector<Bytes>(alpha_.size(), 1)),
          first_rtt_alpha_(settings.number("first_rtt_alpha")),
          congested_(alpha_.size(), settings.whole("rtt")),
          congested_at_ingress_(congested_) {}

    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues) {
        congested_.count(arrival.time, queues, [&](QueueIndex queue, std::size_t priority) {
            return threshold(alpha_[priority], queue, priority, queues);
        });
        if (!queues.fits(arrival.size)) return Outcome::buffer_full;
        const double alpha = arrival.first_rtt ? first_rtt_alpha_ : alpha_[arrival.priority];
        const QueueIndex queue = queues.queue_of(arrival);
        return static_cast<double>(queues.length(queue)) < threshold(alpha, queue, arrival.priority, queues)
                   ? Outcome::accepted
                   : Outcome::over_threshold;
    }

    /// At ingress, over the congested queues of the priority there, as if each drained at the rate of its port.
    [[nodiscard]] bool pauses(QueueIndex queue, Bytes reserve, Tick now, const QueueLengths& queues,
                              const IngressQueues& ingress) {
        const double shared = ingress.settings().alpha * static_cast<double>(queues.capacity() - queues.occupancy());
        const auto threshold = [&](QueueIndex, std::size_t priority) {
            return shared / congested_at_ingress_.of(priority);
        };
        congested_at_ingress_.count(now, ingress, threshold);
        return static_cast<double>(ingress.length(queue) + reserve) >=
               threshold(queue, static_cast<std::size_t>(ingress.priority_of(queue)));
    }

private:
    template <class Queues>
    [[nodiscard]] double threshold(double alpha, QueueIndex queue, std::size_t priority, const Queues& queues) const {
        const double sharers = congested_.of(priority) * one_over_share(queue, queues);
        return alpha * static_cast<double>(queues.capacity() - queues.occupancy()) / sharers;
    }
    /// Over the queue's share of its port; infinite where a queue goes first.
    template <class Queues>
    [[nodiscard]] double one_over_share(QueueIndex queue, const Queues& queues) const {
        if (alpha_.size() == 1) return 1;
        const auto priorities = static_cast<QueueIndex>(alpha_.size());
        const QueueIndex first = queues.port_of(queue) * priorities;
        Bytes active = 0, own = 0;
        for (QueueIndex p = 0; p < priorities; ++p) {
            const Bytes weight = weights_[static_cast<std::size_t>(p)];
            if (first + p == queue) {
                if (strict_) return 1;
                active += own = weight;
            } else if (queues.length(first + p) > 0) {
                if (strict_) return std::numeric_limits<double>::infinity();
                active += weight;
            }
        }
        return static_cast<double>(active) / static_cast<double>(own);
    }

    Alphas alpha_;
    bool strict_;
    std::vector<Bytes> weights_;
    double first_rtt_alpha_;
    CongestedQueues congested_, congested_at_ingress_;
};

}  // namespace foretail::buffer
