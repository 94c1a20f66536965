// SPDX-License-Identifier: MIT
// Settings of runs over known arrivals, which Python gives by keyword, and the columns that these runs fill.
#pragma once

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <tuple>

#include "bindings/module.hpp"
#include "buffer/run.hpp"

namespace foretail::bindings {

namespace nb = nanobind;
using namespace buffer;

/// Keyword arguments, each of which is taken once.
class Keywords {
public:
    explicit Keywords(const nb::kwargs& given) {
        for (const auto& [name, value] : given) given_[name] = value;
    }

    template <class T>
    T take(const char* name, T otherwise) {
        if (!given_.contains(name)) return otherwise;
        if (!nb::try_cast(nb::object(given_[name]), otherwise))
            throw std::invalid_argument(std::string(name) + " has a value of the wrong type");
        nb::del(given_[name]);
        return otherwise;
    }
    template <class Enum>
    Enum choose(const char* name, const std::string& what, std::span<const std::string_view> names) {
        const auto chosen = take(name, std::string(names.front()));
        return static_cast<Enum>(position(chosen, names, "unknown " + what + " '" + chosen + "'"));
    }
    /// What has not been taken.
    [[nodiscard]] const nb::dict& rest() const { return given_; }

private:
    nb::dict given_;
};

/// The queues of a port and how it serves them.
struct Queueing {
    /// Queues of one port.
    static constexpr std::int64_t most = 64;

    int count = 1;
    Scheduler scheduler = Scheduler::round_robin;
    std::vector<Bytes> quanta;

    Queueing() = default;
    /// Without quanta deficit round robin lets every queue send one packet of size 1 in its turn.
    explicit Queueing(Keywords& given)
        : count(checked<int>("number of queues of a port", given.take("queues", Integer{1}), 1, most)),
          scheduler(given.choose<Scheduler>("scheduler", "scheduler", scheduler_names)) {
        const auto of_queues = given.take("quanta", std::vector<Integer>());
        if (scheduler != Scheduler::deficit_round_robin) {
            if (of_queues.empty()) return;
            throw std::invalid_argument("only deficit_round_robin has quanta, not " +
                                        std::string(scheduler_names[static_cast<std::size_t>(scheduler)]));
        }
        for (const auto quantum : of_queues) quanta.push_back(checked("quantum", quantum, 1, Bytes{1} << 30));
        if (quanta.empty()) quanta.assign(static_cast<std::size_t>(count), 1);
        if (quanta.size() != static_cast<std::size_t>(count)) {
            throw std::invalid_argument("there are " + std::to_string(quanta.size()) + " quanta for the " +
                                        std::to_string(count) + " queues of a port: give one for each");
        }
    }
};

/// How Longest Queue Drop chooses victims, and whose decisions are the labels.
struct OracleSettings {
    PushOutRules rules;
    std::optional<double> occamy_alpha;  ///< of Occamy, where it takes LQD's place

    explicit OracleSettings(Keywords& given)
        : rules{given.choose<Counting>("counting", "counting rule", counting_names),
                given.choose<Tie>("tie", "tie rule", tie_names),
                given.choose<Victim>("victim", "victim rule", victim_names), checked(given.take("seed", Seed{0})),
                given.choose<Order>("order", "order rule", order_names)} {
        if (rules.order == Order::any_queue && !goes_by_tags(rules.victim))
            throw std::invalid_argument("order any_queue compares tags: choose victim spare_first_rtt or most_left");
        const auto alpha = given.take("oracle_alpha", 8.0);
        if (given.choose<Oracle>("oracle", "oracle rule", oracle_names) == Oracle::lqd) return;
        if (!std::isfinite(alpha) || alpha <= 0) throw std::invalid_argument("oracle_alpha must be a number above 0");
        occamy_alpha = alpha;
    }

