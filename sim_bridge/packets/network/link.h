// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "buffer/queues/line_rate.hpp"
#include "buffer/queues/ring.hpp"
#include "buffer/types.hpp"

namespace foretail::packets {

/// A link and the packets on it, which arrive at its other end in the order in which they left.
template <class Packet>
class Link {
public:
    Link(buffer::LineRate rate, std::int64_t delay_ns) : rate_(rate), delay_ns_(delay_ns) {}

    /// Sends a packet after all that it was given before, as an unbounded queue does; `order` is the number of its
    /// arrival among events at the same time.
    void send(Packet packet, buffer::Bytes size, std::int64_t now, std::uint64_t order = 0) {
        free_at_ = std::max(now, free_at_) + duration(size);
        packets_.push_back({std::move(packet), free_at_ + delay_ns_, order});
    }
    /// Carries a packet whose last bit has left at `left_ns`.
    void carry(Packet packet, std::int64_t left_ns) { packets_.push_back({std::move(packet), left_ns + delay_ns_, 0}); }
    /// Hands over the packet that arrives first. There must be one.
    Packet take() { return std::move(packets_.pop_front().packet); }

    [[nodiscard]] bool empty() const { return packets_.empty(); }
    /// When the first packet arrives. There must be one.
    [[nodiscard]] std::int64_t next_ns() const { return packets_.front().time_ns; }
    /// The number of that arrival. There must be a packet, and it must have been given one.
    [[nodiscard]] std::uint64_t next_order() const { return packets_.front().order; }
    /// When the link has sent all that it was given.
    [[nodiscard]] std::int64_t free_at_ns() const { return free_at_; }
    [[nodiscard]] std::int64_t delay_ns() const { return delay_ns_; }
    [[nodiscard]] const buffer::LineRate& rate() const { return rate_; }
    /// For what is sent from now on.
    void lengthen(std::int64_t ns) { delay_ns_ += ns; }

private:
    struct Travelling {
        Packet packet;
        std::int64_t time_ns = 0;  ///< of its arrival at the end of the link
        std::uint64_t order = 0;   ///< of that event
    };

    /// Packets come in few sizes, and a division costs more than this comparison.
    [[nodiscard]] std::int64_t duration(buffer::Bytes size) {
        if (size != last_size_) {
            last_size_ = size;
            last_duration_ = rate_.duration(size);
        }
        return last_duration_;
    }

    buffer::LineRate rate_;
    std::int64_t delay_ns_, free_at_ = 0;
    buffer::Bytes last_size_ = 0;
    std::int64_t last_duration_ = 0;
    buffer::Ring<Travelling> packets_;
};

}  // namespace foretail::packets
