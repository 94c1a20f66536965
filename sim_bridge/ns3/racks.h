// SPDX-License-Identifier: MIT
// Racks with circuits in ns-3.
#pragma once

#include <ns3/nstime.h>
#include <ns3/simulator.h>

#include "ns3/host.h"
#include "packets/racks/rack_settings.h"

namespace foretail::packets::ns3_driver {

/// Simulates racks with circuits; writes etalon.log, flows.bin and summary.json to `folder`.
void run_racks(const RackRun& run, const std::string& folder);

/// Racks in ns-3's time: wakes their fabric whenever it has something to do, and hands hosts their packets then.
///
/// Fabric: send(frame, time), advance(time, deliver), next_ns(), as of packets/racks/fabric.h.
template <class Fabric>
class RackNetwork {
public:
    /// Takes the hosts by connect(), in their order, before the first packet.
    explicit RackNetwork(Fabric& fabric) : fabric_(fabric), wake_up_(ns3::Create<WakeUp>(this)) { await_next(); }
    void connect(FrameReceiver* host) { hosts_.push_back(host); }

    /// A host sends now.
    void send(std::unique_ptr<Frame> frame) {
        fabric_.send(std::move(frame), now());
        await_next();
    }

private:
    /// One event for all wake-ups, so that they allocate nothing.
    class WakeUp final : public ns3::EventImpl {
    public:
        explicit WakeUp(RackNetwork* network) : network_(network) {}

    private:
        void Notify() override { network_->advance(); }

        RackNetwork* network_;
    };
    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

    static std::int64_t now() { return ns3::Simulator::Now().GetNanoSeconds(); }

    void advance() {
        if (now() == awaited_ns_) awaited_ns_ = never;
        fabric_.advance(now(), [this](std::unique_ptr<Frame> frame, [[maybe_unused]] std::int64_t time) {
            assert(time == now());
            FrameReceiver* host = hosts_[static_cast<std::size_t>(frame->destination)];
            ns3::Simulator::ScheduleWithContext(host->context(), ns3::Time(), new FrameArrival(host, std::move(frame)));
        });
        await_next();
    }
    /// What is awaited later stays scheduled, and will find nothing to do.
    void await_next() {
        const std::int64_t next = fabric_.next_ns();
        if (next >= awaited_ns_) return;
        awaited_ns_ = next;
        wake_up_->Ref();  // the simulator gives back one reference per call
        ns3::Simulator::ScheduleWithContext(ns3::Simulator::NO_CONTEXT, ns3::NanoSeconds(next - now()),
                                            PeekPointer(wake_up_));
    }

    Fabric& fabric_;
    std::vector<FrameReceiver*> hosts_;
    ns3::Ptr<WakeUp> wake_up_;
    std::int64_t awaited_ns_ = never;
};

/// A server whose link the fabric has.
template <class Fabric>
class RackHost final : public Host {
public:
    RackHost(int index, ns3::Ptr<ns3::Node> node, RackNetwork<Fabric>& network, Classifier classify, Observer observe)
        : Host(index, std::move(node), std::move(classify), std::move(observe)), network_(network) {}

private:
    void put(std::unique_ptr<Frame> frame) override { network_.send(std::move(frame)); }

    RackNetwork<Fabric>& network_;
};

}  // namespace foretail::packets::ns3_driver
