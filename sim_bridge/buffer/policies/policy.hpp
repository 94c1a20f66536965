// SPDX-License-Identifier: MIT
// The settings and traits of every policy, and the policies that others build on.
#pragma once

#include <map>

#include "buffer/features.hpp"

namespace foretail::buffer {

/// Alpha of each priority: a queue's share of the free buffer.
using Alphas = std::vector<double>;

/// The parameters of the policies by name, without units. sim_bridge/policy_settings.py has the meaning, default and
/// bounds of each; a policy reads those that it names in `parameters` while it is made.
struct PolicySettings {
    Alphas alpha;                                                     ///< one for each of the switch's priorities
    std::map<std::string, double, std::less<>> numbers;               ///< all others; ticks and bytes are whole
    std::map<std::string, std::vector<double>, std::less<>> lists{};  ///< those with several values
    FeatureScale scale{};                                             ///< of the switch's features

    [[nodiscard]] double number(std::string_view name) const {
        const auto entry = numbers.find(name);
        if (entry == numbers.end())
            throw std::invalid_argument("the policy parameter " + std::string(name) + " is missing: give it");
        return entry->second;
    }
    [[nodiscard]] double number_or(std::string_view name, double otherwise) const {
        const auto entry = numbers.find(name);
        return entry == numbers.end() ? otherwise : entry->second;
    }
    /// One value for each of so many priorities; throws std::invalid_argument when there are others than one or none.
    [[nodiscard]] std::vector<double> list(std::string_view name, std::size_t priorities,
                                           const std::vector<double>& otherwise) const {
        const auto entry = lists.find(name);
        if (entry == lists.end() || entry->second.empty()) return otherwise;
        if (entry->second.size() != priorities)
            throw std::invalid_argument("the policy parameter " + std::string(name) + " has " +
                                        std::to_string(entry->second.size()) + " values for " +
                                        std::to_string(priorities) + " queues of a port: give one for each, or none");
        return entry->second;
    }
    [[nodiscard]] std::int64_t whole(std::string_view name) const { return static_cast<std::int64_t>(number(name)); }
};

/// A rule of a policy with several, from this time on.
struct Turn {
    Tick start;
    std::size_t rule;
};

/// What a policy is unless it says otherwise. sim_bridge/policies.py has the same for Python; a test compares them.
struct PolicyTraits {
    static constexpr std::array<std::string_view, 0> parameters = {};  ///< those of PolicySettings that it reads
    static constexpr bool knows_priorities = true;                     ///< a port may have several queues
    static constexpr bool asks = false;                                ///< `decide` takes `predicts_drop`
    static constexpr bool follows_thresholds = false;  ///< `decide` takes the threshold of a virtual LQD
    static constexpr bool sees_departures = false;     ///< it has `departed`, for all that leaves
    static constexpr bool pushes_out = false;          ///< the switch runs LongestQueueDrop instead of `decide`
    static constexpr bool expels = false;              ///< it has `expel`, which removes queued packets
    static constexpr bool sees_ingress = false;        ///< `decide` takes where packets came in (IngressQueues)
    static constexpr bool takes_alpha = false;         ///< it has `set_alpha`: a predictor may move alphas in ns-3
};

// When queues at ingress that may not lose a packet are as long as they may be. A policy with a rule of its own has
//   pauses(queue, reserve, now, queues, ingress)
// which says whether a queue with `reserve` bytes more would be; all others have that of DynamicPause.

/// Dynamic Thresholds at ingress, as switches have them: a queue pauses its sender from alpha times the free buffer on.
struct DynamicPause {
    [[nodiscard]] static bool pauses(QueueIndex queue, Bytes reserve, const QueueLengths& queues,
                                     const IngressQueues& ingress) {
        const Bytes free = queues.capacity() - queues.occupancy();
        return static_cast<double>(ingress.length(queue) + reserve) >=
               ingress.settings().alpha * static_cast<double>(free);
    }
};

/// Complete Sharing and Longest Queue Drop: only a full buffer does.
struct PauseWhenFull {
    [[nodiscard]] static bool pauses(QueueIndex, Bytes, Tick, const QueueLengths&, const IngressQueues&) {
        return false;
    }
};

/// Accepts whatever fits. (N + 1)-competitive.
struct CompleteSharing : PolicyTraits, PauseWhenFull {
    static constexpr std::string_view name = "cs";

    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues) const {
        return queues.fits(arrival.size) ? Outcome::accepted : Outcome::buffer_full;
    }
};

/// Longest Queue Drop pushes out, which the switch does itself (LongestQueueDrop).
struct PushOut : PolicyTraits, PauseWhenFull {
    static constexpr std::string_view name = "lqd";
    static constexpr bool pushes_out = true;
};

}  // namespace foretail::buffer
