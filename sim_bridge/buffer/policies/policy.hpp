// SPDX-License-Identifier: MIT
// What every policy is made of: settings, and what it says of itself.
#pragma once

#include <vector>

#include "buffer/types.hpp"

namespace foretail::buffer {

/// Alpha of each priority: a queue's share of the free buffer.
using Alphas = std::vector<double>;

/// Settings of the policies. There is one alpha for each of the switch's priorities.
struct PolicySettings {
    Alphas alpha{0.5};              ///< DT, ABM, Reverie, Occamy: one per priority
    double first_rtt_alpha = 64.0;  ///< ABM, for packets sent before any feedback
    Tick interval = 32768;      ///< ABM, Reverie: between two counts of the congested queues; Guarded: of drop_budget
    Tick low_pass = 1 << 19;    ///< Reverie: memory of the averages
    Bytes artifact_cut = 1500;  ///< Credence as its artifact does it: what the largest threshold loses at a time
    double spare_bandwidth = 0.1;  ///< Occamy: of the memory, beyond the sum of the port rates, as a share of it
    Bytes bucket = 40'000;         ///< Occamy: what it may expel at once after a rest
    bool spares_first_rtt = true;  ///< Guarded: no predicted drop of a packet sent before any feedback
    Bytes drop_budget = 30'000;    ///< Guarded: what predictions may drop of a queue in an interval
    int answers_needed = 3;        ///< Guarded: so many answers in a row must say drop
};

/// What a policy is unless it says otherwise. sim_bridge/policies.py has the same for Python; a test compares them.
struct PolicyTraits {
    static constexpr bool knows_priorities = true;     ///< a port may have several queues
    static constexpr bool asks = false;                ///< `decide` takes `predicts_drop`
    static constexpr bool follows_thresholds = false;  ///< `decide` takes the threshold of a virtual LQD
    static constexpr bool sees_departures = false;     ///< it has `arrive` and `departed`, for all that comes and goes
    static constexpr bool pushes_out = false;          ///< the switch runs LongestQueueDrop instead of `decide`
    static constexpr bool expels = false;              ///< it has `expel`, which removes queued packets
    static constexpr bool takes_alpha = false;         ///< it has `set_alpha`: a predictor may move alphas in ns-3
};

}  // namespace foretail::buffer
