// SPDX-License-Identifier: MIT
// Policies that follow the virtual LQD or ask a predictor.
#pragma once

#include "buffer/policies/policy.hpp"

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

/// Credence (Algorithm 1): a safeguard that asks nobody, then the threshold of the virtual LQD, then the prediction.
struct Credence : PolicyTraits {
    static constexpr std::string_view name = "credence";
    static constexpr bool follows_thresholds = true, asks = true;

    /// The safeguard: even the longest queue is within an equal share, so any drop-tail policy may accept.
    template <class Queues>
    [[nodiscard]] static bool safe(const Arrival& arrival, const Queues& queues) {
        return queues.queues() * (queues.longest() + arrival.size) <= queues.capacity();
    }

    /// `predicts_drop()` is called at most once, and only when the answer decides.
    template <class Queues, class Ask>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues, Bytes threshold,
                                 Ask&& predicts_drop) const {
        if (safe(arrival, queues)) return Outcome::accepted;
        const Outcome followed = FollowLqd{}.decide(arrival, queues, threshold);
        if (followed != Outcome::accepted) return followed;
        return predicts_drop() ? Outcome::predicted : Outcome::accepted;
    }
};

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
