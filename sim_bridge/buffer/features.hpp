// SPDX-License-Identifier: MIT
// What a predictor may see of an arrival: read after the threshold update and before the decision, the arrival not yet
// in its queue. Names, units and meanings are declared in features/catalog.py; a test compares the two lists.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "shift_average.hpp"
#include "types.hpp"

namespace foretail::buffer {

inline constexpr std::array<std::string_view, 11> feature_names = {
    "queue",         "queue_average",     "occupancy",      "occupancy_average",
    "threshold",     "threshold_average", "thresholds_sum", "thresholds_sum_average",
    "threshold_max", "queues_over_share", "since_push_out",
};
inline constexpr std::size_t real_feature_count = 4;
inline constexpr std::size_t feature_count = feature_names.size();

/// Every value is in [0, 2^24), so that float32 trainers see it exactly.
using FeatureVector = std::array<std::int32_t, feature_count>;

inline std::int32_t feature_value(std::int64_t value) {
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(value, 0, (1 << 24) - 1));
}

template <class Queues, class Averages>
void read_real_features(FeatureVector& out, const Arrival& arrival, const Queues& queues, const Averages& averages,
                        FeatureScale scale) {
    out[0] = feature_value(queues.length(queues.queue_of(arrival)) >> scale.cell_shift);
    out[1] = feature_value(averages.queue(queues.queue_of(arrival)));
    out[2] = feature_value(queues.occupancy() >> scale.cell_shift);
    out[3] = feature_value(averages.sum());
}

template <class Lqd>
void read_virtual_features(FeatureVector& out, const Arrival& arrival, const Lqd& lqd, FeatureScale scale) {
    out[4] = feature_value(lqd.threshold(arrival.port) >> scale.cell_shift);
    out[5] = feature_value(lqd.averages().queue(arrival.port));
    out[6] = feature_value(lqd.sum() >> scale.cell_shift);
    out[7] = feature_value(lqd.averages().sum());
    out[8] = feature_value(lqd.largest() >> scale.cell_shift);
    out[9] = feature_value(lqd.queues_over_share());
    out[10] = feature_value(lqd.since_push_out(arrival.port, arrival.time));
}

}  // namespace foretail::buffer
