// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "packets/predictor.h"
#include "packets/racks/fabric.h"
#include "packets/racks/rack_settings.h"
#include "packets/records/arrival_trace.h"
#include "packets/records/switch_counts.h"
#include "packets/settings/settings.h"

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

/// Ends a run of racks: settles and closes the trace, and returns what a summary says of VOQs and, where those of a
/// rack share a buffer, of switches. Throws std::logic_error when packets or bytes were lost or invented.
template <class Fabric>
nlohmann::json finish_racks(const RackSettings& settings, const Settings& hosts, Fabric& fabric,
                            const Predictor& predictor, ArrivalTrace* trace) {
    fabric.check_conservation();
    nlohmann::json found{{"voqs", voq_summary(settings, fabric)}};
    if (!settings.buffer) return found;
    const std::vector<std::int64_t> rates(settings.populated.size(), settings.packet_bps);
    std::int64_t data_packets = 0;
    found["switches"] = nlohmann::json::array();
    for (std::size_t place = 0; place < settings.populated.size(); ++place) {
        auto& node = fabric.node(place);
        if (trace) node.settle_labels(0);
        found["switches"].push_back(switch_summary("rack", settings.buffer->bytes, rates, node.counts(),
                                                   node.buffer().queues().occupancy(),
                                                   node.buffer().threshold_deficits()));
        data_packets += node.counts().data_in.packets;
    }
    if (trace) {
        trace->close();
        found["arrivals"] = trace->rows();
        found["labelled_drops"] = trace->labelled_drops();
    }
    found.update({{"cell_bytes", 1 << hosts.scale.cell_shift},
                  {"average_shift", hosts.scale.average_shift},
                  {"tau", predictor.tau()},
                  {"flipped_predictions", predictor.flipped()},
                  {"leaf_data_packets", data_packets}});
    return found;
}

}  // namespace foretail::packets
