// SPDX-License-Identifier: MIT
// The network of the ns-3 driver: switches, and hosts with their links.
#pragma once

#include "ns3/flows.h"
#include "packets/switch_core.h"

namespace foretail::packets::ns3_driver {

/// A port's link to whatever is at its other end.
struct SwitchLink {
    buffer::LineRate rate;
    std::int64_t delay_ns = 0;
    FrameReceiver* peer = nullptr;
};

/// An output-queued switch with one shared buffer, deciding by the buffer library.
///
/// One event per packet, the arrival at the other end: departures are computed when the next event needs them, and each
/// link has at most one arrival scheduled, that of the packet sent longest ago, which can no longer be pushed out.
class SwitchNode final : public FrameReceiver {
public:
    SwitchNode(const Settings& s, int index, std::vector<SwitchLink> links, const buffer::SwitchSettings& settings,
               Predictor& predictor, AlphaPredictor& alphas, ArrivalTrace* trace)
        : index_(index),
          topology_(s.topology),
          links_(std::move(links)),
          core_(s, index, settings, predictor, trace),
          wires_(links_.size()) {
        if (alphas.interval_ns()) setter_.emplace(alphas, settings.shape, index);
        for (buffer::Port port = 0; port < core_.buffer().queues().ports(); ++port)
            wires_[static_cast<std::size_t>(port)].next = ns3::Create<RepeatedEvent>([this, port] { deliver(port); });
    }

    void connect(buffer::Port port, FrameReceiver* peer) { links_[static_cast<std::size_t>(port)].peer = peer; }
    [[nodiscard]] std::uint32_t context() const override { return ns3::Simulator::NO_CONTEXT; }
    void receive(std::unique_ptr<Frame> frame) override {
        const buffer::Port port = topology_.port_towards(index_, frame->destination, frame->path_hash);
        const buffer::Arrival arrival = core_.arrival_of(*frame, port, now());
        const std::uint32_t path_hash = frame->path_hash;  // the frame may be gone when it is counted
        if (setter_) setter_->advance(arrival.time, core_.buffer().policy());
        const auto mark = [](Frame& marked) { marked.congestion_experienced = true; };
        const auto decision = core_.receive(std::move(frame), arrival, *this, mark);
        if (setter_)
            setter_->count(arrival, path_hash, decision.outcome != buffer::Outcome::accepted, decision.marked,
                           core_.buffer().queues());
        schedule_delivery(port);
    }

    [[nodiscard]] const auto& core() const { return core_; }
    /// Brings the queues up to now and returns a sample of them.
    buffer::OccupancyRecord sample() {
        core_.advance(now(), *this);
        return core_.sample(now());
    }
    /// Settles the labels of what the virtual LQD still holds. Call when no arrival can follow.
    void settle_labels() { core_.settle_labels(0); }
    /// Throws std::logic_error when bytes in are not bytes out, dropped and queued, on any port or in all.
    void check_conservation() const { core_.check_conservation(); }

    /// Takes a packet from the core onto its wire.
    void departed(buffer::Port port, std::unique_ptr<Frame> frame, std::int64_t size, buffer::Tick time) {
        Wire& wire = wires_[static_cast<std::size_t>(port)];
        const SwitchLink& link = links_[static_cast<std::size_t>(port)];
        wire.sent_bytes += size + link.rate.overhead;
        if (frame->telemetry && frame->flow_class != buffer::FlowClass::control)
            frame->telemetry->append({.time_ns = time,
                                      .queue_bytes = core_.buffer().queues().port_length(port),
                                      .sent_bytes = wire.sent_bytes,
                                      .bytes_per_ns = link.rate.bytes_per_tick()});
        wire.in_flight.push_back({std::move(frame), time + link.delay_ns});
    }

private:
    struct Delivery {
        std::unique_ptr<Frame> frame;
        buffer::Tick time = 0;
    };
    struct Wire {
        buffer::Ring<Delivery> in_flight;  ///< sent, not yet arrived
        ns3::Ptr<RepeatedEvent> next;      ///< of the oldest
        bool scheduled = false;
        std::int64_t sent_bytes = 0;  ///< framing included
    };

    static buffer::Tick now() { return ns3::Simulator::Now().GetNanoSeconds(); }

    void schedule_delivery(buffer::Port port) {
        auto& wire = wires_[static_cast<std::size_t>(port)];
        if (wire.scheduled) return;
        buffer::Tick time = 0;
        if (!wire.in_flight.empty()) {
            time = wire.in_flight.front().time;
        } else if (core_.buffer().queues().sending(port)) {
            time = core_.buffer().queues().busy_until(port) + links_[static_cast<std::size_t>(port)].delay_ns;
        } else {
            return;
        }
        wire.scheduled = true;
        wire.next->schedule(links_[static_cast<std::size_t>(port)].peer->context(), time);
    }
    void deliver(buffer::Port port) {
        core_.advance(now(), *this);
        auto& wire = wires_[static_cast<std::size_t>(port)];
        auto frame = std::move(wire.in_flight.pop_front().frame);
        wire.scheduled = false;
        schedule_delivery(port);
        links_[static_cast<std::size_t>(port)].peer->receive(std::move(frame));
    }

    int index_;
    Topology topology_;
    std::vector<SwitchLink> links_;
    SwitchCore<std::unique_ptr<Frame>> core_;
    std::vector<Wire> wires_;
    std::optional<AlphaSetter> setter_;
};

/// A leaf-spine network: servers with ns-3's TCP, switches of ours.
///
/// Switches 0 .. leaves-1 are leaves, whose ports are their servers and then the spines; the spines follow, with one
/// port per leaf. A leaf sends to other leaves by a hash of the 5-tuple, so that a flow stays on one path.
struct Network {
    std::vector<std::unique_ptr<Host>> servers;
    std::vector<std::unique_ptr<SwitchNode>> switches;
};

Network build_network(const Settings& settings, Flows& flows, Predictor& predictor, AlphaPredictor& alphas,
                      ArrivalTrace* trace);

}  // namespace foretail::packets::ns3_driver
