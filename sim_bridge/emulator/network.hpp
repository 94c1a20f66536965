// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "buffer/policies/policies.hpp"
#include "buffer/queues/port_queues.hpp"
#include "buffer/queues/ring.hpp"
#include "buffer/records.hpp"
#include "emulator/frame.hpp"
#include "emulator/headers.hpp"
#include "packets/arrival_trace.h"
#include "packets/predictor.h"
#include "packets/settings.h"
#include "packets/switch_core.h"

namespace foretail::packets::emulator {

/// A star or a leaf-spine network in virtual time, without a clock: hosts with an unbounded queue onto one link each,
/// and switches under one policy. Switches and ports have the numbers that they have in ns-3.
///
/// Events are arrivals at the ends of links, in order of time and then of their scheduling. A link has at most one
/// scheduled, that of the packet sent longest ago; so events are never taken back, and their number is that of links.
template <class Policy>
class Network {
public:
    using Switch = SwitchCore<Policy, FramePool::Handle>;

    Network(const Settings& settings, Predictor& predictor, ArrivalTrace* trace)
        : topology_(settings.topology), lines_(static_cast<std::size_t>(topology_.servers())) {
        using buffer::LineRate;
        const auto server_rate = LineRate::from_bps(topology_.server_link_bps, topology_.wire_overhead_bytes);
        const auto spine_rate = LineRate::from_bps(topology_.spine_link_bps, topology_.wire_overhead_bytes);
        nic_.assign(lines_.size(), {server_rate, 0});
        for (int leaf = 0; leaf < topology_.leaves; ++leaf) {
            std::vector<LineRate> rates(static_cast<std::size_t>(topology_.servers_per_leaf), server_rate);
            rates.insert(rates.end(), static_cast<std::size_t>(topology_.spines), spine_rate);
            add_switch(settings, leaf, std::move(rates), topology_.leaf_buffer_bytes(), predictor, trace);
        }
        for (int spine = 0; spine < topology_.spines; ++spine) {
            std::vector<LineRate> rates(static_cast<std::size_t>(topology_.leaves), spine_rate);
            add_switch(settings, topology_.leaves + spine, std::move(rates), topology_.spine_buffer_bytes(), predictor,
                       trace);
        }
        events_.reserve(lines_.size() + 1);
    }

    /// A host sends at `now`, which is not before anything that has happened.
    void send(FramePool::Handle frame, std::int64_t now) {
        const auto host = static_cast<std::size_t>(frame->source);
        Nic& nic = nic_[host];
        nic.free_at = std::max(now, nic.free_at) + nic.rate.duration(frame->size_bytes);
        lines_[host].in_flight.push_back({std::move(frame), nic.free_at + topology_.link_delay_ns});
        schedule(host, now);
    }

    /// Lets everything up to `now` happen; `deliver(frame, time)` is called for each packet that reaches its host.
    template <class Deliver>
    void advance(std::int64_t now, Deliver&& deliver) {
        while (!events_.empty() && events_.front().time <= now) {
            std::pop_heap(events_.begin(), events_.end(), std::greater{});
            const Event event = events_.back();
            events_.pop_back();
            if (event.line == sampler) {
                take_samples(event.time);
            } else {
                arrive(event.line, event.time, deliver);
            }
        }
    }
    /// When the next thing happens; the largest number when nothing will.
    [[nodiscard]] std::int64_t next_ns() const {
        return events_.empty() ? std::numeric_limits<std::int64_t>::max() : events_.front().time;
    }

    /// Samples every switch every `interval_ns` from `from_ns` to before `until_ns`.
    void sample(std::int64_t from_ns, std::int64_t until_ns, std::int64_t interval_ns,
                std::function<void(const buffer::OccupancyRecord&)> take) {
        interval_ns_ = interval_ns;
        until_ns_ = until_ns;
        take_ = std::move(take);
        push({from_ns, 0, sampler});
    }

    /// Ends the run at `now`: departures up to then, and the labels of what is left.
    void finish(std::int64_t now, bool labels) {
        for (auto& node : switches_) {
            collect(*node, now);
            node->check_conservation();
            if (labels) node->settle_labels();
        }
    }
    [[nodiscard]] const std::vector<std::unique_ptr<Switch>>& switches() const { return switches_; }

private:
    struct Nic {
        buffer::LineRate rate;
        std::int64_t free_at = 0;
    };
    struct Delivery {
        FramePool::Handle frame;
        std::int64_t time = 0;
    };
    /// A link: of a host, by its number, or of a port of a switch, in order of switches and ports.
    struct Line {
        buffer::Ring<Delivery> in_flight;  ///< sent, not yet arrived
        int node = -1;                     ///< the switch that sends on it; -1: a host
        buffer::Port port = 0;
        bool scheduled = false;
    };
    struct Event {
        std::int64_t time = 0;
        std::uint64_t order = 0;
        std::size_t line = 0;
        [[nodiscard]] bool operator>(const Event& other) const {
            return time != other.time ? time > other.time : order > other.order;
        }
    };
    /// What a switch does with packets that have left.
    struct Wires {
        Network& network;
        std::size_t first;
        void departed(buffer::Port port, FramePool::Handle frame, std::int64_t, std::int64_t time) {
            network.lines_[first + static_cast<std::size_t>(port)].in_flight.push_back(
                {std::move(frame), time + network.topology_.link_delay_ns});
        }
    };
    static constexpr std::size_t sampler = std::numeric_limits<std::size_t>::max();

