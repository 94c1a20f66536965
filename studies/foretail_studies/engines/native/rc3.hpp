// SPDX-License-Identifier: MIT
// Flows of TCP, and of RC3: what the window leaves idle is filled from the end of the flow at lower priorities.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "network.hpp"

namespace foretail::schedulers {

struct PlannedFlow {
    Time start_ns = 0;
    std::int64_t size_bytes = 0;
    std::int32_t route = 0, back = 0;  ///< of data, and of acknowledgements
    bool fills = false;                ///< by RC3
};

struct SenderSettings {
    std::int32_t segment_bytes = 1460, header_bytes = 40;
    std::int32_t first_window = 4;    ///< in packets
    double growth = 1;                ///< of the window in slow start, per packet that is acknowledged
    Time timeout_ns = 1'000'000'000;  ///< doubled each time
    std::vector<std::int32_t> edges;  ///< packets from the end up to which priorities 1, 2, ... go
};

/// Senders and receivers of flows; Mittal's thesis, sections 2.1 and 2.3, at the level of packets.
///
/// The first loop sends at priority 0 in order: slow start without a threshold, a window that is halved once per round
/// of losses, a retransmission of what was not acknowledged when three packets sent later were, and a timeout. It
/// passes over what it knows to have arrived. The second loop sends a packet whenever its server has nothing else to
/// send, each once, from the last on, until both meet. Acknowledgements go at the priority of what they acknowledge;
/// the cumulative one moves with priority 0 alone, and the first loop jumps there. Nobody shakes hands.
class Senders {
public:
    static constexpr std::size_t priorities = 8;
    struct Counts {
        std::array<std::int64_t, priorities> sent{}, dropped{};  ///< data packets
        std::int64_t timeouts = 0;
    };

    Senders(std::vector<PlannedFlow> plan, SenderSettings settings, std::size_t ports)
        : plan_(std::move(plan)), settings_(std::move(settings)), flows_(plan_.size()), filling_(ports) {}

    using Net = Network<Senders>;
    void start(Net& network) {
        network_ = &network;
        for (std::size_t flow = 0; flow < plan_.size(); ++flow) {
            network.wake(plan_[flow].start_ns, event(flow, false));
        }
    }
    /// When the sender knew that all had arrived; -1: never.
    [[nodiscard]] std::vector<Time> finished_ns() const {
        std::vector<Time> all;
        for (const Flow& flow : flows_) all.push_back(flow.finished_ns);
        return all;
    }
    [[nodiscard]] const Counts& counts() const { return counts_; }

