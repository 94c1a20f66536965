// SPDX-License-Identifier: MIT
// Python's door to the buffer library: runs over known arrivals, and the layouts that both sides must agree on.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "buffer/features/features.hpp"
#include "buffer/lqd/late_qd.hpp"
#include "buffer/lqd/push_outs.hpp"
#include "buffer/predictor/tree.hpp"
#include "buffer/records.hpp"
#include "buffer/run.hpp"
#include "buffer/types.hpp"
#include "circuits/cells/cell_fabric.hpp"
#include "circuits/schedules/matchings.hpp"
#include "circuits/schedules/matrix_rounding.hpp"

namespace nb = nanobind;
using namespace foretail::buffer;

namespace {

template <class T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// A numpy array that owns its vector.
template <class T>
nb::ndarray<nb::numpy, T> owned(std::vector<T> values, std::vector<std::size_t> shape) {
    auto* held = new std::vector<T>(std::move(values));
    nb::capsule owner(held, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return {held->data(), shape.size(), shape.data(), owner};
}

template <class Enum>
Enum named(const std::string& what, const std::string& name,
           std::initializer_list<std::pair<const char*, Enum>> known) {
    std::string choices;
    for (const auto& [text, value] : known) {
        if (name == text) return value;
        choices += (choices.empty() ? "" : ", ") + std::string(text);
    }
    throw std::invalid_argument("unknown " + what + " '" + name + "': choose one of " + choices);
}

PushOutRules push_out_rules(const std::string& counting, const std::string& tie, const std::string& victim,
                            std::uint64_t seed) {
    return {named<Counting>("counting rule", counting,
                            {{"counted", Counting::counted}, {"uncounted", Counting::uncounted}}),
            named<Tie>("tie rule", tie, {{"lowest_port", Tie::lowest_port}, {"highest_port", Tie::highest_port}}),
            named<Victim>("victim rule", victim,
                          {{"tail", Victim::tail},
                           {"tail_kept", Victim::tail_kept},
                           {"head", Victim::head},
                           {"random", Victim::random}}),
            seed};
}

static_assert(sizeof(FeatureVector) == feature_count * sizeof(std::int32_t));

/// The vectors as rows of an array.
nb::ndarray<nb::numpy, std::int32_t> owned(std::unique_ptr<FeatureVector[]> values, std::size_t n) {
    void* const held = values.release();  // the address of a vector is that of its first value
    nb::capsule owner(held, [](void* p) noexcept { delete[] static_cast<FeatureVector*>(p); });
    return {held, {n, feature_count}, owner};
}

/// Columns that a run fills for n rows, and their way to Python.
struct Filled {
    Filled(std::size_t n, bool with_labels, bool with_features)
        : outcome(n),
          lqd_drop(with_labels ? n : 0),
          asked(n),
          exposed(n),
          // Every row is written, so zeros first would only cost time.
          features(std::make_unique_for_overwrite<FeatureVector[]>(with_features ? n : 0)),
          with_labels_(with_labels),
          with_features_(with_features) {}

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

/// Queues of one port.
constexpr std::size_t max_priorities = 64;

template <class T>
void same_length(const char* name, const std::optional<Column<T>>& column, std::size_t n) {
    if (column && column->shape(0) != n) {
        throw std::invalid_argument(std::string(name) + " has " + std::to_string(column->shape(0)) +
                                    " rows, but there are " + std::to_string(n) + " arrivals");
    }
}

void in_range(Port port, Port ports, std::size_t row) {
    if (port < 0 || port >= ports) {
        throw std::invalid_argument("row " + std::to_string(row) + " has port " + std::to_string(port) +
                                    ", outside 0 to " + std::to_string(ports - 1));
    }
}

PolicySettings policy_settings(const std::vector<double>& alpha, double first_rtt_alpha, Tick interval, Tick low_pass,
                               Bytes artifact_cut) {
    if (alpha.empty() || alpha.size() > max_priorities) {
        throw std::invalid_argument("alpha must hold one number per priority, 1 to " + std::to_string(max_priorities));
    }
    std::vector<std::pair<const char*, double>> values{{"first_rtt_alpha", first_rtt_alpha}};
    for (const double value : alpha) values.emplace_back("alpha", value);
    for (const auto& [name, value] : values) {
        if (!std::isfinite(value) || value < 0) {
            throw std::invalid_argument(std::string(name) + " must be a number of at least 0");
        }
    }
    return {alpha, first_rtt_alpha, interval, low_pass, artifact_cut};
}

/// Records hold ports and switches in 16 bits.
constexpr std::int64_t max_ports = 1 << 15;

void between(const char* what, std::int64_t value, std::int64_t low, std::int64_t high) {
    if (value < low || value > high) {
        throw std::invalid_argument(std::string(what) + " is " + std::to_string(value) + ", outside " +
                                    std::to_string(low) + " to " + std::to_string(high));
    }
}

/// Arrivals after this time could make a departure overflow.
constexpr Tick latest = Tick{1} << 62;

/// What all runs in slots are built from; times are slots, sizes packets.
struct SlottedSettings {
    std::string policy;
    SwitchSettings settings;
    PolicySettings policies;
};

SlottedSettings slotted_settings(const std::string& policy, Port ports, Bytes buffer, const std::string& counting,
                                 const std::string& tie, const std::string& victim, std::uint64_t seed,
                                 const std::vector<double>& alpha, double first_rtt_alpha, Tick rtt_slots,
                                 Tick low_pass_slots, int average_shift, bool labels, bool features) {
    between("number of ports", ports, 1, max_ports);
    between("buffer in packets", buffer, 1, Bytes{1} << 40);
    if (rtt_slots < 1) throw std::invalid_argument("rtt_slots must be at least 1");
    if (low_pass_slots < 1) throw std::invalid_argument("low_pass_slots must be at least 1");
    between("average_shift", average_shift, 0, 24);
    SlottedSettings out{policy, {}, policy_settings(alpha, first_rtt_alpha, rtt_slots, low_pass_slots, 1)};
    out.settings.rules = push_out_rules(counting, tie, victim, seed);
    out.settings.shape = {buffer, std::vector<LineRate>(static_cast<std::size_t>(ports), LineRate::one_per_slot()),
                          out.settings.rules.tie, true, static_cast<int>(alpha.size())};
    out.settings.scale = {0, average_shift, 0};
    out.settings.labels = labels || features;
    if (features) out.settings.features = FeatureSet::all();
    return out;
}

nb::ndarray<nb::numpy, Row> rows_array(const std::vector<Row>& rows) { return owned(rows, {rows.size()}); }

/// One policy over unit packets in slots, fed in order, batch by batch.
class SlottedRun {
public:
    explicit SlottedRun(const SlottedSettings& chosen)
        : ports_(chosen.settings.shape.ports()),
          priorities_(chosen.settings.shape.priorities),
          labels_(chosen.settings.labels),
          features_(!chosen.settings.features.empty()),
          run_(recorded_run(chosen.policy, chosen.policies, chosen.settings)) {}

    SlottedRun(const SlottedRun&) = delete;
    SlottedRun& operator=(const SlottedRun&) = delete;

    nb::dict feed(Column<std::int64_t> slot, Column<std::int32_t> port, std::optional<Column<std::uint8_t>> predictions,
                  std::optional<Column<std::uint8_t>> first_rtt, std::optional<Column<std::uint8_t>> priority,
                  bool columns) {
        return take(slot, port, predictions, first_rtt, priority, columns, false);
    }
    nb::dict finish() {
        nb::dict out;
        if (!finished_) run_->drain();
        finished_ = true;
        return totals(out);
    }
    nb::dict take(const Column<std::int64_t>& slot, const Column<std::int32_t>& port,
                  const std::optional<Column<std::uint8_t>>& predictions,
                  const std::optional<Column<std::uint8_t>>& first_rtt,
                  const std::optional<Column<std::uint8_t>>& priority, bool columns, bool last) {
        const std::size_t n = slot.shape(0);
        if (finished_) throw std::invalid_argument("a finished run takes no more arrivals: begin another");
        if (port.shape(0) != n) throw std::invalid_argument("slot and port differ in length");
        same_length("predictions", predictions, n);
        same_length("first_rtt", first_rtt, n);
        same_length("priority", priority, n);
        check(slot, port, priority);
        Filled filled(columns ? n : 0, columns && labels_, columns && features_);
        {
            nb::gil_scoped_release release;
            run_->begin_batch(columns ? filled.columns() : RunColumns{});
            std::array<Arrival, 1024> block;  // small enough to stay in the cache
            for (std::size_t from = 0; from < n; from += block.size()) {
                const std::size_t size = std::min(block.size(), n - from);
                for (std::size_t k = 0; k < size; ++k) {
                    const std::size_t i = from + k;
                    block[k] = {slot(i),
                                port(i),
                                1,
                                true,
                                first_rtt && (*first_rtt)(i) != 0,
                                priority ? (*priority)(i) : std::uint8_t{0}};
                }
                run_->feed(block.data(), size, predictions ? predictions->data() + from : nullptr);
            }
            if (last) run_->drain();
        }
        finished_ = last;
        if (n > 0) last_slot_ = slot(n - 1);
        nb::dict out = columns ? filled.to_dict() : nb::dict();
        if (columns && labels_) {
            out["late_drops"] = rows_array(run_->late_drops());
            out["settled"] = run_->settled();
        }
        run_->end_batch();
        return last ? totals(out) : out;
    }

private:
    nb::dict totals(nb::dict out) const {
        out["arrivals"] = run_->rows();
        out["transmitted"] = run_->transmitted_packets();
        out["dropped"] = run_->rows() - run_->transmitted_packets();
        out["threshold_deficits"] = run_->threshold_deficits();
        if (!out.contains("late_drops")) out["late_drops"] = rows_array(run_->late_drops());
        return out;
    }
    void check(const Column<std::int64_t>& slot, const Column<std::int32_t>& port,
               const std::optional<Column<std::uint8_t>>& priority) const {
        Tick last = last_slot_;
        for (std::size_t i = 0; i < slot.shape(0); ++i) {
            in_range(port(i), ports_, i);
            if (slot(i) < last || slot(i) > latest) {
                throw std::invalid_argument("row " + std::to_string(i) + " has slot " + std::to_string(slot(i)) +
                                            ": slots start at 0, never decrease and end at 2^62");
            }
            if (priority && (*priority)(i) >= priorities_) {
                throw std::invalid_argument("row " + std::to_string(i) + " has priority " +
                                            std::to_string((*priority)(i)) + ", but there are " +
                                            std::to_string(priorities_) + ": alpha has one number per priority");
            }
            last = slot(i);
        }
    }

    Port ports_;
    int priorities_;
    bool labels_, features_;
    std::unique_ptr<RecordedRun> run_;
    Tick last_slot_ = 0;
    bool finished_ = false;
};

/// All of it at once.
nb::dict slotted(const std::string& policy, Port ports, Bytes buffer, Column<std::int64_t> slot,
                 Column<std::int32_t> port, std::optional<Column<std::uint8_t>> predictions,
                 std::optional<Column<std::uint8_t>> first_rtt, std::optional<Column<std::uint8_t>> priority,
                 const std::string& counting, const std::string& tie, const std::string& victim, std::uint64_t seed,
                 const std::vector<double>& alpha, double first_rtt_alpha, Tick rtt_slots, Tick low_pass_slots,
                 int average_shift, bool labels, bool features) {
    SlottedRun run(slotted_settings(policy, ports, buffer, counting, tie, victim, seed, alpha, first_rtt_alpha,
                                    rtt_slots, low_pass_slots, average_shift, labels, features));
    return run.take(slot, port, predictions, first_rtt, priority, true, true);
}

nb::dict late_qd(Port ports, Bytes buffer, Column<std::int64_t> slot, Column<std::int32_t> port) {
    between("number of ports", ports, 1, max_ports);
    between("buffer in packets", buffer, 1, Bytes{1} << 40);
    const std::size_t n = slot.shape(0);
    if (port.shape(0) != n) throw std::invalid_argument("slot and port differ in length");
    for (std::size_t i = 0; i < n; ++i) {
        in_range(port(i), ports, i);
        if (slot(i) < (i > 0 ? slot(i - 1) : 0) || slot(i) > latest) {
            throw std::invalid_argument("row " + std::to_string(i) + " has slot " + std::to_string(slot(i)) +
                                        ": slots start at 0, never decrease and end at 2^62");
        }
    }
    std::vector<std::uint8_t> drop(n);
    std::int64_t transmitted = 0;
    {
        nb::gil_scoped_release release;
        transmitted = LateQd(ports, buffer, slot.data(), port.data(), n).run(drop.data());
    }
    nb::dict out;
    out["transmitted"] = transmitted;
    out["drop"] = owned(std::move(drop), {n});
    return out;
}

nb::ndarray<nb::numpy, std::int64_t> tree_leaves(
    Column<std::int32_t> feature, Column<std::int64_t> cut, Column<std::int32_t> left, Column<std::int32_t> right,
    nb::ndarray<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> x) {
    const std::size_t n = feature.shape(0), rows = x.shape(0), inputs = x.shape(1);
    const Tree tree{feature.data(), cut.data(), left.data(), right.data(), n};
    if (cut.shape(0) != n || left.shape(0) != n || right.shape(0) != n || !tree.can_be_walked(inputs)) {
        throw std::invalid_argument("the arrays are no tree over the columns of x");
    }
    std::vector<std::int64_t> leaves(rows);
    {
        nb::gil_scoped_release release;
        for (std::size_t row = 0; row < rows; ++row) leaves[row] = tree.leaf(x.data() + row * inputs);
    }
    return owned(std::move(leaves), {rows});
}

using Matrix = nb::ndarray<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

foretail::fabric::Node square(const Matrix& matrix) {
    const std::size_t n = matrix.shape(0);
    if (n == 0 || n > 1U << 14 || matrix.shape(1) != n) {
        throw std::invalid_argument("the matrix is not square with 1 to 16384 rows");
    }
    for (std::size_t i = 0; i < n * n; ++i) {
        if (matrix.data()[i] < 0) throw std::invalid_argument("the matrix has a negative entry");
    }
    return static_cast<foretail::fabric::Node>(n);
}

nb::ndarray<nb::numpy, std::int64_t> round_matrix(Matrix entries, int fraction_bits) {
    const foretail::fabric::Node size = square(entries);
    between("number of fraction bits", fraction_bits, 0, 60);
    const std::size_t n = entries.shape(0);
    for (std::size_t i = 0; i < n; ++i) {
        std::int64_t row = 0, column = 0;
        for (std::size_t j = 0; j < n; ++j) {
            if (__builtin_add_overflow(row, entries(i, j), &row) ||
                __builtin_add_overflow(column, entries(j, i), &column)) {
                throw std::invalid_argument("a row or column sum of the matrix does not fit 64 bits");
            }
        }
    }
    std::vector<std::int64_t> rounded;
    {
        nb::gil_scoped_release release;
        rounded = foretail::fabric::MatrixRounding({entries.data(), entries.data() + n * n}, size, fraction_bits).run();
    }
    return owned(std::move(rounded), {n, n});
}

nb::ndarray<nb::numpy, std::int32_t> perfect_matchings(Matrix counts) {
    const foretail::fabric::Node size = square(counts);
    const std::size_t n = counts.shape(0);
    std::int64_t degree = 0;
    for (std::size_t j = 0; j < n; ++j) degree += counts(0, j);
    between("degree of the multigraph", degree, 0, (std::int64_t{1} << 31) / size);
    for (std::size_t i = 0; i < n; ++i) {
        std::int64_t row = 0, column = 0;
        for (std::size_t j = 0; j < n; ++j) {
            row += counts(i, j);
            column += counts(j, i);
        }
        if (row != degree || column != degree) {
            throw std::invalid_argument("node " + std::to_string(i) + " has degrees " + std::to_string(row) + " and " +
                                        std::to_string(column) + ", not " + std::to_string(degree) +
                                        ": only a regular multigraph is a union of perfect matchings");
        }
    }
    std::vector<std::int32_t> partners;
    {
        nb::gil_scoped_release release;
        std::vector<foretail::fabric::Edge> edges;
        edges.reserve(n * static_cast<std::size_t>(degree));
        for (std::size_t i = 0; i < n * n; ++i) {
            const foretail::fabric::Edge edge{static_cast<std::int32_t>(i / n), static_cast<std::int32_t>(n + i % n)};
            edges.insert(edges.end(), static_cast<std::size_t>(counts.data()[i]), edge);
        }
        partners.reserve(edges.size());
        foretail::fabric::Matchings(size).decompose(std::move(edges), [&](const auto& matching) {
            partners.insert(partners.end(), matching.begin(), matching.end());
        });
    }
    return owned(std::move(partners), {static_cast<std::size_t>(degree), n});
}

/// Flows of cells over a schedule of circuits, run up to one slot after another.
class CellFabric {
public:
    using Matchings = nb::ndarray<const std::int32_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

    CellFabric(Matchings matchings, Column<std::int64_t> start, Column<std::int32_t> source,
               Column<std::int32_t> destination, Column<std::int64_t> size, const std::string& routing,
               std::int64_t relay_cells, std::uint32_t seed) {
        const std::size_t n = start.shape(0);
        between("number of racks", static_cast<std::int64_t>(matchings.shape(2)), 2, 1 << 12);
        between("number of matchings", static_cast<std::int64_t>(matchings.shape(0) * matchings.shape(1)), 1, 1 << 24);
        between("number of flows", static_cast<std::int64_t>(n), 0, (std::int64_t{1} << 31) - 1);
        if (source.shape(0) != n || destination.shape(0) != n || size.shape(0) != n) {
            throw std::invalid_argument("the columns of the flows differ in length");
        }
        const auto racks = static_cast<std::int32_t>(matchings.shape(2));
        for (std::size_t i = 0; i < matchings.size(); ++i) between("node", matchings.data()[i], -1, racks - 1);
        between("number of cells that a rack relays", relay_cells, 0, latest);
        std::vector<foretail::fabric::CellFlow> flows(n);
        for (std::size_t i = 0; i < n; ++i) {
            flows[i] = {start(i), size(i), source(i), destination(i)};
            between("start", start(i), i == 0 ? 0 : start(i - 1), latest);
            between("size", size(i), 1, std::int64_t{1} << 31);
            between("source", source(i), 0, racks - 1);
            between("destination", destination(i), 0, racks - 1);
            if (source(i) == destination(i)) throw std::invalid_argument("a flow stays in its rack");
        }
        using foretail::fabric::Routing;
        run_ = std::make_unique<foretail::fabric::CellFabric>(
            racks, matchings.shape(1), std::vector<std::int32_t>(matchings.data(), matchings.data() + matchings.size()),
            std::move(flows),
            named<Routing>("routing", routing,
                           {{"direct", Routing::direct}, {"two_hop", Routing::two_hop}, {"valiant", Routing::valiant}}),
            relay_cells, seed);
    }
    void advance(std::int64_t until) {
        between("slot", until, run_->now(), latest);
        nb::gil_scoped_release release;
        run_->advance(until);
    }
    nb::ndarray<nb::numpy, std::int64_t> completion() const {
        return owned(run_->completion(), {run_->completion().size()});
    }
    std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t> counts() const {
        const auto& counts = run_->counts();
        return {counts.admitted, counts.direct, counts.first_hop, counts.last_hop};
    }

private:
    std::unique_ptr<foretail::fabric::CellFabric> run_;
};

/// One entry per switch of a network: its buffer in bytes and its ports' rates in bits per second.
using Switches = std::vector<std::pair<Bytes, std::vector<std::int64_t>>>;

/// Within these bounds no time can overflow.
std::vector<Shape> shapes_of(const Switches& switches, Bytes wire_overhead_bytes, Tie tie, int priorities) {
    between("wire_overhead_bytes", wire_overhead_bytes, 0, 256);
    between("number of switches", static_cast<std::int64_t>(switches.size()), 1, max_ports);
    std::vector<Shape> shapes;
    for (const auto& [buffer, rates] : switches) {
        between("buffer of a switch, in bytes,", buffer, 1, Bytes{1} << 30);
        between("number of ports", static_cast<std::int64_t>(rates.size()), 1, max_ports);
        shapes.push_back({buffer, {}, tie, false, priorities});
        for (const auto bps : rates) {
            between("port rate in bits per second", bps, 1000, 1'000'000'000'000'000);
            shapes.back().rates.push_back(LineRate::from_bps(bps, wire_overhead_bytes));
        }
    }
    return shapes;
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
            if (time_ns(i) < last || time_ns(i) > latest) {
                throw std::invalid_argument("row " + std::to_string(i) + " has time " + std::to_string(time_ns(i)) +
                                            ": times start at 0, never decrease and end at 2^62");
            }
            if (size_bytes(i) < 1) throw std::invalid_argument("row " + std::to_string(i) + " has no size");
            last = time_ns(i);
        }
        last_time = last;
    }
};

/// One policy over the recorded arrivals of all switches of a network, fed in order, chunk by chunk.
class Replay {
public:
    Replay(const std::string& policy, const Switches& switches, Bytes wire_overhead_bytes, const std::string& counting,
           const std::string& tie, const std::string& victim, std::uint64_t seed, Bytes cell_bytes, int average_shift,
           const std::vector<double>& alpha, double first_rtt_alpha, std::optional<Tick> rtt_ns, Tick low_pass_ns,
           Bytes artifact_cut_bytes)
        : observed_(cell_bytes > 0), priorities_(static_cast<int>(alpha.size())) {
        SwitchSettings settings;
        settings.rules = push_out_rules(counting, tie, victim, seed);
        settings.labels = observed_;
        if (observed_) settings.features = FeatureSet::all();
        if (cell_bytes < 0 || (observed_ && !std::has_single_bit(static_cast<std::uint64_t>(cell_bytes)))) {
            throw std::invalid_argument("cell_bytes must be a power of two");
        }
        between("average_shift", average_shift, 0, 24);
        settings.scale = {observed_ ? std::countr_zero(static_cast<std::uint64_t>(cell_bytes)) : 0, average_shift, 10};
        if (rtt_ns && *rtt_ns < 1) throw std::invalid_argument("rtt_ns must be at least 1");
        if (low_pass_ns < 1) throw std::invalid_argument("low_pass_ns must be at least 1");
        if (artifact_cut_bytes < 1) throw std::invalid_argument("artifact_cut_bytes must be at least 1");
        const auto chosen = policy_settings(alpha, first_rtt_alpha, rtt_ns.value_or(Tick{1} << average_shift),
                                            low_pass_ns, artifact_cut_bytes);
        for (auto& shape : shapes_of(switches, wire_overhead_bytes, settings.rules.tie, priorities_)) {
            settings.shape = std::move(shape);
            ports_.push_back(settings.shape.ports());
            runs_.push_back(recorded_run(policy, chosen, settings));
        }
    }

    Replay(const Replay&) = delete;
    Replay& operator=(const Replay&) = delete;

    nb::dict feed(Column<std::int64_t> time_ns, Column<std::int16_t> switch_index, Column<std::int16_t> port,
                  Column<std::int32_t> size_bytes, Column<std::uint8_t> data, Column<std::uint8_t> first_rtt,
                  std::optional<Column<std::uint8_t>> predictions, std::optional<Column<std::uint8_t>> priority) {
        const std::size_t n = time_ns.shape(0);
        if (first_rtt.shape(0) != n) throw std::invalid_argument("the columns of the arrivals differ in length");
        same_length("predictions", predictions, n);
        same_length("priority", priority, n);
        if (finished_) throw std::invalid_argument("a finished replay takes no more arrivals: begin another");
        for (std::size_t i = 0; priority && i < n; ++i) {
            if ((*priority)(i) >= priorities_) {
                throw std::invalid_argument("row " + std::to_string(i) + " has priority " +
                                            std::to_string((*priority)(i)) + ", but there are " +
                                            std::to_string(priorities_) + ": alpha has one number per priority");
            }
        }
        RecordedArrivals{time_ns, switch_index, port, size_bytes, data}.check(ports_, last_time_);
        Filled filled(n, observed_, observed_);
        {
            nb::gil_scoped_release release;
            for (std::size_t s = 0; s < runs_.size(); ++s) {
                rows_.clear();
                arrivals_.clear();
                answers_.clear();
                for (std::size_t i = 0; i < n; ++i) {
                    if (static_cast<std::size_t>(switch_index(i)) != s) continue;
                    rows_.push_back(i);
                    arrivals_.push_back({time_ns(i), port(i), size_bytes(i), data(i) != 0, first_rtt(i) != 0,
                                         priority ? (*priority)(i) : std::uint8_t{0}});
                    if (predictions) answers_.push_back((*predictions)(i));
                }
                Filled part(rows_.size(), observed_, observed_);
                runs_[s]->begin_batch(part.columns());
                runs_[s]->feed(arrivals_.data(), rows_.size(), predictions ? answers_.data() : nullptr);
                runs_[s]->end_batch();
                for (std::size_t k = 0; k < rows_.size(); ++k) {
                    const std::size_t i = rows_[k];
                    filled.outcome[i] = part.outcome[k];
                    if (observed_) filled.lqd_drop[i] = part.lqd_drop[k];
                    filled.asked[i] = part.asked[k];
                    filled.exposed[i] = part.exposed[k];
                    if (observed_) filled.features[i] = part.features[k];
                }
            }
        }
        return filled.to_dict();
    }

    nb::dict finish() {
        finished_ = true;
        Bytes bytes = 0;
        std::int64_t packets = 0, deficits = 0;
        for (auto& run : runs_) {
            run->drain();
            bytes += run->transmitted_data();
            packets += run->transmitted_packets();
            deficits += run->threshold_deficits();
        }
        nb::dict out;
        out["transmitted_bytes"] = bytes;
        out["transmitted_packets"] = packets;
        out["threshold_deficits"] = deficits;
        return out;
    }

private:
    bool observed_;
    int priorities_;
    std::vector<Port> ports_;
    std::vector<std::unique_ptr<RecordedRun>> runs_;
    Tick last_time_ = 0;
    bool finished_ = false;
    std::vector<std::size_t> rows_;
    std::vector<Arrival> arrivals_;
    std::vector<std::uint8_t> answers_;
};

/// The push-outs of LQD on the recorded arrivals of all switches of a network, fed in order, chunk by chunk.
class PushOuts {
public:
    PushOuts(const Switches& switches, Bytes wire_overhead_bytes, const std::string& counting, const std::string& tie,
             const std::string& victim, std::uint64_t seed) {
        const auto rules = push_out_rules(counting, tie, victim, seed);
        for (const auto& shape : shapes_of(switches, wire_overhead_bytes, rules.tie, 1)) {
            ports_.push_back(shape.ports());
            logs_.emplace_back(shape, rules);
        }
    }

    nb::ndarray<nb::numpy, std::int64_t> feed(Column<std::int64_t> time_ns, Column<std::int16_t> switch_index,
                                              Column<std::int16_t> port, Column<std::int32_t> size_bytes,
                                              Column<std::uint8_t> data) {
        RecordedArrivals{time_ns, switch_index, port, size_bytes, data}.check(ports_, last_time_);
        std::vector<std::int64_t> stretches;
        for (std::size_t i = 0; i < time_ns.shape(0); ++i) {
            const auto s = static_cast<std::size_t>(switch_index(i));
            const bool is_data = data(i) != 0;
            const auto stretch =
                logs_[s].arrive({time_ns(i), port(i), size_bytes(i), is_data}, is_data ? rows_ : no_row);
            if (!is_data) continue;
            ++rows_;
            stretches.push_back(numbered(stretch, s));
        }
        const std::size_t n = stretches.size();
        return owned(std::move(stretches), {n});
    }

    /// int64[push-outs, 7], switch by switch.
    nb::ndarray<nb::numpy, std::int64_t> table() const {
        std::vector<std::int64_t> out;
        std::int64_t first_line = 0;
        for (std::size_t s = 0; s < logs_.size(); ++s) {
            for (const auto& [victim, queue, stretch] : logs_[s].push_outs()) {
                out.insert(out.end(), {victim, first_line + queue.line, queue.first, queue.last,
                                       numbered(stretch.line, s), stretch.first, stretch.last});
            }
            first_line += ports_[s];
        }
        const std::size_t n = out.size() / 7;
        return owned(std::move(out), {n, 7});
    }

private:
    /// A number of a stretch that no other switch uses.
    [[nodiscard]] std::int64_t numbered(std::int64_t stretch, std::size_t s) const {
        return stretch * static_cast<std::int64_t>(logs_.size()) + static_cast<std::int64_t>(s);
    }

    std::vector<Port> ports_;
    std::vector<PushOutLog> logs_;
    Tick last_time_ = 0;
    Row rows_ = 0;
};

nb::ndarray<nb::numpy, std::uint8_t> assigned(Column<std::int64_t> first, Column<std::int64_t> last,
                                              Column<double> score) {
    const std::size_t n = first.shape(0);
    if (last.shape(0) != n) throw std::invalid_argument("the bounds of the push-outs differ in number");
    const auto places = static_cast<std::int64_t>(score.shape(0));
    for (std::size_t k = 0; k < n; ++k) {
        between("first place of a push-out", first(k), k == 0 ? 0 : first(k - 1), places - 1);
        between("last place of a push-out", last(k), k == 0 ? first(k) : std::max(first(k), last(k - 1)), places - 1);
    }
    for (std::size_t i = 0; i < score.shape(0); ++i) {
        if (std::isnan(score(i))) throw std::invalid_argument("place " + std::to_string(i) + " has no score");
    }
    auto chosen = best_assignment({first.data(), n}, {last.data(), n}, {score.data(), score.shape(0)});
    return owned(std::move(chosen), {score.shape(0)});
}

using FieldLayout = std::tuple<std::string, std::size_t, std::string, std::size_t>;

#define FIELD(record, member, name, format, count) \
    FieldLayout { name, offsetof(record, member), format, count }

nb::dict record_layout() {
    nb::dict out;
    out["arrival"] = std::pair(
        sizeof(ArrivalRecord),
        std::vector<FieldLayout>{
            FIELD(ArrivalRecord, time_ns, "time_ns", "<i8", 1),
            FIELD(ArrivalRecord, fate_time_ns, "fate_time_ns", "<i8", 1),
            FIELD(ArrivalRecord, score, "score", "<i8", 1), FIELD(ArrivalRecord, flow, "flow", "<i4", 1),
            FIELD(ArrivalRecord, size_bytes, "size_bytes", "<i4", 1),
            FIELD(ArrivalRecord, features, "features", "<i4", feature_count),
            FIELD(ArrivalRecord, switch_index, "switch", "<i2", 1), FIELD(ArrivalRecord, port, "port", "<i2", 1),
            FIELD(ArrivalRecord, flow_class, "flow_class", "|u1", 1),
            FIELD(ArrivalRecord, outcome, "outcome", "|u1", 1), FIELD(ArrivalRecord, lqd_drop, "lqd_drop", "|u1", 1),
            FIELD(ArrivalRecord, exposed, "exposed", "|u1", 1), FIELD(ArrivalRecord, asked, "asked", "|u1", 1),
            FIELD(ArrivalRecord, first_rtt, "first_rtt", "|u1", 1), FIELD(ArrivalRecord, pad, "pad", "|u1", 6)});
    out["flow"] = std::pair(
        sizeof(FlowRecord),
        std::vector<FieldLayout>{
            FIELD(FlowRecord, start_ns, "start_ns", "<i8", 1), FIELD(FlowRecord, fct_ns, "fct_ns", "<i8", 1),
            FIELD(FlowRecord, ideal_fct_ns, "ideal_fct_ns", "<i8", 1),
            FIELD(FlowRecord, size_bytes, "size_bytes", "<i8", 1), FIELD(FlowRecord, source, "source", "<i4", 1),
            FIELD(FlowRecord, destination, "destination", "<i4", 1), FIELD(FlowRecord, query, "query", "<i4", 1),
            FIELD(FlowRecord, retransmissions, "retransmissions", "<i4", 1),
            FIELD(FlowRecord, timeouts, "timeouts", "<i4", 1), FIELD(FlowRecord, flow_class, "flow_class", "|u1", 1),
            FIELD(FlowRecord, connected_in_advance, "connected_in_advance", "|u1", 1),
            FIELD(FlowRecord, pad, "pad", "|u1", 2)});
    out["occupancy"] =
        std::pair(sizeof(OccupancyRecord),
                  std::vector<FieldLayout>{FIELD(OccupancyRecord, time_ns, "time_ns", "<i8", 1),
                                           FIELD(OccupancyRecord, occupancy_bytes, "occupancy_bytes", "<i8", 1),
                                           FIELD(OccupancyRecord, longest_bytes, "longest_bytes", "<i8", 1),
                                           FIELD(OccupancyRecord, switch_index, "switch", "<i4", 1),
                                           FIELD(OccupancyRecord, pad, "pad", "<i4", 1)});
    return out;
}

#undef FIELD

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "Buffer policies, labels and features over known arrivals (C++).";
    m.def("record_layout", &record_layout,
          "Layouts of the binary records: name -> (itemsize, [(field, offset, format, count)]).");
    m.def(
        "feature_names", [] { return std::vector<std::string>(feature_names.begin(), feature_names.end()); },
        "The features of an arrival, in the order of their columns.");
    using namespace nb::literals;
    const std::vector<double> one_alpha{0.5};
    // noconvert: a column of another type would be rounded or wrapped silently.
    m.def("slotted", &slotted, "policy"_a, "ports"_a, "buffer"_a, "slot"_a.noconvert(), "port"_a.noconvert(),
          "predictions"_a.noconvert() = nb::none(), "first_rtt"_a.noconvert() = nb::none(),
          "priority"_a.noconvert() = nb::none(), nb::kw_only(), "counting"_a = "counted", "tie"_a = "lowest_port",
          "victim"_a = "tail", "seed"_a = 0, "alpha"_a = one_alpha, "first_rtt_alpha"_a = 64.0, "rtt_slots"_a = 25,
          "low_pass_slots"_a = 1024, "average_shift"_a = 5, "labels"_a = true, "features"_a = false,
          "Run a policy on unit packets in slots: arrivals in order, then every non-empty port sends one packet.");
    m.def("tree_leaves", &tree_leaves, "feature"_a.noconvert(), "cut"_a.noconvert(), "left"_a.noconvert(),
          "right"_a.noconvert(), "x"_a.noconvert(),
          "Index of the leaf that every row reaches in a tree of parallel arrays (docs/ensemble.md): int64[rows].");
    m.def("round_matrix", &round_matrix, "entries"_a.noconvert(), "fraction_bits"_a,
          "Fixed-point entries rounded so that all entries, row sums and column sums are rounded up or down: int64[n, "
          "n].");
    m.def("perfect_matchings", &perfect_matchings, "counts"_a.noconvert(),
          "Perfect matchings whose union is a regular bipartite multigraph, partner of each left node: int32[degree, "
          "n].");
    m.def("late_qd", &late_qd, "ports"_a, "buffer"_a, "slot"_a.noconvert(), "port"_a.noconvert(),
          "The offline optimum of unit packets in slots: most packets that any policy could send, and which to drop.");
    nb::class_<SlottedRun>(m, "SlottedRun", "One policy over unit packets in slots, fed in order, batch by batch.")
        .def(
            "__init__",
            [](SlottedRun* self, const std::string& policy, Port ports, Bytes buffer, const std::string& counting,
               const std::string& tie, const std::string& victim, std::uint64_t seed, const std::vector<double>& alpha,
               double first_rtt_alpha, Tick rtt_slots, Tick low_pass_slots, int average_shift, bool labels,
               bool features) {
                new (self) SlottedRun(slotted_settings(policy, ports, buffer, counting, tie, victim, seed, alpha,
                                                       first_rtt_alpha, rtt_slots, low_pass_slots, average_shift,
                                                       labels, features));
            },
            "policy"_a, "ports"_a, "buffer"_a, nb::kw_only(), "counting"_a = "counted", "tie"_a = "lowest_port",
            "victim"_a = "tail", "seed"_a = 0, "alpha"_a = one_alpha, "first_rtt_alpha"_a = 64.0, "rtt_slots"_a = 25,
            "low_pass_slots"_a = 1024, "average_shift"_a = 5, "labels"_a = false, "features"_a = false)
        .def("feed", &SlottedRun::feed, "slot"_a.noconvert(), "port"_a.noconvert(),
             "predictions"_a.noconvert() = nb::none(), "first_rtt"_a.noconvert() = nb::none(),
             "priority"_a.noconvert() = nb::none(), nb::kw_only(), "columns"_a = true)
        .def("finish", &SlottedRun::finish);
    nb::class_<CellFabric>(m, "CellFabric", "Flows of cells over a schedule of circuits.")
        .def(nb::init<CellFabric::Matchings, Column<std::int64_t>, Column<std::int32_t>, Column<std::int32_t>,
                      Column<std::int64_t>, const std::string&, std::int64_t, std::uint32_t>(),
             "matchings"_a.noconvert(), "start"_a.noconvert(), "source"_a.noconvert(), "destination"_a.noconvert(),
             "size"_a.noconvert(), nb::kw_only(), "routing"_a, "relay_cells"_a, "seed"_a)
        .def("advance", &CellFabric::advance, "until"_a)
        .def("completion", &CellFabric::completion)
        .def("counts", &CellFabric::counts);
    nb::class_<Replay>(m, "Replay",
                       "One policy over recorded arrivals of a network's switches, in bytes and nanoseconds.")
        .def(nb::init<const std::string&, const Switches&, Bytes, const std::string&, const std::string&,
                      const std::string&, std::uint64_t, Bytes, int, const std::vector<double>&, double,
                      std::optional<Tick>, Tick, Bytes>(),
             "policy"_a, "switches"_a, nb::kw_only(), "wire_overhead_bytes"_a, "counting"_a, "tie"_a, "victim"_a,
             "seed"_a = 0, "cell_bytes"_a = 0, "average_shift"_a = 15, "alpha"_a = one_alpha,
             "first_rtt_alpha"_a = 64.0, "rtt_ns"_a = nb::none(), "low_pass_ns"_a = 1 << 19,
             "artifact_cut_bytes"_a = 1500)
        .def("feed", &Replay::feed, "time_ns"_a.noconvert(), "switch_index"_a.noconvert(), "port"_a.noconvert(),
             "size_bytes"_a.noconvert(), "data"_a.noconvert(), "first_rtt"_a.noconvert(),
             "predictions"_a.noconvert() = nb::none(), "priority"_a.noconvert() = nb::none())
        .def("finish", &Replay::finish);
    m.def("best_assignment", &assigned, "first"_a.noconvert(), "last"_a.noconvert(), "score"_a.noconvert(),
          "Which places to give to push-outs, one each, for the highest scores: uint8[places].");
    nb::class_<PushOuts>(m, "PushOuts", "Every push-out of LQD on recorded arrivals, and what it could have taken.")
        .def(nb::init<const Switches&, Bytes, const std::string&, const std::string&, const std::string&,
                      std::uint64_t>(),
             "switches"_a, nb::kw_only(), "wire_overhead_bytes"_a, "counting"_a, "tie"_a, "victim"_a, "seed"_a = 0)
        .def("feed", &PushOuts::feed, "time_ns"_a.noconvert(), "switch_index"_a.noconvert(), "port"_a.noconvert(),
             "size_bytes"_a.noconvert(), "data"_a.noconvert())
        .def("table", &PushOuts::table);
}
