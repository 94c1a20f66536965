// SPDX-License-Identifier: MIT
// What a predictor may see of an arrival: read after the threshold update and before the decision, the arrival not yet
// in its queue. Units and meanings are declared in features/catalog.py; tests compare the two lists, and every value
// with a slow model's.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "buffer/features/shift_average.hpp"
#include "buffer/features/tracked_queues.hpp"
#include "buffer/queues/ingress_queues.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

// FEATURE(name, constants of its arithmetic, value), in the order of the columns. A real feature may look at the
// queues, as they are and as an ingress tracks them, and at `ingress`, the queues that packets came in by, or null
// where nobody keeps them; a virtual one at `lqd`, a virtual LQD after its update; one of the traffic at `rates`, which
// have the arrival; and one of the packet at nothing else but the time to its circuit. What costs a look at every queue
// is only sought when `wanted`.
#define FORETAIL_REAL_FEATURES(FEATURE)                                                                         \
    FEATURE(queue, cells, feature_value(scale.cells(queues.length(queue))))                                     \
    FEATURE(queue_average, average, feature_value(averages.queue(queue)))                                       \
    FEATURE(occupancy, cells, feature_value(scale.cells(queues.occupancy())))                                   \
    FEATURE(occupancy_average, average, feature_value(averages.sum()))                                          \
    FEATURE(pressure, none, pressure_of(queues.length(queue), free))                                            \
    FEATURE(fill, none, feature_value(share_of(queues.occupancy(), queues.capacity())))                         \
    FEATURE(queue_share, none, std::min(feature_value(share_of(queues.length(queue), queues.capacity())), 255)) \
    FEATURE(active_queues, none, feature_value(queues.active()))                                                \
    FEATURE(gap, cells, feature_value(scale.cells(queues.longest() - queues.length(queue))))                    \
    FEATURE(queue_tracked, tracked_cells, feature_value(scale.cells(tracked_length)))                           \
    FEATURE(occupancy_tracked, tracked_cells, feature_value(scale.cells(tracked_occupancy)))                    \
    FEATURE(gap_tracked, tracked_cells, feature_value(scale.cells(tracked.longest(queues) - tracked_length)))   \
    FEATURE(pressure_tracked, tracked,                                                                          \
            pressure_of(tracked_length, std::max<Bytes>(queues.capacity() - tracked_occupancy, 0)))             \
    FEATURE(lossless_occupancy, cells,                                                                          \
            feature_value(scale.cells(ingress ? ingress->lossless_bytes() + ingress->headroom_bytes() : 0)))    \
    FEATURE(paused_queues, none, feature_value(ingress ? static_cast<std::int64_t>(ingress->paused().size()) : 0))
#define FORETAIL_VIRTUAL_FEATURES(FEATURE)                                                                       \
    FEATURE(threshold_headroom, cells, feature_value(scale.cells(threshold - queue_length)))                     \
    FEATURE(threshold, cells, feature_value(scale.cells(threshold)))                                             \
    FEATURE(threshold_average, average, feature_value(lqd.averages().queue(queue)))                              \
    FEATURE(thresholds_sum, cells, feature_value(scale.cells(lqd.sum())))                                        \
    FEATURE(thresholds_sum_average, average, feature_value(lqd.averages().sum()))                                \
    FEATURE(threshold_max, cells, feature_value(scale.cells(lqd.largest())))                                     \
    FEATURE(queues_over_share, none, feature_value(lqd.queues_over_share()))                                     \
    FEATURE(since_push_out, time, feature_value(lqd.since_push_out(queue, arrival.time)))                        \
    FEATURE(threshold_gap, cells, feature_value(scale.cells(lqd.largest() - threshold)))                         \
    FEATURE(threshold_rank, none, feature_value(lqd.rank(queue)))                                                \
    FEATURE(threshold_gradient, average, feature_difference(lqd.fast_averages().above(lqd.averages(), queue)))   \
    FEATURE(thresholds_sum_gradient, average, feature_difference(lqd.fast_averages().sum_above(lqd.averages()))) \
    FEATURE(since_any_push_out, time, feature_value(lqd.since_any_push_out(arrival.time)))
#define FORETAIL_TRAFFIC_FEATURES(FEATURE)                                \
    FEATURE(arrival_rate, average, feature_value(rates.queue(queue)))     \
    FEATURE(arrivals_rate, average, feature_value(rates.sum()))           \
    FEATURE(arrivals_rate_slow, average, feature_value(rates.slow_sum())) \
    FEATURE(peak_arrival_rate, average, feature_value(rates.peak()))
#define FORETAIL_PACKET_FEATURES(FEATURE)                                                                        \
    FEATURE(first_rtt, none, arrival.first_rtt)                                                                  \
    FEATURE(message_left, cells, feature_value(std::min(scale.cells(arrival.left), far_from_its_end)))           \
    FEATURE(until_circuit, time, feature_value(std::min(until_circuit >> scale.tick_shift, far_from_a_circuit))) \
    FEATURE(short_packet, none, arrival.short_packet)                                                            \
    FEATURE(flow_sent, cells, feature_value(std::min(scale.cells(arrival.flow_sent), most_flow_cells)))          \
    FEATURE(left_like_last, cells, feature_value(std::min(scale.cells(arrival.left_like_last), far_from_its_end)))
