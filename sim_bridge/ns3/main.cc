// SPDX-License-Identifier: MIT
// foretail-ns3 SETTINGS.json OUTPUT_FOLDER: one packet-level run. Progress goes to standard error as JSON lines; the
// exit code is 0 after a complete run, 2 with one sentence on standard error otherwise. foretail-ns3 --check
// SETTINGS.json...: no run, but for each file a line on standard output, empty or why its settings are refused.

#include "ns3/network.h"
#include "ns3/racks.h"

namespace foretail::packets::ns3_driver {
namespace {

using nlohmann::json;
using ns3::NanoSeconds;
using ns3::Simulator;

/// The settings in a document; throws std::runtime_error on those that only the native network simulates.
Settings settings_of_ns3(const Group& root) {
    Settings settings = resolved(read_settings(root));
    settings.require_simulated("ns-3");
    if (settings.transport.recovery != Recovery::as_ns3)
        refuse("setting 'transport.recovery' is not simulated by ns-3: run it in the native network, or set it to ns3");
    return settings;
}

/// Samples every switch at a fixed interval of simulated time while traffic is offered.
class OccupancySampler {
public:
    OccupancySampler(const Settings& settings, Network& network, const std::string& path)
        : interval_(settings.occupancy_interval_ns),
          until_(settings.incast.connect_ahead_ns + settings.traffic_ns),
          network_(network),
          file_(path) {
        Simulator::Schedule(NanoSeconds(settings.incast.connect_ahead_ns), &OccupancySampler::sample, this);
    }
    void close() { file_.close(); }

private:
    void sample() {
        for (auto& node : network_.switches) file_.write(node->sample());
        if (Simulator::Now().GetNanoSeconds() + interval_ < until_)
            Simulator::Schedule(NanoSeconds(interval_), &OccupancySampler::sample, this);
    }

    std::int64_t interval_, until_;
    Network& network_;
    RecordFile<buffer::OccupancyRecord> file_;
};

void run_switches(const Settings& settings, const std::string& folder) {
    RunTimes times;
    Flows flows(settings, plan_traffic(settings));
    Predictor predictor(settings);
    auto trace = settings.trace ? std::make_unique<ArrivalTrace>(folder + "/arrivals.bin") : nullptr;
    AlphaPredictor alphas(settings, folder);
    Network network = build_network(settings, flows, predictor, alphas, trace.get());
    flows.install(network.servers);
    const std::int64_t end_ns = settings.incast.connect_ahead_ns + settings.traffic_ns + settings.drain_ns;
    OccupancySampler occupancy(settings, network, folder + "/occupancy.bin");
    FlowsProgress progress(end_ns, flows);

    times.simulate([&] {
        if (flows.planned() > 0) {
            Simulator::Stop(NanoSeconds(end_ns));
            Simulator::Run();
        }
        for (auto& node : network.switches) {
            node->sample();  // departures up to the end
            node->check_conservation();
            if (trace) node->settle_labels();
        }
    });

    json summary = finish_switches(settings, predictor, trace.get(), network.switches,
                                   [](const auto& node) -> const auto& { return node->core(); });
    summary.update(flows.finish(folder));
    occupancy.close();
    alphas.close();
    summary.update(times.summary());
    write_summary(folder, summary);
}

/// Racks with circuits, or switches with a policy.
void run(const std::string& settings_path, const std::string& folder) {
    const json document = read_document(settings_path);
    const Group root(document, "");
    if (const auto racks = read_rack_run(root)) {
        run_racks(*racks, folder);
    } else {
        run_switches(settings_of_ns3(root), folder);
    }
}

}  // namespace

/// Why the settings are refused; empty when they are not.
std::string complaint(const std::string& settings_path) {
    try {
        const json document = read_document(settings_path);
        const Group root(document, "");
        if (!read_rack_run(root)) static_cast<void>(settings_of_ns3(root));
        return "";
    } catch (const std::exception& error) {
        return error.what();
    }
}

}  // namespace foretail::packets::ns3_driver

int main(int argc, char** argv) {
    if (argc > 2 && std::string_view(argv[1]) == "--check") {
        for (int i = 2; i < argc; ++i) std::puts(foretail::packets::ns3_driver::complaint(argv[i]).c_str());
        return 0;
    }
    return foretail::packets::run_program(argc == 3,
                                          "foretail-ns3 SETTINGS.json OUTPUT_FOLDER, or --check SETTINGS.json...",
                                          [&] { foretail::packets::ns3_driver::run(argv[1], argv[2]); });
}