    void add_switch(const Settings& s, int index, std::vector<buffer::LineRate> rates, std::int64_t buffer_bytes,
                    Predictor& predictor, ArrivalTrace* trace) {
        first_line_.push_back(lines_.size());
        for (buffer::Port port = 0; port < static_cast<buffer::Port>(rates.size()); ++port) {
            Line& line = lines_.emplace_back();
            line.node = index;
            line.port = port;
        }
        const buffer::SwitchSettings settings =
            buffer_settings(s, std::move(rates), buffer_bytes, predictor, trace != nullptr);
        buffer::with_policy(s.policy.name, s.policy.settings, settings.shape, [&](auto policy) {
            if constexpr (std::is_same_v<decltype(policy), Policy>)
                switches_.push_back(std::make_unique<Switch>(s, index, settings, std::move(policy), predictor, trace));
        });
    }

    /// The port of a switch by which a packet goes on.
    [[nodiscard]] buffer::Port route(int node, const Frame& frame) const {
        const int below = topology_.servers_per_leaf, leaf = frame.destination / below;
        if (node >= topology_.leaves) return leaf;
        if (leaf == node) return frame.destination % below;
        return below + static_cast<buffer::Port>(frame.path_hash % static_cast<std::uint32_t>(topology_.spines));
    }

    template <class Deliver>
    void arrive(std::size_t index, std::int64_t time, Deliver&& deliver) {
        Line& line = lines_[index];
        if (line.node >= 0) collect(*switches_[static_cast<std::size_t>(line.node)], time);
        FramePool::Handle frame = std::move(line.in_flight.pop_front().frame);
        line.scheduled = false;
        schedule(index, time);
        if (line.node < 0) {
            receive(topology_.leaf_of(static_cast<int>(index)), std::move(frame), time);
        } else if (line.node >= topology_.leaves) {
            receive(line.port, std::move(frame), time);  // port of a spine: a leaf
        } else if (line.port >= topology_.servers_per_leaf) {
            receive(topology_.leaves + line.port - topology_.servers_per_leaf, std::move(frame), time);
        } else {
            deliver(std::move(frame), time);
        }
    }
    void receive(int number, FramePool::Handle frame, std::int64_t now) {
        const auto index = static_cast<std::size_t>(number);
        const buffer::Port port = route(number, *frame);
        Wires wires{*this, first_line_[index]};
        Switch& node = *switches_[index];
        const buffer::Arrival arrival = node.arrival_of(*frame, port, now);
        node.receive(std::move(frame), arrival, wires, [](Frame& marked) { mark_congestion(marked); });
        schedule(first_line_[index] + static_cast<std::size_t>(port), now);
    }
    void collect(Switch& node, std::int64_t now) {
        Wires wires{*this, first_line_[static_cast<std::size_t>(node.index())]};
        node.advance(now, wires);
    }
    void take_samples(std::int64_t now) {
        for (auto& node : switches_) {
            collect(*node, now);
            take_(node->sample(now));
        }
        if (now + interval_ns_ < until_ns_) push({now + interval_ns_, 0, sampler});
    }

    void schedule(std::size_t index, std::int64_t now) {
        Line& line = lines_[index];
        if (line.scheduled) return;
        std::int64_t time = 0;
        if (!line.in_flight.empty()) {
            time = line.in_flight.front().time;
        } else if (line.node >= 0 &&
                   switches_[static_cast<std::size_t>(line.node)]->buffer().queues().sending(line.port)) {
            time = switches_[static_cast<std::size_t>(line.node)]->buffer().queues().busy_until(line.port) +
                   topology_.link_delay_ns;
        } else {
            return;
        }
        line.scheduled = true;
        push({std::max(time, now), 0, index});
    }
    void push(Event event) {
        event.order = next_order_++;
        events_.push_back(event);
        std::push_heap(events_.begin(), events_.end(), std::greater{});
    }

    Topology topology_;
    std::vector<Nic> nic_;
    std::vector<Line> lines_;
    std::vector<std::size_t> first_line_;  // of each switch
    std::vector<std::unique_ptr<Switch>> switches_;
    std::vector<Event> events_;
    std::uint64_t next_order_ = 0;
    std::int64_t interval_ns_ = 0, until_ns_ = 0;
    std::function<void(const buffer::OccupancyRecord&)> take_;
};

}  // namespace foretail::packets::emulator
