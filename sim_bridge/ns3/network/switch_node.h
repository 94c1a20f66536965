// SPDX-License-Identifier: MIT
#pragma once

#include <ns3/event-impl.h>
#include <ns3/nstime.h>
#include <ns3/ptr.h>
#include <ns3/simulator.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "buffer/queues/ring.hpp"
#include "buffer/switch.hpp"
#include "ns3/alpha_predictor.h"
#include "ns3/arrival_trace.h"
#include "ns3/branches.h"
#include "ns3/network/frame.h"
#include "ns3/network/switch_counts.h"
#include "ns3/predictor.h"

namespace foretail::ns3_driver {

/// A port's link to whatever is at its other end.
struct SwitchLink {
    buffer::LineRate rate;
    std::int64_t delay_ns = 0;
    FrameReceiver* peer = nullptr;
};

/// A switch of the simulated network, whatever its policy.
class SwitchNode : public FrameReceiver {
public:
    using Route = std::function<buffer::Port(const Frame&)>;

    SwitchNode(int index, Route route, std::vector<SwitchLink> links)
        : index_(index), route_(std::move(route)), links_(std::move(links)) {}

    void connect(buffer::Port port, FrameReceiver* peer) { links_[static_cast<std::size_t>(port)].peer = peer; }
    [[nodiscard]] std::uint32_t context() const override { return ns3::Simulator::NO_CONTEXT; }
    [[nodiscard]] const SwitchCounts& counts() const { return counts_; }
    /// Brings the queues up to now and returns a sample of them.
    virtual buffer::OccupancyRecord sample() = 0;
    /// Settles the labels of what the virtual LQD still holds. Call when no arrival can follow.
    virtual void settle_labels() = 0;
    /// Throws std::logic_error when bytes in are not bytes out, dropped and queued, on any port or in all.
    virtual void check_conservation() const = 0;
    [[nodiscard]] virtual std::int64_t queued_bytes() const = 0;
    [[nodiscard]] virtual std::int64_t threshold_deficits() const = 0;

protected:
    int index_;
    Route route_;
    std::vector<SwitchLink> links_;
    SwitchCounts counts_;
};

/// An output-queued switch with one shared buffer, deciding by the buffer library.
///
/// One event per packet, the arrival at the other end: departures are computed when the next event needs them, and each
/// link has at most one arrival scheduled, that of the packet sent longest ago, which can no longer be pushed out.
template <class Policy>
class PolicySwitch final : public SwitchNode {
public:
    struct Queued {
        std::unique_ptr<Frame> frame;
        buffer::Row row = buffer::no_row;
    };
    using Buffer = buffer::Switch<Policy, Queued>;

    PolicySwitch(int index, Route route, std::vector<SwitchLink> links, const buffer::SwitchSettings& settings,
                 Policy policy, std::array<std::uint8_t, 3> queue_of, std::int64_t mark_bytes, Predictor* predictor,
                 AlphaPredictor* alphas, ArrivalTrace* trace, Branches* branches)
        : SwitchNode(index, std::move(route), std::move(links)),
          buffer_(settings, std::move(policy)),
          wires_(links_.size()),
          queue_of_(queue_of),
          mark_bytes_(mark_bytes),
          predictor_(predictor),
          trace_(trace),
          branches_(branches) {
        if (alphas->interval_ns()) setter_.emplace(*alphas, settings.shape, index);
        for (buffer::Port port = 0; port < buffer_.queues().ports(); ++port)
            wires_[static_cast<std::size_t>(port)].next = ns3::Create<NextDelivery>(this, port);
    }

