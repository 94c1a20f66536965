// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "packets/settings.h"

namespace foretail::packets::emulator {

/// What an emulation has beyond a scenario: the group `emulation` of the settings.
struct Emulation {
    std::int64_t factor = 1;         ///< ns of the machine's clock per virtual ns
    std::string control;             ///< the kernel's name of the congestion control
    std::string background_control;  ///< of background flows
    double lateness_share = 0;       ///< of the base round trip: a run whose 99th percentile is later is invalid
};

struct EmulatorSettings {
    Settings network;
    Emulation emulation;
};

/// Reads and checks the settings that ns-3's driver reads, and the group `emulation`; throws std::runtime_error with
/// one sentence that names the setting, also for what only ns-3 has.
EmulatorSettings read_emulator_settings(const std::string& path);

}  // namespace foretail::packets::emulator
