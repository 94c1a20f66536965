// SPDX-License-Identifier: MIT
#include "buffer/counters/interval_counters.hpp"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <vector>

#include "bindings/columns.hpp"
#include "bindings/module.hpp"

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
        const CounterVector found = counters.of(static_cast<QueueIndex>(queue));
        out.insert(out.end(), found.begin(), found.end());
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

}  // namespace

void add_counters(nb::module_& m) {
    using namespace nb::literals;
    m.def("interval_counters", &interval_counters, "capacity"_a, "rates_bps"_a, "priorities"_a, "interval_ns"_a,
          "rows"_a.noconvert(),
          "Counters that every arrival finds: int32[rows, counters]. A row: time, queue, size, dropped, marked, "
          "first_rtt, flow_hash, length of the queue and occupancy after the decision.");
}

}  // namespace foretail::bindings
