// SPDX-License-Identifier: MIT
// The native module of this room for Python: names that both sides share, counters, trees, a balancer.
#include "bindings/module.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "buffer/predictor/predictor.hpp"
#include "native/balancer.h"
#include "packets/settings/settings_group.h"

namespace foretail::bindings {

namespace {

nb::ndarray<nb::numpy, std::int32_t> interval_counters(Bytes capacity, const std::vector<std::int64_t>& rates_bps,
                                                       int priorities, Tick interval_ns, Matrix<std::int64_t> rows) {
    constexpr std::size_t columns = 9;
    if (rows.shape(1) != columns) throw std::invalid_argument("an arrival has nine columns");
    if (capacity < 1 || interval_ns < 1 || interval_ns > longest || priorities < 1 || rates_bps.empty() ||
        *std::ranges::min_element(rates_bps) < 1)
        throw std::invalid_argument("capacity, interval, priorities and rates must be above 0");
    Shape shape{.capacity = capacity, .priorities = priorities};
    for (const std::int64_t bps : rates_bps) shape.rates.push_back(LineRate::from_bps(bps, 0));
    IntervalCounters counters(shape, interval_ns);
    std::vector<std::int32_t> out;
    out.reserve(rows.shape(0) * counter_names.size());
    Tick last = 0;
    for (std::size_t i = 0; i < rows.shape(0); ++i) {
        const std::int64_t* row = rows.data() + i * columns;
        const auto [time, queue, size, dropped, marked, first_rtt, hash, length, occupancy] =
            std::array{row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8]};
        in_order("time", time, last, i);
        in_range(static_cast<Port>(queue), shape.queues(), i);
        last = time;
        counters.advance(time, [](Tick) {}, [] {});
        const CounterVector counts = counters.of(static_cast<QueueIndex>(queue));
        out.insert(out.end(), counts.begin(), counts.end());
        counters.count({.queue = static_cast<QueueIndex>(queue),
                        .size = size,
                        .dropped = dropped != 0,
                        .marked = marked != 0,
                        .first_rtt = first_rtt != 0,
                        .flow_hash = static_cast<std::uint32_t>(hash),
                        .length = length,
                        .occupancy = occupancy});
    }
    return owned(std::move(out), {rows.shape(0), counter_names.size()});
}

nb::ndarray<nb::numpy, std::int64_t> tree_leaves(Column<std::int32_t> feature, Column<std::int64_t> cut,
                                                 Column<std::int32_t> left, Column<std::int32_t> right,
                                                 Matrix<std::int64_t> x) {
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

/// The balancer of native senders, one connection of it, for those who compare its decisions with others.
class OneBalancer {
public:
    OneBalancer(const std::string& document, std::uint64_t seed) : balancer_(settings(document), seed, 1) {}
    std::pair<std::uint32_t, std::uint32_t> next(std::int64_t now_ns) {
        const auto choice = balancer_.next(0, now_ns);
        return {choice.subflow, choice.path_hash};
    }
    void acknowledged(std::uint32_t subflow, std::int64_t sent_ns, bool marked, std::int64_t now_ns) {
        balancer_.acknowledged(0, {.sent_ns = sent_ns, .subflow = subflow, .marked = marked}, now_ns);
    }
    [[nodiscard]] std::vector<std::uint32_t> entropies() const {
        const auto entropies = balancer_.entropies(0);
        return {entropies.begin(), entropies.end()};
    }

private:
    static packets::Balancing settings(const std::string& document) {
        const auto parsed = nlohmann::json::parse(document);
        return packets::read_balancing(packets::Group(parsed, "balancing"));
    }
    packets::native::Balancer balancer_;
};

using Traits = std::tuple<std::string, bool, bool, bool, std::vector<std::string>>;

std::vector<Traits> traits() {
    std::vector<Traits> out;
    for (const KnownPolicy* one : policies()) {
        out.emplace_back(one->name, one->asks, one->knows_priorities, one->removes_packets(),
                         std::vector<std::string>(one->parameters.begin(), one->parameters.end()));
    }
    return out;
}

void add_tools(nb::module_& m) {
    using namespace nb::literals;
    m.def(
        "feature_names", [] { return std::vector<std::string>(feature_names.begin(), feature_names.end()); },
        "The features of an arrival, in the order of their columns.");
    m.def(
        "counter_names", [] { return std::vector<std::string>(counter_names.begin(), counter_names.end()); },
        "The counters of an interval, in the order of their columns.");
    m.def("policies", &traits,
          "The policies: (name, whether it asks a predictor, whether it knows priorities, whether it pushes out, its "
          "parameters).");
    m.def("interval_counters", &interval_counters, "capacity"_a, "rates_bps"_a, "priorities"_a, "interval_ns"_a,
          "rows"_a.noconvert(),
          "Counters that every arrival finds: int32[rows, counters]. A row: time, queue, size, dropped, marked, "
          "first_rtt, flow_hash, length of the queue and occupancy after the decision.");
    m.def("tree_leaves", &tree_leaves, "feature"_a.noconvert(), "cut"_a.noconvert(), "left"_a.noconvert(),
          "right"_a.noconvert(), "x"_a.noconvert(),
          "Index of the leaf that every row reaches in a tree of parallel arrays (docs/reference/ensemble.md): "
          "int64[rows].");
    nb::class_<OneBalancer>(m, "Balancer", "The balancer of one connection of the native network, which is not ecmp.")
        .def(nb::init<const std::string&, std::uint64_t>(), "settings"_a, "seed"_a)
        .def("next", &OneBalancer::next, "now_ns"_a)
        .def("acknowledged", &OneBalancer::acknowledged, "subflow"_a, "sent_ns"_a, "marked"_a, "now_ns"_a)
        .def("entropies", &OneBalancer::entropies);
}

}  // namespace

}  // namespace foretail::bindings

NB_MODULE(_native, m) {
    using namespace foretail::bindings;
    refuse_by_foretail_error();
    m.doc() = "Buffer policies, labels and features over known arrivals, and the native network (C++).";
    for (const auto add : {add_tools, add_slotted, add_replay, add_circuits, add_live, add_open_loop, add_native})
        add(m);
}
