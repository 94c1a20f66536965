// SPDX-License-Identifier: MIT
// What a switch counts over an interval, for settings that are predicted once per interval. features/counters.py says
// what each counter means; tests compare the two lists, and every value with a slow model's.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "buffer/queues/port_queues.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

/// A queue's first, then the same of the whole switch.
inline constexpr std::array<std::string_view, 13> counter_names = {
    "queue_longest",    "queue_load",     "queue_dropped", "queue_marked",   "queue_first_rtt",
    "queue_flows",      "buffer_fullest", "switch_load",   "switch_dropped", "switch_marked",
    "switch_first_rtt", "switch_flows",   "switch_active"};

/// In the order of counter_names; each from 0 to 255.
using CounterVector = std::array<std::int32_t, counter_names.size()>;

/// The constants of a counter's arithmetic, as the predictor ABI carries them.
[[nodiscard]] inline std::string counter_parameters(Tick interval) { return "interval_ns=" + std::to_string(interval); }

/// A data packet that came to a queue, and what became of it.
struct CountedArrival {
    QueueIndex queue = 0;
    Bytes size = 0;
    bool dropped = false, marked = false, first_rtt = false;
    std::uint32_t flow_hash = 0;  ///< of its addresses and ports
    Bytes length = 0;             ///< of its queue, after the decision
    Bytes occupancy = 0;          ///< of the buffer, after the decision
};

/// Counters of every queue and of the switch over intervals that begin at multiples of their length. A counter is an
/// average over the last intervals, in which the newest counts an eighth; a share of what arrived stays as it is
/// through intervals in which nothing does. Additions per packet; divisions once per interval.
class IntervalCounters {
public:
    IntervalCounters(const Shape& shape, Tick interval)
        : interval_(interval),
          capacity_(shape.capacity),
          end_(interval),
          queues_(static_cast<std::size_t>(shape.queues())),
          counts_(queues_.size()) {
        for (QueueIndex queue = 0; queue < shape.queues(); ++queue) {
            const LineRate& rate = shape.rates[static_cast<std::size_t>(queue / shape.priorities)];
            at(queue).can_send = sent_in_interval(rate);
        }
        for (const LineRate& rate : shape.rates) switch_.can_send += sent_in_interval(rate);
    }

    /// Closes all intervals that have ended by now: `closing(end)` comes before the counters move, `closed()` after the
    /// last of them has.
    template <class Closing, class Closed>
    void advance(Tick now, Closing&& closing, Closed&& closed) {
        if (now < end_) return;
        while (now >= end_) {
            closing(end_);
            close();
            end_ += interval_;
        }
        closed();
    }

    void count(const CountedArrival& arrival) {
        at(arrival.queue).add(arrival, arrival.length);
        switch_.add(arrival, arrival.occupancy);
    }

    /// Bytes that have come to a queue in the interval that is open.
    [[nodiscard]] Bytes arrived(QueueIndex queue) const { return queues_[static_cast<std::size_t>(queue)].bytes; }

    /// The counters of a queue as they were when the open interval began.
    [[nodiscard]] CounterVector of(QueueIndex queue) const {
        CounterVector out{};
        const auto& own = counts_[static_cast<std::size_t>(queue)];
        for (std::size_t i = 0; i < per_part; ++i) {
            out[i] = own[i].value();
            out[per_part + i] = all_[i].value();
        }
        out[2 * per_part] = active_.value();
        return out;
    }

private:
    static constexpr std::size_t per_part = 6;
    static constexpr int average_shift = 3, fraction_bits = 8;
    static constexpr std::int64_t most = 255, flow_bits = 64;

    struct Average {
        std::int64_t kept = 0;
        void take(std::int64_t value) { kept += ((value << fraction_bits) - kept) >> average_shift; }
        [[nodiscard]] std::int32_t value() const {
            return static_cast<std::int32_t>((kept + (1 << (fraction_bits - 1))) >> fraction_bits);
        }
    };
    using Averages = std::array<Average, per_part>;

    /// What came in an interval, to a queue or to the switch.
    struct Tally {
        Bytes bytes = 0, dropped = 0, marked = 0, first_rtt = 0, most_held = 0, can_send = 0;
        std::uint64_t flows = 0;

        void add(const CountedArrival& arrival, Bytes held) {
            bytes += arrival.size;
            if (arrival.dropped) dropped += arrival.size;
            if (arrival.marked) marked += arrival.size;
            if (arrival.first_rtt) first_rtt += arrival.size;
            most_held = std::max(most_held, held);
            flows |= std::uint64_t{1} << ((arrival.flow_hash * 2'654'435'769U) >> 26);
        }
        void close(Averages& averages, Bytes capacity) {
            averages[0].take(most_held * most / capacity);
            averages[1].take(std::min(bytes * flow_bits / can_send, most));
            if (bytes > 0) {
                averages[2].take(dropped * most / bytes);
                averages[3].take(marked * most / bytes);
                averages[4].take(first_rtt * most / bytes);
            }
            averages[5].take(std::popcount(flows));
            *this = {.can_send = can_send};
        }
    };

    [[nodiscard]] Tally& at(QueueIndex queue) { return queues_[static_cast<std::size_t>(queue)]; }
    [[nodiscard]] Bytes sent_in_interval(const LineRate& rate) const {
        return std::max<Bytes>(static_cast<Bytes>(static_cast<double>(interval_) * rate.bytes_per_tick()), 1);
    }
    void close() {
        std::int64_t active = 0;
        for (std::size_t i = 0; i < queues_.size(); ++i) {
            active += queues_[i].bytes > 0;
            queues_[i].close(counts_[i], capacity_);
        }
        switch_.close(all_, capacity_);
        active_.take(active * most / static_cast<std::int64_t>(queues_.size()));
    }

    Tick interval_;
    Bytes capacity_;
    Tick end_;
    std::vector<Tally> queues_;
    std::vector<Averages> counts_;
    Tally switch_;
    Averages all_;
    Average active_;
};

}  // namespace foretail::buffer
