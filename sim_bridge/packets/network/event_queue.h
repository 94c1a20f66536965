// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

namespace foretail::packets {

/// When something happens: events at the same time are numbered in the order in which they were scheduled.
struct Moment {
    std::int64_t time = std::numeric_limits<std::int64_t>::max();
    std::uint64_t order = std::numeric_limits<std::uint64_t>::max();
    [[nodiscard]] auto operator<=>(const Moment&) const = default;
};

/// The numbers of events at the same time; one for all queues whose events happen in one order.
class EventOrder {
public:
    std::uint64_t take() { return next_++; }
    /// Of an event that happens before all others at its time but those that were numbered so before.
    std::uint64_t take_early() { return next_early_++; }

private:
    std::uint64_t next_early_ = 0, next_ = std::uint64_t{1} << 63;
};

/// What happens in a network in virtual time: in order of time, of kind at one time, and then of being pushed. Whoever
/// reserves enough of it allocates nothing later.
template <class Kind>
class EventQueue {
public:
    struct Event {
        std::int64_t time = 0;
        Kind kind{};
        std::uint64_t order = 0;
        std::size_t link = 0;  ///< at which it happens, if at any
        [[nodiscard]] bool operator<(const Event& other) const {
            return std::tie(time, kind, order) < std::tie(other.time, other.kind, other.order);
        }
    };

    void reserve(std::size_t events) { events_.reserve(events); }
    void push(std::int64_t time, Kind kind, std::size_t link) { push(time, kind, link, order_.take()); }
    /// With a number that was taken from an order for several queues.
    void push(std::int64_t time, Kind kind, std::size_t link, std::uint64_t order) {
        events_.push_back({time, kind, order, link});
        rise(events_.size() - 1);
    }
    /// Takes out what happens next. There must be something.
    Event pop() {
        const Event event = events_.front();
        const Event last = events_.back();
        events_.pop_back();
        if (!events_.empty()) sink(last);
        return event;
    }
    /// What happens next. There must be something.
    [[nodiscard]] const Event& front() const { return events_.front(); }
    /// When the next thing happens; the largest number when nothing will.
    [[nodiscard]] std::int64_t next_ns() const { return next().time; }
    /// The same with its number; the last moment of all when nothing will happen.
    [[nodiscard]] Moment next() const {
        return events_.empty() ? Moment{} : Moment{events_.front().time, events_.front().order};
    }

private:
    static constexpr std::size_t children = 4;  // shallower than a binary heap, so an event moves less often

    void rise(std::size_t at) {
        const Event event = events_[at];
        while (at > 0) {
            const std::size_t parent = (at - 1) / children;
            if (!(event < events_[parent])) break;
            events_[at] = events_[parent];
            at = parent;
        }
        events_[at] = event;
    }
    /// Puts an event into the hole at the top.
    void sink(const Event& event) {
        const std::size_t size = events_.size();
        std::size_t at = 0;
        for (std::size_t first = 1; first < size; first = at * children + 1) {
            std::size_t least = first;
            const std::size_t end = std::min(first + children, size);
            for (std::size_t child = first + 1; child < end; ++child) {
                if (events_[child] < events_[least]) least = child;
            }
            if (!(events_[least] < event)) break;
            events_[at] = events_[least];
            at = least;
        }
        events_[at] = event;
    }

    std::vector<Event> events_;  // a heap
    EventOrder order_;
};

}  // namespace foretail::packets