    /// Refuses what only recorded runs of a network have.
    void require_unit_packets() const {
        if (occamy_alpha) throw std::invalid_argument("oracle occamy is known to replays alone: choose lqd");
        if (goes_by_tags(rules.victim)) {
            throw std::invalid_argument("victim " + std::string(victim_names[static_cast<std::size_t>(rules.victim)]) +
                                        " goes by tags of packets, which only traces of ns-3 have");
        }
    }
};

/// Whether times and sizes are slots and packets, or nanoseconds and bytes.
enum class Units { slots, bytes };

/// The parameters of policies that are left, and the defaults of all others, from sim_bridge/policy_settings.py.
inline PolicySettings policy_settings(const Keywords& given, Units units) {
    const auto resolved = nb::module_::import_("foretail.sim_bridge.policy_settings")
                              .attr("native_parameters")(units == Units::slots ? "slots" : "bytes", given.rest());
    PolicySettings out;
    for (const auto& [name, value] : nb::cast<nb::dict>(resolved)) {
        if (nb::cast<std::string>(name) == "alpha") {
            out.alpha = nb::cast<Alphas>(value);
        } else if (nb::isinstance<nb::list>(value)) {
            out.lists[nb::cast<std::string>(name)] = nb::cast<std::vector<double>>(value);
        } else {
            out.numbers[nb::cast<std::string>(name)] = nb::cast<double>(value);
        }
    }
    return out;
}

/// All that a run under a policy may be told by keyword.
struct RunSettings {
    OracleSettings oracle;
    Queueing queueing;
    int average_shift;
    PolicySettings policy;

    RunSettings(const nb::kwargs& keywords, Units units) : RunSettings(Keywords(keywords), units) {}

private:
    /// 1 ns: within a slot averages are alike, but not the slow rates.
    static constexpr int shortest_in_slots = -10;

