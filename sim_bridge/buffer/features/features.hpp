// SPDX-License-Identifier: MIT
// What a predictor may see of an arrival: read after the threshold update and before the decision, the arrival not yet
// in its queue. Names, units and meanings are declared in features/catalog.py; a test compares the two lists.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "buffer/features/shift_average.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

enum class Feature : std::uint8_t {
    queue,
    queue_average,
    occupancy,
    occupancy_average,
    threshold_headroom,
    threshold,
    threshold_average,
    thresholds_sum,
    thresholds_sum_average,
    threshold_max,
    queues_over_share,
    since_push_out,
    threshold_gap,
    threshold_rank,
    threshold_gradient,
    thresholds_sum_gradient,
    arrival_rate,
    arrivals_rate,
    since_any_push_out,
    first_rtt,
};

inline constexpr std::array<std::string_view, 20> feature_names = {
    "queue",
    "queue_average",
    "occupancy",
    "occupancy_average",
    "threshold_headroom",
    "threshold",
    "threshold_average",
    "thresholds_sum",
    "thresholds_sum_average",
    "threshold_max",
    "queues_over_share",
    "since_push_out",
    "threshold_gap",
    "threshold_rank",
    "threshold_gradient",
    "thresholds_sum_gradient",
    "arrival_rate",
    "arrivals_rate",
    "since_any_push_out",
    "first_rtt",
};
inline constexpr std::size_t feature_count = feature_names.size();
static_assert(static_cast<std::size_t>(Feature::first_rtt) + 1 == feature_count);

/// The features that somebody reads: what only others need is not kept, and what costs a look at every port not sought.
class FeatureSet {
public:
    constexpr FeatureSet() = default;
    constexpr FeatureSet(std::initializer_list<Feature> features) {
        for (const Feature feature : features) insert(feature);
    }
    static constexpr FeatureSet all() {
        FeatureSet out;
        out.bits_ = (1U << feature_count) - 1;
        return out;
    }

    constexpr void insert(Feature feature) { bits_ |= 1U << static_cast<unsigned>(feature); }
    [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
    [[nodiscard]] constexpr bool has(Feature feature) const { return (bits_ >> static_cast<unsigned>(feature)) & 1; }
    [[nodiscard]] constexpr bool has_any(FeatureSet others) const { return (bits_ & others.bits_) != 0; }

private:
    std::uint32_t bits_ = 0;
};

/// Every value is in [0, 2^24), so that float32 trainers see it exactly.
using FeatureVector = std::array<std::int32_t, feature_count>;

[[nodiscard]] inline std::int32_t& at(FeatureVector& features, Feature feature) {
    return features[static_cast<std::size_t>(feature)];
}

inline std::int32_t feature_value(std::int64_t value) {
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(value, 0, (1 << 24) - 1));
}

/// A difference in 16 bits: 2^15 is none.
inline std::int32_t feature_difference(std::int64_t value) {
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(value + (1 << 15), 0, (1 << 16) - 1));
}

/// Of the real features all but threshold_headroom, which needs the threshold after its update.
template <class Queues, class Averages>
void read_real_features(FeatureVector& out, const Arrival& arrival, const Queues& queues, const Averages& averages,
                        FeatureScale scale) {
    const QueueIndex queue = queues.queue_of(arrival);
    at(out, Feature::queue) = feature_value(queues.length(queue) >> scale.cell_shift);
    at(out, Feature::queue_average) = feature_value(averages.queue(queue));
    at(out, Feature::occupancy) = feature_value(queues.occupancy() >> scale.cell_shift);
    at(out, Feature::occupancy_average) = feature_value(averages.sum());
}

/// The rest; `queue_length` is that of the real queue.
template <class Lqd>
void read_virtual_features(FeatureVector& out, const Arrival& arrival, const Lqd& lqd, Bytes queue_length,
                           FeatureScale scale, FeatureSet wanted) {
    const Port port = arrival.port;
    const Bytes threshold = lqd.threshold(port);
    at(out, Feature::threshold_headroom) = feature_value((threshold - queue_length) >> scale.cell_shift);
    at(out, Feature::threshold) = feature_value(threshold >> scale.cell_shift);
    at(out, Feature::threshold_average) = feature_value(lqd.averages().queue(port));
    at(out, Feature::thresholds_sum) = feature_value(lqd.sum() >> scale.cell_shift);
    at(out, Feature::thresholds_sum_average) = feature_value(lqd.averages().sum());
    at(out, Feature::threshold_max) = feature_value(lqd.largest() >> scale.cell_shift);
    at(out, Feature::queues_over_share) = feature_value(lqd.queues_over_share());
    at(out, Feature::since_push_out) = feature_value(lqd.since_push_out(port, arrival.time));
    at(out, Feature::threshold_gap) = feature_value((lqd.largest() - threshold) >> scale.cell_shift);
    at(out, Feature::threshold_rank) = wanted.has(Feature::threshold_rank) ? feature_value(lqd.rank(port)) : 0;
    at(out, Feature::threshold_gradient) = feature_difference(lqd.fast_averages().above(lqd.averages(), port));
    at(out, Feature::thresholds_sum_gradient) = feature_difference(lqd.fast_averages().sum_above(lqd.averages()));
    at(out, Feature::arrival_rate) = feature_value(lqd.arrival_rates().queue(port));
    at(out, Feature::arrivals_rate) = feature_value(lqd.arrival_rates().sum());
    at(out, Feature::since_any_push_out) = feature_value(lqd.since_any_push_out(arrival.time));
    at(out, Feature::first_rtt) = arrival.first_rtt;
}

/// What the averages, the fast averages and the arrival rates of the virtual queues are kept for.
inline constexpr FeatureSet of_averages{Feature::threshold_average, Feature::thresholds_sum_average,
                                        Feature::threshold_gradient, Feature::thresholds_sum_gradient};
inline constexpr FeatureSet of_fast_averages{Feature::threshold_gradient, Feature::thresholds_sum_gradient};
inline constexpr FeatureSet of_arrival_rates{Feature::arrival_rate, Feature::arrivals_rate};

}  // namespace foretail::buffer
