// SPDX-License-Identifier: MIT
#pragma once

#include <ns3/event-impl.h>
#include <ns3/packet.h>
#include <ns3/ptr.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "buffer/records.hpp"
#include "packets/transport/telemetry.h"

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

}  // namespace foretail::packets::ns3_driver