#define FORETAIL_FEATURES(FEATURE)     \
    FORETAIL_REAL_FEATURES(FEATURE)    \
    FORETAIL_VIRTUAL_FEATURES(FEATURE) \
    FORETAIL_TRAFFIC_FEATURES(FEATURE) \
    FORETAIL_PACKET_FEATURES(FEATURE)

/// What a feature's arithmetic depends on.
enum class Constants : std::uint8_t { none, cells, average, time, tracked, tracked_cells };

#define NAME(name, constants, value) name,
enum class Feature : std::uint8_t { FORETAIL_FEATURES(NAME) };
#undef NAME
#define TEXT(name, constants, value) #name,
inline constexpr std::array feature_names = std::to_array<std::string_view>({FORETAIL_FEATURES(TEXT)});
#undef TEXT
inline constexpr std::size_t feature_count = feature_names.size();

/// The constants that a feature was computed with, as a predictor library states them (features/catalog.py).
inline std::string feature_parameters(Feature feature, FeatureScale scale) {
#define KIND(name, constants, value) Constants::constants,
    static constexpr std::array kinds = {FORETAIL_FEATURES(KIND)};
#undef KIND
    const Constants kind = kinds[static_cast<std::size_t>(feature)];
    if (kind == Constants::none) return "";
    if (kind == Constants::time) return "tick_ns=" + std::to_string(1 << scale.tick_shift);
    const std::string cells = "cell_bytes=" + std::to_string(1 << scale.cell_shift);
    const std::string reports = "reported_every=" + std::to_string(reported_every);
    if (kind == Constants::tracked) return reports;
    if (kind == Constants::tracked_cells) return cells + "," + reports;
    return kind == Constants::cells ? cells : cells + ",average_shift=" + std::to_string(scale.average_shift);
}

/// The features that somebody reads: what only others need is not kept, and what costs a look at every queue not
/// sought.
class FeatureSet {
public:
    constexpr FeatureSet() = default;
    constexpr FeatureSet(std::initializer_list<Feature> features) {
        for (const Feature feature : features) insert(feature);
    }
    static constexpr FeatureSet all() {
        FeatureSet out;
        out.bits_ = (std::uint64_t{1} << feature_count) - 1;
        return out;
    }

    constexpr void insert(Feature feature) { bits_ |= std::uint64_t{1} << static_cast<unsigned>(feature); }
    /// What either reads.
    [[nodiscard]] constexpr FeatureSet operator|(FeatureSet other) const {
        other.bits_ |= bits_;
        return other;
    }
    [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
    [[nodiscard]] constexpr bool has(Feature feature) const { return (bits_ >> static_cast<unsigned>(feature)) & 1; }
    [[nodiscard]] constexpr bool has_any(FeatureSet others) const { return (bits_ & others.bits_) != 0; }
    /// Whether it has no others than these.
    [[nodiscard]] constexpr bool within(FeatureSet others) const { return (bits_ & ~others.bits_) == 0; }

private:
    static_assert(feature_count < 64);

    std::uint64_t bits_ = 0;
};

/// All features, where a compiler can know it: nothing is asked about each of them.
struct EveryFeature {
    [[nodiscard]] static constexpr bool has(Feature) { return true; }
    [[nodiscard]] static constexpr bool has_any(FeatureSet) { return true; }
};

/// A FeatureScale that a compiler knows, for shifts by constants.
template <int of_cells, int of_ticks>
struct ConstantScale {
    static constexpr int tick_shift = of_ticks;
    [[nodiscard]] static constexpr std::int64_t cells(Bytes length) { return length >> of_cells; }
};

/// Calls `work` with the features and their scale, as types where a compiler makes the most of them: every feature, in
/// slots with packets of one cell or in the units of networks.
template <class Work>
[[gnu::always_inline]] inline void with_wanted(FeatureSet wanted, const FeatureScale& scale, Work&& work) {
    const bool every = FeatureSet::all().within(wanted);
    if (every && scale.cell_shift == scale.unit_shift && scale.tick_shift == 0)
        work(EveryFeature{}, ConstantScale<0, 0>{});
    else if (every && scale.cell_shift == 8 && scale.unit_shift == 0 && scale.tick_shift == 10)
        work(EveryFeature{}, ConstantScale<8, 10>{});
    else
        work(wanted, scale);
}

/// Every value is in [0, 2^24), so that float32 trainers see it exactly.
using FeatureVector = std::array<std::int32_t, feature_count>;

[[nodiscard]] inline std::int32_t& at(FeatureVector& features, Feature feature) {
    return features[static_cast<std::size_t>(feature)];
}

inline std::int32_t feature_value(std::int64_t value) {
    constexpr std::int64_t most = (1 << 24) - 1;
    if (static_cast<std::uint64_t>(value) <= most) [[likely]]  // one comparison, where clamping takes two
        return static_cast<std::int32_t>(value);
    return static_cast<std::int32_t>(value < 0 ? 0 : most);
}

/// A length in 255ths of the capacity, rounded down. No quotient of whole numbers below 2^53 rounds up to a whole one
/// in double precision, whose division takes a fraction of the time.
inline std::int64_t share_of(Bytes length, Bytes capacity) {
    return static_cast<std::int64_t>(static_cast<double>(length * 255) / static_cast<double>(capacity));
}

/// A difference in 16 bits: 2^15 is none.
inline std::int32_t feature_difference(std::int64_t value) {
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(value + (1 << 15), 0, (1 << 16) - 1));
}

