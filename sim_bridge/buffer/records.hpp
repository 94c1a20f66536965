// SPDX-License-Identifier: MIT
// Fixed-size little-endian records that a simulator writes. features/records.py has the same layouts for numpy and says
// what the fields mean; a test compares both.
#pragma once

#include "buffer/features.hpp"

namespace foretail::buffer {

static_assert(std::endian::native == std::endian::little, "records are little endian");

enum class FlowClass : std::uint8_t { control, background, incast };
enum class Asked : std::uint8_t { no, yes, never };

/// Zeros, perhaps none.
template <std::size_t n>
struct Pad {
    std::array<std::uint8_t, n> zeros{};
};
template <>
struct Pad<0> {};

struct ArrivalRecord {
    std::int64_t time_ns = 0;
    std::int64_t fate_time_ns = 0;
    std::int64_t score = 0;
    std::int32_t flow = 0;
    std::int32_t size_bytes = 0;
    FeatureVector features{};
    std::int16_t switch_index = 0;
    std::int16_t port = 0;
    FlowClass flow_class = FlowClass::control;
    Outcome outcome = Outcome::accepted;
    std::uint8_t lqd_drop = 0;
    std::uint8_t exposed = 0;
    Asked asked = Asked::never;
    std::uint8_t first_rtt = 0;
    std::int16_t ingress = 0;  ///< port by which it came, where some queues may not lose
    [[no_unique_address]] Pad<6 - (4 * feature_count + 2) % 8> pad{};  ///< to a multiple of 8 bytes
};
static_assert(sizeof(ArrivalRecord) == (44 + 4 * feature_count + 7) / 8 * 8);

/// The other end of a port's link pauses one of the port's queues, or lets it go on.
struct PauseRecord {
    std::int64_t time_ns = 0;
    std::int16_t switch_index = 0;
    std::int16_t port = 0;
    std::uint8_t priority = 0;
    std::uint8_t paused = 0;
    std::array<std::uint8_t, 2> pad{};
};
static_assert(sizeof(PauseRecord) == 16);

struct FlowRecord {
    std::int64_t start_ns = 0;
    std::int64_t fct_ns = -1;
    std::int64_t ideal_fct_ns = 0;
    std::int64_t size_bytes = 0;
    std::int32_t source = 0;
    std::int32_t destination = 0;
    std::int32_t query = -1;
    std::int32_t retransmissions = 0;
    std::int32_t timeouts = 0;
    FlowClass flow_class = FlowClass::background;
    std::uint8_t connected_in_advance = 0;
    std::array<std::uint8_t, 2> pad{};
};
static_assert(sizeof(FlowRecord) == 56);

struct OccupancyRecord {
    std::int64_t time_ns = 0;
    std::int64_t occupancy_bytes = 0;
    std::int64_t longest_bytes = 0;
    std::int32_t switch_index = 0;
    std::int32_t lossless_bytes = 0;  ///< of queues that may not lose
};
static_assert(sizeof(OccupancyRecord) == 32);

struct CounterRecord {
    std::int64_t time_ns = 0;
    std::int64_t arrived_bytes = 0;
    CounterVector counters{};
    std::int32_t switch_index = 0;
    std::int32_t queue = 0;
    std::int32_t pad = 0;
};
static_assert(sizeof(CounterRecord) == 80);

}  // namespace foretail::buffer