    // For the network.
    void woken(std::int32_t what, Time now) {
        const auto f = static_cast<std::size_t>(what >> 1);
        if ((what & 1) == 0) return begin(f, now);
        Flow& flow = flows_[f];
        flow.timer = false;
        if (flow.finished_ns >= 0) return;
        if (now >= flow.deadline_ns) return time_out(f, now);
        restart_timer(f, flow.deadline_ns);
    }
    void delivered(const Packet& packet, Time now) {
        const auto f = static_cast<std::size_t>(packet.flow);
        if (flows_[f].finished_ns >= 0) return;
        if (packet.answer) return acknowledged(f, packet, now);
        Flow& flow = flows_[f];
        flow.states[static_cast<std::size_t>(packet.sequence)] |= arrived;
        if (packet.level == 0) {
            while (flow.expected < flow.packets && has(flow, flow.expected, arrived)) ++flow.expected;
        }
        Packet answer{.value = packet.value,
                      .size_bytes = settings_.header_bytes,
                      .flow = packet.flow,
                      .route = plan_[f].back,
                      .level = packet.level,
                      .answer = true,
                      .sequence = packet.sequence,
                      .order = packet.order,
                      .cumulative = flow.expected};
        network_->inject(now, answer);
    }
    void dropped(const Packet& packet, Time) {
        if (!packet.answer) ++counts_.dropped[packet.level];
    }
    void idle(std::int32_t port, Time now) {
        auto& waiting = filling_[static_cast<std::size_t>(port)];
        std::erase_if(waiting, [&](std::int32_t f) {
            const Flow& flow = flows_[static_cast<std::size_t>(f)];
            return flow.finished_ns >= 0 || flow.tail < flow.next;
        });
        if (waiting.empty()) return;
        const auto best = std::ranges::min_element(
            waiting, {}, [&](std::int32_t f) { return priority_of(flows_[static_cast<std::size_t>(f)]); });
        Flow& flow = flows_[static_cast<std::size_t>(*best)];
        send(static_cast<std::size_t>(*best), flow.tail--, priority_of(flow), -1, now);
    }

private:
    enum State : std::uint8_t { known = 1, arrived = 2 };
    struct Flow {
        std::int32_t packets = 0;
        std::vector<std::uint8_t> states;  ///< of packets: known to the sender to have arrived, arrived
        std::int32_t expected = 0;         ///< by the receiver's cumulative acknowledgement
        std::int32_t below = 0;            ///< all before it are known
        std::int32_t known_packets = 0;
        std::int32_t next = 0, tail = -1;  ///< of the first loop and of the second
        double window = 0, threshold = std::numeric_limits<double>::infinity();
        std::int32_t flying = 0;
        std::deque<std::int32_t> sent;  ///< at priority 0, from `first_order` on; -1: no longer in flight
        std::int32_t first_order = 0, recovery_order = 0;
        std::vector<std::int32_t> lost;
        Time deadline_ns = 0, timeout_ns = 0, finished_ns = -1;
        bool timer = false;
    };

    static std::int32_t event(std::size_t flow, bool timer) { return static_cast<std::int32_t>(2 * flow + timer); }
    static bool has(const Flow& flow, std::int32_t sequence, State state) {
        return (flow.states[static_cast<std::size_t>(sequence)] & state) != 0;
    }
    [[nodiscard]] std::int32_t priority_of(const Flow& flow) const {
        const std::int32_t from_end = flow.packets - flow.tail;
        const auto level = std::ranges::lower_bound(settings_.edges, from_end) - settings_.edges.begin();
        return static_cast<std::int32_t>(std::min<std::size_t>(static_cast<std::size_t>(level) + 1, priorities - 1));
    }

    void begin(std::size_t f, Time now) {
        Flow& flow = flows_[f];
        const std::int64_t segment = settings_.segment_bytes;
        flow.packets = static_cast<std::int32_t>((plan_[f].size_bytes + segment - 1) / segment);
        flow.states.resize(static_cast<std::size_t>(flow.packets));
        flow.window = settings_.first_window;
        flow.timeout_ns = settings_.timeout_ns;
        send_window(f, now);
        if (!plan_[f].fills) return;
        const std::int32_t port = network_->route(plan_[f].route).front();
        flow.tail = flow.packets - 1;
        filling_[static_cast<std::size_t>(port)].push_back(static_cast<std::int32_t>(f));
        network_->ask_to_pick(port, now);
    }
    void send(std::size_t f, std::int32_t sequence, std::int32_t priority, std::int32_t order, Time now) {
        const std::int64_t before = std::int64_t{sequence} * settings_.segment_bytes;
        const auto payload = std::min<std::int64_t>(settings_.segment_bytes, plan_[f].size_bytes - before);
        ++counts_.sent[static_cast<std::size_t>(priority)];
        const std::int32_t size_bytes = settings_.header_bytes + static_cast<std::int32_t>(payload);
        network_->inject(now, {.value = priority,
                               .size_bytes = size_bytes,
                               .flow = static_cast<std::int32_t>(f),
                               .route = plan_[f].route,
                               .level = static_cast<std::uint8_t>(priority),
                               .sequence = sequence,
                               .order = order});
    }
    void send_window(std::size_t f, Time now) {
        Flow& flow = flows_[f];
        while (flow.flying < static_cast<std::int32_t>(flow.window)) {
            std::int32_t sequence = -1;
            while (sequence < 0 && !flow.lost.empty()) {
                if (!has(flow, flow.lost.back(), known)) sequence = flow.lost.back();
                flow.lost.pop_back();
            }
            if (sequence < 0) {
                while (flow.next < flow.packets && has(flow, flow.next, known)) ++flow.next;
                if (flow.next == flow.packets) break;
                sequence = flow.next++;
            }
            const auto order = flow.first_order + static_cast<std::int32_t>(flow.sent.size());
            flow.sent.push_back(sequence);
            ++flow.flying;
            send(f, sequence, 0, order, now);
        }
        flow.deadline_ns = now + flow.timeout_ns;
        restart_timer(f, flow.deadline_ns);
    }
    void restart_timer(std::size_t f, Time time) {
        if (!std::exchange(flows_[f].timer, true)) network_->wake(time, event(f, true));
    }