    void receive(std::unique_ptr<Frame> frame) override {
        const buffer::Port port = route_(*frame);
        const bool data = frame->flow_class != buffer::FlowClass::control;
        const std::uint8_t queue = queue_of_[static_cast<std::size_t>(frame->flow_class)];
        const buffer::Arrival arrival{
            now(), port, frame->size_bytes, data, frame->first_rtt, queue, frame->sent_bytes, frame->left_bytes};
        (data ? counts_.data_in : counts_.control_in).add(arrival.size);
        [[maybe_unused]] const std::uint32_t path_hash = frame->path_hash;  // the frame may be gone when it is counted

        if (branches_) branches_->arrived();
        buffer::Row row = buffer::no_row;
        buffer::ArrivalRecord* record = trace_ ? &open_record(*frame, arrival, row) : nullptr;
        if constexpr (Policy::takes_alpha) {
            if (setter_) setter_->advance(arrival.time, buffer_.policy());
        }
        buffer_.observe(arrival, row, *this);
        if (record && data) {
            record->features = buffer_.features(arrival);
            record->exposed = buffer_.exposed(arrival);
        }
        const bool marked = mark_bytes_ > 0 && frame->ecn_capable && buffer_.queues().port_length(port) >= mark_bytes_;
        if (marked) {
            frame->congestion_experienced = true;
            ++counts_.marked;
        }
        const auto ask = [&] {
            ++counts_.asked;
            buffer::FeatureVector features{};
            if (record) {
                features = record->features;
            } else if (!predictor_->features().empty()) {
                features = buffer_.features(arrival);
            }
            const auto answer = predictor_->ask(features);
            if (record) {
                record->asked = buffer::Asked::yes;
                record->score = answer.score;
            }
            return answer.drop;
        };
        const bool held = Policy::expels && record && data;  // the trace may know its label before it is safe
        if (held) trace_->hold(row);
        const buffer::FlowClass flow_class = frame->flow_class;
        const auto settled = [&](buffer::Outcome decided) {
            if (!branches_) return decided;
            return branches_->decided(index_, arrival, flow_class, decided, buffer_.queues().fits(arrival.size));
        };
        const auto outcome = buffer_.admit(arrival, {std::move(frame), row}, ask, *this, settled);
        if (branches_) links_[static_cast<std::size_t>(port)].delay_ns += branches_->longer_ns();
        if (outcome != buffer::Outcome::accepted) {
            (data ? counts_.data_drops : counts_.control_drops)[static_cast<std::size_t>(outcome)].add(arrival.size);
            if (record) record->outcome = outcome;
            if (held) trace_->let_go(row);
        }
        if constexpr (Policy::takes_alpha) {
            if (setter_ && data) {
                const buffer::QueueIndex at = buffer_.queues().queue_of(arrival);
                setter_->count({.queue = at,
                                .size = arrival.size,
                                .dropped = outcome != buffer::Outcome::accepted,
                                .marked = marked,
                                .first_rtt = arrival.first_rtt,
                                .flow_hash = path_hash,
                                .length = buffer_.queues().length(at),
                                .occupancy = buffer_.queues().occupancy()});
            }
        }
        schedule_delivery(port);
    }

    buffer::OccupancyRecord sample() override {
        buffer_.advance(now(), *this);
        return {.time_ns = now(),
                .occupancy_bytes = buffer_.queues().occupancy(),
                .longest_bytes = buffer_.queues().longest(),
                .switch_index = index_};
    }
    void settle_labels() override { buffer_.settle_labels(*this); }
    void check_conservation() const override {
        buffer::Bytes queued = 0;
        for (buffer::Port port = 0; port < buffer_.queues().ports(); ++port) {
            if (!buffer_.conserves_bytes(port)) fail_conservation("port " + std::to_string(port));
            queued += buffer_.queues().port_length(port);
        }
        std::int64_t out = counts_.data_out.bytes + counts_.control_out.bytes;
        for (const auto& drops : {counts_.data_drops, counts_.control_drops}) {
            for (const auto& drop : drops) out += drop.bytes;
        }
        if (queued != buffer_.queues().occupancy() || counts_.data_in.bytes + counts_.control_in.bytes != out + queued)
            fail_conservation("the buffer");
    }
    [[nodiscard]] std::int64_t queued_bytes() const override { return buffer_.queues().occupancy(); }
    [[nodiscard]] std::int64_t threshold_deficits() const override { return buffer_.threshold_deficits(); }

