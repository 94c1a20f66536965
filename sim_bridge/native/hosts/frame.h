// SPDX-License-Identifier: MIT
// Frames of the native network, positions in a byte stream, and timers.
#pragma once

#include "buffer/records.hpp"
#include "packets/network/links.h"

namespace foretail::packets::native {

/// A sequence number of TCP, which counts bytes and wraps after 32 bits (RFC 9293, section 3.4).
using Sequence = std::uint32_t;

inline bool before(Sequence a, Sequence b) { return static_cast<std::int32_t>(a - b) < 0; }
inline Sequence later(Sequence a, Sequence b) { return before(a, b) ? b : a; }

/// Bytes from `begin` to before `end`.
struct Range {
    Sequence begin = 0, end = 0;
    [[nodiscard]] std::uint32_t size() const { return end - begin; }
};

/// The first of so many places that `is_behind`, as all after it are; their number if there is none.
template <class IsBehind>
std::size_t first_place(std::size_t places, IsBehind&& is_behind) {
    std::size_t low = 0, high = places;
    while (low < high) {
        const std::size_t middle = (low + high) / 2;
        if (is_behind(middle)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/// Flags of a TCP header. The receiver of a queue pair has two of its own: `nack` tells that something is missing, and
/// `cnp` makes a packet a notification of congestion, which acknowledges nothing.
enum Flag : std::uint8_t {
    fin = 0x01,
    syn = 0x02,
    rst = 0x04,
    cnp = 0x08,
    ack = 0x10,
    nack = 0x20,
    ece = 0x40,
    cwr = 0x80
};

inline constexpr std::int32_t notification_bytes = 60;  ///< of a notification of congestion of RoCEv2, with IP

/// What the packets of a connection that is balanced carry; an answer has that of the packet that it answers.
struct Stamp {
    std::int64_t sent_ns = -1;  ///< -1: none
    std::uint32_t subflow = 0;
    bool marked = false;  ///< of an answer: its packet came with a congestion mark
};

/// A TCP segment on a link: what switches need of it, and what its header says.
struct Frame {
    static constexpr int most_blocks = 4;  ///< of selective acknowledgements

    std::int32_t size_bytes = 0;               ///< IP packet, without framing
    std::int32_t source = 0, destination = 0;  ///< servers
    std::int32_t flow = -1;                    ///< index in the plan; acknowledgements carry the flow they belong to
    std::uint32_t path_hash = 0;               ///< of the 5-tuple
    buffer::FlowClass flow_class = buffer::FlowClass::control;
    bool first_rtt = false;
    bool ecn_capable = false;
    bool congestion_experienced = false;  ///< set by a switch
    std::int64_t sent_bytes = 0;          ///< of its message, before it
    std::int64_t left_bytes = 0;          ///< of its message, after it

    std::int32_t number = 0;  ///< in its pool
    std::int32_t connection = 0;
    bool answer = false;  ///< of the receiver
    std::uint8_t flags = 0;
    std::uint8_t blocks = 0;    ///< so many of `sacked`
    std::uint8_t priority = 0;  ///< of RC3; 0: all of TCP's own
    std::uint8_t queue = 0;     ///< of a switch's port: that of its class, and its priority added
    std::uint32_t payload = 0;
    Sequence sequence = 0, acknowledged = 0;
    Stamp stamp;
    std::array<Range, most_blocks> sacked;  ///< the newest first

    [[nodiscard]] bool has(std::uint8_t flag) const { return (flags & flag) != 0; }
};

inline void mark_congestion(Frame& frame) { frame.congestion_experienced = true; }

/// Frames are lent: whoever takes a packet off the network gives its frame back.
using Frames = FramePool<Frame>;

/// A timer that may be armed again and again before it fires, while a queue of events holds it once: what it finds
/// there before its time is put back with its own.
class Timer {
public:
    [[nodiscard]] bool is_pending() const { return pending_; }
    void cancel() { pending_ = false; }
    /// Returns whether the queue has to be given the moment.
    bool arm(Moment moment) {
        pending_ = true;
        moment_ = moment;
        if (queued_ && !(moment < in_queue_)) return false;
        queued_ = true;
        in_queue_ = moment;
        return true;
    }
    enum class Due { nothing, later, now };
    /// The queue has come to a moment: nothing to do, to be queued again at `moment`, or to fire.
    Due reach(std::uint64_t order) {
        if (!queued_ || in_queue_.order != order) return Due::nothing;
        queued_ = false;
        if (!pending_) return Due::nothing;
        if (moment_.order == order) {
            pending_ = false;
            return Due::now;
        }
        queued_ = true;
        in_queue_ = moment_;
        return Due::later;
    }
    [[nodiscard]] Moment moment() const { return moment_; }

private:
    Moment moment_, in_queue_;
    bool pending_ = false, queued_ = false;
};

}  // namespace foretail::packets::native
