// SPDX-License-Identifier: MIT
// foretail-emulator SETTINGS.json OUTPUT_FOLDER: one emulated run, with the settings and the output of foretail-ns3 and
// the same plan of flows, sent by this machine's kernel. Progress goes to standard error as JSON lines; the exit code
// is 0 after a complete run, 2 with one sentence on standard error otherwise. foretail-emulator --probe [CONTROL]: no
// run, but exit code 0 if this machine can emulate, with this congestion control, else 2 with one sentence.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/utsname.h>

#include "emulator/event_loop.hpp"
#include "emulator/hosts/hosts.hpp"
#include "packets/network/leaf_spine.h"
#include "packets/program.h"
#include "packets/racks/rack_logs.h"

namespace foretail::packets::emulator {

using nlohmann::json;

using Plan = std::vector<PlannedFlow>;

/// Before an event the loop stays awake so long: what a timer usually is late. Who stays awake longer is sent to sleep
/// by the scheduler of a busy machine when it matters.
inline constexpr std::int64_t spin_ns = 50'000;
/// From the last preparation to the plan's time 0.
inline constexpr std::int64_t head_start_ns = 20'000'000;

struct RunClock {
    std::int64_t start_ns = 0;
    [[nodiscard]] std::int64_t now_ns() const { return std::max<std::int64_t>(0, clock_ns() - start_ns); }
};

/// Percentiles of a lateness in virtual ns.
inline nlohmann::json to_json(const Lateness& late, std::int64_t factor) {
    return {{"packets", late.packets()},
            {"p50_ns", late.percentile_ns(0.5) / factor},
            {"p99_ns", late.percentile_ns(0.99) / factor},
            {"max_ns", late.most_ns() / factor}};
}

/// Why a run says nothing about the network that it was to emulate; empty when it does.
inline std::string complaint(const EmulatorSettings& s, const nlohmann::json& lateness, std::int64_t lost) {
    const double most = s.emulation.lateness_share * static_cast<double>(s.base_rtt_ns());
    if (lost > 0) return std::to_string(lost) + " packets were lost between hosts and links";
    for (const auto& [what, delays] : lateness.items()) {
        if (s.racks && what == "starts") continue;  // of flows without an end nobody counts the beginning
        const auto p99 = delays.at("p99_ns").get<std::int64_t>();
        if (static_cast<double>(p99) > most)
            return "the 99th percentile of " + what + " is " + std::to_string(p99) + " ns, above " +
                   std::to_string(static_cast<std::int64_t>(most)) + " ns";
    }
    return "";
}

inline void write_flows(const std::string& path, const EmulatorSettings& s, const Plan& plan, const FlowTable& table,
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

/// Makes the hosts of a plan and moves their packets through a network in real time, until all flows are delivered or
/// to `end_ns` of virtual time; with commands until host 0's ends. Writes flows.bin, and returns what a summary says of
/// any network. `pool` outlives the network, whose packets go back to it. Throws std::runtime_error where hosts cannot
/// be made or end before their time.
template <class Network>
nlohmann::json play(const EmulatorSettings& s, const Plan& plan, const std::string& folder, FramePool& pool,
                    Network& network, std::int64_t end_ns) {
    const std::int64_t factor = s.emulation.factor, wall_start_ns = clock_ns();
    const bool commands = !s.emulation.command.empty();
    if (commands) end_ns = s.emulation.command_limit_ns / factor;
    const auto hosts_count = static_cast<std::size_t>(s.network.topology.servers());
    FlowTable table(s.network, plan);
    Shared shared(plan.size(), hosts_count);
    Hosts hosts(s, plan, table, shared, folder);
    RunClock clock{clock_ns() + head_start_ns};
    ProgressReport progress(end_ns, plan.size());
    Interfaces interfaces(hosts.interfaces(), pool, table, shared, static_cast<std::int64_t>(plan.size()), commands,
                          [&] {
                              hosts.check();
                              progress.show(std::min(end_ns, clock.now_ns() / factor), shared.delivered().load());
                          });
    EventLoop loop(clock, interfaces, network, factor, spin_ns);
    hosts.begin(clock.start_ns);
    const double cpu_before = cpu_seconds(RUSAGE_SELF);
    const std::int64_t ended_ns = loop.run(end_ns);
    const double cpu = cpu_seconds(RUSAGE_SELF) - cpu_before;
    if (commands && shared.exit_code() < 0)
        throw std::runtime_error("the command did not end on host 0 within " +
                                 std::to_string(s.emulation.command_limit_ns / 1'000'000'000) +
                                 " s of the clock: raise emulation.command_seconds, or mend the command");
    hosts.finish();

    Lateness starts;
    write_flows(folder + "/flows.bin", s, plan, table, shared, starts);
    std::int64_t lost = 0;
    for (std::size_t host = 0; host < hosts_count; ++host) lost += shared.lost(host);
    const json lateness{{"deliveries", to_json(loop.late(), factor)},
                        {"readings", to_json(loop.waiting(), factor)},
                        {"starts", to_json(starts, factor)}};
    const std::string why_invalid = complaint(s, lateness, lost);
    utsname system{};
    uname(&system);
    return {{"format", 1},
            {"flows", plan.size()},
            {"completed_flows", shared.delivered().load()},
            {"end_ns", ended_ns},
            {"base_rtt_ns", s.base_rtt_ns()},
            {"simulation_cpu_seconds", cpu},
            {"simulation_wall_seconds", static_cast<double>(ended_ns * factor) * 1e-9},
            {"wall_seconds", static_cast<double>(clock_ns() - wall_start_ns) * 1e-9},
            {"emulation",
             {{"kernel", system.release},
              {"factor", factor},
              {"lateness", lateness},
              {"lateness_limit_ns",
               static_cast<std::int64_t>(s.emulation.lateness_share * static_cast<double>(s.base_rtt_ns()))},
              {"lost_packets", lost},
              {"spurious_timeouts", shared.spurious_timeouts().load()},
              {"undone_reductions", shared.undone_reductions().load()},
              {"foreign_packets", interfaces.foreign()},
              {"packets_read", interfaces.packets_read()},
              {"packets_written", interfaces.packets_written()},
              {"exit_code", commands ? json(shared.exit_code().load()) : json()},
              {"host_cpu_seconds", cpu_seconds(RUSAGE_CHILDREN)},
              {"valid", why_invalid.empty()},
              {"why_invalid", why_invalid}}}};
}

namespace {

Emulation read_emulation(const Group& group) {
    Emulation out;
    FORETAIL_READ(factor, control, background_control, tail_loss_probes, lateness_share)
    if (group.has("command")) {
        out.command = group.get<std::vector<std::string>>("command");
        out.command_limit_ns = 1'000'000'000 * group.get<std::int64_t>("command_seconds");
    }
    return out;
}

/// Reads the settings that ns-3's driver reads, or those of racks, and the group `emulation`; throws as read_settings.
EmulatorSettings read_emulator_settings(const std::string& path) {
    EmulatorSettings out;
    const nlohmann::json document = read_document(path);
    const Group root(document, "");
    if (root.has("racks")) {
        out.racks = read_racks(root);
        out.network = hosts_of_racks(*out.racks, root);
    } else {
        out.network = resolved(read_settings(root));
        out.network.require_simulated("the emulator");
    }
    out.emulation = root.group("emulation", read_emulation);
    return out;
}

void emulate(const EmulatorSettings& s, const Plan& plan, const std::string& folder) {
    const Settings& settings = s.network;
    Predictor predictor(settings);
    auto trace = settings.trace ? std::make_unique<ArrivalTrace>(folder + "/arrivals.bin") : nullptr;
    RecordFile<buffer::OccupancyRecord> occupancy(folder + "/occupancy.bin");
    FramePool pool;
    EventOrder order;
    LeafSpine<FramePool::Handle> network(settings, predictor, trace.get(), order);
    const std::int64_t traffic_end_ns = settings.incast.connect_ahead_ns + settings.traffic_ns;
    network.sample(settings.incast.connect_ahead_ns, traffic_end_ns, settings.occupancy_interval_ns,
                   [&](const buffer::OccupancyRecord& record) { occupancy.write(record); });
    json summary = play(s, plan, folder, pool, network, traffic_end_ns + settings.drain_ns);
    network.finish(summary["end_ns"].get<std::int64_t>(), trace != nullptr);
    occupancy.close();
    summary.update(finish_switches(settings, predictor, trace.get(), network.switches()));
    write_summary(folder, summary);
}

void emulate_racks(const EmulatorSettings& s, const std::string& folder) {
    RecordFile<EtalonRecord> records(folder + "/etalon.log");
    EtalonLog log(records, s.racks->hosts_per_rack);
    Predictor predictor(s.network);
    auto trace = s.network.trace ? std::make_unique<ArrivalTrace>(folder + "/arrivals.bin") : nullptr;
    FramePool pool;
    RackFabric<FramePool::Handle, decltype(log)> fabric(*s.racks, s.network, predictor, trace.get(), log);
    json summary = play(s, plan_long_flows(*s.racks), folder, pool, fabric, s.network.traffic_ns);
    summary.update(finish_racks(*s.racks, s.network, fabric, predictor, trace.get()));
    records.close();
    write_summary(folder, summary);
}

void run(const std::string& settings_path, const std::string& folder) {
    const EmulatorSettings settings = read_emulator_settings(settings_path);
    require_control("control", settings.emulation.control);
    require_control("background_control", settings.emulation.background_control);
    ask_for_short_slices();
    enter_user_namespace();
    if (settings.racks) return emulate_racks(settings, folder);
    const Plan plan = settings.emulation.command.empty() ? plan_traffic(settings.network) : Plan{};
    emulate(settings, plan, folder);
}

/// Makes a host and takes it down again, with a congestion control if it has a name.
void probe(const std::string& control) {
    if (!control.empty()) require_control("control", control);
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
    const bool probes = argc >= 2 && std::string_view(argv[1]) == "--probe";
    return foretail::packets::run_program(argc == 3 || (probes && argc == 2),
                                          "foretail-emulator SETTINGS.json OUTPUT_FOLDER, or --probe [CONTROL]", [&] {
                                              using namespace foretail::packets::emulator;
                                              prctl(PR_SET_PDEATHSIG, SIGKILL);
                                              probes ? probe(argc == 3 ? argv[2] : "") : run(argv[1], argv[2]);
                                          });
}
