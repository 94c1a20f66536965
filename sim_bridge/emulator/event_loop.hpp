// SPDX-License-Identifier: MIT
// The event loop of an emulated run, and how late its events are.
#pragma once

#include "emulator/frame.hpp"

namespace foretail::packets::emulator {

/// Counts of times in ns by their size, in buckets an eighth of a power of two wide: a percentile is at most an eighth
/// too high, whatever the number of packets.
class Lateness {
public:
    void add(std::int64_t late_ns) {
        const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(0, late_ns));
        ++counts_[bucket(value)];
        ++packets_;
        most_ = std::max(most_, static_cast<std::int64_t>(value));
    }
    [[nodiscard]] std::int64_t packets() const { return packets_; }
    [[nodiscard]] std::int64_t most_ns() const { return most_; }
    /// The upper end of the bucket that holds the percentile, at most the largest; 0 without packets. `share` in 0..1.
    [[nodiscard]] std::int64_t percentile_ns(double share) const {
        const auto rank = static_cast<std::int64_t>(share * static_cast<double>(packets_));
        std::int64_t below = 0;
        for (std::size_t i = 0; i < counts_.size(); ++i) {
            below += counts_[i];
            if (below > rank) return std::min(most_, upper_end(i));
        }
        return most_;
    }

private:
    static constexpr std::size_t parts = 8;  // of a power of two

    static std::size_t bucket(std::uint64_t value) {
        if (value < parts) return static_cast<std::size_t>(value);
        const int high = std::bit_width(value) - 1;
        const std::uint64_t next = (value >> (high - 3)) & (parts - 1);
        return static_cast<std::size_t>(high - 2) * parts + static_cast<std::size_t>(next);
    }
    static std::int64_t upper_end(std::size_t index) {
        if (index < parts) return static_cast<std::int64_t>(index);
        const auto high = static_cast<int>(index / parts) + 2;
        const auto next = static_cast<std::int64_t>(index % parts + parts + 1);
        return high >= 62 ? INT64_MAX : (next << (high - 3)) - 1;
    }

    std::array<std::int64_t, 62 * parts> counts_{};
    std::int64_t packets_ = 0, most_ = 0;
};

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
