// SPDX-License-Identifier: MIT
// The emulator's event loop and network with a clock and interfaces that are not real. Arguments: LEAVES SPINES
// SERVERS_PER_LEAF POLICY BYTES_PER_PORT_PER_GBPS FACTOR STEP_NS, where every look at the clock takes STEP_NS. Standard
// input: a packet per line, in order of time: clock ns, source, destination, bytes. Standard output: what the network
// was given and gave (virtual ns), what was written (clock ns), and what the loop says of its lateness.
#undef NDEBUG
#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "emulator/frame.hpp"
#include "fake_emulation.hpp"
#include "packets/network/leaf_spine.h"

namespace foretail::packets::emulator {
namespace {

void run(const Settings& settings, std::int64_t factor, std::int64_t step, const std::vector<Sent>& packets) {
    Predictor predictor(settings);
    FramePool pool;
    EventOrder order;
    LeafSpine<FramePool::Handle> network(settings, predictor, nullptr, order);
    network.finish(run_loop(network, pool, factor, step, packets), false);
}

}  // namespace
}  // namespace foretail::packets::emulator

int main(int argc, char** argv) {
    assert(argc == 8);
    using namespace foretail;
    using namespace packets;
    Settings settings;
    settings.topology = {.leaves = std::atoi(argv[1]),
                         .spines = std::atoi(argv[2]),
                         .servers_per_leaf = std::atoi(argv[3]),
                         .server_link_bps = 10'000'000'000,
                         .spine_link_bps = 10'000'000'000,
                         .link_delay_ns = 3000,
                         .buffer_bytes_per_port_per_gbps = std::atoll(argv[5]),
                         .wire_overhead_bytes = 2};
    settings.policy.known = &buffer::known_policy(argv[4]);
    settings.policy.settings.alpha = {0.5};
    const std::vector<Sent> packets = read_packets();
    emulator::run(settings, std::atoll(argv[6]), std::atoll(argv[7]), packets);
    return 0;
}