/// A flow with as much sent or more, or one that nobody counts.
inline constexpr Bytes most_flow_cells = (1 << 16) - 1;

/// Circuits that come no sooner are equally far, in the unit of times; so is one that never comes.
inline constexpr Tick far_from_a_circuit = (1 << 16) - 1;

/// Length of a queue over the free buffer, in 8 bits: 128 where they are equal, 8 more for each factor of two.
inline std::int32_t pressure_of(Bytes length, Bytes free) {
    if (length == 0) return 0;
    if (free == 0) return 255;
    return std::clamp(128 + eighths_of_octaves(length) - eighths_of_octaves(free), 0, 255);
}

/// What the tracked queues are kept for.
inline constexpr FeatureSet of_tracked_queues{Feature::queue_tracked, Feature::occupancy_tracked, Feature::gap_tracked,
                                              Feature::pressure_tracked};

#define READ(name, constants, value) \
    if (wanted.has(Feature::name)) at(out, Feature::name) = value;

template <class Queues, class Averages, class Scale, class Wanted>
void read_real_features(FeatureVector& __restrict out, const Arrival& arrival, const Queues& queues,
                        const Averages& averages, const TrackedQueues& tracked, const IngressQueues* ingress,
                        Scale scale, Wanted wanted) {
    const QueueIndex queue = queues.queue_of(arrival);
    const Bytes free = queues.capacity() - queues.occupancy();
    const Bytes tracked_length = wanted.has_any(of_tracked_queues) ? tracked.length(queues, queue) : 0;
    const bool reads_occupancy = wanted.has_any({Feature::occupancy_tracked, Feature::pressure_tracked});
    const Bytes tracked_occupancy = reads_occupancy ? tracked.occupancy(queues) : 0;
    FORETAIL_REAL_FEATURES(READ)
}

/// `until_circuit`: time to the next circuit of its queue.
template <class Scale, class Wanted>
void read_packet_features(FeatureVector& __restrict out, const Arrival& arrival, Tick until_circuit, Scale scale,
                          Wanted wanted) {
    FORETAIL_PACKET_FEATURES(READ)
}

/// `queue`: of the arrival.
template <class Wanted>
void read_traffic_features(FeatureVector& __restrict out, QueueIndex queue, const ArrivalRates& rates, Wanted wanted) {
    FORETAIL_TRAFFIC_FEATURES(READ)
}

/// `queue_length` is that of the real queue.
template <class Lqd, class Scale, class Wanted>
void read_virtual_features(FeatureVector& __restrict out, const Arrival& arrival, const Lqd& lqd, Bytes queue_length,
                           Scale scale, Wanted wanted) {
    const QueueIndex queue = lqd.queue_of(arrival);
    const Bytes threshold = lqd.threshold(queue);
    FORETAIL_VIRTUAL_FEATURES(READ)
}

#undef READ
#undef FORETAIL_FEATURES
#undef FORETAIL_PACKET_FEATURES
#undef FORETAIL_REAL_FEATURES

/// What only a virtual LQD knows.
#define INSERT(name, constants, value) Feature::name,
inline constexpr FeatureSet of_virtual_lqd{FORETAIL_VIRTUAL_FEATURES(INSERT)};

/// What the arrival rates are kept for.
inline constexpr FeatureSet of_arrival_rates{FORETAIL_TRAFFIC_FEATURES(INSERT)};
#undef INSERT
#undef FORETAIL_TRAFFIC_FEATURES
#undef FORETAIL_VIRTUAL_FEATURES

/// What a switch counts of flows.
inline constexpr FeatureSet of_flows{Feature::short_packet, Feature::flow_sent, Feature::left_like_last};

/// What the averages of the real queues are kept for.
inline constexpr FeatureSet of_real_averages{Feature::queue_average, Feature::occupancy_average};

/// What the averages and the fast averages of the virtual queues are kept for.
inline constexpr FeatureSet of_averages{Feature::threshold_average, Feature::thresholds_sum_average,
                                        Feature::threshold_gradient, Feature::thresholds_sum_gradient};
inline constexpr FeatureSet of_fast_averages{Feature::threshold_gradient, Feature::thresholds_sum_gradient};

}  // namespace foretail::buffer
