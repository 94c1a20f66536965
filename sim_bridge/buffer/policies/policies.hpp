// SPDX-License-Identifier: MIT
// The one list of the policies. Each decides one data arrival from the queues before it; the switch has already found
// that control packets need no decision. A type says what it is called and what it needs (PolicyTraits); where it needs
// settings or the switch's shape, it is built from both.
//
// A policy that has to follow the queues has `about_to_change(queue, time, length)`, called before each of its changes
// with the length that it has had since the last one.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "buffer/names.hpp"
#include "buffer/policies/abm.hpp"
#include "buffer/policies/complete_partitioning.hpp"
#include "buffer/policies/complete_sharing.hpp"
#include "buffer/policies/credence.hpp"
#include "buffer/policies/credence_artifact.hpp"
#include "buffer/policies/dynamic_thresholds.hpp"
#include "buffer/policies/followlqd.hpp"
#include "buffer/policies/guarded.hpp"
#include "buffer/policies/harmonic.hpp"
#include "buffer/policies/learned.hpp"
#include "buffer/policies/lossless/reverie.hpp"
#include "buffer/policies/lossless/sonic.hpp"
#include "buffer/policies/lqd.hpp"
#include "buffer/policies/occamy.hpp"
#include "buffer/policies/policy.hpp"
#include "buffer/queues/port_queues.hpp"
#include "buffer/types.hpp"
// After these, which the header of a policy from outside may use.
#include "buffer/guests/guest.hpp"

namespace foretail::buffer {

/// What a policy says of itself.
struct KnownPolicy {
    std::string_view name;
    std::span<const std::string_view> parameters;
    bool asks, knows_priorities, pushes_out, takes_alpha, sees_ingress;
};

template <class... Policy>
struct PolicyList {
    static constexpr std::array<std::string_view, sizeof...(Policy)> names = {Policy::name...};
    static constexpr std::array<KnownPolicy, sizeof...(Policy)> known = {
        KnownPolicy{Policy::name, Policy::parameters, Policy::asks, Policy::knows_priorities,
                    Policy::pushes_out || Policy::expels, Policy::takes_alpha, Policy::sees_ingress}...};
};
using Policies = PolicyList<CompleteSharing, CompletePartitioning, DynamicThresholds, Harmonic, Abm, Reverie, Sonic,
                            Occamy, PushOut, FollowLqd, Credence, Guarded, Learned, CredenceArtifact
#ifdef FORETAIL_GUEST_TYPE
                            ,
                            Guest
#endif
                            >;

namespace detail {

template <class Policy, class Make>
auto make_with(const PolicySettings& settings, const Shape& shape, Make& make) {
    if (shape.priorities > 1 && !Policy::knows_priorities) {
        throw std::invalid_argument("policy '" + std::string(Policy::name) + "' knows one queue per port: give it one");
    }
    if constexpr (std::is_constructible_v<Policy, const PolicySettings&, const Shape&>) {
        const auto priorities = static_cast<std::size_t>(shape.priorities);
        PolicySettings own = settings;
        if (own.alpha.size() == 1) own.alpha.resize(priorities, own.alpha.front());
        if (own.alpha.size() != priorities) {
            throw std::invalid_argument("alpha has " + std::to_string(own.alpha.size()) + " numbers, and a port has " +
                                        std::to_string(priorities) + " queues: give one for each, or one for all");
        }
        return make(Policy{own, shape});
    } else {
        return make(Policy{});
    }
}

}  // namespace detail

/// Position of a policy in `Known`; throws std::invalid_argument when there is none of that name.
template <class Known = Policies>
std::size_t position_of_policy(std::string_view name) {
    return position(name, Known::names, "unknown policy '" + std::string(name) + "'");
}

/// What the policy of that name says of itself; throws as `position_of_policy`.
inline const KnownPolicy& known_policy(std::string_view name) { return Policies::known[position_of_policy(name)]; }

/// Calls `make(policy)` with the policy of that name in `Known` for a switch of this shape; throws
/// std::invalid_argument when there is none, or when it knows one queue per port and the shape has several.
template <class Known = Policies, class Make>
auto with_policy(std::string_view name, const PolicySettings& settings, const Shape& shape, Make&& make) {
    const std::size_t chosen = position_of_policy<Known>(name);
    return [&]<class... Policy>(PolicyList<Policy...>) {
        const auto makers = {&detail::make_with<Policy, std::remove_reference_t<Make>>...};
        return makers.begin()[chosen](settings, shape, make);
    }(Known{});
}

/// What a policy decides on a data arrival, given what it needs: `threshold()` is that of the arrival's queue.
template <class Policy, class Queues, class Threshold, class Ask>
Outcome decide(Policy& policy, const Arrival& arrival, const Queues& queues, Threshold&& threshold,
               Ask&& predicts_drop) {
    if constexpr (Policy::asks && Policy::follows_thresholds) {
        return policy.decide(arrival, queues, threshold(), std::forward<Ask>(predicts_drop));
    } else if constexpr (Policy::asks) {
        return policy.decide(arrival, queues, std::forward<Ask>(predicts_drop));
    } else if constexpr (Policy::follows_thresholds) {
        return policy.decide(arrival, queues, threshold());
    } else {
        return policy.decide(arrival, queues);
    }
}

}  // namespace foretail::buffer
