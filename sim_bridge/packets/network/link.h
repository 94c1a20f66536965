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

    /// Sends a packet after all that it was given before, as an unbounded queue does.
    void send(Packet packet, buffer::Bytes size, std::int64_t now) {
        free_at_ = std::max(now, free_at_) + rate_.duration(size);
        carry(std::move(packet), free_at_);
    }
    /// Carries a packet whose last bit has left at `left_ns`.
    void carry(Packet packet, std::int64_t left_ns) { packets_.push_back({std::move(packet), left_ns + delay_ns_}); }
    /// Hands over the packet that arrives first. There must be one.
    Packet take() { return std::move(packets_.pop_front().packet); }

    [[nodiscard]] bool empty() const { return packets_.empty(); }
    /// When the first packet arrives. There must be one.
    [[nodiscard]] std::int64_t next_ns() const { return packets_.front().time_ns; }
    /// When the link has sent all that it was given.
    [[nodiscard]] std::int64_t free_at_ns() const { return free_at_; }
    [[nodiscard]] std::int64_t delay_ns() const { return delay_ns_; }

private:
    struct Travelling {
        Packet packet;
        std::int64_t time_ns = 0;  ///< of its arrival at the end of the link
    };

    buffer::LineRate rate_;
    std::int64_t delay_ns_, free_at_ = 0;
    buffer::Ring<Travelling> packets_;
};

}  // namespace foretail::packets