    // Sink of the buffer library.
    void departed(buffer::Port port, typename Buffer::Packet packet, buffer::Tick time) {
        const Frame& frame = *packet.payload.frame;
        if (Policy::expels && packet.payload.row != buffer::no_row && frame.flow_class != buffer::FlowClass::control)
            trace_->let_go(packet.payload.row);
        (frame.flow_class != buffer::FlowClass::control ? counts_.data_out : counts_.control_out).add(packet.size);
        Wire& wire = wires_[static_cast<std::size_t>(port)];
        const SwitchLink& link = links_[static_cast<std::size_t>(port)];
        wire.sent_bytes += packet.size + link.rate.overhead;
        if (frame.telemetry && frame.flow_class != buffer::FlowClass::control)
            frame.telemetry->append({.time_ns = time,
                                     .queue_bytes = buffer_.queues().port_length(port),
                                     .sent_bytes = wire.sent_bytes,
                                     .bytes_per_ns = link.rate.bytes_per_tick()});
        wire.in_flight.push_back({std::move(packet.payload.frame), time + link.delay_ns});
    }
    void pushed_out(buffer::Port, const typename Buffer::Packet& packet) {
        counts_.data_drops[static_cast<std::size_t>(buffer::Outcome::pushed_out)].add(packet.size);
        if (packet.payload.row == buffer::no_row) return;
        trace_->record(packet.payload.row).outcome = buffer::Outcome::pushed_out;
        trace_->let_go(packet.payload.row);
    }
    void fate(buffer::Row row, buffer::Tick time, bool dropped) { trace_->settle(row, time, dropped); }

private:
    struct Delivery {
        std::unique_ptr<Frame> frame;
        buffer::Tick time = 0;
    };
    /// The event of a port's oldest packet; used again and again, since a port has one at a time.
    class NextDelivery final : public ns3::EventImpl {
    public:
        NextDelivery(PolicySwitch* node, buffer::Port port) : node_(node), port_(port) {}

    private:
        void Notify() override { node_->deliver(port_); }

        PolicySwitch* node_;
        buffer::Port port_;
    };
    struct Wire {
        buffer::Ring<Delivery> in_flight;  ///< sent, not yet arrived
        ns3::Ptr<NextDelivery> next;
        bool scheduled = false;
        std::int64_t sent_bytes = 0;  ///< framing included
    };

    static buffer::Tick now() { return ns3::Simulator::Now().GetNanoSeconds(); }

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

    void schedule_delivery(buffer::Port port) {
        auto& wire = wires_[static_cast<std::size_t>(port)];
        if (wire.scheduled) return;
        buffer::Tick time = 0;
        if (!wire.in_flight.empty()) {
            time = wire.in_flight.front().time;
        } else if (buffer_.queues().sending(port)) {
            time = buffer_.queues().busy_until(port) + links_[static_cast<std::size_t>(port)].delay_ns;
        } else {
            return;
        }
        wire.scheduled = true;
        const FrameReceiver* peer = links_[static_cast<std::size_t>(port)].peer;
        wire.next->Ref();  // the simulator gives back one reference per call
        ns3::Simulator::ScheduleWithContext(peer->context(), ns3::NanoSeconds(time - now()), PeekPointer(wire.next));
    }
    void deliver(buffer::Port port) {
        buffer_.advance(now(), *this);
        auto& wire = wires_[static_cast<std::size_t>(port)];
        auto frame = std::move(wire.in_flight.pop_front().frame);
        wire.scheduled = false;
        schedule_delivery(port);
        links_[static_cast<std::size_t>(port)].peer->receive(std::move(frame));
    }
    [[noreturn]] void fail_conservation(const std::string& where) const {
        throw std::logic_error("switch " + std::to_string(index_) + " lost or invented bytes on " + where);
    }

    Buffer buffer_;
    std::vector<Wire> wires_;
    std::array<std::uint8_t, 3> queue_of_;  // of a port, by FlowClass
    std::int64_t mark_bytes_;
    Predictor* predictor_;
    ArrivalTrace* trace_;
    Branches* branches_;
    std::optional<AlphaSetter> setter_;
};

}  // namespace foretail::ns3_driver
