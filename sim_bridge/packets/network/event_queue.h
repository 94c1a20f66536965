// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <tuple>
#include <vector>

namespace foretail::packets {

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
        [[nodiscard]] bool operator>(const Event& other) const {
            return std::tie(time, kind, order) > std::tie(other.time, other.kind, other.order);
        }
    };

    void reserve(std::size_t events) { events_.reserve(events); }
    void push(std::int64_t time, Kind kind, std::size_t link) {
        events_.push_back({time, kind, next_order_++, link});
        std::push_heap(events_.begin(), events_.end(), std::greater{});
    }
    /// Takes out what happens next. There must be something.
    Event pop() {
        std::pop_heap(events_.begin(), events_.end(), std::greater{});
        const Event event = events_.back();
        events_.pop_back();
        return event;
    }
    /// When the next thing happens; the largest number when nothing will.
    [[nodiscard]] std::int64_t next_ns() const {
        return events_.empty() ? std::numeric_limits<std::int64_t>::max() : events_.front().time;
    }

private:
    std::vector<Event> events_;  // a heap
    std::uint64_t next_order_ = 0;
};

}  // namespace foretail::packets
