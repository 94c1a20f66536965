// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace foretail::buffer {

/// FIFO in a power-of-two ring. It grows to the longest it has ever been, and then never allocates again. A copy costs
/// what is in it, however long it has been.
template <class T>
class Ring {
public:
    Ring() = default;
    Ring(const Ring& other) { *this = other; }
    Ring(Ring&& other) noexcept
        : slots_(std::move(other.slots_)), head_(std::exchange(other.head_, 0)), size_(std::exchange(other.size_, 0)) {}
    Ring& operator=(const Ring& other) {
        if (this == &other) return *this;
        if (slots_.size() < other.size_) slots_.resize(other.slots_.size());
        const std::size_t first =
            std::min(other.size_, other.slots_.size() - other.head_);  // up to the end of the slots
        const T* from = other.slots_.data();
        std::copy_n(from, other.size_ - first, std::copy_n(from + other.head_, first, slots_.begin()));
        head_ = 0;
        size_ = other.size_;
        return *this;
    }
    Ring& operator=(Ring&& other) noexcept {
        slots_ = std::move(other.slots_);
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
        if (size_ == slots_.size()) grow();
        slots_[(head_ + size_++) & mask()] = std::move(item);
    }
    /// Appends a fresh item and returns it.
    T& emplace_back() {
        if (size_ == slots_.size()) grow();
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
    [[nodiscard]] std::size_t mask() const { return slots_.size() - 1; }
    [[gnu::noinline]] void grow() {
        std::vector<T> larger(slots_.empty() ? 64 : 2 * slots_.size());
        for (std::size_t i = 0; i < size_; ++i) larger[i] = std::move((*this)[i]);
        slots_ = std::move(larger);
        head_ = 0;
    }

    std::vector<T> slots_;
    std::size_t head_ = 0, size_ = 0;
};

}  // namespace foretail::buffer
