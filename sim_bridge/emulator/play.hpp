// SPDX-License-Identifier: MIT
#pragma once

#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "emulator/event_loop.hpp"
#include "emulator/frame.hpp"
#include "emulator/headers.hpp"
#include "emulator/hosts/hosts.hpp"
#include "emulator/hosts/interfaces.hpp"
#include "emulator/lateness.hpp"
#include "emulator/settings.hpp"
#include "packets/cpu_seconds.h"
#include "packets/records/record_file.h"
#include "packets/traffic.h"

namespace foretail::packets::emulator {

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

/// Says where the run is, about twice a second.
class ProgressReport {
public:
    ProgressReport(std::int64_t end_ns, std::size_t flows, std::int64_t factor, Shared& shared)
        : end_ns_(end_ns), flows_(flows), factor_(factor), shared_(shared) {}

    void tick(const RunClock& clock) {
        const std::int64_t now = clock.now_ns();
        if (now - last_ns_ < 500'000'000) return;
        last_ns_ = now;
        const nlohmann::json line{{"simulated_ns", std::min(end_ns_, now / factor_)},
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
    for (const auto& [what, found] : lateness.items()) {
        if (s.racks && what == "starts") continue;  // of flows without an end nobody counts the beginning
        const auto p99 = found.at("p99_ns").get<std::int64_t>();
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
    using nlohmann::json;
    const std::int64_t factor = s.emulation.factor, wall_start_ns = clock_ns();
    const bool commands = !s.emulation.command.empty();
    if (commands) end_ns = s.emulation.command_limit_ns / factor;
    const auto hosts_count = static_cast<std::size_t>(s.network.topology.servers());
    FlowTable table(s.network, plan);
    Shared shared(plan.size(), hosts_count);
    Hosts hosts(s, plan, table, shared, folder);
    RunClock clock{clock_ns() + head_start_ns};
    ProgressReport progress(end_ns, plan.size(), factor, shared);
    Interfaces interfaces(hosts.interfaces(), pool, table, shared, static_cast<std::int64_t>(plan.size()), commands,
                          [&] {
                              hosts.check();
                              progress.tick(clock);
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
              {"control", s.emulation.control},
              {"background_control", s.emulation.background_control},
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

}  // namespace foretail::packets::emulator
