// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "buffer/policies/policy.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

/// Follows the thresholds of a virtual LQD without predictions (Credence section 3.2).
struct FollowLqd : PolicyTraits {
    static constexpr std::string_view name = "followlqd";
    static constexpr bool follows_thresholds = true;

    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues, Bytes threshold) const {
        if (!queues.fits(arrival.size)) return Outcome::buffer_full;
        return queues.length(queues.queue_of(arrival)) + arrival.size <= threshold ? Outcome::accepted
                                                                                   : Outcome::over_threshold;
    }
};

}  // namespace foretail::buffer
