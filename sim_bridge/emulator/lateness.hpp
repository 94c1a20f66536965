// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace foretail::packets::emulator {

/// Counts of times in ns by their size, in buckets an eighth of a power of two wide: a percentile is at most an eighth
/// too high, whatever the number of packets.
class Lateness {
public:
    void add(std::int64_t late_ns) {
        const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(0, late_ns));
        ++counts_[bucket(value)];
        ++packets_;
        most_ = std::max(most_, static_cast<std::int64_t>(value));
    }
    [[nodiscard]] std::int64_t packets() const { return packets_; }
    [[nodiscard]] std::int64_t most_ns() const { return most_; }
    /// The upper end of the bucket that holds the percentile, at most the largest; 0 without packets. `share` in 0..1.
    [[nodiscard]] std::int64_t percentile_ns(double share) const {
        const auto rank = static_cast<std::int64_t>(share * static_cast<double>(packets_));
        std::int64_t below = 0;
        for (std::size_t i = 0; i < counts_.size(); ++i) {
            below += counts_[i];
            if (below > rank) return std::min(most_, upper_end(i));
        }
        return most_;
    }

private:
    static constexpr std::size_t parts = 8;  // of a power of two

    static std::size_t bucket(std::uint64_t value) {
        if (value < parts) return static_cast<std::size_t>(value);
        const int high = std::bit_width(value) - 1;
        const std::uint64_t next = (value >> (high - 3)) & (parts - 1);
        return static_cast<std::size_t>(high - 2) * parts + static_cast<std::size_t>(next);
    }
    static std::int64_t upper_end(std::size_t index) {
        if (index < parts) return static_cast<std::int64_t>(index);
        const auto high = static_cast<int>(index / parts) + 2;
        const auto next = static_cast<std::int64_t>(index % parts + parts + 1);
        return high >= 62 ? INT64_MAX : (next << (high - 3)) - 1;
    }

    std::array<std::int64_t, 62 * parts> counts_{};
    std::int64_t packets_ = 0, most_ = 0;
};

}  // namespace foretail::packets::emulator
