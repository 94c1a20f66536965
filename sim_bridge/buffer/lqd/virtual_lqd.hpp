// SPDX-License-Identifier: MIT
// Longest Queue Drop: its choice of victims, and the virtual LQD whose queues are thresholds and whose drops are
// labels, in bytes and in slots.
#pragma once

#include "buffer/features.hpp"
#include "buffer/policies/any_policy.hpp"
#include "buffer/policies/dynamic_thresholds.hpp"

namespace foretail::buffer {

/// Longest Queue Drop: accept while the buffer has room, else push packets out of the longest queue.
///
/// The one implementation behind the LQD policy, its labels, and every threshold that imitates it, so that all share
/// the counting, tie and victim rules. Control packets occupy the buffer but are never victims; when no data packet is
/// left to push out, the arrival is dropped. With `Order::any_queue` the victim may be in any queue. A packet that may
/// not be lost is no victim either; LosslessAdmission takes it in.
class LongestQueueDrop {
public:
    explicit LongestQueueDrop(PushOutRules rules) : rules_(rules), random_(rules.seed) {}

    /// Admits `arrival` to `queues`, calling `pushing_out(queue)` before and `pushed_out(queue, packet)` after the
    /// removal of each packet admitted earlier. Returns whether the arrival itself is in its queue.
    template <class Queues, class Payload, class PushingOut, class PushedOut>
    [[gnu::always_inline]] bool admit(Queues& queues, const Arrival& arrival, Payload payload, PushingOut&& pushing_out,
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
        if (!goes_by_tags(rules_.victim)) return 0;
        if (rules_.victim == Victim::spare_first_rtt) return !arrival.first_rtt;
        return static_cast<std::uint8_t>(std::min(arrival.left >> rules_.cell_shift, far_from_its_end));
    }

