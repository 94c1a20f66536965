// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "buffer/types.hpp"

namespace foretail::buffer {

/// PortQueues for the slotted model, where every non-empty queue sends one unit packet at the end of every slot.
///
/// A queue of length q at time t runs empty at t + q whatever happens to the others, so the queues are kept by the time
/// at which each runs empty, in one set of ports per time. An arrival moves its port to the next set, a push-out to the
/// one before, and a departure moves nothing. So the longest queue, any length and a slot's departures cost O(1) per
/// 64 ports, not a scan of all.
template <class Payload>
class SlotQueues {
public:
    struct Packet {
        Payload payload{};
        Bytes size = 1;
    };

    SlotQueues(Port ports, Bytes capacity, Tie tie)
        : capacity_(capacity),
          tie_(tie),
          words_(static_cast<std::size_t>(ports + 63) / 64),
          mask_(std::bit_ceil(static_cast<std::uint64_t>(capacity) + 3) - 1),
          sets_((mask_ + 1) * words_),
          outlasting_(mask_ + 1),
          empty_at_(static_cast<std::size_t>(ports)),
          idle_(empty_at_.size()),
          items_(std::is_empty_v<Payload> ? 0 : empty_at_.size()) {}

    /// Memory of the sets, which a caller may find too much for a vast buffer with many ports.
    [[nodiscard]] static std::size_t set_bytes(Port ports, Bytes capacity) {
        return std::bit_ceil(static_cast<std::uint64_t>(capacity) + 3) *
               (static_cast<std::size_t>(ports + 63) / 64 + 1) * 8;
    }

    [[nodiscard]] Port ports() const { return static_cast<Port>(empty_at_.size()); }
    [[nodiscard]] QueueIndex queues() const { return ports(); }
    [[nodiscard]] QueueIndex queue_of(const Arrival& arrival) const { return arrival.port; }
    [[nodiscard]] Port port_of(QueueIndex queue) const { return queue; }
    [[nodiscard]] int priority_of(QueueIndex) const { return 0; }
    [[nodiscard]] Bytes capacity() const { return capacity_; }
    [[nodiscard]] Bytes occupancy() const { return occupancy_; }
    [[nodiscard]] bool fits(Bytes size) const { return occupancy_ + size <= capacity_; }
    [[nodiscard]] Bytes length(Port port) const { return std::max<Tick>(empty_at(port) - now_, 0); }
    [[nodiscard]] Bytes longest() const { return active() > 0 ? latest_ - now_ : 0; }
    /// Number of queues that hold a packet.
    [[nodiscard]] std::int64_t active() const { return outlasting(now_); }
    [[nodiscard]] Tick now() const { return now_; }
    /// Packets that a port has sent.
    [[nodiscard]] std::int64_t departed(Port port) const {
        return std::min(now_, empty_at(port)) - idle_[static_cast<std::size_t>(port)];
    }
    /// Number of queues longer than this, which is at most `capacity`.
    [[nodiscard]] std::int64_t longer_than(Bytes length) const { return outlasting(now_ + length); }

    /// Lets the slots before `to` end, calling `ending(time)` for each with departures, before them; `time` is its end.
    template <class Ending>
    void advance(Tick to, Ending&& ending) {
        while (now_ < to && active() > 0) {
            ending(now_ + 1);
            occupancy_ -= active();
            outlasting(now_) = 0;
            ++now_;
            std::fill_n(set(now_), words_, 0);
        }
        now_ = to;
    }

    /// Calls `change(time, length)` for every departure of a port after the time `since`, when its queue changed last
    /// otherwise; `length` is that before the departure.
    template <class Change>
    void departures_since(Port port, Tick since, Change&& change) const {
        const Tick last = std::min(now_, empty_at(port));
        for (Tick time = since + 1; time <= last; ++time) change(time, empty_at(port) - time + 1);
    }

    void push(const Arrival& arrival, Payload payload) {
        Tick& end = empty_at_[static_cast<std::size_t>(arrival.port)];
        if (end > now_) {
            flip(end, arrival.port);
        } else {
            idle_[static_cast<std::size_t>(arrival.port)] += now_ - end;
            end = now_;
        }
        ++outlasting(end);
        ++end;
        flip(end, arrival.port);
        latest_ = std::max(latest_, end);
        ++occupancy_;
        if constexpr (!std::is_empty_v<Payload>) {
            Items& items = items_[static_cast<std::size_t>(arrival.port)];
            const auto queued = static_cast<std::size_t>(end - now_);
            if (queued > items.slots.size()) items.grow(queued - 1);
            items.at(items.end++) = std::move(payload);
        }
    }
    void start(Port, Tick) const {}

