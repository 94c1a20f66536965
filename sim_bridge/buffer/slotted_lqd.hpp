// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "longest_queue_drop.hpp"
#include "shift_average.hpp"
#include "slot_queues.hpp"
#include "types.hpp"

namespace foretail::buffer {

/// QueueAverages of SlotQueues: the departures of a queue are taken in when somebody touches it.
class SlottedAverages {
public:
    SlottedAverages(Port ports, int average_shift) : queues_(static_cast<std::size_t>(ports)), shift_(average_shift) {}

    /// Call before the departures of every slot that has some.
    void slot_ends(Tick time, Bytes occupancy) { sum_.observe(time, occupancy, shift_); }
    /// Brings a queue's average, and that of the sum, up to now. Call before each change other than a departure.
    template <class Payload>
    void touch(const SlotQueues<Payload>& queues, Port port) {
        ShiftAverage& average = queues_[static_cast<std::size_t>(port)];
        queues.departures_since(port, average.last(),
                                [&](Tick time, Bytes length) { average.observe(time, length, shift_); });
        average.observe(queues.now(), queues.length(port), shift_);
        sum_.observe(queues.now(), queues.occupancy(), shift_);
    }
    /// Of a port touched now.
    [[nodiscard]] std::int64_t queue(Port port) const { return queues_[static_cast<std::size_t>(port)].whole(); }
    [[nodiscard]] std::int64_t sum() const { return sum_.whole(); }

private:
    std::vector<ShiftAverage> queues_;
    ShiftAverage sum_;
    int shift_;
};

/// Longest Queue Drop on unit packets in slots, with the labels and signals of VirtualLqd. Of the fates it reports the
/// drops only: a departure costs nothing here.
class SlottedLqd {
public:
    /// `observed`: also keep what the features read, not only the thresholds.
    SlottedLqd(Port ports, Bytes capacity, PushOutRules rules, FeatureScale scale, bool observed)
        : queues_(ports, capacity, rules.tie),
          lqd_(rules),
          averages_(ports, scale.average_shift),
          last_push_out_(static_cast<std::size_t>(ports), never),
          share_(capacity / ports),
          observed_(observed) {}

    void advance(Tick now) {
        queues_.advance(now, [&](Tick end) {
            if (!observed_) return;
            averages_.slot_ends(end, queues_.occupancy());
            queues_over_share_ -= queues_.emptying_at(end + share_);
        });
    }
    /// Brings the averages up to an arrival. Call `advance` to its time first.
    void touch(Port port) {
        if (observed_) averages_.touch(queues_, port);
    }
    /// Takes in an arrival after `touch`; `dropped(row)` is called for each row that loses its place, at once or later.
    template <class Dropped>
    void arrive(const Arrival& arrival, Row row, Dropped&& dropped) {
        const bool was_over = queues_.length(arrival.port) > share_;
        kept_last_ = lqd_.admit(
            queues_, arrival, row, [&](Port port) { touch(port); },
            [&](Port port, const SlotQueues<Row>::Packet& victim) {
                last_push_out(port) = arrival.time;
                queues_over_share_ -= port != arrival.port && queues_.length(port) == share_;
                dropped(victim.payload);
            });
        queues_over_share_ += (queues_.length(arrival.port) > share_) - was_over;
        if (!kept_last_) {
            last_push_out(arrival.port) = arrival.time;
            dropped(row);
        }
    }

    [[nodiscard]] const SlotQueues<Row>& queues() const { return queues_; }
    [[nodiscard]] Bytes threshold(Port port) const { return queues_.length(port); }
    [[nodiscard]] Bytes sum() const { return queues_.occupancy(); }
    [[nodiscard]] Bytes largest() const { return queues_.longest(); }
    [[nodiscard]] const SlottedAverages& averages() const { return averages_; }
    /// Whether the last arrival got into its queue.
    [[nodiscard]] bool kept_last() const { return kept_last_; }
    /// Number of thresholds above an equal share B/N of the buffer; only when observed.
    [[nodiscard]] std::int64_t queues_over_share() const { return queues_over_share_; }
    /// Slots since a packet of this queue was last pushed out or refused; 2^24 - 1 also means never.
    [[nodiscard]] std::int64_t since_push_out(Port port, Tick now) const {
        const Tick last = last_push_out_[static_cast<std::size_t>(port)];
        return last == never ? saturated : std::min(now - last, saturated);
    }
    /// The oldest row that is still queued, or `none` when there is none.
    [[nodiscard]] Row oldest_open(Row none) const {
        Row oldest = none;
        queues_.for_each_front([&](Row row) { oldest = std::min(oldest, row); });
        return oldest;
    }

private:
    static constexpr Tick never = std::numeric_limits<Tick>::min();
    static constexpr std::int64_t saturated = (1 << 24) - 1;

    [[nodiscard]] Tick& last_push_out(Port port) { return last_push_out_[static_cast<std::size_t>(port)]; }

    SlotQueues<Row> queues_;
    LongestQueueDrop lqd_;
    SlottedAverages averages_;
    std::vector<Tick> last_push_out_;
    Bytes share_;
    std::int64_t queues_over_share_ = 0;
    bool observed_, kept_last_ = true;
};

}  // namespace foretail::buffer
