// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "native/tcp/sequence.h"

namespace foretail::packets::native {

/// The second loop of RC3 (Mittal's thesis, section 2.1.1): sends what its connection was given from the last segment
/// backward, each segment once, until it comes to what TCP has sent. It knows no window, and reacts to nothing.
class SecondLoop {
public:
    static constexpr std::uint32_t most_bytes = std::uint32_t{1} << 30;  ///< the largest window of RFC 7323

    struct Packet {
        Sequence begin = 0;
        std::uint32_t size = 0;
        std::uint8_t priority = 0;
    };

    [[nodiscard]] bool has_begun() const { return has_begun_; }
    void begin(Sequence first, std::uint32_t bytes) {
        has_begun_ = true;
        first_ = first;
        end_ = tail_ = first + bytes;
    }
    /// What it would send next; none when it has come to `unsent`, one past the last byte that TCP has sent. `edges`:
    /// the segments from the end up to which priorities 1, 2, ... go. The last priority has all that are farther.
    [[nodiscard]] std::optional<Packet> next(Sequence unsent, std::uint32_t segment_bytes,
                                             const std::vector<std::int64_t>& edges) const {
        if (tail_ == first_) return {};
        const std::uint32_t before_it = (tail_ - first_ - 1) / segment_bytes;
        const Sequence begin = first_ + before_it * segment_bytes;
        if (before(begin, unsent)) return {};
        const std::uint32_t segments = (end_ - first_ - 1) / segment_bytes + 1;
        const auto edge = std::ranges::lower_bound(edges.begin(), edges.end() - 1, segments - before_it);
        return Packet{begin, tail_ - begin, static_cast<std::uint8_t>(edge - edges.begin() + 1)};
    }
    void sent(const Packet& packet) { tail_ = packet.begin; }

private:
    bool has_begun_ = false;
    Sequence first_ = 0, end_ = 0;
    Sequence tail_ = 0;  ///< all from here on was sent
};

}  // namespace foretail::packets::native
