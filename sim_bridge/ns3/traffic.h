// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "buffer/records.hpp"
#include "ns3/settings.h"

namespace foretail::ns3_driver {

/// One flow to be sent, known before the simulation starts.
struct PlannedFlow {
    std::int64_t start_ns = 0;
    std::int64_t connect_ns = 0;  ///< before start_ns for connections set up in advance
    std::int64_t size_bytes = 0;
    int source = 0, destination = 0;
    int query = -1;  ///< responses to one query share its number; -1: background
    buffer::FlowClass flow_class = buffer::FlowClass::background;
};

/// All flows of a run in order of their start. Every server has its own random stream per kind of traffic, so neither
/// the policy nor the other kind changes a flow.
std::vector<PlannedFlow> plan_traffic(const Settings& settings);

}  // namespace foretail::ns3_driver
