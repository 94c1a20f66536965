// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "buffer/features/features.hpp"
#include "buffer/features/shift_average.hpp"
#include "buffer/lqd/longest_queue_drop.hpp"
#include "buffer/lqd/lqd_signals.hpp"
#include "buffer/policies/any_policy.hpp"
#include "buffer/policies/occamy.hpp"
#include "buffer/policies/policy.hpp"
#include "buffer/queues/ingress_queues.hpp"
#include "buffer/queues/lossless_admission.hpp"
#include "buffer/queues/port_queues.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

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
            const auto make_room = [&](const Arrival& kept) { return lqd_.make_room(queues_, kept, losing, loses); };
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

/// The thresholds as counters that a switch can hold: each drains continuously at line rate, floored at 0, and the
/// largest gives way when their sum exceeds the buffer. An approximation of VirtualLqd with one queue per port, to
/// measure its cost.
class FluidLqd {
public:
    FluidLqd(const Shape& shape, Bytes slack)
        : capacity_(shape.capacity),
          slack_(slack),
          rates_(shape.rates),
          tie_(shape.tie),
          counters_(shape.rates.size()) {}

    void arrive(const Arrival& arrival) {
        drain(arrival.time);
        counters_[static_cast<std::size_t>(arrival.port)].bytes += arrival.size;
        sum_ += arrival.size;
        while (sum_ > capacity_) {
            auto& largest = counters_[largest_port()].bytes;
            const Bytes cut = std::min(largest, sum_ - capacity_);
            largest -= cut;
            sum_ -= cut;
        }
    }
    [[nodiscard]] Bytes threshold(Port port) const { return counters_[static_cast<std::size_t>(port)].bytes + slack_; }

private:
    __extension__ using Wide = __int128;
    struct Counter {
        Bytes bytes = 0;
        std::int64_t remainder = 0;  // of a byte, in units of 1 / rate.ticks
    };

    void drain(Tick now) {
        const Tick elapsed = now - last_;
        last_ = now;
        for (std::size_t i = 0; i < counters_.size(); ++i) {
            auto& counter = counters_[i];
            const Wide due = static_cast<Wide>(elapsed) * rates_[i].per_bytes + counter.remainder;
            const auto drained = static_cast<Bytes>(due / rates_[i].ticks);
            const Bytes taken = std::min(counter.bytes, drained);
            counter.remainder = taken < drained ? 0 : static_cast<std::int64_t>(due % rates_[i].ticks);
            counter.bytes -= taken;
            sum_ -= taken;
        }
    }
    [[nodiscard]] std::size_t largest_port() const {
        std::size_t largest = 0;
        for (std::size_t i = 1; i < counters_.size(); ++i) {
            const bool wins = tie_ == Tie::lowest_port ? counters_[i].bytes > counters_[largest].bytes
                                                       : counters_[i].bytes >= counters_[largest].bytes;
            if (wins) largest = i;
        }
        return largest;
    }

    Bytes capacity_, slack_;
    std::vector<LineRate> rates_;
    Tie tie_;
    std::vector<Counter> counters_;
    Bytes sum_ = 0;
    Tick last_ = 0;
};

}  // namespace foretail::buffer
