// SPDX-License-Identifier: MIT
// Racks around a packet switch and a circuit switch with a clock and interfaces that are not real. Arguments:
// SETTINGS.json FACTOR STEP_NS, where every look at the clock takes STEP_NS. Standard input and output as of
// emulator_check, and of each packet that left a VOQ and reached its rack: when it was logged, when it came to its VOQ,
// whether by the circuit, and what waited then; and ups and downs of circuits, by 1000 times the source and
// destination. A trace goes to arrivals.bin beside the settings.
#undef NDEBUG
#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "emulator/frame.hpp"
#include "fake_emulation.hpp"
#include "packets/predictor.h"
#include "packets/racks/fabric.h"
#include "packets/racks/rack_settings.h"
#include "packets/records/records.h"
#include "printed_racks.hpp"

namespace foretail::packets::emulator {
namespace {

void run(const char* path, std::int64_t factor, std::int64_t step) {
    const nlohmann::json document = read_document(path);
    const Group root(document, "");
    const RackSettings settings = read_racks(root);
    const Settings hosts = hosts_of_racks(settings, root);
    const std::vector<Sent> packets = read_packets();
    PrintedLog log(packets.size());
    Predictor predictor(hosts);
    const std::string trace_path = std::filesystem::path(path).parent_path() / "arrivals.bin";
    auto trace = hosts.trace ? std::make_unique<ArrivalTrace>(trace_path) : nullptr;
    FramePool pool;
    RackFabric<FramePool::Handle, PrintedLog> fabric(settings, hosts, predictor, trace.get(), log);
    run_loop(fabric, pool, factor, step, packets);
    print(log.events);
    print_drops(settings, fabric, packets.size());
    if (!trace) return;
    for (std::size_t place = 0; place < settings.populated.size(); ++place) fabric.node(place).settle_labels(0);
    trace->close();
}

}  // namespace
}  // namespace foretail::packets::emulator

int main(int argc, char** argv) {
    assert(argc == 4);
    try {
        foretail::packets::emulator::run(argv[1], std::atoll(argv[2]), std::atoll(argv[3]));
    } catch (const std::exception& error) {
        std::printf("refused: %s\n", error.what());
    }
    return 0;
}
