// SPDX-License-Identifier: MIT
// The emulator's event loop and network with a clock and interfaces that are not real. Arguments: LEAVES SPINES
// SERVERS_PER_LEAF POLICY BYTES_PER_PORT_PER_GBPS FACTOR STEP_NS, where every look at the clock takes STEP_NS. Standard
// input: a packet per line, in order of time: clock ns, source, destination, bytes. Standard output: what the network
// was given and gave (virtual ns), what was written (clock ns), and what the loop says of its lateness.
#undef NDEBUG
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "emulator/event_loop.hpp"
#include "emulator/frame.hpp"
#include "emulator/lateness.hpp"
#include "emulator/network.hpp"

namespace {
std::int64_t allocations = 0;
}

void* operator new(std::size_t bytes) {
    ++allocations;
    if (void* found = std::malloc(bytes)) return found;
    throw std::bad_alloc();
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }

namespace foretail::packets::emulator {
namespace {

struct Sent {
    std::int64_t time = 0;
    int source = 0, destination = 0;
    std::int32_t size = 0;
};

struct FakeClock {
    std::int64_t now = 0, step = 0;
    std::int64_t now_ns() { return now += step; }
};

struct Event {
    const char* what;
    std::int32_t packet;
    std::int64_t time;
};

struct FakeInterfaces {
    const std::vector<Sent>& packets;
    FakeClock& clock;
    FramePool& pool;
    std::vector<Event>& log;
    std::size_t next = 0;
    std::int64_t allocated_at_half = 0;

    template <class Arrived>
    void read(Arrived&& arrived) {
        const std::int64_t looked = clock.now;  // what comes while it reads waits
        while (next < packets.size() && packets[next].time <= looked) {
            FramePool::Handle frame = pool.take();
            frame->flow = static_cast<std::int32_t>(next);
            frame->source = packets[next].source;
            frame->destination = packets[next].destination;
            frame->size_bytes = packets[next].size;
            frame->flow_class = buffer::FlowClass::background;
            frame->path_hash = static_cast<std::uint32_t>(next);
            if (++next == packets.size() / 2) allocated_at_half = allocations;
            arrived(std::move(frame));
        }
    }
    void write(FramePool::Handle frame) { log.push_back({"written", frame->flow, clock.now}); }
    void wait(std::int64_t ns) {
        assert(ns > 0);
        const std::int64_t next_packet = next < packets.size() ? packets[next].time : clock.now + ns;
        clock.now = std::max(clock.now + 1, std::min(clock.now + ns, next_packet));
    }
    [[nodiscard]] bool finished() const { return next == packets.size() && pool.in_flight() == 0; }
};

template <class Inner>
struct LoggingNetwork {
    Inner& inner;
    std::vector<Event>& log;

    void send(FramePool::Handle frame, std::int64_t now) {
        log.push_back({"sent", frame->flow, now});
        inner.send(std::move(frame), now);
    }
    template <class Deliver>
    void advance(std::int64_t now, Deliver&& deliver) {
        inner.advance(now, [&](FramePool::Handle frame, std::int64_t due) {
            log.push_back({"due", frame->flow, due});
            deliver(std::move(frame), due);
        });
    }
    [[nodiscard]] std::int64_t next_ns() const { return inner.next_ns(); }
};

template <class Policy>
void run(const Settings& settings, std::int64_t factor, std::int64_t step, const std::vector<Sent>& packets) {
    std::vector<Event> log;
    log.reserve(3 * packets.size());
    Predictor predictor(settings);
    FramePool pool;
    FakeClock clock{0, step};
    Network<Policy> network(settings, predictor, nullptr);
    LoggingNetwork<Network<Policy>> logging{network, log};
    FakeInterfaces interfaces{packets, clock, pool, log};
    EventLoop loop(clock, interfaces, logging, factor, 0);
    const std::int64_t end = loop.run(std::numeric_limits<std::int64_t>::max() / factor);
    const std::int64_t allocated = allocations - interfaces.allocated_at_half;
    network.finish(end, false);
    for (const Event& event : log)
        std::printf("%s %d %lld\n", event.what, event.packet, static_cast<long long>(event.time));
    const auto say = [](const char* what, std::int64_t number) {
        std::printf("%s 0 %lld\n", what, static_cast<long long>(number));
    };
    say("late_p50", loop.late().percentile_ns(0.5));
    say("late_p99", loop.late().percentile_ns(0.99));
    say("late_max", loop.late().most_ns());
    say("waiting_max", loop.waiting().most_ns());
    say("allocated", allocated);
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
    settings.policy.name = argv[4];
    std::vector<emulator::Sent> packets;
    for (emulator::Sent one; std::cin >> one.time >> one.source >> one.destination >> one.size;) packets.push_back(one);
    const std::int64_t factor = std::atoll(argv[6]), step = std::atoll(argv[7]);
    if (settings.policy.name == "cs") {
        emulator::run<buffer::CompleteSharing>(settings, factor, step, packets);
    } else if (settings.policy.name == "lqd") {
        emulator::run<buffer::PushOut>(settings, factor, step, packets);
    } else {
        assert(settings.policy.name == "dt");
        emulator::run<buffer::DynamicThresholds>(settings, factor, step, packets);
    }
    return 0;
}
