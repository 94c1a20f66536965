// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "buffer/types.hpp"

namespace foretail::buffer {

/// Arg-max over the ports' keys under point updates, ties by port number.
///
/// Up to `scanned_ports` it remembers the winner and scans for another one only when that one has given way and
/// somebody asks; above, it keeps a tree of winners, O(log N) per update and O(1) per query.
class Tournament {
public:
    static constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
    static constexpr Port scanned_ports = 32;

    Tournament(Port ports, Tie tie, std::int64_t initial)
        : ports_(static_cast<std::size_t>(ports)),
          leaves_(std::bit_ceil(ports_ < 2 ? 2 : ports_)),
          tie_(tie),
          scans_(ports <= scanned_ports),
          keys_(leaves_, lowest),
          winners_(leaves_) {
        for (std::size_t i = 0; i < ports_; ++i) keys_[i] = initial;
        for (std::size_t node = leaves_ - 1; node >= 1; --node) winners_[node] = play(node);
        champion_ = winners_[1];
    }

    void set(Port port, std::int64_t key) {
        const auto leaf = static_cast<std::size_t>(port);
        const std::int64_t before = keys_[leaf];
        keys_[leaf] = key;
        if (!scans_) {
            climb(leaf);
        } else if (port == champion_) {
            stale_ = stale_ || key < before;
        } else if (!stale_ && beats(port, champion_)) {
            champion_ = port;
        }
    }

    [[nodiscard]] std::int64_t key(Port port) const { return keys_[static_cast<std::size_t>(port)]; }
    [[nodiscard]] Port winner() const {
        if (stale_) scan();
        return champion_;
    }
    [[nodiscard]] std::int64_t best() const { return key(winner()); }
    /// Number of ports with a larger key; looks at all of them.
    [[nodiscard]] std::int64_t above(std::int64_t key) const {
        std::int64_t found = 0;
        for (std::size_t i = 0; i < ports_; ++i) found += keys_[i] > key;
        return found;
    }

private:
    [[nodiscard]] bool beats(Port challenger, Port other) const {
        if (key(challenger) != key(other)) return key(challenger) > key(other);
        return tie_ == Tie::lowest_port ? challenger < other : challenger > other;
    }
    [[gnu::always_inline]] void scan() const {
        champion_ = tie_ == Tie::lowest_port ? best_by(std::greater<>{}) : best_by(std::greater_equal<>{});
        stale_ = false;
    }
    /// No branch depends on the keys.
    template <class Beats>
    [[nodiscard]] Port best_by(Beats beats) const {
        std::size_t best = 0;
        std::int64_t largest = keys_[0];
        for (std::size_t i = 1; i < ports_; ++i) {
            const bool better = beats(keys_[i], largest);
            best = better ? i : best;
            largest = better ? keys_[i] : largest;
        }
        return static_cast<Port>(best);
    }

    [[nodiscard]] Port entrant(std::size_t child) const {
        return child >= leaves_ ? static_cast<Port>(child - leaves_) : winners_[child];
    }
    [[nodiscard]] Port play(std::size_t node) const {
        const Port left = entrant(2 * node), right = entrant(2 * node + 1);
        return beats(right, left) ? right : left;
    }
    void climb(std::size_t leaf) {
        for (std::size_t node = (leaf + leaves_) / 2; node >= 1; node /= 2) winners_[node] = play(node);
        champion_ = winners_[1];
    }

    std::size_t ports_, leaves_;
    Tie tie_;
    bool scans_;
    mutable bool stale_ = false;
    mutable Port champion_ = 0;
    std::vector<std::int64_t> keys_;
    std::vector<Port> winners_;  // of each inner node; 1 is the root
};

}  // namespace foretail::buffer
