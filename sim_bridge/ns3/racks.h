// SPDX-License-Identifier: MIT
// Racks with circuits in ns-3.
#pragma once

#include "packets/racks/rack_settings.h"

namespace foretail::packets::ns3_driver {

/// Simulates racks with circuits; writes etalon.log, flows.bin and summary.json to `folder`.
void run_racks(const RackRun& run, const std::string& folder);

}  // namespace foretail::packets::ns3_driver
