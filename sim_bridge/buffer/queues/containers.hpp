// SPDX-License-Identifier: MIT
// A ring, and a tournament for the longest of many queues.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "buffer/types.hpp"

namespace foretail::buffer {

/// FIFO in a power-of-two ring. It grows to the longest it has ever been, and then never allocates again. A copy costs
/// what is in it, however long it has been.
template <class T>
class Ring {
public:
    Ring() = default;
    Ring(const Ring& other) { *this = other; }
    Ring(Ring&& other) noexcept { *this = std::move(other); }
    Ring& operator=(const Ring& other) {
        if (this == &other) return *this;
        if (capacity_ < other.size_) slots_.resize(other.capacity_);
        capacity_ = slots_.size();
        const std::size_t first = std::min(other.size_, other.capacity_ - other.head_);  // up to the end of the slots
        const T* from = other.slots_.data();
        std::copy_n(from, other.size_ - first, std::copy_n(from + other.head_, first, slots_.begin()));
        head_ = 0;
        size_ = other.size_;
        return *this;
    }
    Ring& operator=(Ring&& other) noexcept {
        slots_ = std::move(other.slots_);
        capacity_ = std::exchange(other.capacity_, 0);
        head_ = std::exchange(other.head_, 0);
        size_ = std::exchange(other.size_, 0);
        return *this;
    }
    ~Ring() = default;

    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] bool empty() const { return size_ == 0; }
    [[nodiscard]] T& operator[](std::size_t i) { return slots_[(head_ + i) & mask()]; }
    [[nodiscard]] const T& operator[](std::size_t i) const { return slots_[(head_ + i) & mask()]; }
    [[nodiscard]] T& front() { return (*this)[0]; }
    [[nodiscard]] const T& front() const { return (*this)[0]; }
    [[nodiscard]] const T& back() const { return (*this)[size_ - 1]; }

    [[gnu::always_inline]] void push_back(T item) {
        if (size_ == capacity_) grow();
        slots_[(head_ + size_++) & mask()] = std::move(item);
    }
    /// Appends a fresh item and returns it.
    T& emplace_back() {
        if (size_ == capacity_) grow();
        return slots_[(head_ + size_++) & mask()] = T{};
    }
    void drop_front() {
        head_ = (head_ + 1) & mask();
        --size_;
    }
    T pop_front() {
        T item = std::move(slots_[head_]);
        drop_front();
        return item;
    }
    /// Puts an item before the i-th, which moves to the back with all behind it.
    void insert(std::size_t i, T item) {
        push_back(std::move(item));
        for (std::size_t k = size_ - 1; k > i; --k) std::swap((*this)[k], (*this)[k - 1]);
    }
    void clear() { size_ = head_ = 0; }
    /// Removes the i-th item, closing the gap from the back: O(1) for the last, O(size - i) elsewhere.
    T erase(std::size_t i) {
        T item = std::move((*this)[i]);
        for (; i + 1 < size_; ++i) (*this)[i] = std::move((*this)[i + 1]);
        --size_;
        return item;
    }

private:
    [[nodiscard]] std::size_t mask() const { return capacity_ - 1; }
    [[gnu::noinline]] void grow() {
        std::vector<T> larger(slots_.empty() ? 64 : 2 * slots_.size());
        for (std::size_t i = 0; i < size_; ++i) larger[i] = std::move((*this)[i]);
        slots_ = std::move(larger);
        capacity_ = slots_.size();
        head_ = 0;
    }

    std::vector<T> slots_;
    std::size_t capacity_ = 0;  // that of the slots, which a division would have to find
    std::size_t head_ = 0, size_ = 0;
};

/// The earliest of the times of many ports, and its port; of equal times that of the lowest port. A tree of minima.
class EarliestPort {
public:
    static constexpr Tick never = std::numeric_limits<Tick>::max();

    explicit EarliestPort(Port ports) {
        std::size_t leaves = 1;
        for (; leaves < static_cast<std::size_t>(ports); leaves *= children) first_leaf_ = children * first_leaf_ + 1;
        times_.resize(first_leaf_ + leaves, never);
    }

    [[gnu::always_inline]] void set(Port port, Tick time) {
        std::size_t node = first_leaf_ + static_cast<std::size_t>(port);
        times_[node] = time;
        while (node > 0) {
            node = (node - 1) / children;
            const Tick* below = &times_[children * node + 1];
            times_[node] = std::min(std::min(below[0], below[1]), std::min(below[2], below[3]));
        }
    }
    [[nodiscard]] Tick time() const { return times_[0]; }
    [[nodiscard]] Port port() const {
        std::size_t node = 0;
        while (node < first_leaf_) {
            node = children * node + 1;
            while (times_[node] != time()) ++node;
        }
        return static_cast<Port>(node - first_leaf_);
    }

private:
    static constexpr std::size_t children = 4;

    std::size_t first_leaf_ = 0;
    std::vector<Tick> times_;  // of inner nodes from the root on, and then of ports
};

/// Arg-max over the ports' keys under point updates, ties by port number.
///
/// Up to `scanned_ports` it remembers the winner and scans for another one only when that may have changed and
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

    [[gnu::always_inline]] void set(Port port, std::int64_t key) {
        std::int64_t& own = keys_[static_cast<std::size_t>(port)];
        const bool falls = key < own;
        own = key;
        if (!scans_) return climb(static_cast<std::size_t>(port));
        stale_ |= port == champion_ ? falls : key >= this->key(champion_);
    }

    [[nodiscard]] std::int64_t key(Port port) const { return keys_[static_cast<std::size_t>(port)]; }
    [[nodiscard]] Port winner() const {
        if (stale_) scan();
        return champion_;
    }
    [[nodiscard]] std::int64_t best() const { return key(winner()); }
    /// Number of ports with a larger key; looks at all of them.
    [[nodiscard]] std::int64_t above(std::int64_t key) const {
        std::int64_t larger = 0;
        for (std::size_t i = 0; i < ports_; ++i) larger += keys_[i] > key;
        return larger;
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
    [[gnu::noinline]] void climb(std::size_t leaf) {
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
