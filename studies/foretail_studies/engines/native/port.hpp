// SPDX-License-Identifier: MIT
// A port of a network of switches, and the order in which its scheduler serves packets.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory_resource>
#include <random>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace foretail::schedulers {

using Time = std::int64_t;  // nanoseconds

/// Which packet a port serves next. What `value` of a packet means is in sim_bridge/schedulers/network.py.
enum class Scheduler : std::uint8_t { fifo, lifo, random, priority, fair, lstf, edf, bands };
inline constexpr std::array<std::string_view, 8> scheduler_names = {"fifo", "lifo", "random", "priority",
                                                                    "fair", "lstf", "edf",    "bands"};

/// Which packet is dropped when a switch's buffer is full: the arrival, the packet that would be served last (with
/// lstf that of the largest slack), or the one that would be served last of the longest queue.
enum class Drop : std::uint8_t { arrival, largest_key, longest_queue };
inline constexpr std::array<std::string_view, 3> drop_names = {"arrival", "largest_key", "longest_queue"};

struct Packet {
    std::int64_t value = 0;
    std::int64_t injected = 0;  ///< so many before it
    Time waited_ns = 0;         ///< in queues, before its port
    Time arrived_ns = 0;        ///< at its port
    Time left_ns = 0;           ///< of its transmission there
    std::int32_t size_bytes = 0, flow = 0, route = 0, hop = 0;
    std::uint8_t congested = 0;                             ///< ports that were busy when it came
    std::uint8_t level = 0;                                 ///< the priority that a sender of RC3 gave it
    bool answer = false;                                    ///< it acknowledges data
    std::int32_t sequence = 0, order = -1, cumulative = 0;  ///< of its sender, see rc3.hpp
};

/// A packet in a queue; the least is served first, of equal keys the one that came first, and of those that came
/// together the one that was injected first.
struct Entry {
    std::int64_t key = 0;
    Time arrived_ns = 0;
    std::int64_t injected = 0;
    std::int32_t packet = -1;
    auto operator<=>(const Entry&) const = default;
};

struct Bands {
    int count = 8;  ///< a packet goes to the lowest band beyond the last
    int shift = 10;
};

/// Strict priority of what may still wait so long: its number of bits, without the lowest `shift`.
inline std::int64_t band_of(Time slack_ns, const Bands& bands) {
    if (slack_ns < 0) return 0;
    return std::min<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(slack_ns) >> bands.shift), bands.count - 1);
}

struct PortSettings {
    std::int64_t rate_bps = 0;
    Time delay_ns = 0;
    std::int32_t owner = 0;  ///< the switch whose buffer it shares
    Scheduler scheduler = Scheduler::fifo;
};

/// Time to send so many bytes, rounded up.
inline Time transmission_ns(std::int64_t bytes, std::int64_t rate_bps) {
    return (bytes * 8'000'000'000 + rate_bps - 1) / rate_bps;
}

class Port {
public:
    Port(const PortSettings& settings, std::pmr::memory_resource* memory)
        : settings(settings), queue_(memory), finish_(memory) {}

    PortSettings settings;
    Entry serving;                  ///< packet -1: none
    Time started_ns = 0;            ///< that transmission
    std::uint32_t version = 0;      ///< of the transmission; what was interrupted has an older one
    bool picks = false;             ///< an event is planned that chooses the next packet
    std::int64_t queued_bytes = 0;  ///< with the packet that is being sent

    [[nodiscard]] bool is_busy() const { return serving.packet >= 0 || !is_empty(); }
    [[nodiscard]] bool is_empty() const {
        return settings.scheduler == Scheduler::random ? unordered_.empty() : queue_.empty();
    }

    void put(const Entry& entry) {
        if (settings.scheduler == Scheduler::random) {
            unordered_.push_back(entry);
        } else {
            queue_.insert(entry);
        }
    }
    Entry take(std::mt19937_64& random) {
        Entry taken;
        if (settings.scheduler == Scheduler::random) {
            const auto at = static_cast<std::size_t>((static_cast<__uint128_t>(random()) * unordered_.size()) >> 64);
            taken = std::exchange(unordered_[at], unordered_.back());
            unordered_.pop_back();
        } else {
            taken = *queue_.begin();
            queue_.erase(queue_.begin());
            if (settings.scheduler == Scheduler::fair) virtual_time_ = taken.key;
        }
        return taken;
    }
    /// The packet that would be served last; none where nothing waits.
    [[nodiscard]] const Entry* last() const { return queue_.empty() ? nullptr : &*queue_.rbegin(); }
    void remove_last() { queue_.erase(std::prev(queue_.end())); }

    /// Finish tag of a packet by self-clocked fair queueing (Golestani, INFOCOM 1994): in bytes of service of a flow.
    std::int64_t finish_tag(std::int32_t flow, std::int64_t bytes) {
        std::int64_t& finish = finish_[flow];
        return finish = std::max(finish, virtual_time_) + bytes;
    }
    /// Forgets flows, when nothing is left to send.
    void rest() {
        if (settings.scheduler != Scheduler::fair) return;
        virtual_time_ = 0;
        finish_.clear();
    }

private:
    std::pmr::set<Entry> queue_;
    std::vector<Entry> unordered_;
    std::int64_t virtual_time_ = 0;                               ///< finish tag of the packet that is being sent
    std::pmr::unordered_map<std::int32_t, std::int64_t> finish_;  ///< of flows
};

}  // namespace foretail::schedulers
