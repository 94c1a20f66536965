// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "buffer/policies/lossless/lossless.hpp"
#include "buffer/policies/policy.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

/// Accepts whatever fits. (N + 1)-competitive.
struct CompleteSharing : PolicyTraits, PauseWhenFull {
    static constexpr std::string_view name = "cs";

    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues) const {
        return queues.fits(arrival.size) ? Outcome::accepted : Outcome::buffer_full;
    }
};

}  // namespace foretail::buffer
