// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <limits>
#include <utility>

#include "emulator/frame.hpp"
#include "emulator/lateness.hpp"

namespace foretail::packets::emulator {

/// Moves packets between the interfaces of hosts and a network that lives in virtual time: `factor` ns of the clock are
/// one ns there.
///
/// A packet is in the network from the instant at which it was read, and all that the network does with it happens at
/// the virtual times that links and switches give, however late this loop comes to it. So lateness changes no decision
/// on packets that were read; what a host sees late are the packets that it gets, and what it sends in answer.
///
/// Clock:      now_ns(), never falling, 0 at the start of the run.
/// Network:    send(frame, time), advance(time, deliver), next_ns().
/// Interfaces: read(arrived) calls arrived(frame) for packets that hosts have sent; write(frame) hands one over;
///             wait(ns) returns when a host has sent, or after so many ns; finished() is true when nobody sends any
///             more.
template <class Clock, class Interfaces, class Network>
class EventLoop {
public:
    /// Within `spin_ns` of the next event the loop looks again and again, since a sleeper wakes up late.
    EventLoop(Clock& clock, Interfaces& interfaces, Network& network, std::int64_t factor, std::int64_t spin_ns)
        : clock_(clock), interfaces_(interfaces), network_(network), factor_(factor), spin_ns_(spin_ns) {}

    /// Runs until nobody sends any more, or to `end_ns` of virtual time, which it returns.
    std::int64_t run(std::int64_t end_ns) {
        std::int64_t looked_ns = clock_.now_ns();
        bool slept = true;
        while (!interfaces_.finished()) {
            const std::int64_t before_ns = clock_.now_ns();
            if (before_ns / factor_ >= end_ns) break;
            bool read = false;
            interfaces_.read([&](FramePool::Handle frame) {
                read = true;
                const std::int64_t now_ns = clock_.now_ns();
                if (!slept) waiting_.add(now_ns - looked_ns);
                network_.send(std::move(frame), now_ns / factor_);
            });
            looked_ns = before_ns;
            slept = false;
            network_.advance(clock_.now_ns() / factor_, [&](FramePool::Handle frame, std::int64_t due_ns) {
                late_.add(clock_.now_ns() - due_ns * factor_);
                interfaces_.write(std::move(frame));
            });
            if (read) continue;
            const std::int64_t next_ns = network_.next_ns();
            const std::int64_t latest = next_ns < end_ns ? next_ns : end_ns;
            const std::int64_t rest_ns = latest * factor_ - clock_.now_ns();
            if (rest_ns > spin_ns_) {
                interfaces_.wait(rest_ns - spin_ns_);
                slept = true;
            }
        }
        const std::int64_t now = clock_.now_ns() / factor_;
        return now < end_ns ? now : end_ns;
    }

    /// How much later than due packets were handed to their hosts, in ns of the clock.
    [[nodiscard]] const Lateness& late() const { return late_; }
    /// How long packets may have waited before they were read: the time since their interface was looked at before. Of
    /// packets that woke the loop up it is not known.
    [[nodiscard]] const Lateness& waiting() const { return waiting_; }

private:
    Clock& clock_;
    Interfaces& interfaces_;
    Network& network_;
    std::int64_t factor_, spin_ns_;
    Lateness late_, waiting_;
};

}  // namespace foretail::packets::emulator
