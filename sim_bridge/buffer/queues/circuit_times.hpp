// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace foretail::buffer {

/// When circuits between racks are up: a period of slots that is repeated from time 0 on for ever. A slot is a day, in
/// which the circuits of one matching are up, and the night after it, in which none is.
class CircuitTimes {
public:
    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
    static constexpr int idle = -1;

    /// `matchings[slot][rack]` is the rack that a rack's circuit goes to, or `idle`. All times are in ns.
    CircuitTimes(std::vector<std::vector<int>> matchings, std::int64_t day_ns, std::int64_t night_ns)
        : matchings_(std::move(matchings)), day_ns_(day_ns), slot_ns_(day_ns + night_ns), slots_of_(racks() * racks()) {
        for (std::size_t slot = 0; slot < matchings_.size(); ++slot) {
            for (std::size_t source = 0; source < racks(); ++source) {
                if (matchings_[slot][source] != idle)
                    slots_of_[pair(static_cast<int>(source), matchings_[slot][source])].push_back(
                        static_cast<std::int64_t>(slot));
            }
        }
    }

    [[nodiscard]] std::int64_t period_ns() const { return period() * slot_ns_; }
    /// The rack that a circuit of `source` goes to; `idle` at night, and without one.
    [[nodiscard]] int destination(int source, std::int64_t now) const {
        if (!is_day(now)) return idle;
        return matchings_[static_cast<std::size_t>(slot(now))][static_cast<std::size_t>(source)];
    }
    /// Time to the next circuit of a pair: 0 while it is up, `never` when no slot has it.
    [[nodiscard]] std::int64_t until_circuit(int source, int destination, std::int64_t now) const {
        const std::vector<std::int64_t>& slots = slots_of_[pair(source, destination)];
        if (slots.empty()) return never;
        const std::int64_t current = slot(now), first = is_day(now) ? current : current + 1;
        const auto next = std::ranges::lower_bound(slots, first);
        const std::int64_t ahead = (next != slots.end() ? *next : slots.front() + period()) - current;
        return ahead == 0 ? 0 : ahead * slot_ns_ - now % slot_ns_;
    }
    /// Whether packets of a pair may take the packet network: not while its circuit is up, nor in the night before.
    [[nodiscard]] bool packet_path_open(int source, int destination, std::int64_t now) const {
        return until_circuit(source, destination, now) > slot_ns_ - day_ns_;
    }
    /// When the day of `now` ends, or has ended.
    [[nodiscard]] std::int64_t day_end(std::int64_t now) const { return now - now % slot_ns_ + day_ns_; }
    /// When, after `now`, the next day or night begins.
    [[nodiscard]] std::int64_t next_change(std::int64_t now) const {
        return is_day(now) ? day_end(now) : now - now % slot_ns_ + slot_ns_;
    }

private:
    [[nodiscard]] std::size_t racks() const { return matchings_.front().size(); }
    [[nodiscard]] std::int64_t period() const { return static_cast<std::int64_t>(matchings_.size()); }
    [[nodiscard]] bool is_day(std::int64_t now) const { return now % slot_ns_ < day_ns_; }
    [[nodiscard]] std::int64_t slot(std::int64_t now) const { return now / slot_ns_ % period(); }
    [[nodiscard]] std::size_t pair(int source, int destination) const {
        return static_cast<std::size_t>(source) * racks() + static_cast<std::size_t>(destination);
    }

    std::vector<std::vector<int>> matchings_;
    std::int64_t day_ns_, slot_ns_;
    std::vector<std::vector<std::int64_t>> slots_of_;  // of each pair, rising
};

}  // namespace foretail::buffer
