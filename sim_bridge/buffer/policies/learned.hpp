// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "buffer/policies/complete_sharing.hpp"
#include "buffer/policies/policy.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

/// A learned rule: Complete Sharing, but for the packets that a predictor drops. It asks for every data packet.
struct Learned : PolicyTraits {
    static constexpr std::string_view name = "learned";
    static constexpr bool asks = true;

    template <class Queues, class Ask>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues, Ask&& predicts_drop) const {
        return predicts_drop() ? Outcome::predicted : CompleteSharing{}.decide(arrival, queues);
    }
};

}  // namespace foretail::buffer
