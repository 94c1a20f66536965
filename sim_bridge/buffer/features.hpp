// SPDX-License-Identifier: MIT
// Features of an arrival, and counters of an interval: the arithmetic behind features/catalog.py, which says what each
// means. Tests compare the lists of names, and every value with a slow model's.
#pragma once

#include <initializer_list>

#include "buffer/queues/port_queues.hpp"

namespace foretail::buffer {

/// Units of the features: cells of 2^cell_shift bytes, averages over 2^average_shift ticks, times in 2^tick_shift
/// ticks. The lengths of queues and packets are in 2^unit_shift bytes. An interval shorter than a tick is one tick.
struct FeatureScale {
    int cell_shift = 8;
    int average_shift = 15;
    int tick_shift = 10;
    int unit_shift = 0;

    /// Fast averages run over a quarter of the interval.
    [[nodiscard]] FeatureScale fast() const {
        return {cell_shift, std::max(average_shift - 2, 0), tick_shift, unit_shift};
    }
    /// Slow arrival rates fade over an interval 2^7 times as long.
    [[nodiscard]] FeatureScale slow() const { return {cell_shift, average_shift + 7, tick_shift, unit_shift}; }
    [[nodiscard]] std::int64_t cells(Bytes length) const { return length << unit_shift >> cell_shift; }
};

/// Exponentially weighted average over 2^s ticks, at least one, in fixed point with 8 fractional bits and power-of-two
/// weights: no multiplication, so that a switch pipeline computes the same bits.
class ShiftAverage {
public:
    /// Takes in that the signal was `held` since the last call.
    [[gnu::always_inline]] void observe(Tick now, std::int64_t held, int s) {
        const Tick elapsed = now - last_;
        if (elapsed <= 0) return;
        s = std::max(s, 0);
        const auto capped = static_cast<std::uint64_t>(std::min(elapsed, Tick{1} << s));
        const int h = std::bit_width(capped) - 1;
        value_ += ((held << 8) - value_) >> (s - h);
        last_ = now;
    }
    /// The same one tick after the last call.
    void observe_next(std::int64_t held, int s) {
        value_ += ((held << 8) - value_) >> std::max(s, 0);
        ++last_;
    }
    /// Takes in an amount, in 1/256, that came at once.
    void add(std::int64_t amount) { value_ += amount; }
    [[nodiscard]] std::int64_t whole() const { return value_ >> 8; }
    /// How much more this is than another average, rounded down.
    [[nodiscard]] std::int64_t above(const ShiftAverage& other) const { return (value_ - other.value_) >> 8; }
    /// Time of the last observation.
    [[nodiscard]] Tick last() const { return last_; }

private:
    std::int64_t value_ = 0;
    Tick last_ = 0;
};

/// The averages of every queue and of their sum, in cells. Observe before each change of a queue.
class QueueAverages {
public:
    QueueAverages(QueueIndex queues, FeatureScale scale) : queues_(static_cast<std::size_t>(queues)), scale_(scale) {}

    void observe(QueueIndex queue, Tick now, Bytes length, Bytes sum) {
        queues_[static_cast<std::size_t>(queue)].observe(now, scale_.cells(length), scale_.average_shift);
        sum_.observe(now, scale_.cells(sum), scale_.average_shift);
    }
    [[nodiscard]] std::int64_t queue(QueueIndex queue) const {
        return queues_[static_cast<std::size_t>(queue)].whole();
    }
    [[nodiscard]] std::int64_t sum() const { return sum_.whole(); }
    /// How much these averages are above slower ones.
    [[nodiscard]] std::int64_t above(const QueueAverages& slow, QueueIndex queue) const {
        return queues_[static_cast<std::size_t>(queue)].above(slow.queues_[static_cast<std::size_t>(queue)]);
    }
    [[nodiscard]] std::int64_t sum_above(const QueueAverages& slow) const { return sum_.above(slow.sum_); }

private:
    std::vector<ShiftAverage> queues_;
    ShiftAverage sum_;
    FeatureScale scale_;
};

/// The largest value in the present window of 2^s ticks and in the one before. A window shorter than a tick has one
/// tick at most, and the ticks before and after it are not in the windows beside it.
class WindowedPeak {
public:
    void raise(Tick now, std::int64_t value, int s) {
        const Tick window = s < 0 ? now << -s : now >> s;
        if (window != window_) {
            before_ = window == window_ + 1 ? present_ : 0;
            present_ = 0;
            window_ = window;
        }
        present_ = std::max(present_, value);
    }
    [[nodiscard]] std::int64_t value() const { return std::max(present_, before_); }

private:
    Tick window_ = 0;
    std::int64_t present_ = 0, before_ = 0;
};

/// Cells that arrived for each queue and for all of them in about 2^average_shift ticks, and for all of them in an
/// interval of the slow scale, whatever became of them: every arrival adds its bytes to sums that fade between arrivals
/// as an average does. The peak of a queue's sum is that in windows of the slow scale.
class ArrivalRates {
public:
    ArrivalRates(QueueIndex queues, FeatureScale scale) : queues_(static_cast<std::size_t>(queues)), scale_(scale) {}

