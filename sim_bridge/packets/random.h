// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstdint>
#include <random>

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

}  // namespace foretail::packets
