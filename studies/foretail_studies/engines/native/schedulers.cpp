// SPDX-License-Identifier: MIT
// Networks of ports with schedulers: packets at known times, and flows of TCP and RC3.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <limits>
#include <tuple>

#include "bindings/module.hpp"
#include "buffer/types.hpp"
#include "network.hpp"
#include "rc3.hpp"
#include "studies.hpp"

namespace foretail::bindings {

namespace {

using namespace schedulers;
constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();

template <class T>
void as_long(const char* name, const Column<T>& column, std::size_t n) {
    if (column.shape(0) != n) throw std::invalid_argument(std::string(name) + " has another length than its table");
}

/// Ports, switches and routes of a network, checked.
class Topology {
public:
    Topology(Column<std::int64_t> rate_bps, Column<std::int64_t> delay_ns, Column<std::int32_t> owner,
             const std::vector<std::string>& scheduler, Column<std::int64_t> buffer_bytes,
             Column<std::int64_t> route_begin, Column<std::int32_t> route_ports) {
        const std::size_t n = rate_bps.shape(0), routes = route_begin.shape(0);
        as_long("delay_ns", delay_ns, n);
        as_long("owner", owner, n);
        if (scheduler.size() != n) throw std::invalid_argument("scheduler has another length than its table");
        between("number of ports", static_cast<std::int64_t>(n), 1, 1 << 20);
        for (std::size_t i = 0; i < n; ++i) {
            between("rate_bps", rate_bps(i), 1000, 1'000'000'000'000);
            between("delay_ns", delay_ns(i), 0, longest);
            between("owner", owner(i), 0, static_cast<std::int64_t>(buffer_bytes.shape(0)) - 1);
            const auto which =
                position(scheduler[i], schedulers::scheduler_names, "unknown scheduler '" + scheduler[i] + "'");
            ports.push_back({rate_bps(i), delay_ns(i), owner(i), static_cast<schedulers::Scheduler>(which)});
        }
        for (std::size_t i = 0; i < buffer_bytes.shape(0); ++i) between("buffer_bytes", buffer_bytes(i), 1, latest);
        buffers.assign(buffer_bytes.data(), buffer_bytes.data() + buffer_bytes.shape(0));
        between("number of routes", static_cast<std::int64_t>(routes) - 1, 1, most);
        for (std::size_t i = 0; i < routes; ++i) {
            between("route_begin", route_begin(i), i == 0 ? 0 : route_begin(i - 1) + 1,
                    i == 0 ? 0 : route_begin(i - 1) + 64);
        }
        as_long("route_ports", route_ports, static_cast<std::size_t>(route_begin(routes - 1)));
        for (std::size_t i = 0; i < route_ports.shape(0); ++i) {
            between("port of a route", route_ports(i), 0, static_cast<std::int64_t>(n) - 1);
        }
        all.begin.assign(route_begin.data(), route_begin.data() + routes);
        all.ports.assign(route_ports.data(), route_ports.data() + route_ports.shape(0));
    }
    void check_route(std::int32_t route) const {
        between("route", route, 0, static_cast<std::int64_t>(all.begin.size()) - 2);
    }

    std::vector<PortSettings> ports;
    std::vector<std::int64_t> buffers;
    Routes all;
};

NetworkSettings settings_of(const Topology& topology, const std::string& drop, bool preemptive, Integer bands,
                            Integer band_shift, Seed seed) {
    const auto rule = static_cast<Drop>(position(drop, drop_names, "unknown drop '" + drop + "'"));
    const bool draws = std::ranges::any_of(
        topology.ports, [](const auto& port) { return port.scheduler == schedulers::Scheduler::random; });
    if (draws && (rule != Drop::arrival || preemptive)) {
        throw std::invalid_argument(
            "a random scheduler has no last packet and interrupts nothing: choose drop=arrival");
    }
    return {rule, preemptive,
            Bands{checked<int>("number of bands", bands, 1, 64), checked<int>("band_shift", band_shift, 0, 62)},
            checked(seed)};
}

/// Where packets at known times come out.
struct Exits {
    std::vector<Time> exit_ns;
    std::vector<std::uint8_t> congested;

