// SPDX-License-Identifier: MIT
// Racks around a packet switch and a circuit switch with a clock and interfaces that are not real. Arguments:
// SETTINGS.json FACTOR STEP_NS ANNOUNCES, where every look at the clock takes STEP_NS, and switches announce circuits
// if ANNOUNCES is 1. Standard input and output as of
// emulator_check, and of each packet that left a VOQ and reached its rack: when it was logged, when it came to its VOQ,
// whether by the circuit, and what waited then; and ups and downs of circuits, by 1000 times the source and
// destination.
#undef NDEBUG
#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <vector>

#include "emulator/headers.hpp"
#include "fake_emulation.hpp"
#include "packets/racks/fabric.h"
#include "packets/racks/rack_settings.h"

namespace foretail::packets::emulator {
namespace {

struct PrintedLog {
    std::vector<Event> events;

    void departed(const Frame& frame, std::int64_t entered, std::int64_t left, bool by_circuit, int source,
                  int destination, std::int64_t waiting) {
        assert(source != destination);
        events.push_back({"left", frame.flow, left});
        events.push_back({"entered", frame.flow, entered});
        events.push_back({"by_circuit", frame.flow, by_circuit});
        events.push_back({"waiting", frame.flow, waiting});
    }
    void circuit(bool up, std::int64_t time, int source, int destination) {
        events.push_back({up ? "up" : "down", 1000 * source + destination, time});
    }
};

void run(const char* path, std::int64_t factor, std::int64_t step, bool announces) {
    const nlohmann::json document = read_document(path);
    RackSettings settings = read_racks(Group(document, ""));
    settings.announces_circuits = announces;
    const std::vector<Sent> packets = read_packets();
    PrintedLog log;
    log.events.reserve(10 * packets.size() + 100'000);
    FramePool pool;
    with_rack_fabric<FramePool::Handle>(settings, log, [&](auto& fabric) {
        run_loop(fabric, pool, factor, step, packets);
        for (const Event& event : log.events)
            std::printf("%s %d %lld\n", event.what, event.packet, static_cast<long long>(event.time));
        std::int64_t arrived = 0, gone = 0;
        for (std::size_t source = 0; source < settings.populated.size(); ++source) {
            for (std::size_t destination = 0; destination < settings.populated.size(); ++destination) {
                const VoqCounts& counts = fabric.counts(source, destination);
                arrived += counts.arrived;
                gone += counts.dropped + counts.by_packet + counts.by_circuit;
                std::printf("dropped %zu %lld\n", source * settings.populated.size() + destination,
                            static_cast<long long>(counts.dropped));
                assert(fabric.waiting(source, destination) == 0);
            }
        }
        assert(arrived == static_cast<std::int64_t>(packets.size()) && gone == arrived);
    });
}

}  // namespace
}  // namespace foretail::packets::emulator

int main(int argc, char** argv) {
    assert(argc == 5);
    try {
        foretail::packets::emulator::run(argv[1], std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]) == 1);
    } catch (const std::exception& error) {
        std::printf("refused: %s\n", error.what());
    }
    return 0;
}