    bool learn(Flow& flow, std::int32_t sequence) {
        if (has(flow, sequence, known)) return false;
        flow.states[static_cast<std::size_t>(sequence)] |= known;
        ++flow.known_packets;
        return true;
    }
    void acknowledged(std::size_t f, const Packet& answer, Time now) {
        Flow& flow = flows_[f];
        bool fresh = learn(flow, answer.sequence);
        if (answer.level == 0) {
            for (; flow.below < answer.cumulative; ++flow.below) fresh |= learn(flow, flow.below);
            flow.next = std::max(flow.next, answer.cumulative);
        }
        if (flow.known_packets == flow.packets) {
            flow = Flow{};
            flow.finished_ns = now;
            return;
        }
        if (answer.level > 0) return;  // it tells what has arrived, and moves no window
        if (fresh) flow.timeout_ns = settings_.timeout_ns;
        const bool lost = land(flow, answer.order);
        if (lost) {
            flow.threshold = flow.window = std::max(flow.window / 2, 2.0);
            flow.recovery_order = flow.first_order + static_cast<std::int32_t>(flow.sent.size());
        } else if (fresh && answer.order >= flow.recovery_order) {
            flow.window += flow.window < flow.threshold ? settings_.growth : settings_.growth / flow.window;
        }
        send_window(f, now);
    }
    /// Takes what was acknowledged out of those in flight, and what is lost; returns whether a new round of losses
    /// began.
    bool land(Flow& flow, std::int32_t order) {
        constexpr std::int32_t threshold = 3;
        const auto take = [&](std::int32_t& sequence) {
            if (sequence >= 0) --flow.flying;
            return std::exchange(sequence, -1);
        };
        if (order >= flow.first_order) take(flow.sent[static_cast<std::size_t>(order - flow.first_order)]);
        bool new_round = false;
        while (!flow.sent.empty() && (flow.sent.front() < 0 || flow.first_order <= order - threshold)) {
            const std::int32_t sequence = take(flow.sent.front());
            if (sequence >= 0 && !has(flow, sequence, known)) {
                flow.lost.push_back(sequence);
                new_round |= flow.first_order >= flow.recovery_order;
            }
            flow.sent.pop_front();
            ++flow.first_order;
        }
        return new_round;
    }
    void time_out(std::size_t f, Time now) {
        Flow& flow = flows_[f];
        ++counts_.timeouts;
        flow.threshold = std::max(flow.window / 2, 2.0);
        flow.window = 1;
        flow.timeout_ns *= 2;
        for (const std::int32_t sequence : flow.sent) {
            if (sequence >= 0) flow.lost.push_back(sequence);
        }
        std::ranges::sort(flow.lost, std::greater{});
        flow.first_order += static_cast<std::int32_t>(flow.sent.size());
        flow.recovery_order = flow.first_order;
        flow.sent.clear();
        flow.flying = 0;
        send_window(f, now);
    }

    std::vector<PlannedFlow> plan_;
    SenderSettings settings_;
    std::vector<Flow> flows_;
    std::vector<std::vector<std::int32_t>> filling_;  ///< flows whose second loop sends, by their first port
    Counts counts_;
    Net* network_ = nullptr;
};

}  // namespace foretail::schedulers