    /// The queue that gives way, or -1 when none has a packet to lose.
    template <class Queues>
    [[nodiscard]] QueueIndex losing_queue(const Queues& queues) const {
        const QueueIndex longest = queues.longest_removable(rules_.order);
        if constexpr (ranked<Queues>) {
            if (rules_.order == Order::any_queue && longest >= 0) {
                QueueIndex longest = -1;
                int highest = -1;
                for (QueueIndex queue = 0; queue < queues.queues(); ++queue) {
                    if (queues.removable(queue) == 0) continue;
                    const int own = queues.rank(queue, queues.highest_ranked(queue));
                    const Bytes longer = longest < 0 ? 0 : queues.length(queue) - queues.length(longest);
                    if (own > highest ||
                        (own == highest && (longer > 0 || (longer == 0 && rules_.tie == Tie::highest_port)))) {
                        longest = queue;
                        highest = own;
                    }
                }
                return longest;
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

/// What a virtual LQD remembers of its losses for the features, whatever its queues are.
class LqdSignals {
public:
    /// Time since a packet of this queue was last pushed out or refused, in 2^tick_shift ticks; 2^24 - 1 also means
    /// never.
    [[nodiscard]] std::int64_t since_push_out(QueueIndex queue, Tick now) const {
        return since(last_push_out_of_[static_cast<std::size_t>(queue)], now);
    }
    /// The same for any queue.
    [[nodiscard]] std::int64_t since_any_push_out(Tick now) const { return since(last_push_out_, now); }
    /// Whether the last arrival got into its virtual queue.
    [[nodiscard]] bool kept_last() const { return kept_last_; }

protected:
    LqdSignals(QueueIndex queues, FeatureScale scale, FeatureSet wanted)
        : keeps_averages_(wanted.has_any(of_averages)),
          keeps_fast_averages_(wanted.has_any(of_fast_averages)),
          last_push_out_of_(static_cast<std::size_t>(queues), never),
          tick_shift_(scale.tick_shift) {}

    /// A packet of this queue was pushed out or refused.
    void lost(QueueIndex queue, Tick now) { last_push_out_of_[static_cast<std::size_t>(queue)] = last_push_out_ = now; }

    bool keeps_averages_, keeps_fast_averages_, kept_last_ = true;

private:
    static constexpr Tick never = std::numeric_limits<Tick>::min();
    static constexpr std::int64_t saturated = (1 << 24) - 1;

    [[nodiscard]] std::int64_t since(Tick last, Tick now) const {
        return last == never ? saturated : std::min((now - last) >> tick_shift_, saturated);
    }

    std::vector<Tick> last_push_out_of_;
    Tick last_push_out_ = never;
    int tick_shift_;
};

/// Longest Queue Drop run beside the real queues on the same arrivals, packet by packet: its queue lengths are the
/// thresholds T of FollowLQD and Credence (Credence section 3.2), the fates of its packets are the labels. Another
/// push-out rule may stand in its place.
class VirtualLqd : public LqdSignals {
public:
    /// `wanted`: also keep what these features read, not only the thresholds; `occamy`: Occamy instead, so set.
    VirtualLqd(const Shape& shape, PushOutRules rules, FeatureScale scale, FeatureSet wanted,
               const std::optional<PolicySettings>& occamy)
        : LqdSignals(shape.queues(), scale, wanted),
          queues_(shape),
          lqd_(rules),
          occamy_(occamy ? std::optional<Occamy>(std::in_place, *occamy, shape) : std::nullopt),
          averages_(shape.queues(), scale),
          fast_averages_(shape.queues(), scale.fast()),
          over_share_(static_cast<std::size_t>(shape.queues())),
          keeps_shares_(wanted.has(Feature::queues_over_share)) {
        if (shape.pause) ingress_.emplace(shape.ports(), shape.priorities, shape.pause->unheard());
    }

    /// Sends what has left by `now`; `fate(row, time, dropped)` is called once for each row when it is known.
    template <class Fate>
    void advance(Tick now, Fate&& fate) {
        queues_.advance(
            now, [&](QueueIndex queue, Tick time) { observe(queue, time); },
            [&](QueueIndex queue, const Packet& packet, Tick time) {
                recheck_share(queue);
                if (occamy_) occamy_->departed(queues_.port_of(queue), packet.size, queues_.length(queue));
                if (ingress_) leave_ingress(queue, packet, time);
                fate(packet.payload, time, false);
            });
    }
    /// A queue of a port is paused, or goes on, as that of the real switch.
    template <class Fate>
    void set_paused(Port port, int priority, Tick now, bool paused, Fate&& fate) {
        advance(now, fate);
        queues_.set_paused(port, priority, paused);
        queues_.start(port, now);
    }
    /// Lets all queues go on at the end of a run, when no arrival can follow.
    template <class Fate>
    void end_pauses(Tick now, Fate&& fate) {
        if (!queues_.any_paused()) return;
        advance(now, fate);
        queues_.end_pauses(now);
    }

    /// Updates the thresholds with an arrival. Call `advance` to its time first.
    template <class Fate>
    void arrive(const Arrival& arrival, Row row, Fate&& fate) {
        const Tick now = arrival.time;
        const QueueIndex own = queues_.queue_of(arrival);
        observe(own, now);
        const auto losing = [&](QueueIndex queue) { observe(queue, now); };
        const auto loses = [&](QueueIndex queue, const Packet& victim) {
            lost(queue, now);
            recheck_share(queue);
            if (ingress_)
                ingress_->release(ingress_->queue_of(victim.ingress, queues_.priority_of(queue)), victim.size);
            fate(victim.payload, now, true);
        };
        if (queues_.is_lossless(own)) {
            const auto make_room = [&](const Arrival& wanted) {
                return lqd_.make_room(queues_, wanted, losing, loses);
            };
            kept_last_ = lossless(make_room).admit(arrival, row) == Outcome::accepted;
        } else {
            if (ingress_) ingress_->charge(ingress_->queue_of(arrival), arrival.size);
            kept_last_ = occamy_ ? admit_under_occamy(arrival, row, losing, loses)
                                 : lqd_.admit(queues_, arrival, row, losing, loses);
            if (ingress_ && !kept_last_) ingress_->release(ingress_->queue_of(arrival), arrival.size);
        }
        recheck_share(own);
        if (!kept_last_) {
            lost(own, now);
            fate(row, now, true);
        }
    }

    [[nodiscard]] QueueIndex queue_of(const Arrival& arrival) const { return queues_.queue_of(arrival); }
    [[nodiscard]] Bytes threshold(QueueIndex queue) const { return queues_.length(queue); }
    [[nodiscard]] Bytes sum() const { return queues_.occupancy(); }
    [[nodiscard]] Bytes largest() const { return queues_.longest(); }
    [[nodiscard]] const QueueAverages& averages() const { return averages_; }
    [[nodiscard]] const QueueAverages& fast_averages() const { return fast_averages_; }
    /// Number of thresholds above that of a queue; looks at every queue.
    [[nodiscard]] std::int64_t rank(QueueIndex queue) const { return queues_.longer_than(queues_.length(queue)); }
    /// The oldest row that is still queued, or `none` when there is none.
    [[nodiscard]] Row oldest_open(Row none) const {
        Row oldest = none;
        queues_.for_each_front([&](Row row) { oldest = std::min(oldest, row); });
        return oldest;
    }
    /// Number of thresholds above an equal share of the buffer: B over the number of queues.
    [[nodiscard]] std::int64_t queues_over_share() const { return queues_over_share_; }

private:
    using Packet = PortQueues<Row>::Packet;

    /// LQD pauses senders when its buffer is full; nobody hears of it here.
    template <class MakeRoom>
    struct LosslessHooks {
        const MakeRoom& make_room;

        static bool pauses(QueueIndex, Bytes, Tick) { return false; }
        static void ingress_about_to_change(QueueIndex, Tick) {}
        static void paused(Port, int, Tick, bool) {}
    };
    template <class MakeRoom>
    auto lossless(const MakeRoom& make_room) {
        return LosslessAdmission(queues_, *ingress_, LosslessHooks<MakeRoom>{make_room});
    }
    [[gnu::noinline]] void leave_ingress(QueueIndex queue, const Packet& packet, Tick now) {
        const auto no_room = [](const Arrival&) { return false; };
        lossless(no_room).release(queue, packet, now);
        if (!ingress_->paused().empty()) lossless(no_room).resume(now);
    }

    /// As the switch does it under Occamy; whether the arrival got into its queue, from where it may be gone again.
    template <class Losing, class Loses>
    bool admit_under_occamy(const Arrival& arrival, Row row, Losing&& losing, Loses&& loses) {
        occamy_->arrive(arrival);
        expel(*occamy_, queues_, losing, loses);
        const bool fits = queues_.fits(arrival.size);
        if (arrival.data ? occamy_->decide(arrival, queues_) != Outcome::accepted : !fits) return false;
        queues_.push(arrival, row);
        queues_.start(arrival.port, arrival.time);
        expel(*occamy_, queues_, losing, loses);
        return true;
    }

    void observe(QueueIndex queue, Tick now) {
        if (keeps_averages_) averages_.observe(queue, now, queues_.length(queue), queues_.occupancy());
        if (keeps_fast_averages_) fast_averages_.observe(queue, now, queues_.length(queue), queues_.occupancy());
    }
    void recheck_share(QueueIndex queue) {
        if (!keeps_shares_) return;
        auto& over = over_share_[static_cast<std::size_t>(queue)];
        queues_over_share_ -= over;
        over = queues_.length(queue) * queues_.queues() > queues_.capacity();
        queues_over_share_ += over;
    }

    PortQueues<Row> queues_;
    std::optional<IngressQueues> ingress_;  // where some queues may not lose
    LongestQueueDrop lqd_;
    std::optional<Occamy> occamy_;
    QueueAverages averages_, fast_averages_;
    std::vector<std::uint8_t> over_share_;
    std::int64_t queues_over_share_ = 0;
    bool keeps_shares_;
};

/// QueueAverages of SlotQueues: the departures of a queue are taken in when somebody touches it.
class SlottedAverages {
public:
    SlottedAverages(Port ports, FeatureScale scale) : queues_(static_cast<std::size_t>(ports)), scale_(scale) {}

    /// Call before the departures of every slot that has some.
    void slot_ends(Tick time, Bytes occupancy) { observe(sum_, time, occupancy); }
    /// Brings a queue's average, and that of the sum, up to now. Call before each change other than a departure.
    /// `faster`, if any, are other averages of these queues, touched whenever these are.
    template <class Payload, class... Faster>
    [[gnu::always_inline]] void touch(const SlotQueues<Payload>& queues, Port port, Faster&... faster) {
        const auto q = static_cast<std::size_t>(port);
        // One walk over the departures, a tick apart, for all averages, which are kept in registers meanwhile.
        const auto observed = [&](auto... average) {
            queues.departures_since(port, queues_[q].last(), [&](Tick, Bytes length) {
                const std::int64_t cells = scale_.cells(length);
                (average.second.observe_next(cells, average.first->scale_.average_shift), ...);
            });
            (average.first->observe(average.second, queues.now(), queues.length(port)), ...);
            ((average.first->queues_[q] = average.second), ...);
        };
        observed(std::pair(this, queues_[q]), std::pair(&faster, faster.queues_[q])...);
        observe(sum_, queues.now(), queues.occupancy());
        (faster.observe(faster.sum_, queues.now(), queues.occupancy()), ...);
    }
    /// Of a port touched now.
    [[nodiscard]] std::int64_t queue(Port port) const { return queues_[static_cast<std::size_t>(port)].whole(); }
    [[nodiscard]] std::int64_t sum() const { return sum_.whole(); }
    /// How much these averages are above slower ones.
    [[nodiscard]] std::int64_t above(const SlottedAverages& slow, Port port) const {
        return queues_[static_cast<std::size_t>(port)].above(slow.queues_[static_cast<std::size_t>(port)]);
    }
    [[nodiscard]] std::int64_t sum_above(const SlottedAverages& slow) const { return sum_.above(slow.sum_); }

private:
    void observe(ShiftAverage& average, Tick now, Bytes length) const {
        average.observe(now, scale_.cells(length), scale_.average_shift);
    }

    std::vector<ShiftAverage> queues_;
    ShiftAverage sum_;
    FeatureScale scale_;
};

/// Longest Queue Drop on unit packets in slots, with the labels and signals of VirtualLqd. Of the fates it reports the
/// drops only: a departure costs nothing here.
class SlottedLqd : public LqdSignals {
public:
    /// `wanted`: also keep what these features read, not only the thresholds.
    SlottedLqd(Port ports, Bytes capacity, PushOutRules rules, FeatureScale scale, FeatureSet wanted)
        : LqdSignals(ports, scale, wanted),
          queues_(ports, capacity, rules.tie),
          lqd_(rules),
          averages_(ports, scale),
          fast_averages_(ports, scale.fast()),
          share_(capacity / ports) {}

    void advance(Tick now) {
        queues_.advance(now, [&](Tick end) {
            if (keeps_averages_) averages_.slot_ends(end, queues_.occupancy());
            if (keeps_fast_averages_) fast_averages_.slot_ends(end, queues_.occupancy());
        });
    }
    /// Brings the averages up to an arrival. Call `advance` to its time first.
    void touch(Port port) {
        if (keeps_fast_averages_) {
            averages_.touch(queues_, port, fast_averages_);
        } else if (keeps_averages_) {
            averages_.touch(queues_, port);
        }
    }
    /// Takes in an arrival after `touch`; `dropped(row)` is called for each row that loses its place, at once or later.
    template <class Dropped>
    void arrive(const Arrival& arrival, Row row, Dropped&& dropped) {
        kept_last_ = lqd_.admit(
            queues_, arrival, row, [&](Port port) { touch(port); },
            [&](Port port, const SlotQueues<Row>::Packet& victim) {
                lost(port, arrival.time);
                dropped(victim.payload);
            });
        if (!kept_last_) {
            lost(arrival.port, arrival.time);
            dropped(row);
        }
    }

    [[nodiscard]] const SlotQueues<Row>& queues() const { return queues_; }
    [[nodiscard]] QueueIndex queue_of(const Arrival& arrival) const { return arrival.port; }
    [[nodiscard]] Bytes threshold(Port port) const { return queues_.length(port); }
    [[nodiscard]] Bytes sum() const { return queues_.occupancy(); }
    [[nodiscard]] Bytes largest() const { return queues_.longest(); }
    [[nodiscard]] const SlottedAverages& averages() const { return averages_; }
    [[nodiscard]] const SlottedAverages& fast_averages() const { return fast_averages_; }
    /// Number of thresholds above that of a port.
    [[nodiscard]] std::int64_t rank(Port port) const { return queues_.longer_than(queues_.length(port)); }
    /// Number of thresholds above an equal share B/N of the buffer.
    [[nodiscard]] std::int64_t queues_over_share() const { return queues_.longer_than(share_); }
    /// The oldest row that is still queued, or `none` when there is none.
    [[nodiscard]] Row oldest_open(Row none) const {
        Row oldest = none;
        queues_.for_each_front([&](Row row) { oldest = std::min(oldest, row); });
        return oldest;
    }

private:
    SlotQueues<Row> queues_;
    LongestQueueDrop lqd_;
    SlottedAverages averages_, fast_averages_;
    Bytes share_;
};

}  // namespace foretail::buffer
