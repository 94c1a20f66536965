// SPDX-License-Identifier: MIT
#pragma once

#include <cassert>
#include <cstddef>
#include <utility>
#include <vector>

#include "ring.hpp"
#include "tournament.hpp"
#include "types.hpp"

namespace foretail::buffer {

/// How long a port takes to send a packet: ceil((size + overhead) * ticks / per_bytes).
struct LineRate {
    std::int64_t ticks = 1;
    std::int64_t per_bytes = 1;
    Bytes overhead = 0;

    /// A link of `bps` bits per second with times in nanoseconds; `overhead` bytes travel but use no buffer.
    static constexpr LineRate from_bps(std::int64_t bps, Bytes overhead) { return {8'000'000'000, bps, overhead}; }
    /// One unit packet per slot.
    static constexpr LineRate one_per_slot() { return {}; }

    [[nodiscard]] constexpr Tick duration(Bytes size) const {
        return ((size + overhead) * ticks + per_bytes - 1) / per_bytes;
    }
};

/// What a switch is made of, as far as its buffer is concerned.
struct Shape {
    Bytes capacity = 0;
    std::vector<LineRate> rates;  ///< one per port
    Tie tie = Tie::lowest_port;   ///< which of several longest queues is the longest
    bool preemptive =
        false;  ///< the packet being sent may still be pushed out (slotted model: it leaves at the slot's end)

    [[nodiscard]] Port ports() const { return static_cast<Port>(rates.size()); }
};

/// N first-in-first-out queues over one shared buffer, each sending at its line rate.
///
/// A packet holds its bytes until its last bit has left; departures at time t come before arrivals at time t. Data and
/// control packets of a port share one queue in order of arrival, but only data packets can be removed from it.
template <class Payload>
class PortQueues {
public:
    struct Packet {
        Payload payload{};
        Bytes size = 0;
        std::uint64_t order = 0;
    };

    explicit PortQueues(const Shape& shape)
        : capacity_(shape.capacity),
          preemptive_(shape.preemptive),
          ports_(shape.rates.size()),
          lengths_(shape.ports(), shape.tie, 0),
          next_departure_(shape.ports(), Tie::lowest_port, Tournament::lowest),
          tie_(shape.tie) {
        for (std::size_t i = 0; i < ports_.size(); ++i) ports_[i].rate = shape.rates[i];
    }

    [[nodiscard]] Port ports() const { return static_cast<Port>(ports_.size()); }
    [[nodiscard]] Bytes capacity() const { return capacity_; }
    [[nodiscard]] Bytes occupancy() const { return occupancy_; }
    [[nodiscard]] Bytes length(Port port) const { return lengths_.key(port); }
    [[nodiscard]] Bytes longest() const { return lengths_.best(); }
    [[nodiscard]] bool fits(Bytes size) const { return occupancy_ + size <= capacity_; }
    [[nodiscard]] bool sending(Port port) const { return at(port).sending; }
    /// When the packet being sent will have left. Only meaningful while sending.
    [[nodiscard]] Tick busy_until(Port port) const { return at(port).busy_until; }
    [[nodiscard]] const Packet& head(Port port) const {
        const auto& queue = at(port);
        return control_first(queue) ? queue.control.front() : queue.data.front();
    }

    /// Appends a packet without starting its transmission, so that a push-out may still take it back.
    void push(Port port, Bytes size, bool data, Payload payload) {
        auto& queue = at(port);
        (data ? queue.data : queue.control).push_back({std::move(payload), size, next_order_++});
        resize(port, size);
    }

    /// Starts sending the head of an idle port at time `now`; does nothing on a busy or empty port.
    void start(Port port, Tick now) {
        auto& queue = at(port);
        if (queue.sending || (queue.data.empty() && queue.control.empty())) return;
        queue.sending = true;
        queue.sending_control = control_first(queue);
        queue.busy_until = now + queue.duration(head(port).size);
        next_departure_.set(port, -queue.busy_until);
    }

    /// Sends everything that has left by `now`, in order of time and then port.
    /// `departing(port, time)` is called before a packet leaves, `departed(port, packet, time)` with it.
    template <class Departing, class Departed>
    void advance(Tick now, Departing&& departing, Departed&& departed) {
        while (next_departure_.best() != Tournament::lowest && -next_departure_.best() <= now) {
            const Port port = next_departure_.winner();
            auto& queue = at(port);
            const Tick time = queue.busy_until;
            auto& ring = queue.sending_control ? queue.control : queue.data;
            departing(port, time);
            Packet packet = ring.pop_front();
            resize(port, -packet.size);
            queue.sending = false;
            start(port, time);
            if (!queue.sending) next_departure_.set(port, Tournament::lowest);
            departed(port, std::move(packet), time);
        }
    }

    /// Number of data packets of a port that can still be removed.
    [[nodiscard]] std::size_t removable(Port port) const {
        const auto& queue = at(port);
        return queue.data.size() - first_removable(port);
    }

    /// The longest queue that holds a removable packet, or -1.
    [[nodiscard]] Port longest_removable() const {
        if (removable(lengths_.winner()) > 0) return lengths_.winner();
        Port found = -1;
        for (Port port = 0; port < ports(); ++port) {
            if (removable(port) == 0) continue;
            if (found < 0 || length(port) > length(found) ||
                (tie_ == Tie::highest_port && length(port) == length(found))) {
                found = port;
            }
        }
        return found;
    }

    /// Removes the i-th removable data packet of a port, counted from the head.
    Packet remove(Port port, std::size_t i) {
        auto& queue = at(port);
        assert(i < removable(port));
        const std::size_t index = first_removable(port) + i;
        Packet packet = queue.data.erase(index);
        resize(port, -packet.size);
        if (queue.sending && !queue.sending_control && index == 0) send_next_instead(port);
        return packet;
    }

    /// Takes back a control packet that was pushed last and could not be kept.
    Packet take_back_control(Port port) {
        auto& ring = at(port).control;
        Packet packet = ring.erase(ring.size() - 1);
        resize(port, -packet.size);
        return packet;
    }

    /// Sum of the sizes of all queued packets of a port, recounted packet by packet (for checks).
    [[nodiscard]] Bytes recount(Port port) const {
        Bytes sum = 0;
        for (std::size_t i = 0; i < at(port).data.size(); ++i) sum += at(port).data[i].size;
        for (std::size_t i = 0; i < at(port).control.size(); ++i) sum += at(port).control[i].size;
        return sum;
    }

private:
    struct Queue {
        Ring<Packet> data, control;
        LineRate rate;
        Tick busy_until = 0;
        Bytes last_size = 0;  // packets come in few sizes, and a division costs more than this comparison
        Tick last_duration = 0;
        bool sending = false, sending_control = false;

        [[nodiscard]] Tick duration(Bytes size) {
            if (size != last_size) {
                last_size = size;
                last_duration = rate.duration(size);
            }
            return last_duration;
        }
    };

    [[nodiscard]] Queue& at(Port port) { return ports_[static_cast<std::size_t>(port)]; }
    [[nodiscard]] const Queue& at(Port port) const { return ports_[static_cast<std::size_t>(port)]; }

    [[nodiscard]] static bool control_first(const Queue& queue) {
        if (queue.control.empty() || queue.data.empty()) return queue.data.empty();
        return queue.control.front().order < queue.data.front().order;
    }
    [[nodiscard]] std::size_t first_removable(Port port) const {
        const auto& queue = at(port);
        return queue.sending && !queue.sending_control && !preemptive_ ? 1 : 0;
    }
    /// The slotted model's departure at the slot's end takes whatever is at the head by then.
    void send_next_instead(Port port) {
        auto& queue = at(port);
        queue.sending = !queue.data.empty() || !queue.control.empty();
        queue.sending_control = control_first(queue);
        if (!queue.sending) next_departure_.set(port, Tournament::lowest);
    }
    void resize(Port port, Bytes change) {
        lengths_.set(port, lengths_.key(port) + change);
        occupancy_ += change;
    }

    Bytes capacity_;
    bool preemptive_;
    std::vector<Queue> ports_;
    Tournament lengths_, next_departure_;
    Tie tie_;
    Bytes occupancy_ = 0;
    std::uint64_t next_order_ = 0;
};

}  // namespace foretail::buffer
