// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "buffer/policies/policies.hpp"
#include "buffer/records.hpp"
#include "buffer/switch.hpp"
#include "emulator/frame.hpp"
#include "emulator/headers.hpp"
#include "ns3/arrival_trace.h"
#include "ns3/network/switch_counts.h"
#include "ns3/predictor.h"
#include "ns3/settings.h"

namespace foretail::emulator {

/// A switch of the buffer library with real packets in it. It counts, marks, asks and traces as the switch of ns-3 does
/// (ns3/network/switch_node.h), and hands what has left to wires: departed(port, frame, time).
template <class Policy>
class SwitchNode {
public:
    static std::unique_ptr<SwitchNode> make(const ns3_driver::Settings& s, int index,
                                            std::vector<buffer::LineRate> rates, std::int64_t buffer_bytes,
                                            ns3_driver::Predictor& predictor, ns3_driver::ArrivalTrace* trace) {
        buffer::SwitchSettings settings;
        settings.shape = {buffer_bytes,   std::move(rates),   s.rules.tie,           false,
                          s.queues.count, s.queues.scheduler, s.queues.quantum_bytes};
        settings.rules = s.rules;
        settings.occamy_oracle = s.occamy_oracle;
        settings.scale = s.scale;
        settings.features = trace ? buffer::FeatureSet::all() : predictor.features();
        settings.labels = trace || settings.features.has_any(buffer::of_virtual_lqd);
        settings.fluid_slack = s.policy.fluid_slack_bytes;
        std::unique_ptr<SwitchNode> made;
        buffer::with_policy(s.policy.name, s.policy.settings, settings.shape, [&](auto policy) {
            if constexpr (std::is_same_v<decltype(policy), Policy>)
                made.reset(new SwitchNode(s, index, settings, std::move(policy), predictor, trace));
        });
        return made;
    }

    /// Sends what has left by `now`.
    template <class Wires>
    void advance(std::int64_t now, Wires& wires) {
        Sink<Wires> sink{*this, wires};
        buffer_.advance(now, sink);
    }

    template <class Wires>
    void receive(FramePool::Handle frame, buffer::Port port, std::int64_t now, Wires& wires) {
        Sink<Wires> sink{*this, wires};
        const buffer::FlowClass flow_class = frame->flow_class;
        const bool data = flow_class != buffer::FlowClass::control;
        const buffer::Arrival arrival{now,
                                      port,
                                      frame->size_bytes,
                                      data,
                                      frame->first_rtt,
                                      queue_of_[static_cast<std::size_t>(flow_class)],
                                      frame->sent_bytes,
                                      frame->left_bytes};
        (data ? counts_.data_in : counts_.control_in).add(arrival.size);

        buffer::Row row = buffer::no_row;
        buffer::ArrivalRecord* record = trace_ ? &open_record(*frame, arrival, row) : nullptr;
        buffer_.observe(arrival, row, sink);
        if (record && data) {
            record->features = buffer_.features(arrival);
            record->exposed = buffer_.exposed(arrival);
        }
        if (mark_bytes_ > 0 && frame->ecn_capable && buffer_.queues().port_length(port) >= mark_bytes_) {
            mark_congestion(*frame);
            ++counts_.marked;
        }
        const auto ask = [&] {
            ++counts_.asked;
            buffer::FeatureVector features{};
            if (record) {
                features = record->features;
            } else if (reads_features_) {
                features = buffer_.features(arrival);
            }
            const auto answer = predictor_.ask(features);
            if (record) {
                record->asked = buffer::Asked::yes;
                record->score = answer.score;
            }
            return answer.drop;
        };
        const bool held = Policy::expels && record && data;  // the trace may know its label before it is safe
        if (held) trace_->hold(row);
        const auto outcome = buffer_.admit(arrival, {std::move(frame), row, data}, ask, sink);
        if (outcome == buffer::Outcome::accepted) return;
        (data ? counts_.data_drops : counts_.control_drops)[static_cast<std::size_t>(outcome)].add(arrival.size);
        if (record) record->outcome = outcome;
        if (held) trace_->let_go(row);
    }

