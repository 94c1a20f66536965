// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

#include "packets/racks/fabric.h"
#include "packets/racks/rack_settings.h"

namespace foretail::packets {

/// What a summary says of every VOQ of racks with hosts, in packets; racks have the numbers of the settings.
template <class Fabric>
nlohmann::json voq_summary(const RackSettings& settings, const Fabric& fabric) {
    const std::vector<int>& racks = settings.populated;
    nlohmann::json voqs = nlohmann::json::array();
    for (std::size_t source = 0; source < racks.size(); ++source) {
        for (std::size_t destination = 0; destination < racks.size(); ++destination) {
            if (source == destination) continue;
            const VoqCounts& counts = fabric.counts(source, destination);
            voqs.push_back({{"source", racks[source]},
                            {"destination", racks[destination]},
                            {"arrived", counts.arrived},
                            {"dropped", counts.dropped},
                            {"by_packet", counts.by_packet},
                            {"by_circuit", counts.by_circuit},
                            {"waiting", fabric.waiting(source, destination)},
                            {"longest", counts.longest}});
        }
    }
    return voqs;
}

}  // namespace foretail::packets
