// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "buffer/policies/policy.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

/// Every queue has its own equal part of the buffer.
struct CompletePartitioning : PolicyTraits {
    static constexpr std::string_view name = "cp";

    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues) const {
        if (!queues.fits(arrival.size)) return Outcome::buffer_full;
        const Bytes after = queues.length(queues.queue_of(arrival)) + arrival.size;
        return queues.queues() * after <= queues.capacity() ? Outcome::accepted : Outcome::over_threshold;
    }
};

}  // namespace foretail::buffer
