// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "buffer/policies/policy.hpp"
#include "buffer/queues/port_queues.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

/// Kesselman and Mansour's Harmonic policy (2004): however the queues are ordered, the k longest of n together hold at
/// most H_k / H_n of the buffer, H_k = 1 + 1/2 + ... + 1/k. (ln N + 2)-competitive.
class Harmonic : public PolicyTraits {
public:
    static constexpr std::string_view name = "harmonic";

    Harmonic(const PolicySettings&, const Shape& shape)
        : order_(static_cast<std::size_t>(shape.queues())), keys_(order_.size()), limits_(order_.size()) {
        long double sum = 0;
        for (std::size_t k = 0; k < limits_.size(); ++k) {
            order_[k] = static_cast<QueueIndex>(k);
            partial(sum, k);
        }
        const long double whole = sum;
        sum = 0;
        for (std::size_t k = 0; k < limits_.size(); ++k) {
            partial(sum, k);
            // H_k / H_n * capacity may be an integer that rounding has lowered; none is so close below one.
            limits_[k] = static_cast<Bytes>(static_cast<long double>(shape.capacity) * sum / whole + 1e-9L);
        }
    }

    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues) {
        if (!queues.fits(arrival.size)) return Outcome::buffer_full;
        sort(queues, queues.queue_of(arrival), arrival.size);
        Bytes sum = 0;
        for (std::size_t k = 0; k < keys_.size(); ++k) {
            sum += keys_[k];
            if (sum > limits_[k]) return Outcome::over_threshold;
        }
        return Outcome::accepted;
    }

private:
    static void partial(long double& sum, std::size_t k) { sum += 1.0L / static_cast<long double>(k + 1); }

    /// Lengths from the longest down, with `size` added to `own`. Little has moved since the last arrival, so insertion
    /// sort does little more than look at every queue.
    template <class Queues>
    void sort(const Queues& queues, QueueIndex own, Bytes size) {
        for (std::size_t k = 0; k < order_.size(); ++k) {
            const QueueIndex queue = order_[k];
            const Bytes key = queues.length(queue) + (queue == own ? size : 0);
            std::size_t place = k;
            for (; place > 0 && keys_[place - 1] < key; --place) {
                keys_[place] = keys_[place - 1];
                order_[place] = order_[place - 1];
            }
            keys_[place] = key;
            order_[place] = queue;
        }
    }

    std::vector<QueueIndex> order_;
    std::vector<Bytes> keys_, limits_;
};

}  // namespace foretail::buffer