    void delivered(const Packet& packet, Time now) {
        exit_ns[static_cast<std::size_t>(packet.sequence)] = now;
        congested[static_cast<std::size_t>(packet.sequence)] = packet.congested;
    }
    void dropped(const Packet& packet, Time) {
        congested[static_cast<std::size_t>(packet.sequence)] = packet.congested;
    }
    void woken(std::int32_t, Time) {}
    void idle(std::int32_t, Time) {}
};

using Int64s = nb::ndarray<nb::numpy, std::int64_t>;

std::tuple<Int64s, nb::ndarray<nb::numpy, std::uint8_t>> run_packets(
    const Topology& topology, Column<std::int64_t> arrival_ns, Column<std::int32_t> size_bytes,
    Column<std::int32_t> flow, Column<std::int32_t> route, Column<std::int64_t> value, const std::string& drop,
    bool preemptive, Integer bands, Integer band_shift, Seed seed) {
    const std::size_t n = arrival_ns.shape(0);
    between("number of packets", static_cast<std::int64_t>(n), 0, most);
    as_long("size_bytes", size_bytes, n);
    as_long("flow", flow, n);
    as_long("route", route, n);
    as_long("value", value, n);
    for (std::size_t i = 0; i < n; ++i) {
        between("arrival_ns", arrival_ns(i), 0, latest / 4);
        between("size_bytes", size_bytes(i), 1, 1 << 20);
        between("value", value(i), -latest / 4, latest / 4);
        topology.check_route(route(i));
    }
    Exits exits{std::vector<Time>(n, -1), std::vector<std::uint8_t>(n)};
    const NetworkSettings settings = settings_of(topology, drop, preemptive, bands, band_shift, seed);
    {
        nb::gil_scoped_release release;
        Network<Exits> network(topology.ports, topology.all, topology.buffers, settings, exits);
        for (std::size_t i = 0; i < n; ++i) {
            network.inject(arrival_ns(i), {.value = value(i),
                                           .size_bytes = size_bytes(i),
                                           .flow = flow(i),
                                           .route = route(i),
                                           .sequence = static_cast<std::int32_t>(i)});
        }
        network.run();
    }
    return {owned(std::move(exits.exit_ns), {n}), owned(std::move(exits.congested), {n})};
}

std::tuple<Int64s, Int64s, std::int64_t> run_flows(const Topology& topology, Column<std::int64_t> start_ns,
                                                   Column<std::int64_t> size_bytes, Column<std::int32_t> route,
                                                   Column<std::int32_t> back, Column<bool> fills,
                                                   const std::vector<std::int32_t>& edges, Integer first_window,
                                                   double growth, Integer timeout_ns) {
    const std::size_t n = start_ns.shape(0);
    between("number of flows", static_cast<std::int64_t>(n), 0, most / 2);
    as_long("size_bytes", size_bytes, n);
    as_long("route", route, n);
    as_long("back", back, n);
    as_long("fills", fills, n);
    SenderSettings sender;
    sender.first_window = checked<std::int32_t>("first_window", first_window, 1, 1 << 20);
    if (!(growth > 0 && growth <= 1)) throw std::invalid_argument("growth must be above 0 and at most 1");
    sender.growth = growth;
    sender.timeout_ns = checked("timeout_ns", timeout_ns, 1, longest);
    sender.edges = edges;
    if (!std::ranges::is_sorted(edges)) throw std::invalid_argument("edges are not in increasing order");
    std::vector<PlannedFlow> plan(n);
    for (std::size_t i = 0; i < n; ++i) {
        between("start_ns", start_ns(i), 0, latest / 4);
        between("size_bytes", size_bytes(i), 1, std::int64_t{1} << 36);
        topology.check_route(route(i));
        topology.check_route(back(i));
        plan[i] = {start_ns(i), size_bytes(i), route(i), back(i), fills(i)};
    }
    const NetworkSettings settings = settings_of(topology, "largest_key", false, {8}, {10}, {0});
    Senders senders(std::move(plan), sender, topology.ports.size());
    Senders::Net network(topology.ports, topology.all, topology.buffers, settings, senders);
    {
        nb::gil_scoped_release release;
        senders.start(network);
        network.run();
    }
    std::vector<std::int64_t> counts(senders.counts().sent.begin(), senders.counts().sent.end());
    counts.insert(counts.end(), senders.counts().dropped.begin(), senders.counts().dropped.end());
    return {owned(senders.finished_ns(), {n}), owned(std::move(counts), {2, Senders::priorities}),
            senders.counts().timeouts};
}

}  // namespace

void add_schedulers(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<Topology>(m, "ScheduledTopology", "Ports with schedulers, switches and routes.")
        .def(nb::init<Column<std::int64_t>, Column<std::int64_t>, Column<std::int32_t>, const std::vector<std::string>&,
                      Column<std::int64_t>, Column<std::int64_t>, Column<std::int32_t>>(),
             "rate_bps"_a.noconvert(), "delay_ns"_a.noconvert(), "owner"_a.noconvert(), "scheduler"_a,
             "buffer_bytes"_a.noconvert(), "route_begin"_a.noconvert(), "route_ports"_a.noconvert());
    m.def("run_packets", &run_packets, "topology"_a, "arrival_ns"_a.noconvert(), "size_bytes"_a.noconvert(),
          "flow"_a.noconvert(), "route"_a.noconvert(), "value"_a.noconvert(), nb::kw_only(), "drop"_a, "preemptive"_a,
          "bands"_a, "band_shift"_a, "seed"_a,
          "Exit of each packet in ns, -1 where it was dropped, and the busy ports that it met: int64[n], uint8[n].");
    m.def("run_flows", &run_flows, "topology"_a, "start_ns"_a.noconvert(), "size_bytes"_a.noconvert(),
          "route"_a.noconvert(), "back"_a.noconvert(), "fills"_a.noconvert(), nb::kw_only(), "edges"_a,
          "first_window"_a, "growth"_a, "timeout_ns"_a,
          "End of each flow in ns; data packets sent and dropped by priority; timeouts: int64[n], int64[2, 8].");
}

}  // namespace foretail::bindings
