// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "buffer/features/features.hpp"
#include "buffer/features/shift_average.hpp"
#include "buffer/lqd/longest_queue_drop.hpp"
#include "buffer/lqd/lqd_signals.hpp"
#include "buffer/queues/port_queues.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

/// Longest Queue Drop run beside the real queues on the same arrivals, packet by packet: its queue lengths are the
/// thresholds T of FollowLQD and Credence (Credence section 3.2), the fates of its packets are the labels.
class VirtualLqd : public LqdSignals {
public:
    /// `wanted`: also keep what these features read, not only the thresholds.
    VirtualLqd(const Shape& shape, PushOutRules rules, FeatureScale scale, FeatureSet wanted)
        : LqdSignals(shape.ports(), scale, wanted),
          queues_(shape),
          lqd_(rules),
          averages_(shape.ports(), scale),
          fast_averages_(shape.ports(), scale.fast()),
          over_share_(shape.rates.size()),
          keeps_shares_(wanted.has(Feature::queues_over_share)) {}

    /// Sends what has left by `now`; `fate(row, time, dropped)` is called once for each row when it is known.
    template <class Fate>
    void advance(Tick now, Fate&& fate) {
        queues_.advance(
            now, [&](Port port, Tick time) { observe(port, time); },
            [&](Port port, const Packet& packet, Tick time) {
                recheck_share(port);
                fate(packet.payload, time, false);
            });
    }

    /// Updates the thresholds with an arrival. Call `advance` to its time first.
    template <class Fate>
    void arrive(const Arrival& arrival, Row row, Fate&& fate) {
        const Tick now = arrival.time;
        arrived(arrival);
        observe(arrival.port, now);
        kept_last_ = lqd_.admit(
            queues_, arrival, row, [&](Port port) { observe(port, now); },
            [&](Port port, const Packet& victim) {
                lost(port, now);
                recheck_share(port);
                fate(victim.payload, now, true);
            });
        recheck_share(arrival.port);
        if (!kept_last_) {
            lost(arrival.port, now);
            fate(row, now, true);
        }
    }

    [[nodiscard]] Bytes threshold(Port port) const { return queues_.length(port); }
    [[nodiscard]] Bytes sum() const { return queues_.occupancy(); }
    [[nodiscard]] Bytes largest() const { return queues_.longest(); }
    [[nodiscard]] const QueueAverages& averages() const { return averages_; }
    [[nodiscard]] const QueueAverages& fast_averages() const { return fast_averages_; }
    /// Number of thresholds above that of a port; looks at every port.
    [[nodiscard]] std::int64_t rank(Port port) const { return queues_.longer_than(queues_.length(port)); }
    /// The oldest row that is still queued, or `none` when there is none.
    [[nodiscard]] Row oldest_open(Row none) const {
        Row oldest = none;
        queues_.for_each_front([&](Row row) { oldest = std::min(oldest, row); });
        return oldest;
    }
    /// Number of thresholds above an equal share B/N of the buffer.
    [[nodiscard]] std::int64_t queues_over_share() const { return queues_over_share_; }

private:
    using Packet = PortQueues<Row>::Packet;

    void observe(Port port, Tick now) {
        if (keeps_averages_) averages_.observe(port, now, queues_.length(port), queues_.occupancy());
        if (keeps_fast_averages_) fast_averages_.observe(port, now, queues_.length(port), queues_.occupancy());
    }
    void recheck_share(Port port) {
        if (!keeps_shares_) return;
        auto& over = over_share_[static_cast<std::size_t>(port)];
        queues_over_share_ -= over;
        over = queues_.length(port) * queues_.ports() > queues_.capacity();
        queues_over_share_ += over;
    }

    PortQueues<Row> queues_;
    LongestQueueDrop lqd_;
    QueueAverages averages_, fast_averages_;
    std::vector<std::uint8_t> over_share_;
    std::int64_t queues_over_share_ = 0;
    bool keeps_shares_;
};

/// The thresholds as counters that a switch can hold: each drains continuously at line rate, floored at 0, and the
/// largest gives way when their sum exceeds the buffer. An approximation of VirtualLqd, to measure its cost.
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
