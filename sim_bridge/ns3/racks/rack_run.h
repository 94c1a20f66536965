// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "packets/racks/rack_settings.h"
#include "packets/settings.h"

namespace foretail::packets::ns3_driver {

/// Racks with circuits, and what their hosts have to know.
struct RackRun {
    RackSettings racks;
    Settings hosts;
};

/// Reads and checks settings with a group `racks`, none when there is no such group; throws std::runtime_error with one
/// sentence naming the setting.
std::optional<RackRun> read_rack_run(const std::string& path);

/// Simulates it; writes etalon.log, flows.bin and summary.json to `folder`.
void run_racks(const RackRun& run, const std::string& folder);

}  // namespace foretail::packets::ns3_driver
