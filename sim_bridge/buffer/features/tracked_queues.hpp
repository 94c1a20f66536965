// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <vector>

#include "buffer/types.hpp"

namespace foretail::buffer {

/// Egress tells ingress of the departures of a queue with every packet of this number (a power of two).
inline constexpr int reported_every = 8;

/// Queues as an ingress without queue depths tracks them: by what it lets in, and by what egress has reported to leave.
/// So a queue is as long as it is, and what has left it since its last report; what is pushed out is known at once.
///
/// SlotQueues, which show no departure, tell how many there were: `advance` is for them, `departed` for all others.
class TrackedQueues {
public:
    explicit TrackedQueues(QueueIndex queues) : unreported_(static_cast<std::size_t>(queues)) {}

    void departed(QueueIndex queue, Bytes size) {
        Unreported& of = unreported_[static_cast<std::size_t>(queue)];
        of.bytes += size;
        sum_ += size;
        if (++of.packets < reported_every) return;
        sum_ -= of.bytes;
        of = {};
    }
    /// An arrival, read and not yet decided, is counted: its queue is remembered if that makes it the longest.
    template <class Queues>
    void arrive(const Queues& queues, const Arrival& arrival) {
        const QueueIndex queue = queues.queue_of(arrival);
        if (length(queues, queue) + arrival.size > longest(queues)) longest_ = queue;
    }

    template <class Queues>
    [[nodiscard]] [[gnu::always_inline]] Bytes length(const Queues& queues, QueueIndex queue) const {
        return queues.length(queue) + unreported(queues, queue);
    }
    /// In slots, call with every arrival before it is read: the departures of a slot are taken in at its end, by a look
    /// at every queue.
    template <class Queues>
    void advance(const Queues& queues) {
        if (summed_at_ == queues.now()) return;
        summed_at_ = queues.now();
        sum_ = 0;
        for (QueueIndex queue = 0; queue < queues.queues(); ++queue) sum_ += unreported(queues, queue);
    }
    template <class Queues>
    [[nodiscard]] Bytes occupancy(const Queues& queues) const {
        return queues.occupancy() + sum_;
    }
    /// Length of the queue that was the longest when it or a shorter one had its last arrival.
    template <class Queues>
    [[nodiscard]] Bytes longest(const Queues& queues) const {
        return length(queues, longest_);
    }

private:
    struct Unreported {
        Bytes bytes = 0;
        int packets = 0;
    };

    template <class Queues>
    static constexpr bool tells_departed = requires(const Queues& queues) { queues.departed(QueueIndex{}); };

    template <class Queues>
    [[nodiscard]] Bytes unreported(const Queues& queues, QueueIndex queue) const {
        if constexpr (tells_departed<Queues>) return queues.departed(queue) & (reported_every - 1);
        return unreported_[static_cast<std::size_t>(queue)].bytes;
    }

    std::vector<Unreported> unreported_;
    Bytes sum_ = 0;
    Tick summed_at_ = -1;
    QueueIndex longest_ = 0;
};

}  // namespace foretail::buffer
