// SPDX-License-Identifier: MIT
// The names and layouts that C++ and Python must agree on.
#include "buffer/records.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/module.hpp"
#include "buffer/policies/any_policy.hpp"

namespace foretail::bindings {

namespace nb = nanobind;
using namespace buffer;

namespace {

using FieldLayout = std::tuple<std::string, std::size_t, std::string, std::size_t>;
using RecordLayout = std::pair<std::size_t, std::vector<FieldLayout>>;

template <class T>
struct Element {
    using type = T;
};
template <class T, std::size_t n>
struct Element<std::array<T, n>> {
    using type = T;
};

/// Name, offset, numpy's name of the format, and how many of it.
template <class Member>
FieldLayout field(const std::string& name, std::size_t offset) {
    using Value = typename Element<Member>::type;
    const std::string kind = std::is_signed_v<Value> ? "i" : "u";
    return {name, offset, (sizeof(Value) == 1 ? "|" : "<") + kind + std::to_string(sizeof(Value)),
            sizeof(Member) / sizeof(Value)};
}

#define NAMED_FIELD(member, name) field<decltype(Record::member)>(name, offsetof(Record, member))
#define FIELD(member) NAMED_FIELD(member, #member)

RecordLayout arrival_layout() {
    using Record = ArrivalRecord;
    RecordLayout layout{
        sizeof(Record),
        {FIELD(time_ns), FIELD(fate_time_ns), FIELD(score), FIELD(flow), FIELD(size_bytes), FIELD(features),
         NAMED_FIELD(switch_index, "switch"), FIELD(port), FIELD(flow_class), FIELD(outcome), FIELD(lqd_drop),
         FIELD(exposed), FIELD(asked), FIELD(first_rtt), FIELD(ingress)}};
    constexpr std::size_t end = offsetof(Record, ingress) + sizeof(Record::ingress);
    if constexpr (end < sizeof(Record))
        layout.second.push_back(field<std::array<std::uint8_t, sizeof(Record) - end>>("pad", end));
    return layout;
}

RecordLayout pause_layout() {
    using Record = PauseRecord;
    return {
        sizeof(Record),
        {FIELD(time_ns), NAMED_FIELD(switch_index, "switch"), FIELD(port), FIELD(priority), FIELD(paused), FIELD(pad)}};
}

RecordLayout flow_layout() {
    using Record = FlowRecord;
    return {sizeof(Record),
            {FIELD(start_ns), FIELD(fct_ns), FIELD(ideal_fct_ns), FIELD(size_bytes), FIELD(source), FIELD(destination),
             FIELD(query), FIELD(retransmissions), FIELD(timeouts), FIELD(flow_class), FIELD(connected_in_advance),
             FIELD(pad)}};
}

RecordLayout occupancy_layout() {
    using Record = OccupancyRecord;
    return {sizeof(Record),
            {FIELD(time_ns), FIELD(occupancy_bytes), FIELD(longest_bytes), NAMED_FIELD(switch_index, "switch"),
             FIELD(lossless_bytes)}};
}

RecordLayout counter_layout() {
    using Record = CounterRecord;
    return {sizeof(Record),
            {FIELD(time_ns), FIELD(arrived_bytes), FIELD(counters), NAMED_FIELD(switch_index, "switch"), FIELD(queue),
             FIELD(pad)}};
}

#undef FIELD
#undef NAMED_FIELD

using Traits = std::tuple<std::string, bool, bool, bool, std::vector<std::string>>;

std::vector<Traits> traits() {
    std::vector<Traits> out;
    for (const KnownPolicy* one : policies()) {
        out.emplace_back(one->name, one->asks, one->knows_priorities, one->removes_packets(),
                         std::vector<std::string>(one->parameters.begin(), one->parameters.end()));
    }
    return out;
}

nb::dict record_layout() {
    nb::dict out;
    out["arrival"] = arrival_layout();
    out["pause"] = pause_layout();
    out["flow"] = flow_layout();
    out["occupancy"] = occupancy_layout();
    out["counter"] = counter_layout();
    return out;
}

}  // namespace

void add_records(nb::module_& m) {
    m.def("record_layout", &record_layout,
          "Layouts of the binary records: name -> (itemsize, [(field, offset, format, count)]).");
    m.def(
        "feature_names", [] { return std::vector<std::string>(feature_names.begin(), feature_names.end()); },
        "The features of an arrival, in the order of their columns.");
    m.def(
        "counter_names", [] { return std::vector<std::string>(counter_names.begin(), counter_names.end()); },
        "The counters of an interval, in the order of their columns.");
    m.def("policies", &traits,
          "The policies: (name, whether it asks a predictor, whether it knows priorities, whether it pushes out, its "
          "parameters).");
}

}  // namespace foretail::bindings
