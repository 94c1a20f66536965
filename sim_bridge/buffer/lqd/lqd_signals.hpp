// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "buffer/features/features.hpp"
#include "buffer/features/shift_average.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

/// What a virtual LQD remembers of its losses for the features, whatever its queues are.
class LqdSignals {
public:
    /// Time since a packet of this queue was last pushed out or refused, in 2^tick_shift ticks; 2^24 - 1 also means
    /// never.
    [[nodiscard]] std::int64_t since_push_out(QueueIndex queue, Tick now) const {
        return since(last_push_out_of_[static_cast<std::size_t>(queue)], now);
    }
    /// The same for any queue.
    [[nodiscard]] std::int64_t since_any_push_out(Tick now) const { return since(last_push_out_, now); }
    /// Whether the last arrival got into its virtual queue.
    [[nodiscard]] bool kept_last() const { return kept_last_; }

protected:
    LqdSignals(QueueIndex queues, FeatureScale scale, FeatureSet wanted)
        : keeps_averages_(wanted.has_any(of_averages)),
          keeps_fast_averages_(wanted.has_any(of_fast_averages)),
          last_push_out_of_(static_cast<std::size_t>(queues), never),
          tick_shift_(scale.tick_shift) {}

    /// A packet of this queue was pushed out or refused.
    void lost(QueueIndex queue, Tick now) { last_push_out_of_[static_cast<std::size_t>(queue)] = last_push_out_ = now; }

    bool keeps_averages_, keeps_fast_averages_, kept_last_ = true;

private:
    static constexpr Tick never = std::numeric_limits<Tick>::min();
    static constexpr std::int64_t saturated = (1 << 24) - 1;

    [[nodiscard]] std::int64_t since(Tick last, Tick now) const {
        return last == never ? saturated : std::min((now - last) >> tick_shift_, saturated);
    }

    std::vector<Tick> last_push_out_of_;
    Tick last_push_out_ = never;
    int tick_shift_;
};

}  // namespace foretail::buffer
