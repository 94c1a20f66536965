// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "buffer/policies/credence.hpp"
#include "buffer/policies/policy.hpp"
#include "buffer/queues/port_queues.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

/// Credence with guards, for a predictor that may be wrong: a predicted drop happens only where all of them allow it.
/// A packet that they save is accepted, as if the predictor had said so.
class Guarded : public PolicyTraits {
public:
    static constexpr std::string_view name = "guarded";
    static constexpr std::array<std::string_view, 4> parameters = {"spares_first_rtt", "drop_budget", "answers_needed",
                                                                   "rtt"};
    static constexpr bool follows_thresholds = true, asks = true;

    Guarded(const PolicySettings& settings, const Shape& shape)
        : spares_first_rtt_(settings.number("spares_first_rtt") != 0),
          drop_budget_(settings.whole("drop_budget")),
          answers_needed_(static_cast<int>(settings.number("answers_needed"))),
          interval_(settings.whole("rtt")),
          queues_(static_cast<std::size_t>(shape.queues())) {}

    /// Nobody is asked about a packet that is spared.
    template <class Queues, class Ask>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues, Bytes threshold, Ask&& predicts_drop) {
        return Credence{}.decide(arrival, queues, threshold, [&] {
            if (spares_first_rtt_ && arrival.first_rtt) return false;
            return allows(arrival, queues_[static_cast<std::size_t>(queues.queue_of(arrival))], predicts_drop());
        });
    }

private:
    /// The registers of one queue.
    struct Registers {
        int drops_in_a_row = 0;  // of its latest answers, up to answers_needed
        Tick interval_end = 0;   // an interval begins with the first predicted drop after the last one's end
        Bytes dropped = 0;       // by prediction, in this interval
    };

    /// Whether the answer drops the packet.
    [[nodiscard]] bool allows(const Arrival& arrival, Registers& queue, bool predicted) const {
        // Counting in a row takes one addition; how many of the latest eight say drop would take a table.
        queue.drops_in_a_row = predicted ? std::min(queue.drops_in_a_row + 1, answers_needed_) : 0;
        if (!predicted || queue.drops_in_a_row < answers_needed_) return false;
        const bool begins = arrival.time >= queue.interval_end;
        const Bytes dropped = (begins ? 0 : queue.dropped) + arrival.size;
        if (dropped > drop_budget_) return false;
        if (begins) queue.interval_end = arrival.time + interval_;
        queue.dropped = dropped;
        return true;
    }

    bool spares_first_rtt_;
    Bytes drop_budget_;
    int answers_needed_;
    Tick interval_;
    std::vector<Registers> queues_;
};

}  // namespace foretail::buffer
