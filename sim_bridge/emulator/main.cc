// SPDX-License-Identifier: MIT
// foretail-emulator SETTINGS.json OUTPUT_FOLDER: one emulated run, with the settings and the output of foretail-ns3 and
// the same plan of flows, sent by this machine's kernel. Progress goes to standard error as JSON lines; the exit code
// is 0 after a complete run, 2 with one sentence on standard error otherwise. foretail-emulator --probe [CONTROL]: no
// run, but exit code 0 if this machine can emulate, with this congestion control, else 2 with one sentence.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/control/own_control.hpp"
#include "emulator/frame.hpp"
#include "emulator/hosts/namespaces.hpp"
#include "emulator/play.hpp"
#include "emulator/settings.hpp"
#include "packets/network/leaf_spine.h"
#include "packets/predictor.h"
#include "packets/racks/etalon_log.h"
#include "packets/racks/fabric.h"
#include "packets/racks/voq_summary.h"
#include "packets/records/arrival_trace.h"
#include "packets/records/record_file.h"
#include "packets/records/summary_file.h"
#include "packets/records/switch_counts.h"
#include "packets/traffic.h"

namespace foretail::packets::emulator {
namespace {

using nlohmann::json;

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
    summary["switches"] = json::array();
    std::int64_t leaf_data_packets = 0;
    for (const auto& node : network.switches()) {
        summary["switches"].push_back(switch_summary(settings.topology, node.index(), node.counts(),
                                                     node.buffer().queues().occupancy(),
                                                     node.buffer().threshold_deficits()));
        if (node.index() < settings.topology.leaves) leaf_data_packets += node.counts().data_in.packets;
    }
    if (trace) {
        trace->close();
        summary["arrivals"] = trace->rows();
        summary["labelled_drops"] = trace->labelled_drops();
    }
    summary.update({{"first_rtt_bytes", settings.first_rtt_bytes()},
                    {"average_shift", settings.scale.average_shift},
                    {"tau", predictor.tau()},
                    {"flipped_predictions", predictor.flipped()},
                    {"leaf_data_packets", leaf_data_packets}});
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

/// The kernel's name of a congestion control: its own, or that of ours, which is then registered and kept in `own`.
std::string kernel_name(const std::string& control, std::vector<OwnControl>& own) {
    if (offers_control(control)) return control;
    const auto found = std::ranges::find(own, control, &OwnControl::name);
    if (found != own.end()) return found->kernel_name();
    const std::vector<std::string> ours = own_controls();
    if (std::ranges::find(ours, control) != ours.end()) return own.emplace_back(control).kernel_name();
    std::string names = offered_controls();
    for (const std::string& name : ours) {
        if (!offers_control(name)) names += " " + name;
    }
    throw std::runtime_error("this kernel does not offer the congestion control " + control + ": choose one of " +
                             names);
}

void run(const std::string& settings_path, const std::string& folder) {
    EmulatorSettings settings = read_emulator_settings(settings_path);
    std::vector<OwnControl> own;
    for (std::string* control : {&settings.emulation.control, &settings.emulation.background_control})
        *control = kernel_name(*control, own);
    ask_for_short_slices();
    enter_user_namespace();
    if (settings.racks) return emulate_racks(settings, folder);
    const Plan plan = settings.emulation.command.empty() ? plan_traffic(settings.network) : Plan{};
    emulate(settings, plan, folder);
}

/// Makes a host and takes it down again, with a congestion control if it has a name.
void probe(const std::string& control) {
    std::vector<OwnControl> own;
    if (!control.empty()) static_cast<void>(kernel_name(control, own));
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
    if (argc != 3 && !(probes && argc == 2)) {
        std::fprintf(stderr, "usage: foretail-emulator SETTINGS.json OUTPUT_FOLDER, or --probe [CONTROL]\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
        using namespace foretail::packets::emulator;
        probes ? probe(argc == 3 ? argv[2] : "") : run(argv[1], argv[2]);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 2;
    }
    return 0;
}
