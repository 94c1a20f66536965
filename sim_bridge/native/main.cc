// SPDX-License-Identifier: MIT
// foretail-native SETTINGS.json OUTPUT_FOLDER: one packet-level run with Foretail's own TCP, with the settings and the
// output of foretail-ns3. Progress goes to standard error as JSON lines; the exit code is 0 after a complete run, 2
// with one sentence on standard error otherwise.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>

#include "native/flows.h"
#include "native/frame.h"
#include "native/stack.h"
#include "packets/alpha_predictor.h"
#include "packets/arrival_trace.h"
#include "packets/cpu_seconds.h"
#include "packets/network/leaf_spine.h"
#include "packets/predictor.h"
#include "packets/record_file.h"
#include "packets/settings.h"
#include "packets/settings_group.h"
#include "packets/summary_file.h"
#include "packets/switch_counts.h"
#include "packets/traffic.h"

namespace foretail::packets::native {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Says where the simulation is, at most twice a second of real time.
class ProgressReport {
public:
    ProgressReport(std::int64_t end_ns, const FlowLedger& flows) : end_ns_(end_ns), flows_(flows) {}

    void tick(std::int64_t now) {
        if (++events_ % events_between_looks != 0 || seconds_since(last_) < 0.5) return;
        last_ = Clock::now();
        const json line{{"simulated_ns", now},
                        {"end_ns", end_ns_},
                        {"flows", flows_.completed()},
                        {"planned_flows", flows_.planned()},
                        {"wall_seconds", seconds_since(start_)}};
        std::fprintf(stderr, "%s\n", line.dump().c_str());
    }
    [[nodiscard]] std::int64_t events() const { return events_; }

private:
    static constexpr std::int64_t events_between_looks = 1 << 14;

    std::int64_t end_ns_, events_ = 0;
    const FlowLedger& flows_;
    Clock::time_point start_ = Clock::now(), last_ = start_;
};

/// Runs until all flows are settled, or to `end_ns`; returns when that was.
template <class Network>
std::int64_t advance(Stack& stack, Network& network, const FlowLedger& flows, std::int64_t end_ns,
                     ProgressReport& progress) {
    std::int64_t now = 0;
    while (!flows.is_settled()) {
        const Moment of_hosts = stack.next(), of_network = network.next();
        const bool hosts_first = of_hosts < of_network;
        const std::int64_t time = hosts_first ? of_hosts.time : of_network.time;
        if (time >= end_ns) return end_ns;
        now = time;
        if (hosts_first) {
            stack.step();
        } else {
            network.step([&](Frames::Handle frame, std::int64_t at) { stack.receive(*frame, at); });
        }
        for (Stack::Outgoing& sent : stack.outgoing()) network.send(std::move(sent.frame), now, sent.order);
        stack.outgoing().clear();
        progress.tick(now);
    }
    return now;
}

json switch_summaries(const Settings& settings, const auto& switches) {
    json found = json::array();
    for (const auto& node : switches) {
        found.push_back(switch_summary(settings.topology, node->index(), node->counts(),
                                       node->buffer().queues().occupancy(), node->buffer().threshold_deficits()));
    }
    return found;
}

template <class Policy>
void simulate(const Settings& settings, const std::string& folder, Clock::time_point start) {
    Flows flows(settings, plan_traffic(settings));
    Predictor predictor(settings);
    auto trace = settings.trace ? std::make_unique<ArrivalTrace>(folder + "/arrivals.bin") : nullptr;
    RecordFile<buffer::OccupancyRecord> occupancy(folder + "/occupancy.bin");
    EventOrder order;
    Frames frames;
    AlphaPredictor alphas(settings, folder);
    LeafSpine<Policy, Frames::Handle> network(settings, predictor, trace.get(), order, &alphas);
    Stack stack(settings, flows, frames, order);
    flows.install(stack);
    const std::int64_t traffic_end_ns = settings.incast.connect_ahead_ns + settings.traffic_ns;
    network.sample(settings.incast.connect_ahead_ns, traffic_end_ns, settings.occupancy_interval_ns,
                   [&](const buffer::OccupancyRecord& record) { occupancy.write(record); });

    const std::int64_t end_ns = traffic_end_ns + settings.drain_ns;
    ProgressReport progress(end_ns, flows.ledger());
    const double cpu_before = cpu_seconds();
    const auto simulation_start = Clock::now();
    const std::int64_t ended_ns = advance(stack, network, flows.ledger(), end_ns, progress);
    network.finish(ended_ns, trace != nullptr);
    const double simulation_cpu = cpu_seconds() - cpu_before, simulation_wall = seconds_since(simulation_start);

    json summary{{"format", 1}, {"switches", switch_summaries(settings, network.switches())}};
    std::int64_t leaf_data_packets = 0;
    for (const auto& node : network.switches()) {
        if (node->index() < settings.topology.leaves) leaf_data_packets += node->counts().data_in.packets;
    }
    if (trace) {
        trace->close();
        summary["arrivals"] = trace->rows();
        summary["labelled_drops"] = trace->labelled_drops();
    }
    flows.ledger().write(folder + "/flows.bin");
    occupancy.close();
    alphas.close();
    summary.update({{"flows", flows.ledger().planned()},
                    {"completed_flows", flows.ledger().completed()},
                    {"end_ns", ended_ns},
                    {"events", progress.events()},
                    {"base_rtt_ns", settings.base_rtt_ns()},
                    {"first_rtt_bytes", settings.first_rtt_bytes()},
                    {"average_shift", settings.scale.average_shift},
                    {"tau", predictor.tau()},
                    {"flipped_predictions", predictor.flipped()},
                    {"leaf_data_packets", leaf_data_packets},
                    {"simulation_cpu_seconds", simulation_cpu},
                    {"simulation_wall_seconds", simulation_wall},
                    {"wall_seconds", seconds_since(start)}});
    write_summary(folder, summary);
}

/// Throws std::runtime_error on settings of which this network does not simulate all.
void require_native(const Settings& settings) {
    const std::string& transport = settings.transport.name;
    const auto refuse_here = [](const std::string& what) {
        refuse(what + " is not simulated by the native network: run it in ns-3");
    };
    if (transport != "dctcp" && transport != "cubic" && transport != "newreno")
        refuse_here("setting 'transport.name' = " + transport);
    if (settings.branches) refuse_here("setting 'branches'");
    const auto& sizes = settings.background.size_bytes;
    if (settings.background.load > 0 && !sizes.empty() && sizes.back() > std::numeric_limits<std::uint32_t>::max())
        refuse_here("a flow above 4 GiB in setting 'background.size_bytes'");
}

void run(const std::string& settings_path, const std::string& folder) {
    const auto start = Clock::now();
    const Settings settings = load_settings(settings_path);
    require_native(settings);
    const PolicyChoice& policy = settings.policy;
    buffer::Shape shape;
    shape.priorities = settings.queues.count;
    buffer::with_policy(policy.name, policy.settings, shape, [&](const auto& chosen) {
        simulate<std::remove_cvref_t<decltype(chosen)>>(settings, folder, start);
    });
}

}  // namespace
}  // namespace foretail::packets::native

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: foretail-native SETTINGS.json OUTPUT_FOLDER\n");
        return 2;
    }
    try {
        foretail::packets::native::run(argv[1], argv[2]);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 2;
    }
    return 0;
}
