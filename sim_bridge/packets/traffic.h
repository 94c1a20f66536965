// SPDX-License-Identifier: MIT
// Flows that a run draws before it begins, and draws that depend on a seed alone.
#pragma once

#include <cmath>
#include <random>

#include "buffer/records.hpp"
#include "packets/settings/settings.h"

namespace foretail::packets {

/// A random stream of its own for each purpose, from the run's seed. Only the engine is the library's, whose output the
/// C++ standard fixes; its distributions differ between implementations.
class RandomStream {
public:
    enum class Purpose : std::uint32_t { background, incast, flips, starts };

    RandomStream(std::uint64_t seed, Purpose purpose, std::uint32_t index) {
        std::seed_seq sequence{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                               static_cast<std::uint32_t>(purpose), index};
        engine_.seed(sequence);
    }

    /// Uniform in [0, 1).
    double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
    /// Uniform in 0 .. n - 1.
    int below(int n) { return static_cast<int>(uniform() * n); }
    /// Exponential with the given mean.
    double exponential(double mean) { return -mean * std::log1p(-uniform()); }

private:
    std::mt19937_64 engine_;
};

/// A random stream with a state of eight bytes (SplitMix64), for what is copied often.
class SmallRandom {
public:
    SmallRandom(std::uint64_t seed, std::uint64_t index) : state_(mixed(seed) + index) { state_ = mixed(state_); }

    /// Uniform in [0, 1).
    double uniform() {
        state_ += step;
        return static_cast<double>(mixed(state_) >> 11) * 0x1p-53;
    }

private:
    static constexpr std::uint64_t step = 0x9e3779b97f4a7c15;
    static std::uint64_t mixed(std::uint64_t bits) {
        bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
        bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
        return bits ^ bits >> 31;
    }

    std::uint64_t state_;
};

/// Size of a flow that never ends: no run comes to the end of it.
inline constexpr std::int64_t endless_bytes = std::int64_t{1} << 40;

/// One flow to be sent, known before the simulation starts.
struct PlannedFlow {
    std::int64_t start_ns = 0;    ///< the earliest with `after`
    std::int64_t connect_ns = 0;  ///< before start_ns for connections set up in advance
    std::int64_t size_bytes = 0;
    int source = 0, destination = 0;
    int query = -1;  ///< responses to one query share its number; -1: background
    buffer::FlowClass flow_class = buffer::FlowClass::background;
    int spine = -1;                  ///< that its packets pass; -1: the hash of its path chooses one
    std::int64_t connection = -1;    ///< flows with the same number share a connection; -1: one of its own
    std::vector<std::size_t> after;  ///< flows that must be delivered before it starts
    std::int64_t gap_ns = 0;         ///< from the last of these deliveries to the start
    std::int64_t latest_ns = std::numeric_limits<std::int64_t>::max();  ///< ready later, it never starts
};

/// Address of server 0; the others follow.
inline constexpr std::uint32_t first_address = 0x0A000001U;
/// Receivers listen at one port; the connections of a server leave from ports that count up from another.
inline constexpr std::uint16_t listen_port = 5000, first_source_port = 10000;

/// Of a packet's addresses and ports: which of several ways its flow takes.
std::uint32_t path_hash(int source, int destination, std::uint16_t source_port, std::uint16_t destination_port);

/// Completion time of a flow alone: its segments sent back to back at line rate through an idle network, store and
/// forward at every switch, connection set-up not included. Both kinds of traffic are measured from the instant the
/// application sends. 0 of a flow that never ends.
std::int64_t ideal_fct_ns(const Settings& settings, const PlannedFlow& flow);

/// All flows of a run: background and incast in order of their start, then the messages in theirs. Every server has its
/// own random stream per kind of traffic, so neither the policy nor the other kind changes a flow.
std::vector<PlannedFlow> plan_traffic(const Settings& settings);

}  // namespace foretail::packets
