// SPDX-License-Identifier: MIT
#pragma once

#include <utility>

#include "buffer/types.hpp"

namespace foretail::buffer {

/// Longest Queue Drop: accept while the buffer has room, else push packets out of the longest queue.
///
/// The one implementation behind the LQD policy, its labels, and every threshold that imitates it, so that all share
/// the counting, tie and victim rules. Control packets occupy the buffer but are never victims; when no data packet is
/// left to push out, the arrival is dropped.
class LongestQueueDrop {
public:
    explicit LongestQueueDrop(PushOutRules rules) : rules_(rules), random_(rules.seed) {}

    /// Admits `arrival` to `queues`, calling `pushing_out(queue)` before and `pushed_out(queue, packet)` after the
    /// removal of each packet admitted earlier. Returns whether the arrival itself is in its queue.
    template <class Queues, class Payload, class PushingOut, class PushedOut>
    bool admit(Queues& queues, const Arrival& arrival, Payload payload, PushingOut&& pushing_out,
               PushedOut&& pushed_out) {
        if (arrival.size > queues.capacity()) return false;
        if (rules_.counting == Counting::uncounted) {
            while (!queues.fits(arrival.size)) {
                const QueueIndex longest = queues.longest_removable(rules_.order);
                if (longest < 0 || above(queues, longest, arrival)) return false;
                push_out(queues, longest, pick(queues.removable(longest), false), pushing_out, pushed_out);
            }
            queues.push(arrival, std::move(payload));
        } else {
            queues.push(arrival, std::move(payload));
            while (!queues.fits(0)) {
                const QueueIndex longest = queues.longest_removable(rules_.order);
                if (longest < 0) {
                    queues.take_back_control(arrival);
                    return false;
                }
                const std::size_t removable = queues.removable(longest);
                const bool own = arrival.data && longest == queues.queue_of(arrival);
                const std::size_t victim = pick(removable, own);
                if (own && victim + 1 == removable) {
                    queues.remove(longest, victim);
                    return false;
                }
                push_out(queues, longest, victim, pushing_out, pushed_out);
            }
        }
        queues.start(arrival.port, arrival.time);
        return true;
    }

private:
    /// Whether a queue is of a higher class than the arrival, whose own class is then the lowest, though not counted.
    template <class Queues>
    [[nodiscard]] bool above(const Queues& queues, QueueIndex queue, const Arrival& arrival) const {
        return rules_.order == Order::lower_classes_first && arrival.data &&
               queues.priority_of(queue) < queues.priority_of(queues.queue_of(arrival));
    }
    template <class Queues, class PushingOut, class PushedOut>
    static void push_out(Queues& queues, QueueIndex queue, std::size_t victim, PushingOut& pushing_out,
                         PushedOut& pushed_out) {
        pushing_out(queue);
        pushed_out(queue, queues.remove(queue, victim));
    }

    /// Index of the victim among `removable` packets; `own`: the last of them is the arrival.
    [[nodiscard]] std::size_t pick(std::size_t removable, bool own) {
        switch (rules_.victim) {
            case Victim::tail: return removable - 1;
            case Victim::tail_kept: return own && removable > 1 ? removable - 2 : removable - 1;
            case Victim::head: return 0;
            case Victim::random: return static_cast<std::size_t>(next_random() % removable);
        }
        return removable - 1;
    }

    /// SplitMix64.
    std::uint64_t next_random() {
        std::uint64_t z = (random_ += 0x9E3779B97F4A7C15U);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
        return z ^ (z >> 31);
    }

    PushOutRules rules_;
    std::uint64_t random_;
};

}  // namespace foretail::buffer
