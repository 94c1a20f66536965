// SPDX-License-Identifier: MIT
#pragma once

#include <ns3/ipv4-address.h>
#include <ns3/ipv4-interface.h>
#include <ns3/ipv4-route.h>
#include <ns3/node.h>
#include <ns3/packet.h>
#include <ns3/ptr.h>
#include <ns3/tcp-l4-protocol.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "buffer/queues/port_queues.hpp"
#include "buffer/types.hpp"
#include "ns3/network/frame.h"
#include "packets/traffic.h"

namespace foretail::packets::ns3_driver {

/// A server: ns-3's TCP over one way out.
///
/// ns-3's IP layer is passed by, since it decides nothing between TCP and a single link: the header counts in sizes and
/// times, but is never written.
class Host : public FrameReceiver {
public:
    /// Reads an outgoing packet's TCP header into its frame.
    using Classifier = std::function<void(Frame& frame, const std::uint8_t* tcp_header)>;
    /// Takes the telemetry of an acknowledgement before TCP handles it.
    using Observer = std::function<void(const Frame& frame)>;

    /// Server `index` in the network, whose `node` has ns-3's IP stack and no interface but loopback.
    Host(int index, ns3::Ptr<ns3::Node> node, Classifier classify, Observer observe);

    void receive(std::unique_ptr<Frame> frame) override;
    [[nodiscard]] std::uint32_t context() const override { return node_->GetId(); }
    [[nodiscard]] const ns3::Ptr<ns3::Node>& node() const { return node_; }

    static ns3::Ipv4Address address_of(int server) {
        return ns3::Ipv4Address(first_address + static_cast<std::uint32_t>(server));
    }
    static int server_of(ns3::Ipv4Address address) { return static_cast<int>(address.Get() - first_address); }

protected:
    /// Takes what TCP sends now.
    virtual void put(std::unique_ptr<Frame> frame) = 0;

private:
    void send(ns3::Ptr<ns3::Packet> packet, ns3::Ipv4Address source, ns3::Ipv4Address destination, std::uint8_t,
              ns3::Ptr<ns3::Ipv4Route>);

    ns3::Ptr<ns3::Node> node_;
    ns3::Ptr<ns3::TcpL4Protocol> tcp_;
    ns3::Ptr<ns3::Ipv4Interface> interface_;  ///< where TCP believes that packets come from
    Classifier classify_;
    Observer observe_;
    std::shared_ptr<Telemetry> echo_;  ///< of the data packet that TCP handles now, for what it sends in answer
};

/// A server with an unbounded queue onto one link. A packet costs one event, the arrival at the other end, since
/// nothing can change its departure once it is queued.
class LinkedHost final : public Host {
public:
    LinkedHost(int index, ns3::Ptr<ns3::Node> node, buffer::LineRate rate, std::int64_t delay_ns, FrameReceiver* peer,
               Classifier classify, Observer observe);

private:
    void put(std::unique_ptr<Frame> frame) override;

    buffer::LineRate rate_;
    std::int64_t delay_ns_;
    FrameReceiver* peer_;
    buffer::Tick free_at_ = 0;
};

}  // namespace foretail::packets::ns3_driver
