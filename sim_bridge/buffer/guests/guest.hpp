// SPDX-License-Identifier: MIT
// A policy from outside, FORETAIL_GUEST_TYPE in the header FORETAIL_GUEST_HEADER, under the name FORETAIL_GUEST_NAME.
// policies.hpp includes this after its own policies, which the header may use.
#pragma once

#ifdef FORETAIL_GUEST_TYPE
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "buffer/policies/policy.hpp"
#include "buffer/types.hpp"
#include FORETAIL_GUEST_HEADER

namespace foretail::buffer {

using GuestType = FORETAIL_GUEST_TYPE;
static_assert(std::is_convertible_v<GuestType*, PolicyTraits*>,
              "a policy must derive publicly from foretail::buffer::PolicyTraits");
static_assert(!GuestType::pushes_out && !GuestType::expels, "a policy decides arrivals: only lqd and occamy push out");

struct Guest final : GuestType {
    using GuestType::GuestType;
    static constexpr std::string_view name = FORETAIL_GUEST_NAME;

    template <class Queues, class... Told>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues, Told&&... told) {
        const Outcome outcome = GuestType::decide(arrival, queues, std::forward<Told>(told)...);
        if (outcome == Outcome::accepted && !queues.fits(arrival.size)) {
            throw std::invalid_argument("the policy " + std::string(name) +
                                        " accepts a packet that does not fit: let it ask queues.fits(arrival.size)");
        }
        if (outcome == Outcome::pushed_out) {
            throw std::invalid_argument("the policy " + std::string(name) +
                                        " answers pushed_out, which says what becomes of a queued packet");
        }
        return outcome;
    }
};

}  // namespace foretail::buffer
#endif
