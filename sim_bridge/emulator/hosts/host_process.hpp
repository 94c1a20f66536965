// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "emulator/headers.hpp"
#include "emulator/hosts/hosts.hpp"
#include "emulator/hosts/namespaces.hpp"
#include "emulator/settings.hpp"
#include "packets/traffic.h"

namespace foretail::packets::emulator {

/// The life of one host's process inside its namespace: says through `control` that it is ready, waits there for the
/// start, plays its flows and runs its command, whose words go to a file in `folder`, and leaves what it knows of them
/// when `control` says stop. Throws std::runtime_error.
void play_flows(int host, const EmulatorSettings& settings, const std::vector<PlannedFlow>& plan,
                const FlowTable& table, Shared& shared, const std::string& folder, int control);

}  // namespace foretail::packets::emulator
