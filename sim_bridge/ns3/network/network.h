// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <vector>

#include "ns3/flows.h"
#include "ns3/network/host.h"
#include "ns3/network/switch_node.h"
#include "packets/alpha_predictor.h"
#include "packets/predictor.h"
#include "packets/records/arrival_trace.h"
#include "packets/settings/settings.h"

namespace foretail::packets::ns3_driver {

/// A leaf-spine network: servers with ns-3's TCP, switches of ours.
///
/// Switches 0 .. leaves-1 are leaves, whose ports are their servers and then the spines; the spines follow, with one
/// port per leaf. A leaf sends to other leaves by a hash of the 5-tuple, so that a flow stays on one path.
struct Network {
    std::vector<std::unique_ptr<Host>> servers;
    std::vector<std::unique_ptr<SwitchNode>> switches;
    int leaves = 0;
};

Network build_network(const Settings& settings, Flows& flows, Predictor& predictor, AlphaPredictor& alphas,
                      ArrivalTrace* trace);

}  // namespace foretail::packets::ns3_driver
