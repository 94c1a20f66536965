// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "buffer/queues/ingress_queues.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

/// Longest Queue Drop: accept while the buffer has room, else push packets out of the longest queue.
///
/// The one implementation behind the LQD policy, its labels, and every threshold that imitates it, so that all share
/// the counting, tie and victim rules. Control packets occupy the buffer but are never victims; when no data packet is
/// left to push out, the arrival is dropped. With `Order::any_queue` the victim may be in any queue. A packet that may
/// not be lost is no victim either; lossless_admission.hpp takes it in.
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
                const QueueIndex loser = losing_queue(queues);
                if (loser < 0 || above(queues, loser, arrival)) return false;
                push_out(queues, loser, pick(queues, loser, false), pushing_out, pushed_out);
            }
            push(queues, arrival, std::move(payload));
        } else {
            push(queues, arrival, std::move(payload));
            while (!queues.fits(0)) {
                const QueueIndex loser = losing_queue(queues);
                if (loser < 0) {
                    queues.take_back_control(arrival);
                    return false;
                }
                const bool own = arrival.data && loser == queues.queue_of(arrival);
                const std::size_t victim = pick(queues, loser, own);
                if (own && victim + 1 == queues.removable(loser)) {
                    queues.remove(loser, victim);
                    return false;
                }
                push_out(queues, loser, victim, pushing_out, pushed_out);
            }
        }
        queues.start(arrival.port, arrival.time);
        return true;
    }

    /// Pushes lossy packets out until a packet fits that may not be lost; false when there are none to push out for it.
    template <class Queues, class PushingOut, class PushedOut>
    bool make_room(Queues& queues, const Arrival& arrival, PushingOut&& pushing_out, PushedOut&& pushed_out) {
        while (!queues.fits(arrival.size)) {
            if (queues.makes_room() == MakesRoom::no_queue) return false;
            const QueueIndex loser = losing_queue(queues);
            if (loser < 0) return false;
            const Bytes own = queues.length(queues.queue_of(arrival)) + arrival.size;
            if (queues.makes_room() == MakesRoom::longer_queues && queues.length(loser) <= own) return false;
            push_out(queues, loser, pick(queues, loser, false), pushing_out, pushed_out);
        }
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

    /// Whether the packets of these queues keep a rank.
    template <class Queues>
    static constexpr bool ranked = requires(const Queues& queues) { queues.rank(QueueIndex{}, std::size_t{}); };

    template <class Queues, class Payload>
    [[gnu::always_inline]] void push(Queues& queues, const Arrival& arrival, Payload payload) const {
        if constexpr (ranked<Queues>) {
            queues.push(arrival, std::move(payload), rank(arrival));
        } else {
            queues.push(arrival, std::move(payload));
        }
    }
    /// A packet of a higher rank goes before one of a lower.
    [[nodiscard]] std::uint8_t rank(const Arrival& arrival) const {
        if (rules_.victim == Victim::spare_first_rtt) return !arrival.first_rtt;
        if (rules_.victim != Victim::most_left) return 0;
        return static_cast<std::uint8_t>(std::min(arrival.left >> rules_.cell_shift, far_from_its_end));
    }

    /// The queue that gives way, or -1 when none has a packet to lose.
    template <class Queues>
    [[nodiscard]] QueueIndex losing_queue(const Queues& queues) const {
        const QueueIndex longest = queues.longest_removable(rules_.order);
        if constexpr (ranked<Queues>) {
            if (rules_.order == Order::any_queue && longest >= 0) {
                QueueIndex found = -1;
                int highest = -1;
                for (QueueIndex queue = 0; queue < queues.queues(); ++queue) {
                    if (queues.removable(queue) == 0) continue;
                    const int own = queues.rank(queue, queues.highest_ranked(queue));
                    const Bytes longer = found < 0 ? 0 : queues.length(queue) - queues.length(found);
                    if (own > highest ||
                        (own == highest && (longer > 0 || (longer == 0 && rules_.tie == Tie::highest_port)))) {
                        found = queue;
                        highest = own;
                    }
                }
                return found;
            }
        }
        return longest;
    }

    /// Index of the victim among the removable packets of a queue; `own`: the last of them is the arrival.
    template <class Queues>
    [[nodiscard]] std::size_t pick(const Queues& queues, QueueIndex queue, bool own) {
        const std::size_t removable = queues.removable(queue);
        switch (rules_.victim) {
            case Victim::tail: return removable - 1;
            case Victim::tail_kept: return own && removable > 1 ? removable - 2 : removable - 1;
            case Victim::head: return 0;
            case Victim::random: return static_cast<std::size_t>(next_random() % removable);
            case Victim::spare_first_rtt:
            case Victim::most_left:
                if constexpr (ranked<Queues>) return queues.highest_ranked(queue);
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
