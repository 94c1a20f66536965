// SPDX-License-Identifier: MIT
// The vocabulary of the buffer library. Sizes are bytes or unit packets alike, times are nanoseconds or slots alike.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace foretail::buffer {

using Bytes = std::int64_t;
using Tick = std::int64_t;
using Port = std::int32_t;
/// Queues of a switch: port * priorities + priority, which with one priority is the port.
using QueueIndex = std::int32_t;
/// Identifies an arrival in a trace; control packets and untraced arrivals carry `no_row`.
using Row = std::int64_t;
inline constexpr Row no_row = -1;

/// Whether an arrival counts in its own queue when Longest Queue Drop looks for the longest.
enum class Counting : std::uint8_t { counted, uncounted };
inline constexpr std::array<std::string_view, 2> counting_names = {"counted", "uncounted"};

/// Which of several equally long queues is the longest.
enum class Tie : std::uint8_t { lowest_port, highest_port };
inline constexpr std::array<std::string_view, 2> tie_names = {"lowest_port", "highest_port"};

/// Which packet of a queue is pushed out. `tail` is the arrival itself when its own queue is the longest; `tail_kept`
/// spares the arrival and takes the packet before it. The last two go by what senders say: `spare_first_rtt` takes the
/// last packet that was not sent in a first round trip, `most_left` the last of those whose message has most to come.
enum class Victim : std::uint8_t { tail, tail_kept, head, random, spare_first_rtt, most_left };
inline constexpr std::array<std::string_view, 6> victim_names = {"tail",   "tail_kept",       "head",
                                                                 "random", "spare_first_rtt", "most_left"};

/// Whether a victim is chosen by what senders say of packets, which slots do not know.
inline constexpr bool goes_by_tags(Victim victim) {
    return victim == Victim::spare_first_rtt || victim == Victim::most_left;
}

/// In which queue the victim is sought: in the longest of all, in the longest of the lowest class (the highest queue
/// number) that has a packet to lose, or in every queue, which needs a victim that goes by tags.
enum class Order : std::uint8_t { longest_queue, lower_classes_first, any_queue };
inline constexpr std::array<std::string_view, 3> order_names = {"longest_queue", "lower_classes_first", "any_queue"};

/// Whose decisions are the labels, and whose queues the thresholds.
enum class Oracle : std::uint8_t { lqd, occamy };
inline constexpr std::array<std::string_view, 2> oracle_names = {"lqd", "occamy"};

/// Which of its queues a port serves next.
enum class Scheduler : std::uint8_t { round_robin, strict, deficit_round_robin };
inline constexpr std::array<std::string_view, 3> scheduler_names = {"round_robin", "strict", "deficit_round_robin"};

/// How the tag of a packet says how much of its message comes after it: in cells, at most `far_from_its_end`.
inline constexpr Bytes far_from_its_end = 255;

/// Bytes that a message has to come at least after a packet that is predicted not to be among its last.
inline constexpr Bytes least_left = 8192;

/// The choices that Longest Queue Drop leaves open, and the seed of random victims.
struct PushOutRules {
    Counting counting = Counting::counted;
    Tie tie = Tie::lowest_port;
    Victim victim = Victim::tail;
    std::uint64_t seed = 0;
    Order order = Order::longest_queue;
    int cell_shift = 0;  ///< the unit of `most_left` is 2^this bytes
};

/// Where nobody says how many bytes of its message come after a packet.
inline constexpr Bytes not_said_how_much = Bytes{1} << 40;

struct Arrival {
    Tick time = 0;
    Port port = 0;
    Bytes size = 1;
    bool data = true;        ///< false: a pure ACK, SYN or FIN, which shares the buffer but is never a victim
    bool first_rtt = false;  ///< sent in the first round trip of its flow, before any feedback (ABM)
    std::uint8_t priority = 0;
    Bytes sent = 0;                            ///< bytes of its message that come before it
    Bytes left = not_said_how_much;            ///< bytes of its message that come after it
    Port ingress = 0;                          ///< by which it came, where somebody knows
    bool short_packet = false;                 ///< shorter than the longest data packet that the switch has seen
    Bytes flow_sent = not_said_how_much;       ///< bytes of its message that have come before it, as FlowTable counts
    Bytes left_like_last = not_said_how_much;  ///< after it, if its message is as long as the port's last one
};

/// Eighths of an octave: 8 log2(value), rounded down on a chord; `value` is at least 1.
inline int eighths_of_octaves(std::int64_t value) {
    const int octave = std::bit_width(static_cast<std::uint64_t>(value)) - 1;
    return 8 * octave + static_cast<int>((value << 3 >> octave) & 7);
}

/// What became of an arrival under the policy of its switch.
enum class Outcome : std::uint8_t { accepted, over_threshold, predicted, buffer_full, pushed_out };

/// Position of a name; throws std::invalid_argument that says `complaint` and which names there are.
inline std::size_t position(std::string_view name, std::span<const std::string_view> names,
                            const std::string& complaint) {
    std::string choices;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i] == name) return i;
        choices.append(i > 0 ? ", " : "").append(names[i]);
    }
    throw std::invalid_argument(complaint + ": choose one of " + choices);
}

}  // namespace foretail::buffer