    RunSettings(Keywords given, Units units)
        : oracle(given),
          queueing(given),
          average_shift(
              units == Units::slots
                  ? checked<int>("average_shift", given.take("average_shift", Integer{5}), shortest_in_slots, 24)
                  : checked<int>("average_shift", given.take("average_shift", Integer{15}), 0, 24)),
          policy(policy_settings(given, units)) {
        if (units == Units::bytes && !given.rest().contains("rtt_ns"))
            policy.numbers["rtt"] = static_cast<double>(Tick{1} << average_shift);
    }
};

/// The rules that were in force, each with its start: columns of Python.
inline std::vector<std::pair<Tick, std::size_t>> turns_of(const RecordedRun& run) {
    std::vector<std::pair<Tick, std::size_t>> out;
    for (const auto& [start, rule] : run.turns()) out.emplace_back(start, rule);
    return out;
}

/// Lets a switch know what a scorer reads; refuses policies that ask nobody.
inline void let_ask(SwitchSettings& settings, const Scorer& scorer, const std::string& policy) {
    if (!known_policy(policy).asks) {
        throw std::invalid_argument("policy '" + policy + "' asks no predictor: give none");
    }
    settings.features = settings.features | scorer.features();
    settings.labels = settings.labels || settings.features.has_any(of_virtual_lqd);
}

inline std::int32_t feature_of(const std::string& name) {
    return static_cast<std::int32_t>(position(name, feature_names, "unknown feature '" + name + "'"));
}

inline FeatureSet features_of(const std::vector<std::string>& names) {
    FeatureSet features;
    for (const auto& name : names) features.insert(static_cast<Feature>(feature_of(name)));
    return features;
}

/// All features, none, or those of these names.
using WantedFeatures = std::variant<bool, std::vector<std::string>>;

inline FeatureSet features_of(const WantedFeatures& wanted) {
    if (const bool* const all = std::get_if<bool>(&wanted)) return *all ? FeatureSet::all() : FeatureSet{};
    return features_of(std::get<std::vector<std::string>>(wanted));
}

inline Port ports_of(Integer ports) { return checked<Port>("number of ports", ports, 1, max_ports); }
inline Bytes buffer_of(Integer buffer) { return checked("buffer in packets", buffer, 1, max_packets); }

/// A switch on unit packets, whose ports send one in each slot.
inline Shape slotted_shape(Port ports, Bytes buffer, Tie tie, const Queueing& queueing) {
    return {buffer,
            std::vector<LineRate>(static_cast<std::size_t>(ports), LineRate::one_per_slot()),
            tie,
            true,
            queueing.count,
            queueing.scheduler,
            queueing.quanta};
}

/// The scale of features in bytes: cells of a power of two, ticks of 1024 ns; without cells nothing is observed.
inline FeatureScale scale_in_bytes(Integer cell_bytes, int average_shift, std::int64_t least_cell_bytes) {
    const auto cell = static_cast<std::uint64_t>(checked("cell_bytes", cell_bytes, least_cell_bytes, 65'536));
    if (cell > 0 && !std::has_single_bit(cell)) throw std::invalid_argument("cell_bytes must be a power of two");
    return {cell > 0 ? std::countr_zero(cell) : 0, average_shift, 10};
}

/// The scale of features in slots: a packet has 1024 bytes, and a slot is the unit of averages and times.
inline FeatureScale scale_in_slots(Integer cell_bytes, int average_shift) {
    FeatureScale scale = scale_in_bytes(cell_bytes, average_shift, 1);
    scale.tick_shift = 0;
    scale.unit_shift = 10;
    return scale;
}

/// Columns of many runs side by side, which Python reads while `owner` lives.
template <class T>
nb::ndarray<nb::numpy, const T> view(const std::vector<T>& values, const nb::object& owner) {
    return {values.data(), {values.size()}, owner};
}

/// Runs side by side that stop where their policy asks: the features of the packet in question, a row for each.
class Questions {
public:
    Questions(std::size_t runs, const std::vector<std::string>& names) : wanted(features_of(names)), runs_(runs) {
        for (const auto& name : names) chosen_.push_back(static_cast<std::size_t>(feature_of(name)));
        values_.resize(runs * chosen_.size());
    }

    FeatureSet wanted;

    void write(std::size_t run, const FeatureVector& seen) {
        for (std::size_t k = 0; k < chosen_.size(); ++k) values_[run * chosen_.size() + k] = seen[chosen_[k]];
    }
    [[nodiscard]] nb::ndarray<nb::numpy, const std::int32_t> array(const nb::object& owner) const {
        return {values_.data(), {runs_, chosen_.size()}, owner};
    }
    [[nodiscard]] std::size_t place(Integer index) const {
        return checked<std::size_t>("index of a run", index, 0, static_cast<std::int64_t>(runs_) - 1);
    }
    /// Refuses answers that are not one for each run.
    void require_one_each(const Column<std::uint8_t>& answers) const {
        if (answers.shape(0) == runs_) return;
        throw std::invalid_argument("there are " + std::to_string(answers.shape(0)) + " answers for " +
                                    std::to_string(runs_) + " runs");
    }

private:
    std::size_t runs_;
    std::vector<std::size_t> chosen_;
    std::vector<std::int32_t> values_;
};

static_assert(sizeof(FeatureVector) == feature_count * sizeof(std::int32_t));

/// The vectors as rows of an array.
inline nb::ndarray<nb::numpy, std::int32_t> owned(std::unique_ptr<FeatureVector[]> values, std::size_t n) {
    void* const held = values.release();  // the address of a vector is that of its first value
    nb::capsule owner(held, [](void* p) noexcept { delete[] static_cast<FeatureVector*>(p); });
    return {held, {n, feature_count}, owner};
}

/// Columns that a run fills for n rows, and their way to Python.
struct Filled {
    /// Columns of features that are not wanted are 0. Where all are, every value is written anyway.
    Filled(std::size_t n, bool with_labels, FeatureSet wanted)
        : outcome(n),
          lqd_drop(with_labels ? n : 0),
          asked(n),
          exposed(n),
          with_labels_(with_labels),
          with_features_(!wanted.empty()) {
        const std::size_t rows = with_features_ ? n : 0;
        features = FeatureSet::all().within(wanted) ? std::make_unique_for_overwrite<FeatureVector[]>(rows)
                                                    : std::make_unique<FeatureVector[]>(rows);
    }

    RunColumns columns() {
        return {outcome.data(), with_labels_ ? lqd_drop.data() : nullptr, asked.data(), exposed.data(),
                with_features_ ? features.get() : nullptr};
    }
    nb::dict to_dict() {
        const std::size_t n = outcome.size();
        nb::dict out;
        if (with_features_) out["features"] = owned(std::move(features), n);
        out["outcome"] = owned(std::move(outcome), {n});
        if (with_labels_) out["lqd_drop"] = owned(std::move(lqd_drop), {n});
        out["asked"] = owned(std::move(asked), {n});
        out["exposed"] = owned(std::move(exposed), {n});
        return out;
    }

    std::vector<std::uint8_t> outcome, lqd_drop, asked, exposed;
    std::unique_ptr<FeatureVector[]> features;

private:
    bool with_labels_, with_features_;
};

/// One entry per switch of a network: its buffer in bytes and its ports' rates in bits per second.
using Switches = std::vector<std::pair<Integer, std::vector<Integer>>>;

/// Within these bounds no time can overflow.
inline std::vector<Shape> shapes_of(const Switches& switches, Integer wire_overhead_bytes, Tie tie,
                                    const Queueing& queueing = {}) {
    const Bytes overhead = checked("wire_overhead_bytes", wire_overhead_bytes, 0, 256);
    between("number of switches", static_cast<std::int64_t>(switches.size()), 1, max_ports);
    std::vector<Shape> shapes;
    for (const auto& [buffer, rates] : switches) {
        between("number of ports", static_cast<std::int64_t>(rates.size()), 1, max_ports);
        const Bytes capacity = checked("buffer of a switch, in bytes,", buffer, 1, Bytes{1} << 30);
        shapes.push_back({capacity, {}, tie, false, queueing.count, queueing.scheduler, queueing.quanta});
        for (const auto rate : rates) {
            const auto bps = checked("port rate in bits per second", rate, 1000, 1'000'000'000'000'000);
            shapes.back().rates.push_back(LineRate::from_bps(bps, overhead));
        }
    }
    return shapes;
}

/// Racks whose switches have a port for each of them, a VOQ: their numbers in the schedule, its matchings, day and
/// night in ns, and bits per second of an uplink and of a circuit.
using Voqs = std::tuple<std::vector<Integer>, std::vector<std::vector<Integer>>, Integer, Integer, Integer, Integer>;

/// Gives switches, one for each rack, the links of racks.
inline void serve_voqs(std::vector<Shape>& switches, const Voqs& voqs) {
    const auto& [racks_given, slots, day, night, packet_bps, circuit_bps] = voqs;
    const std::int64_t day_ns = checked("day_ns", day, 1, longest), night_ns = checked("night_ns", night, 0, longest);
    between("number of slots", static_cast<std::int64_t>(slots.size()), 1, 1 << 20);
    const std::size_t width = slots.front().size();
    std::vector<std::vector<int>> matchings;
    for (const auto& slot : slots) {
        if (slot.size() != width) throw std::invalid_argument("the slots of a schedule have different racks");
        std::vector<int>& matching = matchings.emplace_back();
        for (const auto to : slot)
            matching.push_back(checked<int>("rack of a slot", to, -1, static_cast<std::int64_t>(width) - 1));
    }
    std::vector<int> racks;
    for (const auto rack : racks_given) {
        racks.push_back(checked<int>("number of a rack", rack, 0, static_cast<std::int64_t>(width) - 1));
        if (racks.size() > 1 && racks[racks.size() - 2] >= racks.back())
            throw std::invalid_argument("the numbers of racks must rise");
    }
    constexpr std::int64_t fastest = 1'000'000'000'000'000;
    const RackLinks links{std::make_shared<const CircuitTimes>(std::move(matchings), day_ns, night_ns), racks, 0,
                          LineRate::from_bps(checked("packet_bps", packet_bps, 1000, fastest), 0),
                          LineRate::from_bps(checked("circuit_bps", circuit_bps, 1000, fastest), 0)};
    if (switches.size() != racks.size()) throw std::invalid_argument("every rack has one switch: give as many");
    for (std::size_t i = 0; i < racks.size(); ++i) {
        if (static_cast<std::size_t>(switches[i].ports()) != racks.size())
            throw std::invalid_argument("the switch of a rack has a port for every rack: give as many");
        switches[i].voqs = links;
        switches[i].voqs->source = racks[i];
    }
}

/// Queues of a port that may not lose a packet, alpha at ingress, the two bounds below which a sender goes on, out of
/// which queues LQD makes room for them; and what of its buffer each switch sets aside as headroom.
using Pauses = std::tuple<std::vector<Integer>, double, Integer, Integer, std::string, std::vector<Integer>>;

/// Lets switches keep what may not be lost. Senders are recorded and do not hear of pauses, so headroom has no end.
inline void keep_lossless(std::vector<Shape>& switches, const Pauses& pauses) {
    const auto& [queues, alpha, xon, xon_offset, makes_room, headroom] = pauses;
    constexpr Bytes most = Bytes{1} << 30;
    if (!std::isfinite(alpha) || alpha <= 0) throw std::invalid_argument("alpha of pauses must be a number above 0");
    if (headroom.size() != switches.size()) throw std::invalid_argument("headroom is for other switches: give as many");
    for (std::size_t i = 0; i < switches.size(); ++i) {
        Shape& shape = switches[i];
        PauseSettings settings{.alpha = alpha,
                               .headroom = std::vector<Bytes>(shape.rates.size()),
                               .xon_offset = checked("xon_offset_bytes", xon_offset, 0, most),
                               .xon = checked("xon_bytes", xon, 0, most),
                               .makes_room = static_cast<MakesRoom>(
                                   position(makes_room, makes_room_names, "unknown makes_room '" + makes_room + "'"))};
        for (const auto queue : queues)
            settings.lossless |=
                static_cast<std::uint8_t>(1U << checked<int>("lossless queue", queue, 0, shape.priorities - 1));
        shape.pause = settings.unheard();
        shape.capacity -= checked("headroom of a switch, in bytes,", headroom[i], 0, shape.capacity - 1);
    }
}

/// Recorded arrivals of a network in order of time, column by column.
struct RecordedArrivals {
    Column<std::int64_t> time_ns;
    Column<std::int16_t> switch_index, port;
    Column<std::int32_t> size_bytes;
    Column<std::uint8_t> data;

    /// Checks them against the network; `last_time` is that of the arrival before, and then of the last of these.
    void check(const std::vector<Port>& ports, Tick& last_time) const {
        const std::size_t n = time_ns.shape(0);
        for (const std::size_t rows : {switch_index.shape(0), port.shape(0), size_bytes.shape(0), data.shape(0)}) {
            if (rows != n) throw std::invalid_argument("the columns of the arrivals differ in length");
        }
        Tick last = last_time;
        for (std::size_t i = 0; i < n; ++i) {
            if (switch_index(i) < 0 || static_cast<std::size_t>(switch_index(i)) >= ports.size()) {
                throw std::invalid_argument("row " + std::to_string(i) + " has switch " +
                                            std::to_string(switch_index(i)) + ", outside 0 to " +
                                            std::to_string(ports.size() - 1));
            }
            in_range(port(i), ports[static_cast<std::size_t>(switch_index(i))], i);
            in_order("time", time_ns(i), last, i);
            if (size_bytes(i) < 1) throw std::invalid_argument("row " + std::to_string(i) + " has no size");
            last = time_ns(i);
        }
        last_time = last;
    }
};

}  // namespace foretail::bindings
