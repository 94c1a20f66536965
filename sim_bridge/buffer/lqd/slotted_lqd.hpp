// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "buffer/features/features.hpp"
#include "buffer/features/shift_average.hpp"
#include "buffer/lqd/longest_queue_drop.hpp"
#include "buffer/lqd/lqd_signals.hpp"
#include "buffer/queues/slot_queues.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

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
