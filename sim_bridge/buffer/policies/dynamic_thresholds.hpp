// SPDX-License-Identifier: MIT
#pragma once

#include <array>
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
    static constexpr std::array<std::string_view, 1> parameters = {"alpha"};
    static constexpr bool takes_alpha = true;

    DynamicThresholds(const PolicySettings& settings, const Shape& shape) {
        for (Port port = 0; port < shape.ports(); ++port)
            alpha_.insert(alpha_.end(), settings.alpha.begin(), settings.alpha.end());
    }

    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues) const {
        if (!queues.fits(arrival.size)) return Outcome::buffer_full;
        const QueueIndex queue = queues.queue_of(arrival);
        const double length = static_cast<double>(queues.length(queue));
        return length < threshold(queue, queues) ? Outcome::accepted : Outcome::over_threshold;
    }

    template <class Queues>
    [[nodiscard]] double threshold(QueueIndex queue, const Queues& queues) const {
        return alpha(queue) * static_cast<double>(queues.capacity() - queues.occupancy());
    }

    [[nodiscard]] double alpha(QueueIndex queue) const { return alpha_[static_cast<std::size_t>(queue)]; }
    void set_alpha(QueueIndex queue, double alpha) { alpha_[static_cast<std::size_t>(queue)] = alpha; }

private:
    Alphas alpha_;  // of each queue
};

}  // namespace foretail::buffer