    [[nodiscard]] buffer::OccupancyRecord sample(std::int64_t now) const {
        return {.time_ns = now,
                .occupancy_bytes = buffer_.queues().occupancy(),
                .longest_bytes = buffer_.queues().longest(),
                .switch_index = index_};
    }
    /// Settles the labels of what the virtual LQD still holds. Call when no arrival can follow.
    void settle_labels() {
        struct Nowhere {
            void departed(buffer::Port, FramePool::Handle, std::int64_t) {}
        } nowhere;
        Sink<Nowhere> sink{*this, nowhere};
        buffer_.settle_labels(sink);
    }
    /// Throws std::logic_error when bytes in are not bytes out, dropped and queued, on any port or in all.
    void check_conservation() const {
        std::int64_t gone = counts_.data_out.bytes + counts_.control_out.bytes;
        for (const auto& drops : {counts_.data_drops, counts_.control_drops}) {
            for (const auto& drop : drops) gone += drop.bytes;
        }
        bool whole = counts_.data_in.bytes + counts_.control_in.bytes == gone + buffer_.queues().occupancy();
        for (buffer::Port port = 0; port < buffer_.queues().ports(); ++port)
            whole = whole && buffer_.conserves_bytes(port);
        if (!whole) throw std::logic_error("switch " + std::to_string(index_) + " lost or invented bytes");
    }

    [[nodiscard]] int index() const { return index_; }
    [[nodiscard]] bool sending(buffer::Port port) const { return buffer_.queues().sending(port); }
    [[nodiscard]] std::int64_t busy_until(buffer::Port port) const { return buffer_.queues().busy_until(port); }
    [[nodiscard]] const ns3_driver::SwitchCounts& counts() const { return counts_; }
    [[nodiscard]] std::int64_t queued_bytes() const { return buffer_.queues().occupancy(); }
    [[nodiscard]] std::int64_t threshold_deficits() const { return buffer_.threshold_deficits(); }

private:
    struct Queued {
        FramePool::Handle frame;
        buffer::Row row = buffer::no_row;
        bool data = false;
    };
    using Buffer = buffer::Switch<Policy, Queued>;

    template <class Wires>
    struct Sink {
        SwitchNode& node;
        Wires& wires;

        void departed(buffer::Port port, typename Buffer::Packet packet, buffer::Tick time) {
            Queued& queued = packet.payload;
            if (Policy::expels && queued.row != buffer::no_row && queued.data) node.trace_->let_go(queued.row);
            (queued.data ? node.counts_.data_out : node.counts_.control_out).add(packet.size);
            wires.departed(port, std::move(queued.frame), time);
        }
        void pushed_out(buffer::Port, const typename Buffer::Packet& packet) {
            constexpr auto outcome = buffer::Outcome::pushed_out;
            node.counts_.data_drops[static_cast<std::size_t>(outcome)].add(packet.size);
            if (packet.payload.row == buffer::no_row) return;
            node.trace_->record(packet.payload.row).outcome = outcome;
            node.trace_->let_go(packet.payload.row);
        }
        void fate(buffer::Row row, buffer::Tick time, bool dropped) { node.trace_->settle(row, time, dropped); }
    };

    SwitchNode(const ns3_driver::Settings& s, int index, const buffer::SwitchSettings& settings, Policy policy,
               ns3_driver::Predictor& predictor, ns3_driver::ArrivalTrace* trace)
        : index_(index),
          buffer_(settings, std::move(policy)),
          queue_of_(s.queues.queue_of),
          mark_bytes_(s.transport.mark_bytes),
          predictor_(predictor),
          reads_features_(!predictor.features().empty()),
          trace_(trace) {}

    buffer::ArrivalRecord& open_record(const Frame& frame, const buffer::Arrival& arrival, buffer::Row& row) {
        auto& record = trace_->open(row);
        record.time_ns = arrival.time;
        record.flow = frame.flow;
        record.size_bytes = frame.size_bytes;
        record.switch_index = static_cast<std::int16_t>(index_);
        record.port = static_cast<std::int16_t>(arrival.port);
        record.flow_class = frame.flow_class;
        record.first_rtt = frame.first_rtt;
        record.asked = Policy::asks ? buffer::Asked::no : buffer::Asked::never;
        return record;
    }

    int index_;
    Buffer buffer_;
    std::array<std::uint8_t, 3> queue_of_;  // of a port, by FlowClass
    std::int64_t mark_bytes_;
    ns3_driver::Predictor& predictor_;
    bool reads_features_;
    ns3_driver::ArrivalTrace* trace_;
    ns3_driver::SwitchCounts counts_;
};

}  // namespace foretail::emulator
