// SPDX-License-Identifier: MIT
#pragma once

#include <ns3/node.h>
#include <ns3/ptr.h>
#include <ns3/tcp-socket-base.h>
#include <ns3/type-id.h>

#include <cstdint>

#include "ns3/transport/paced_control.h"

namespace foretail::packets::ns3_driver {

/// ns-3's TCP socket without two of its faults (ns-3 3.44). It counts duplicate acknowledgements in the CWR state,
/// where nothing uses the count, keeps it when it leaves that state, and fails an assertion on the next duplicate
/// ("From OPEN->DISORDER but with n dup ACKs"). And DCTCP may lower the window below a segment: what is to be sent
/// then, with nothing in flight, waits for ever. Here it is a segment then.
class TcpSender : public ns3::TcpSocketBase {
public:
    static ns3::TypeId GetTypeId();

    /// A socket on `node`, put together of the same parts as ns3::TcpL4Protocol puts its sockets together, except for
    /// the congestion control: `paced`, or without it one of type `control`.
    static ns3::Ptr<ns3::TcpSocketBase> create(ns3::Ptr<ns3::Node> node, ns3::Ptr<PacedControl> paced,
                                               ns3::TypeId control);

    int Send(ns3::Ptr<ns3::Packet> packet, std::uint32_t flags) override;

protected:
    void ReceivedAck(ns3::Ptr<ns3::Packet> packet, const ns3::TcpHeader& header) override;
    void EstimateRtt(const ns3::TcpHeader& header) override;

private:
    /// Whether nothing is in flight and the window, below a segment before, is one now.
    bool opened_a_segment();

    ns3::Ptr<PacedControl> paced_;  ///< none with a congestion control of ns-3
};

}  // namespace foretail::packets::ns3_driver
