// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "packets/random.h"
#include "packets/settings/settings.h"

namespace foretail::packets {

/// Which packets that may be marked get a congestion mark at a switch: all that find a queue of `mark_bytes`, or as RED
/// with the length on arrival instead of an average: some of them, the more the longer the queue, up to
/// `mark_full_bytes`.
class CongestionMarks {
public:
    CongestionMarks(const Transport& transport, std::uint64_t seed, int switch_index)
        : first_bytes_(transport.mark_bytes),
          full_bytes_(transport.mark_full_bytes),
          largest_probability_(transport.mark_probability),
          random_(seed, static_cast<std::uint64_t>(switch_index)) {}

    /// Whether a packet that finds a queue of this length gets one.
    [[gnu::always_inline]] bool marks(std::int64_t queue_bytes) {
        if (first_bytes_ == 0 || queue_bytes < first_bytes_) return false;
        if (queue_bytes >= full_bytes_) return true;
        return random_.uniform() < largest_probability_ * static_cast<double>(queue_bytes - first_bytes_) /
                                       static_cast<double>(full_bytes_ - first_bytes_);
    }

private:
    std::int64_t first_bytes_, full_bytes_;
    double largest_probability_;
    SmallRandom random_;
};

}  // namespace foretail::packets
