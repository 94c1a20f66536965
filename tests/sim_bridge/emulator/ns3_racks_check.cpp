// SPDX-License-Identifier: MIT
// Racks in ns-3's time, with hosts that are not real. Argument: SETTINGS.json. Standard input and output as of
// racks_check, without what only a clock has.
#undef NDEBUG
#include <ns3/nstime.h>
#include <ns3/simulator.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "ns3/host.h"
#include "ns3/racks.h"
#include "packets/predictor.h"
#include "packets/racks/fabric.h"
#include "packets/racks/rack_settings.h"
#include "printed_racks.hpp"

namespace foretail::packets::ns3_driver {
namespace {

struct PrintingHost final : FrameReceiver {
    std::vector<Event>& events;
    std::uint32_t number;

    PrintingHost(std::vector<Event>& to, std::uint32_t own) : events(to), number(own) {}
    void receive(std::unique_ptr<Frame> frame) override {
        assert(ns3::Simulator::GetContext() == number && frame->destination == static_cast<int>(number));
        events.push_back({"due", frame->flow, ns3::Simulator::Now().GetNanoSeconds()});
    }
    [[nodiscard]] std::uint32_t context() const override { return number; }
};

void run(const char* path) {
    const nlohmann::json document = read_document(path);
    const Group root(document, "");
    const RackSettings settings = read_racks(root);
    const Settings hosts = hosts_of_racks(settings, root);
    Predictor predictor(hosts);
    const std::vector<Sent> packets = read_packets();
    PrintedLog log(packets.size());
    RackFabric<std::unique_ptr<Frame>, PrintedLog> fabric(settings, hosts, predictor, nullptr, log);
    RackNetwork network(fabric);
    std::vector<std::unique_ptr<PrintingHost>> printing;
    for (std::size_t i = 0; i < settings.populated.size() * static_cast<std::size_t>(settings.hosts_per_rack); ++i) {
        printing.push_back(std::make_unique<PrintingHost>(log.events, static_cast<std::uint32_t>(i)));
        network.connect(printing.back().get());
    }
    for (std::size_t i = 0; i < packets.size(); ++i) {
        const auto send = [&, i] {
            auto frame = std::make_unique<Frame>();
            frame->flow = static_cast<std::int32_t>(i);
            frame->source = packets[i].source;
            frame->destination = packets[i].destination;
            frame->size_bytes = packets[i].size;
            frame->flow_class = buffer::FlowClass::background;
            log.events.push_back({"sent", frame->flow, ns3::Simulator::Now().GetNanoSeconds()});
            network.send(std::move(frame));
        };
        ns3::Simulator::Schedule(ns3::NanoSeconds(packets[i].time), send);
    }
    // Circuits change for ever, so there is no last event.
    ns3::Simulator::Stop(ns3::NanoSeconds(packets.back().time + 50'000'000));
    ns3::Simulator::Run();
    print(log.events);
    print_drops(settings, fabric, packets.size());
}

}  // namespace
}  // namespace foretail::packets::ns3_driver

int main(int argc, char** argv) {
    assert(argc == 2);
    foretail::packets::ns3_driver::run(argv[1]);
    return 0;
}