    void arrive(QueueIndex queue, const Arrival& arrival) {
        ShiftAverage& own = queues_[static_cast<std::size_t>(queue)];
        const std::int64_t amount = scale_.cells(arrival.size << 8);
        const int slow = scale_.slow().average_shift;
        add(own, arrival.time, amount, scale_.average_shift);
        add(sum_, arrival.time, amount, scale_.average_shift);
        add(slow_sum_, arrival.time, amount, slow);
        peak_.raise(arrival.time, own.whole(), slow);
    }
    /// Of a queue with an arrival now.
    [[nodiscard]] std::int64_t queue(QueueIndex queue) const {
        return queues_[static_cast<std::size_t>(queue)].whole();
    }
    [[nodiscard]] std::int64_t sum() const { return sum_.whole(); }
    [[nodiscard]] std::int64_t slow_sum() const { return slow_sum_.whole(); }
    /// The largest of any queue.
    [[nodiscard]] std::int64_t peak() const { return peak_.value(); }

private:
    [[gnu::always_inline]] static void add(ShiftAverage& rate, Tick now, std::int64_t amount, int s) {
        rate.observe(now, 0, s);
        rate.add(amount);
    }

    std::vector<ShiftAverage> queues_;
    ShiftAverage sum_, slow_sum_;
    WindowedPeak peak_;
    FeatureScale scale_;
};

/// Egress tells ingress of the departures of a queue with every packet of this number (a power of two).
inline constexpr int reported_every = 8;

/// Queues as an ingress without queue depths tracks them: by what it lets in, and by what egress has reported to leave.
/// So a queue is as long as it is, and what has left it since its last report; what is pushed out is known at once.
///
/// SlotQueues, which show no departure, tell how many there were: `advance` is for them, `departed` for all others.
class TrackedQueues {
public:
    explicit TrackedQueues(QueueIndex queues) : unreported_(static_cast<std::size_t>(queues)) {}

    void departed(QueueIndex queue, Bytes size) {
        Unreported& of = unreported_[static_cast<std::size_t>(queue)];
        of.bytes += size;
        sum_ += size;
        if (++of.packets < reported_every) return;
        sum_ -= of.bytes;
        of = {};
    }
    /// An arrival, read and not yet decided, is counted: its queue is remembered if that makes it the longest.
    template <class Queues>
    void arrive(const Queues& queues, const Arrival& arrival) {
        const QueueIndex queue = queues.queue_of(arrival);
        if (length(queues, queue) + arrival.size > longest(queues)) longest_ = queue;
    }

    template <class Queues>
    [[nodiscard]] [[gnu::always_inline]] Bytes length(const Queues& queues, QueueIndex queue) const {
        return queues.length(queue) + unreported(queues, queue);
    }
    /// In slots, call with every arrival before it is read: the departures of a slot are taken in at its end, by a look
    /// at every queue.
    template <class Queues>
    void advance(const Queues& queues) {
        if (summed_at_ == queues.now()) return;
        summed_at_ = queues.now();
        sum_ = 0;
        for (QueueIndex queue = 0; queue < queues.queues(); ++queue) sum_ += unreported(queues, queue);
    }
    template <class Queues>
    [[nodiscard]] Bytes occupancy(const Queues& queues) const {
        return queues.occupancy() + sum_;
    }
    /// Length of the queue that was the longest when it or a shorter one had its last arrival.
    template <class Queues>
    [[nodiscard]] Bytes longest(const Queues& queues) const {
        return length(queues, longest_);
    }

private:
    struct Unreported {
        Bytes bytes = 0;
        int packets = 0;
    };

    template <class Queues>
    static constexpr bool tells_departed = requires(const Queues& queues) { queues.departed(QueueIndex{}); };

    template <class Queues>
    [[nodiscard]] Bytes unreported(const Queues& queues, QueueIndex queue) const {
        if constexpr (tells_departed<Queues>) return queues.departed(queue) & (reported_every - 1);
        return unreported_[static_cast<std::size_t>(queue)].bytes;
    }

