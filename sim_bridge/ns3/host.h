// SPDX-License-Identifier: MIT
// A host of the ns-3 driver: the frames on its link and its queue.
#pragma once

#include <ns3/event-impl.h>
#include <ns3/ipv4-address.h>
#include <ns3/ipv4-interface.h>
#include <ns3/ipv4-route.h>
#include <ns3/node.h>
#include <ns3/nstime.h>
#include <ns3/packet.h>
#include <ns3/ptr.h>
#include <ns3/simulator.h>
#include <ns3/tcp-l4-protocol.h>

#include "packets/congestion_control.h"
#include "packets/traffic.h"

namespace foretail::packets::ns3_driver {

/// A TCP segment on a link, with what switches need of its headers read once at the sending host.
struct Frame {
    ns3::Ptr<ns3::Packet> packet;
    std::shared_ptr<Telemetry> telemetry;      ///< none unless the transport asks for it
    std::int32_t size_bytes = 0;               ///< IP packet, without framing
    std::int32_t source = 0, destination = 0;  ///< servers
    std::int32_t flow = -1;                    ///< index in the plan; acknowledgements carry the flow they belong to
    std::int32_t connection = -1;              ///< of its flow
    std::uint32_t path_hash = 0;               ///< of the 5-tuple
    buffer::FlowClass flow_class = buffer::FlowClass::control;
    std::int64_t sent_bytes = 0;  ///< of its message, before it
    std::int64_t left_bytes = 0;  ///< of its message, after it
    bool first_rtt = false;
    bool ecn_capable = false;
    bool congestion_experienced = false;  ///< set by a switch
};

/// Copies the beginning of the packet, with the IPv4 header that it has on a link, as far as there is room. Addresses
/// and checksums are zero.
void copy_beginning(const Frame& frame, std::span<std::uint8_t> room);

/// Anything at the end of a link.
class FrameReceiver {
public:
    virtual ~FrameReceiver() = default;
    virtual void receive(std::unique_ptr<Frame> frame) = 0;
    /// The ns-3 context in which `receive` must be called.
    [[nodiscard]] virtual std::uint32_t context() const = 0;
};

/// The arrival of a frame at the end of a link.
class FrameArrival final : public ns3::EventImpl {
public:
    FrameArrival(FrameReceiver* receiver, std::unique_ptr<Frame> frame)
        : receiver_(receiver), frame_(std::move(frame)) {}

private:
    void Notify() override { receiver_->receive(std::move(frame_)); }

    FrameReceiver* receiver_;
    std::unique_ptr<Frame> frame_;
};

/// An event that comes again and again, so that it allocates nothing.
class RepeatedEvent final : public ns3::EventImpl {
public:
    explicit RepeatedEvent(std::function<void()> happens) : happens_(std::move(happens)) {}

    void schedule(std::uint32_t context, std::int64_t time_ns) {
        Ref();  // the simulator gives back one reference per call
        ns3::Simulator::ScheduleWithContext(context, ns3::NanoSeconds(time_ns) - ns3::Simulator::Now(), this);
    }

private:
    void Notify() override { happens_(); }

    std::function<void()> happens_;
};

class Flows;

/// A server: ns-3's TCP over one way out.
///
/// ns-3's IP layer is passed by, since it decides nothing between TCP and a single link: the header counts in sizes and
/// times, but is never written.
class Host final : public FrameReceiver {
public:
    /// Takes what TCP sends now.
    using WayOut = std::function<void(std::unique_ptr<Frame> frame)>;

    /// Server `index` in the network, on a new node of ns-3.
    Host(int index, Flows& flows, WayOut way_out);

    void receive(std::unique_ptr<Frame> frame) override;
    [[nodiscard]] std::uint32_t context() const override { return node_->GetId(); }
    [[nodiscard]] const ns3::Ptr<ns3::Node>& node() const { return node_; }

    static ns3::Ipv4Address address_of(int server) {
        return ns3::Ipv4Address(first_address + static_cast<std::uint32_t>(server));
    }
    static int server_of(ns3::Ipv4Address address) { return static_cast<int>(address.Get() - first_address); }

private:
    void send(ns3::Ptr<ns3::Packet> packet, ns3::Ipv4Address source, ns3::Ipv4Address destination, std::uint8_t,
              ns3::Ptr<ns3::Ipv4Route>);

    ns3::Ptr<ns3::Node> node_ = ns3::CreateObject<ns3::Node>();
    Flows& flows_;
    WayOut way_out_;
    ns3::Ptr<ns3::TcpL4Protocol> tcp_;
    ns3::Ptr<ns3::Ipv4Interface> interface_;  ///< where TCP believes that packets come from
    std::shared_ptr<Telemetry> echo_;         ///< of the data packet that TCP handles now, for what it sends in answer
};

}  // namespace foretail::packets::ns3_driver
