// SPDX-License-Identifier: MIT
#include "ns3/host_device.h"

#include <ns3/ipv4-header.h>
#include <ns3/mac48-address.h>
#include <ns3/simulator.h>

#include <algorithm>
#include <array>
#include <utility>

namespace foretail::ns3_driver {

using namespace ns3;

namespace {
constexpr std::uint16_t ipv4_protocol = 0x0800;
}

TypeId HostDevice::GetTypeId() {
    static TypeId id = TypeId("foretail::HostDevice").SetParent<NetDevice>();
    return id;
}

HostDevice::HostDevice(buffer::LineRate rate, std::int64_t delay_ns, FrameReceiver* peer, Classifier classify,
                       Observer observe)
    : rate_(rate),
      delay_ns_(delay_ns),
      peer_(peer),
      classify_(std::move(classify)),
      observe_(std::move(observe)),
      address_(Mac48Address::Allocate()) {}

bool HostDevice::Send(Ptr<Packet> packet, const Address&, std::uint16_t) {
    Frame frame;
    frame.size_bytes = static_cast<std::int32_t>(packet->GetSize());
    std::array<std::uint8_t, header_bytes> headers{};
    packet->CopyData(headers.data(), header_bytes);
    frame.packet = std::move(packet);
    classify_(frame, headers.data());
    if (echo_ && frame.flow_class == buffer::FlowClass::control) frame.telemetry = echo_;

    const buffer::Tick now = Simulator::Now().GetNanoSeconds();
    free_at_ = std::max(now, free_at_) + rate_.duration(frame.size_bytes);
    Simulator::ScheduleWithContext(peer_->context(), NanoSeconds(free_at_ + delay_ns_ - now), &FrameReceiver::receive,
                                   peer_, std::move(frame));
    return true;
}

void HostDevice::receive(Frame frame) {
    if (frame.congestion_experienced) {
        Ipv4Header header;
        frame.packet->RemoveHeader(header);
        header.SetEcn(Ipv4Header::ECN_CE);
        frame.packet->AddHeader(header);
    }
    if (frame.telemetry) {
        if (frame.flow_class == buffer::FlowClass::control)
            observe_(frame);
        else
            echo_ = frame.telemetry;
    }
    receive_callback_(this, frame.packet, ipv4_protocol, address_);
    echo_ = nullptr;
}

void HostDevice::DoDispose() {
    node_ = nullptr;
    receive_callback_ = ReceiveCallback();
    NetDevice::DoDispose();
}

}  // namespace foretail::ns3_driver