    [[nodiscard]] std::size_t removable(Port port) const { return static_cast<std::size_t>(length(port)); }
    /// The longest queue, or -1 when all are empty; with one queue per port there is one class.
    [[nodiscard]] Port longest_removable(Order) const {
        if (active() == 0) return -1;
        const std::uint64_t* words = set(latest_);
        if (tie_ == Tie::lowest_port) {
            for (std::size_t w = 0;; ++w) {
                if (words[w]) return static_cast<Port>(64 * w) + std::countr_zero(words[w]);
            }
        }
        for (std::size_t w = words_;;) {
            if (words[--w]) return static_cast<Port>(64 * w) + 63 - std::countl_zero(words[w]);
        }
    }
    /// Removes the i-th packet of a queue, counted from the head.
    Packet remove(Port port, std::size_t i) {
        Packet packet;
        Tick& end = empty_at_[static_cast<std::size_t>(port)];
        if constexpr (!std::is_empty_v<Payload>) {
            Items& items = items_[static_cast<std::size_t>(port)];
            std::size_t place = items.end - static_cast<std::size_t>(end - now_) + i;
            packet.payload = std::move(items.at(place));
            if (i > 0) {  // without its head a queue is simply shorter
                for (; place + 1 < items.end; ++place) items.at(place) = std::move(items.at(place + 1));
                --items.end;
            }
        }
        flip(end, port);
        --end;
        --outlasting(end);
        if (end > now_) flip(end, port);
        if (end + 1 == latest_ && outlasting(end) == 0) latest_ = end;
        --occupancy_;
        return packet;
    }
    /// There are no control packets in slots.
    void take_back_control(const Arrival&) const {}

    /// Calls `visit(payload)` for the head of every queue.
    template <class Visit>
    void for_each_front(Visit&& visit) const {
        for (Port port = 0; port < ports(); ++port) {
            const Items& items = items_[static_cast<std::size_t>(port)];
            if (removable(port) > 0) visit(items.at(items.end - removable(port)));
        }
    }

private:
    /// Packets of a port by their running number: those in [end - length, end) are queued.
    struct Items {
        std::vector<Payload> slots;
        std::size_t end = 0;

        [[nodiscard]] Payload& at(std::size_t number) { return slots[number & (slots.size() - 1)]; }
        [[nodiscard]] const Payload& at(std::size_t number) const { return slots[number & (slots.size() - 1)]; }
        void grow(std::size_t queued) {
            Items larger{std::vector<Payload>(slots.empty() ? 64 : 2 * slots.size()), end};
            for (std::size_t i = end - queued; i < end; ++i) larger.at(i) = std::move(at(i));
            *this = std::move(larger);
        }
    };

    /// Number of queues that run empty after this time, which is not past and at most `capacity` from now.
    [[nodiscard]] std::int64_t& outlasting(Tick time) { return outlasting_[static_cast<std::uint64_t>(time) & mask_]; }
    [[nodiscard]] std::int64_t outlasting(Tick time) const {
        return outlasting_[static_cast<std::uint64_t>(time) & mask_];
    }
    [[nodiscard]] Tick empty_at(Port port) const { return empty_at_[static_cast<std::size_t>(port)]; }
    [[nodiscard]] std::uint64_t* set(Tick time) { return &sets_[(static_cast<std::uint64_t>(time) & mask_) * words_]; }
    [[nodiscard]] const std::uint64_t* set(Tick time) const {
        return &sets_[(static_cast<std::uint64_t>(time) & mask_) * words_];
    }
    void flip(Tick time, Port port) { set(time)[port / 64] ^= std::uint64_t{1} << (port % 64); }

    Bytes capacity_;
    Tie tie_;
    std::size_t words_, mask_;
    std::vector<std::uint64_t> sets_;  // of ports, by the time at which their queues run empty
    std::vector<std::int64_t> outlasting_;
    std::vector<Tick> empty_at_;
    std::vector<Tick> idle_;  // slots in which a port had nothing to send, until its queue became non-empty last
    std::vector<Items> items_;
    Tick now_ = 0, latest_ = 0;
    Bytes occupancy_ = 0;
};

/// Of packets that nobody tells apart.
struct UnitPacket {};
using UnitQueues = SlotQueues<UnitPacket>;

}  // namespace foretail::buffer
