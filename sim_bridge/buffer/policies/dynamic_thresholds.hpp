// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string_view>

#include "buffer/policies/policy.hpp"
#include "buffer/queues/port_queues.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

/// Choudhury and Hahne's Dynamic Thresholds: a queue may grow while it is shorter than alpha times the free buffer.
class DynamicThresholds : public PolicyTraits {
public:
    static constexpr std::string_view name = "dt";

    DynamicThresholds(const PolicySettings& settings, const Shape&) : alpha_(settings.alpha) {}

    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues) const {
        if (!queues.fits(arrival.size)) return Outcome::buffer_full;
        const double length = static_cast<double>(queues.length(queues.queue_of(arrival)));
        return length < threshold(arrival.priority, queues) ? Outcome::accepted : Outcome::over_threshold;
    }

    template <class Queues>
    [[nodiscard]] double threshold(std::size_t priority, const Queues& queues) const {
        return alpha_[priority] * static_cast<double>(queues.capacity() - queues.occupancy());
    }

private:
    Alphas alpha_;
};

}  // namespace foretail::buffer
