// SPDX-License-Identifier: MIT
#pragma once

#include <ns3/channel.h>
#include <ns3/net-device.h>
#include <ns3/node.h>

#include <cstdint>
#include <functional>

#include "buffer/port_queues.hpp"
#include "buffer/types.hpp"
#include "ns3/frame.h"

namespace foretail::ns3_driver {

/// A server's network interface: an unbounded queue onto one link, under ns-3's own IP stack.
///
/// It schedules one event per packet, the arrival at the other end, since nothing can change a packet's departure once
/// it is queued.
class HostDevice : public ns3::NetDevice, public FrameReceiver {
public:
    /// Reads an outgoing IP packet's headers into its frame.
    using Classifier = std::function<void(Frame& frame, const std::uint8_t* headers)>;
    /// Takes the telemetry of an acknowledgement before TCP handles it.
    using Observer = std::function<void(const Frame& frame)>;
    static constexpr std::uint32_t header_bytes = 40;

    static ns3::TypeId GetTypeId();
    HostDevice(buffer::LineRate rate, std::int64_t delay_ns, FrameReceiver* peer, Classifier classify,
               Observer observe);

    void receive(Frame frame) override;
    std::uint32_t context() const override { return node_->GetId(); }
    bool Send(ns3::Ptr<ns3::Packet> packet, const ns3::Address& destination, std::uint16_t protocol) override;

    // The rest of ns-3's interface: a point-to-point link without addresses of its own.
    void SetIfIndex(const std::uint32_t index) override { index_ = index; }
    std::uint32_t GetIfIndex() const override { return index_; }
    ns3::Ptr<ns3::Channel> GetChannel() const override { return nullptr; }
    void SetAddress(ns3::Address address) override { address_ = address; }
    ns3::Address GetAddress() const override { return address_; }
    bool SetMtu(const std::uint16_t mtu) override { return mtu == mtu_bytes; }
    std::uint16_t GetMtu() const override { return mtu_bytes; }
    bool IsLinkUp() const override { return true; }
    void AddLinkChangeCallback(ns3::Callback<void>) override {}
    bool IsBroadcast() const override { return false; }
    ns3::Address GetBroadcast() const override { return address_; }
    bool IsMulticast() const override { return false; }
    ns3::Address GetMulticast(ns3::Ipv4Address) const override { return address_; }
    ns3::Address GetMulticast(ns3::Ipv6Address) const override { return address_; }
    bool IsBridge() const override { return false; }
    bool IsPointToPoint() const override { return true; }
    bool SendFrom(ns3::Ptr<ns3::Packet>, const ns3::Address&, const ns3::Address&, std::uint16_t) override {
        return false;
    }
    ns3::Ptr<ns3::Node> GetNode() const override { return node_; }
    void SetNode(ns3::Ptr<ns3::Node> node) override { node_ = node; }
    bool NeedsArp() const override { return false; }
    void SetReceiveCallback(ReceiveCallback callback) override { receive_callback_ = callback; }
    void SetPromiscReceiveCallback(PromiscReceiveCallback) override {}
    bool SupportsSendFrom() const override { return false; }

protected:
    void DoDispose() override;

private:
    static constexpr std::uint16_t mtu_bytes = 1500;

    buffer::LineRate rate_;
    std::int64_t delay_ns_;
    FrameReceiver* peer_;
    Classifier classify_;
    Observer observe_;
    ns3::Ptr<Telemetry> echo_;  ///< of the data packet that TCP handles now, for what it sends in answer
    buffer::Tick free_at_ = 0;
    std::uint32_t index_ = 0;
    ns3::Ptr<ns3::Node> node_;
    ns3::Address address_;
    ReceiveCallback receive_callback_;
};

}  // namespace foretail::ns3_driver
