// A buffer policy of one's own: the first half of the buffer is for everybody, the other is shared in equal parts.
#pragma once

#include "buffer/policies/policies.hpp"

struct HalfAndHalf : foretail::buffer::PolicyTraits {
    template <class Queues>
    foretail::buffer::Outcome decide(const foretail::buffer::Arrival& arrival, const Queues& queues) const {
        using foretail::buffer::Outcome;
        if (!queues.fits(arrival.size)) return Outcome::buffer_full;
        if (2 * queues.occupancy() < queues.capacity()) return Outcome::accepted;
        const auto after = queues.length(queues.queue_of(arrival)) + arrival.size;
        return queues.queues() * after <= queues.capacity() ? Outcome::accepted : Outcome::over_threshold;
    }
};