    std::vector<Unreported> unreported_;
    Bytes sum_ = 0;
    Tick summed_at_ = -1;
    QueueIndex longest_ = 0;
};

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
template <int of_units, int of_ticks>
struct ConstantScale {
    static constexpr int tick_shift = of_ticks, cell_shift = 8;
    [[nodiscard]] static constexpr std::int64_t cells(Bytes length) { return length << of_units >> cell_shift; }
    [[nodiscard]] static bool is(const FeatureScale& scale) {
        return scale.cell_shift == cell_shift && scale.unit_shift == of_units && scale.tick_shift == of_ticks;
    }
};

/// Calls `work` with the features and their scale, as types where a compiler makes the most of them: every feature, in
/// the usual cells of 256 bytes, in slots or in the units of networks.
template <class Work>
[[gnu::always_inline]] inline void with_wanted(FeatureSet wanted, const FeatureScale& scale, Work&& work) {
    using Slots = ConstantScale<10, 0>;
    using Networks = ConstantScale<0, 10>;
    const bool every = FeatureSet::all().within(wanted);
    if (every && Slots::is(scale))
        work(EveryFeature{}, Slots{});
    else if (every && Networks::is(scale))
        work(EveryFeature{}, Networks{});
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

/// What a switch counts of flows, where no sender tells it anything.
///
/// An entry has 32 bits: the bytes of a message that have come, in 24 bits, and when the last of them came, in 8 bits
/// of 2^18 ns. A message begins after a pause of 3 to 4 of these units, and after a packet that is shorter than the
/// longest that the switch has seen, for such a packet ends one. A port remembers the length of the message that ended
/// last. Packets that are sent again count again, and a flow that is met in its middle begins there. A pause of a
/// multiple of 2^26 ns (67 ms) is not noticed.
class FlowTable {
public:
    /// So many entries, which flows share by a hash; 0: one for every flow, more of them whenever a flow has none.
    FlowTable(std::size_t entries, Port ports)
        : hashed_(entries > 0), entries_(std::max<std::size_t>(entries, 1)), ended_(static_cast<std::size_t>(ports)) {}

    /// Tells a data arrival what is known of its flow, and counts it.
    void arrive(Arrival& arrival, std::uint32_t flow) {
        Entry& entry = entry_of(flow);
        Bytes& ended = ended_[static_cast<std::size_t>(arrival.port)];
        const auto tick = static_cast<std::uint8_t>(arrival.time >> tick_shift);
        if (static_cast<std::uint8_t>(tick - entry.tick) >= idle_ticks) entry.bytes = 0;
        entry.tick = tick;
        longest_ = std::max(longest_, arrival.size);
        arrival.short_packet = arrival.size < longest_;
        arrival.flow_sent = entry.bytes;
        const Bytes sent = arrival.flow_sent + arrival.size;
        arrival.left_like_last = sent <= ended ? ended - sent : not_said_how_much;
        if (arrival.short_packet) ended = sent;
        entry.bytes = arrival.short_packet ? 0 : static_cast<std::uint32_t>(std::min(sent, most_bytes));
    }

private:
    struct Entry {
        std::uint32_t bytes : 24 = 0;
        std::uint32_t tick : 8 = 0;
    };
    static_assert(sizeof(Entry) == 4);
    static constexpr int tick_shift = 18, idle_ticks = 4;
    static constexpr Bytes most_bytes = (1 << 24) - 1;

    [[nodiscard]] Entry& entry_of(std::uint32_t flow) {
        if (hashed_) return entries_[mixed(flow) % entries_.size()];
        if (flow >= entries_.size()) entries_.resize(2 * std::size_t{flow} + 1);
        return entries_[flow];
    }
    /// The finaliser of MurmurHash3.
    [[nodiscard]] static std::uint32_t mixed(std::uint32_t x) {
        x = (x ^ x >> 16) * 0x85EBCA6BU;
        x = (x ^ x >> 13) * 0xC2B2AE35U;
        return x ^ x >> 16;
    }

    bool hashed_;
    std::vector<Entry> entries_;
    std::vector<Bytes> ended_;
    Bytes longest_ = 0;
};

/// A queue's first, then the same of the whole switch.
inline constexpr std::array<std::string_view, 13> counter_names = {
    "queue_longest",    "queue_load",     "queue_dropped", "queue_marked",   "queue_first_rtt",
    "queue_flows",      "buffer_fullest", "switch_load",   "switch_dropped", "switch_marked",
    "switch_first_rtt", "switch_flows",   "switch_active"};

/// In the order of counter_names; each from 0 to 255.
using CounterVector = std::array<std::int32_t, counter_names.size()>;

/// The constants of a counter's arithmetic, as the predictor ABI carries them.
[[nodiscard]] inline std::string counter_parameters(Tick interval) { return "interval_ns=" + std::to_string(interval); }

/// A data packet that came to a queue, and what became of it.
struct CountedArrival {
    QueueIndex queue = 0;
    Bytes size = 0;
    bool dropped = false, marked = false, first_rtt = false;
    std::uint32_t flow_hash = 0;  ///< of its addresses and ports
    Bytes length = 0;             ///< of its queue, after the decision
    Bytes occupancy = 0;          ///< of the buffer, after the decision
};

/// Counters of every queue and of the switch over intervals that begin at multiples of their length. A counter is an
/// average over the last intervals, in which the newest counts an eighth; a share of what arrived stays as it is
/// through intervals in which nothing does. Additions per packet; divisions once per interval.
class IntervalCounters {
public:
    IntervalCounters(const Shape& shape, Tick interval)
        : interval_(interval),
          capacity_(shape.capacity),
          end_(interval),
          queues_(static_cast<std::size_t>(shape.queues())),
          counts_(queues_.size()) {
        for (QueueIndex queue = 0; queue < shape.queues(); ++queue) {
            const LineRate& rate = shape.rates[static_cast<std::size_t>(queue / shape.priorities)];
            at(queue).can_send = sent_in_interval(rate);
        }
        for (const LineRate& rate : shape.rates) switch_.can_send += sent_in_interval(rate);
    }

    /// Closes all intervals that have ended by now: `closing(end)` comes before the counters move, `closed()` after the
    /// last of them has.
    template <class Closing, class Closed>
    void advance(Tick now, Closing&& closing, Closed&& closed) {
        if (now < end_) return;
        while (now >= end_) {
            closing(end_);
            close();
            end_ += interval_;
        }
        closed();
    }

    void count(const CountedArrival& arrival) {
        at(arrival.queue).add(arrival, arrival.length);
        switch_.add(arrival, arrival.occupancy);
    }

    /// Bytes that have come to a queue in the interval that is open.
    [[nodiscard]] Bytes arrived(QueueIndex queue) const { return queues_[static_cast<std::size_t>(queue)].bytes; }

    /// The counters of a queue as they were when the open interval began.
    [[nodiscard]] CounterVector of(QueueIndex queue) const {
        CounterVector out{};
        const auto& own = counts_[static_cast<std::size_t>(queue)];
        for (std::size_t i = 0; i < per_part; ++i) {
            out[i] = own[i].value();
            out[per_part + i] = all_[i].value();
        }
        out[2 * per_part] = active_.value();
        return out;
    }

private:
    static constexpr std::size_t per_part = 6;
    static constexpr int average_shift = 3, fraction_bits = 8;
    static constexpr std::int64_t most = 255, flow_bits = 64;

    struct Average {
        std::int64_t average = 0;
        void take(std::int64_t value) { average += ((value << fraction_bits) - average) >> average_shift; }
        [[nodiscard]] std::int32_t value() const {
            return static_cast<std::int32_t>((average + (1 << (fraction_bits - 1))) >> fraction_bits);
        }
    };
    using Averages = std::array<Average, per_part>;

    /// What came in an interval, to a queue or to the switch.
    struct Tally {
        Bytes bytes = 0, dropped = 0, marked = 0, first_rtt = 0, most_held = 0, can_send = 0;
        std::uint64_t flows = 0;

        void add(const CountedArrival& arrival, Bytes held) {
            bytes += arrival.size;
            if (arrival.dropped) dropped += arrival.size;
            if (arrival.marked) marked += arrival.size;
            if (arrival.first_rtt) first_rtt += arrival.size;
            most_held = std::max(most_held, held);
            flows |= std::uint64_t{1} << ((arrival.flow_hash * 2'654'435'769U) >> 26);
        }
        void close(Averages& averages, Bytes capacity) {
            averages[0].take(most_held * most / capacity);
            averages[1].take(std::min(bytes * flow_bits / can_send, most));
            if (bytes > 0) {
                averages[2].take(dropped * most / bytes);
                averages[3].take(marked * most / bytes);
                averages[4].take(first_rtt * most / bytes);
            }
            averages[5].take(std::popcount(flows));
            *this = {.can_send = can_send};
        }
    };

    [[nodiscard]] Tally& at(QueueIndex queue) { return queues_[static_cast<std::size_t>(queue)]; }
    [[nodiscard]] Bytes sent_in_interval(const LineRate& rate) const {
        return std::max<Bytes>(static_cast<Bytes>(static_cast<double>(interval_) * rate.bytes_per_tick()), 1);
    }
    void close() {
        std::int64_t active = 0;
        for (std::size_t i = 0; i < queues_.size(); ++i) {
            active += queues_[i].bytes > 0;
            queues_[i].close(counts_[i], capacity_);
        }
        switch_.close(all_, capacity_);
        active_.take(active * most / static_cast<std::int64_t>(queues_.size()));
    }

    Tick interval_;
    Bytes capacity_;
    Tick end_;
    std::vector<Tally> queues_;
    std::vector<Averages> counts_;
    Tally switch_;
    Averages all_;
    Average active_;
};

}  // namespace foretail::buffer
