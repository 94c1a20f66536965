// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "buffer/types.hpp"

namespace foretail::buffer {

/// How many queues of each priority are congested, counted once per interval: a queue is, from 0.9 of its threshold on.
class CongestedQueues {
public:
    CongestedQueues(std::size_t priorities, Tick interval) : congested_(priorities, 1), interval_(interval) {}

    /// Of this priority, in the last interval; none counts as one.
    [[nodiscard]] double of(std::size_t priority) const { return congested_[priority]; }

    /// Counts at the first call of an interval. `threshold(queue, priority)` still sees the old counts.
    template <class Queues, class Threshold>
    void count(Tick now, const Queues& queues, Threshold&& threshold) {
        if (now < next_) return;
        next_ = (now / interval_ + 1) * interval_;
        const auto priorities = static_cast<QueueIndex>(congested_.size());
        for (QueueIndex p = 0; p < priorities; ++p) {
            int congested = 0;
            for (QueueIndex queue = p; queue < queues.queues(); queue += priorities) {
                const Bytes length = queues.length(queue);
                congested +=
                    length > 0 && static_cast<double>(length) >= 0.9 * threshold(queue, static_cast<std::size_t>(p));
            }
            congested_[static_cast<std::size_t>(p)] = std::max(congested, 1);
        }
    }

private:
    std::vector<double> congested_;
    Tick interval_, next_ = 0;
};

}  // namespace foretail::buffer
