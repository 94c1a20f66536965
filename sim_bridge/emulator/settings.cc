// SPDX-License-Identifier: MIT
#include "emulator/settings.hpp"

#include <nlohmann/json.hpp>
#include <string>

#include "packets/settings/settings_group.h"

namespace foretail::packets::emulator {
namespace {

Emulation read_emulation(const Group& group) {
    Emulation found{.factor = group.get<std::int64_t>("factor"),
                    .control = group.get<std::string>("control"),
                    .background_control = group.get<std::string>("background_control"),
                    .tail_loss_probes = group.get<bool>("tail_loss_probes"),
                    .lateness_share = group.get<double>("lateness_share"),
                    .command = {}};
    if (group.has("command")) {
        found.command = group.get<std::vector<std::string>>("command");
        found.command_limit_ns = 1'000'000'000 * group.get<std::int64_t>("command_seconds");
    }
    return found;
}

}  // namespace

EmulatorSettings read_emulator_settings(const std::string& path) {
    EmulatorSettings found;
    const nlohmann::json document = read_document(path);
    const Group root(document, "");
    if (root.has("racks")) {
        found.racks = read_racks(root);
        found.network = hosts_of_racks(*found.racks, root);
    } else {
        found.network = resolved(read_settings(root));
        found.network.transport.require_tcp("the emulator");
        found.network.require_lossy("the emulator");
        found.network.require_hashed("the emulator");
    }
    found.emulation = root.group("emulation", read_emulation);
    if (found.racks)
        found.racks->announces_circuits =
            found.emulation.control == "retcp" || found.emulation.background_control == "retcp";
    return found;
}

}  // namespace foretail::packets::emulator
