// SPDX-License-Identifier: MIT
#include "ns3/racks.h"

#include "ns3/flows.h"
#include "packets/racks/rack_logs.h"

namespace foretail::packets::ns3_driver {

using ns3::NanoSeconds;
using ns3::Simulator;

namespace {

using Log = EtalonLog<RecordFile<EtalonRecord>>;
using Fabric = RackFabric<std::unique_ptr<Frame>, Log>;

/// Racks in ns-3's time: wakes their fabric whenever it has something to do, and hands hosts their packets then.
class RackNetwork {
public:
    RackNetwork(Fabric& fabric, int hosts, Flows& flows) : fabric_(fabric) {
        await_next();
        for (int host = 0; host < hosts; ++host)
            hosts_.push_back(std::make_unique<Host>(host, flows, [this](std::unique_ptr<Frame> frame) {
                fabric_.send(std::move(frame), now());
                await_next();
            }));
    }
    [[nodiscard]] const std::vector<std::unique_ptr<Host>>& hosts() const { return hosts_; }

private:
    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

    static std::int64_t now() { return Simulator::Now().GetNanoSeconds(); }

    void advance() {
        if (now() == awaited_ns_) awaited_ns_ = never;
        fabric_.advance(now(), [this](std::unique_ptr<Frame> frame, [[maybe_unused]] std::int64_t time) {
            assert(time == now());
            Host* host = hosts_[static_cast<std::size_t>(frame->destination)].get();
            Simulator::ScheduleWithContext(host->context(), ns3::Time(), new FrameArrival(host, std::move(frame)));
        });
        await_next();
    }
    /// What is awaited later stays scheduled, and will find nothing to do.
    void await_next() {
        const std::int64_t next = fabric_.next_ns();
        if (next >= awaited_ns_) return;
        awaited_ns_ = next;
        wake_up_->schedule(Simulator::NO_CONTEXT, next);
    }

    Fabric& fabric_;
    std::vector<std::unique_ptr<Host>> hosts_;
    ns3::Ptr<RepeatedEvent> wake_up_ = ns3::Create<RepeatedEvent>([this] { advance(); });
    std::int64_t awaited_ns_ = never;
};

}  // namespace

void run_racks(const RackRun& run, const std::string& folder) {
    RunTimes times;
    const std::int64_t end_ns = run.hosts.traffic_ns;
    RecordFile<EtalonRecord> records(folder + "/etalon.log");
    Log log(records, run.racks.hosts_per_rack);
    Flows flows(run.hosts, plan_long_flows(run.racks));
    Predictor predictor(run.hosts);
    auto trace = run.hosts.trace ? std::make_unique<ArrivalTrace>(folder + "/arrivals.bin") : nullptr;
    Fabric fabric(run.racks, run.hosts, predictor, trace.get(), log);
    RackNetwork network(fabric, run.hosts.topology.servers(), flows);
    flows.install(network.hosts());
    FlowsProgress progress(end_ns, flows);
    times.simulate([&] {
        Simulator::Stop(NanoSeconds(end_ns));
        Simulator::Run();
    });
    nlohmann::json summary = finish_racks(run.racks, run.hosts, fabric, predictor, trace.get());
    records.close();
    summary.update(flows.finish(folder));
    const std::int64_t packet_bytes = run.hosts.packet_bytes(run.hosts.transport.segment_bytes);
    summary.update({{"format", 1}, {"base_rtt_ns", run.racks.base_rtt_ns(packet_bytes, run.hosts.packet_bytes(0))}});
    summary.update(times.summary());
    write_summary(folder, summary);
}

}  // namespace foretail::packets::ns3_driver
