// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstddef>
#include <limits>
#include <vector>

#include "types.hpp"

namespace foretail::buffer {

/// Arg-max over the ports' keys: O(log N) per update, O(1) per query, ties by port number.
class Tournament {
public:
    static constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();

    Tournament(Port ports, Tie tie, std::int64_t initial)
        : leaves_(std::bit_ceil(static_cast<std::size_t>(ports < 2 ? 2 : ports))),
          tie_(tie),
          keys_(leaves_, lowest),
          winners_(leaves_) {
        for (std::size_t i = 0; i < static_cast<std::size_t>(ports); ++i) keys_[i] = initial;
        for (std::size_t node = leaves_ - 1; node >= 1; --node) winners_[node] = play(node);
    }

    void set(Port port, std::int64_t key) {
        const auto leaf = static_cast<std::size_t>(port);
        keys_[leaf] = key;
        for (std::size_t node = (leaf + leaves_) / 2; node >= 1; node /= 2) {
            const Port before = winners_[node];
            winners_[node] = play(node);
            if (winners_[node] == before && before != port) return;  // nothing above has changed
        }
    }

    [[nodiscard]] std::int64_t key(Port port) const { return keys_[static_cast<std::size_t>(port)]; }
    [[nodiscard]] Port winner() const { return winners_[1]; }
    [[nodiscard]] std::int64_t best() const { return key(winners_[1]); }

private:
    [[nodiscard]] Port entrant(std::size_t child) const {
        return child >= leaves_ ? static_cast<Port>(child - leaves_) : winners_[child];
    }
    [[nodiscard]] Port play(std::size_t node) const {
        const Port left = entrant(2 * node), right = entrant(2 * node + 1);
        const bool right_wins = tie_ == Tie::lowest_port ? key(right) > key(left) : key(right) >= key(left);
        return right_wins ? right : left;
    }

    std::size_t leaves_;
    Tie tie_;
    std::vector<std::int64_t> keys_;
    std::vector<Port> winners_;  // of each inner node; 1 is the root
};

}  // namespace foretail::buffer
