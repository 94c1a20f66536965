// SPDX-License-Identifier: MIT
// A clock and interfaces that are not real, for programs that check the emulator's event loop and its networks. It
// counts allocations: include it in one source of a program.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "emulator/event_loop.hpp"
#include "emulator/frame.hpp"
#include "packet_lines.hpp"

inline std::int64_t allocations = 0;

void* operator new(std::size_t bytes) {
    ++allocations;
    if (void* found = std::malloc(bytes)) return found;
    throw std::bad_alloc();
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }

namespace foretail::packets::emulator {

struct FakeClock {
    std::int64_t now = 0, step = 0;
    std::int64_t now_ns() { return now += step; }
};

struct FakeInterfaces {
    const std::vector<Sent>& packets;
    FakeClock& clock;
    FramePool& pool;
    std::vector<PacketEvent>& log;
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
    std::vector<PacketEvent>& log;

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

/// Lets the loop move all packets; prints what the network was given and gave (virtual ns), what was written (clock
/// ns), and what the loop says of its lateness. Returns the virtual time at which it ended.
template <class Inner>
std::int64_t run_loop(Inner& network, FramePool& pool, std::int64_t factor, std::int64_t step,
                      const std::vector<Sent>& packets) {
    std::vector<PacketEvent> log;
    log.reserve(3 * packets.size());
    FakeClock clock{0, step};
    LoggingNetwork<Inner> logging{network, log};
    FakeInterfaces interfaces{packets, clock, pool, log};
    EventLoop loop(clock, interfaces, logging, factor, 0);
    const std::int64_t end = loop.run(std::numeric_limits<std::int64_t>::max() / factor);
    const std::int64_t allocated = allocations - interfaces.allocated_at_half;
    print(log);
    const auto say = [](const char* what, std::int64_t number) {
        std::printf("%s 0 %lld\n", what, static_cast<long long>(number));
    };
    say("late_p50", loop.late().percentile_ns(0.5));
    say("late_p99", loop.late().percentile_ns(0.99));
    say("late_max", loop.late().most_ns());
    say("waiting_max", loop.waiting().most_ns());
    say("allocated", allocated);
    return end;
}

}  // namespace foretail::packets::emulator
