// SPDX-License-Identifier: MIT
// foretail-emulator SETTINGS.json OUTPUT_FOLDER: one emulated run, with the settings and the output of foretail-ns3 and
// the same plan of flows, sent by this machine's kernel. Progress goes to standard error as JSON lines; the exit code
// is 0 after a complete run, 2 with one sentence on standard error otherwise. foretail-emulator --probe: no run, but
// exit code 0 if this machine can emulate, else 2 with one sentence.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "emulator/event_loop.hpp"
#include "emulator/frame.hpp"
#include "emulator/headers.hpp"
#include "emulator/hosts.hpp"
#include "emulator/interfaces.hpp"
#include "emulator/namespaces.hpp"
#include "emulator/network.hpp"
#include "emulator/settings.hpp"
#include "packets/arrival_trace.h"
#include "packets/predictor.h"
#include "packets/record_file.h"
#include "packets/switch_counts.h"
#include "packets/traffic.h"

namespace foretail::packets::emulator {
namespace {

using nlohmann::json;
using Plan = std::vector<PlannedFlow>;

/// Before an event the loop stays awake so long: what a timer usually is late. Who stays awake longer is sent to sleep
/// by the scheduler of a busy machine when it matters.
constexpr std::int64_t spin_ns = 50'000;
/// From the last preparation to the plan's time 0.
constexpr std::int64_t head_start_ns = 20'000'000;

double cpu_seconds(int who) {
    rusage usage{};
    getrusage(who, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct RunClock {
    std::int64_t start_ns = 0;
    [[nodiscard]] std::int64_t now_ns() const { return std::max<std::int64_t>(0, clock_ns() - start_ns); }
};

/// Says where the run is, about twice a second.
class ProgressReport {
public:
    ProgressReport(std::int64_t end_ns, std::size_t flows, std::int64_t factor, Shared& shared)
        : end_ns_(end_ns), flows_(flows), factor_(factor), shared_(shared) {}

    void tick(const RunClock& clock) {
        const std::int64_t now = clock.now_ns();
        if (now - last_ns_ < 500'000'000) return;
        last_ns_ = now;
        const json line{{"simulated_ns", std::min(end_ns_, now / factor_)},
                        {"end_ns", end_ns_},
                        {"flows", shared_.delivered().load()},
                        {"planned_flows", flows_},
                        {"wall_seconds", static_cast<double>(now) * 1e-9}};
        std::fprintf(stderr, "%s\n", line.dump().c_str());
    }

private:
    std::int64_t end_ns_;
    std::size_t flows_;
    std::int64_t factor_;
    Shared& shared_;
    std::int64_t last_ns_ = 0;
};

/// Percentiles of a lateness in virtual ns.
json to_json(const Lateness& late, std::int64_t factor) {
    return {{"packets", late.packets()},
            {"p50_ns", late.percentile_ns(0.5) / factor},
            {"p99_ns", late.percentile_ns(0.99) / factor},
            {"max_ns", late.most_ns() / factor}};
}

/// Why a run says nothing about the network that it was to emulate; empty when it does.
std::string complaint(const EmulatorSettings& s, const json& lateness, std::int64_t lost) {
    const double most = s.emulation.lateness_share * static_cast<double>(s.network.base_rtt_ns());
    if (lost > 0) return std::to_string(lost) + " packets were lost between hosts and links";
    for (const auto& [what, found] : lateness.items()) {
        const auto p99 = found.at("p99_ns").get<std::int64_t>();
        if (static_cast<double>(p99) > most)
            return "the 99th percentile of " + what + " is " + std::to_string(p99) + " ns, above " +
                   std::to_string(static_cast<std::int64_t>(most)) + " ns";
    }
    return "";
}

void write_flows(const std::string& path, const EmulatorSettings& s, const Plan& plan, const FlowTable& table,
                 Shared& shared, Lateness& starts) {
    RecordFile<buffer::FlowRecord> file(path);
    const std::int64_t factor = s.emulation.factor;
    for (std::size_t i = 0; i < plan.size(); ++i) {
        const PlannedFlow& flow = plan[i];
        const FlowState& state = shared.flow(i);
        if (state.started_ns >= 0) starts.add(state.started_ns - flow.start_ns * factor);
        buffer::FlowRecord record{.start_ns = flow.start_ns,
                                  .ideal_fct_ns = ideal_fct_ns(s.network, flow),
                                  .size_bytes = flow.size_bytes,
                                  .source = flow.source,
                                  .destination = flow.destination,
                                  .query = flow.query,
                                  .retransmissions = table.retransmissions(i),
                                  .timeouts = state.timeouts,
                                  .flow_class = flow.flow_class,
                                  .connected_in_advance = flow.connect_ns < flow.start_ns};
        if (state.delivered_ns >= 0) record.fct_ns = state.delivered_ns / factor - flow.start_ns;
        file.write(record);
    }
    file.close();
}

template <class Policy>
void emulate(const EmulatorSettings& s, const Plan& plan, const std::string& folder) {
    const Settings& settings = s.network;
    const std::int64_t factor = s.emulation.factor, wall_start_ns = clock_ns();
    Predictor predictor(settings);
    auto trace = settings.trace ? std::make_unique<ArrivalTrace>(folder + "/arrivals.bin") : nullptr;
    RecordFile<buffer::OccupancyRecord> occupancy(folder + "/occupancy.bin");
    FramePool pool;  // outlives the network, whose packets go back to it
    Network<Policy> network(settings, predictor, trace.get());
    const std::int64_t traffic_end_ns = settings.incast.connect_ahead_ns + settings.traffic_ns;
    const std::int64_t end_ns = traffic_end_ns + settings.drain_ns;
    network.sample(settings.incast.connect_ahead_ns, traffic_end_ns, settings.occupancy_interval_ns,
                   [&](const buffer::OccupancyRecord& record) { occupancy.write(record); });

    const auto hosts_count = static_cast<std::size_t>(settings.topology.servers());
    FlowTable table(settings, plan);
    Shared shared(plan.size(), hosts_count);
    Hosts hosts(s, plan, table, shared);
    RunClock clock{clock_ns() + head_start_ns};
    ProgressReport progress(end_ns, plan.size(), factor, shared);
    Interfaces interfaces(hosts.interfaces(), pool, table, shared, static_cast<std::int64_t>(plan.size()), [&] {
        hosts.check();
        progress.tick(clock);
    });
    EventLoop loop(clock, interfaces, network, factor, spin_ns);
    hosts.begin(clock.start_ns);
    const double cpu_before = cpu_seconds(RUSAGE_SELF);
    const std::int64_t ended_ns = loop.run(end_ns);
    const double cpu = cpu_seconds(RUSAGE_SELF) - cpu_before;
    hosts.finish();
    network.finish(ended_ns, trace != nullptr);

    Lateness starts;
    write_flows(folder + "/flows.bin", s, plan, table, shared, starts);
    occupancy.close();
    json summary{{"format", 1}, {"switches", json::array()}};
    std::int64_t leaf_data_packets = 0;
    for (const auto& node : network.switches()) {
        summary["switches"].push_back(switch_summary(settings.topology, node->index(), node->counts(),
                                                     node->buffer().queues().occupancy(),
                                                     node->buffer().threshold_deficits()));
        if (node->index() < settings.topology.leaves) leaf_data_packets += node->counts().data_in.packets;
    }
    if (trace) {
        trace->close();
        summary["arrivals"] = trace->rows();
        summary["labelled_drops"] = trace->labelled_drops();
    }
    std::int64_t lost = 0;
    for (std::size_t host = 0; host < hosts_count; ++host) lost += shared.lost(host);
    const json lateness{{"deliveries", to_json(loop.late(), factor)},
                        {"readings", to_json(loop.waiting(), factor)},
                        {"starts", to_json(starts, factor)}};
    const std::string why_invalid = complaint(s, lateness, lost);
    utsname system{};
    uname(&system);
    summary.update({{"flows", plan.size()},
                    {"completed_flows", shared.delivered().load()},
                    {"end_ns", ended_ns},
                    {"base_rtt_ns", settings.base_rtt_ns()},
                    {"first_rtt_bytes", settings.first_rtt_bytes()},
                    {"average_shift", settings.scale.average_shift},
                    {"tau", predictor.tau()},
                    {"flipped_predictions", predictor.flipped()},
                    {"leaf_data_packets", leaf_data_packets},
                    {"simulation_cpu_seconds", cpu},
                    {"simulation_wall_seconds", static_cast<double>(ended_ns * factor) * 1e-9},
                    {"wall_seconds", static_cast<double>(clock_ns() - wall_start_ns) * 1e-9},
                    {"emulation",
                     {{"kernel", system.release},
                      {"factor", factor},
                      {"lateness", lateness},
                      {"lateness_limit_ns", static_cast<std::int64_t>(s.emulation.lateness_share *
                                                                      static_cast<double>(settings.base_rtt_ns()))},
                      {"lost_packets", lost},
                      {"foreign_packets", interfaces.foreign()},
                      {"packets_read", interfaces.packets_read()},
                      {"packets_written", interfaces.packets_written()},
                      {"host_cpu_seconds", cpu_seconds(RUSAGE_CHILDREN)},
                      {"valid", why_invalid.empty()},
                      {"why_invalid", why_invalid}}}});
    std::ofstream out(folder + "/summary.json");
    out << summary.dump(1) << '\n';
    out.close();
    if (!out) throw std::runtime_error("cannot write '" + folder + "/summary.json'");
}

void run(const std::string& settings_path, const std::string& folder) {
    const EmulatorSettings settings = read_emulator_settings(settings_path);
    for (const std::string& control : {settings.emulation.control, settings.emulation.background_control}) {
        if (!offers_control(control))
            throw std::runtime_error("this kernel does not offer the congestion control " + control +
                                     ": choose one of " + offered_controls());
    }
    const Plan plan = plan_traffic(settings.network);
    ask_for_short_slices();
    enter_user_namespace();
    const PolicyChoice& policy = settings.network.policy;
    buffer::Shape shape;
    shape.priorities = settings.network.queues.count;
    buffer::with_policy(policy.name, policy.settings, shape, [&](const auto& chosen) {
        emulate<std::remove_cvref_t<decltype(chosen)>>(settings, plan, folder);
    });
}

/// Makes a host and takes it down again.
void probe() {
    enter_user_namespace();
    static_cast<void>(enter_host_namespace({.address = first_address,
                                            .incast_address = first_address + incast_offset,
                                            .mtu_bytes = 1440,
                                            .background_window_segments = 10,
                                            .incast_window_segments = 10,
                                            .min_rto_ms = 200}));
}

}  // namespace
}  // namespace foretail::packets::emulator

int main(int argc, char** argv) {
    const bool probes = argc == 2 && std::string_view(argv[1]) == "--probe";
    if (argc != 3 && !probes) {
        std::fprintf(stderr, "usage: foretail-emulator SETTINGS.json OUTPUT_FOLDER, or --probe\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
        probes ? foretail::packets::emulator::probe() : foretail::packets::emulator::run(argv[1], argv[2]);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 2;
    }
    return 0;
}
