// SPDX-License-Identifier: MIT
#include "ns3/racks.h"

#include <ns3/internet-stack-helper.h>

#include "ns3/flows.h"
#include "packets/racks/rack_logs.h"

namespace foretail::packets::ns3_driver {

using ns3::NanoSeconds;
using ns3::Simulator;

namespace {

template <class Fabric>
std::vector<std::unique_ptr<Host>> build_hosts(int count, RackNetwork<Fabric>& network, Flows& flows) {
    ns3::InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    std::vector<std::unique_ptr<Host>> hosts;
    for (int host = 0; host < count; ++host) {
        auto node = ns3::CreateObject<ns3::Node>();
        stack.Install(node);
        hosts.push_back(std::make_unique<RackHost<Fabric>>(
            host, node, network,
            [&flows](Frame& frame, const std::uint8_t* tcp_header) { flows.classify(frame, tcp_header); },
            [&flows](const Frame& frame) { flows.echoed(frame); }));
        network.connect(hosts.back().get());
    }
    return hosts;
}

}  // namespace

void run_racks(const RackRun& run, const std::string& folder) {
    const auto start = Clock::now();
    const std::int64_t end_ns = run.hosts.traffic_ns;
    RecordFile<EtalonRecord> records(folder + "/etalon.log");
    EtalonLog log(records, run.racks.hosts_per_rack);
    Flows flows(run.hosts, plan_long_flows(run.racks));
    Predictor predictor(run.hosts);
    auto trace = run.hosts.trace ? std::make_unique<ArrivalTrace>(folder + "/arrivals.bin") : nullptr;
    RackFabric<std::unique_ptr<Frame>, decltype(log)> fabric(run.racks, run.hosts, predictor, trace.get(), log);
    RackNetwork network(fabric);
    const auto hosts = build_hosts(run.hosts.topology.servers(), network, flows);
    flows.install(hosts);
    ProgressReport progress(end_ns, flows);
    const double cpu_before = cpu_seconds();
    const auto simulation_start = Clock::now();
    Simulator::Stop(NanoSeconds(end_ns));
    Simulator::Run();
    const double cpu = cpu_seconds() - cpu_before, wall = seconds_since(simulation_start);
    nlohmann::json summary = finish_racks(run.racks, run.hosts, fabric, predictor, trace.get());
    records.close();
    flows.write(folder + "/flows.bin");
    const std::int64_t packet_bytes = run.hosts.packet_bytes(run.hosts.transport.segment_bytes);
    summary.update({{"format", 1},
                    {"ns3_version", FORETAIL_NS3_VERSION},
                    {"flows", flows.planned()},
                    {"completed_flows", flows.completed()},
                    {"end_ns", Simulator::Now().GetNanoSeconds()},
                    {"events", Simulator::GetEventCount()},
                    {"base_rtt_ns", run.racks.base_rtt_ns(packet_bytes, run.hosts.packet_bytes(0))},
                    {"simulation_cpu_seconds", cpu},
                    {"simulation_wall_seconds", wall},
                    {"wall_seconds", seconds_since(start)}});
    write_summary(folder, summary);
}

}  // namespace foretail::packets::ns3_driver
