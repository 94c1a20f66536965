// SPDX-License-Identifier: MIT
// Records of a run of racks: a log in the form of Etalon's, and a summary of VOQs.
#pragma once

#include <cstdio>

#include "packets/racks/fabric.h"

namespace foretail::packets {

/// A record of the packet log of the Etalon emulator, in its newer layout (sim_bridge/imports/etalon/records.py).
struct EtalonRecord {
    std::int32_t type = 0;                     ///< 1: a circuit goes up; 2: one goes down; 0: a packet
    std::array<char, 32> stamp{};              ///< Unix seconds, as text
    std::int32_t latency_us = 0;               ///< from its VOQ to the switch of its rack
    std::int32_t source = 0, destination = 0;  ///< racks, from 1
    std::int32_t voq = 0;                      ///< packets in the VOQ of that pair
    std::array<std::uint8_t, 64> packet{};     ///< from its IPv4 header on
};
static_assert(sizeof(EtalonRecord) == 116 && std::endian::native == std::endian::little);

/// Writes a log as Etalon takes it behind its switches: departures, latencies in virtual us, ups and downs of circuits.
/// Times are 20 times slower than virtual ones, whatever the factor of the emulation, because Etalon's are. Addresses
/// are Etalon's, 10.1.RACK.HOST, and the type of service says by its lowest bit that a packet came by a circuit.
///
/// A frame has source and destination, and copy_beginning(frame, room) gives its packet from the IPv4 header on.
template <class File>
class EtalonLog {
public:
    /// `file` takes records by write(); a host's place in its rack is its number modulo `hosts_per_rack`.
    EtalonLog(File& file, int hosts_per_rack) : file_(file), hosts_per_rack_(hosts_per_rack) {}

    template <class Frame>
    void departed(const Frame& frame, std::int64_t entered, std::int64_t left, bool by_circuit, int source,
                  int destination, std::int64_t waiting) {
        EtalonRecord record;
        record.stamp = stamp(left);
        record.latency_us = static_cast<std::int32_t>((left - entered) / 1000);
        record.source = source + 1;
        record.destination = destination + 1;
        record.voq = static_cast<std::int32_t>(waiting);
        copy_beginning(frame, record.packet);
        if (by_circuit) record.packet[1] = '1';
        address(record, 12, source, frame.source);
        address(record, 16, destination, frame.destination);
        file_.write(record);
    }
    void circuit(bool up, std::int64_t time, int source, int destination) {
        EtalonRecord record;
        record.type = up ? 1 : 2;
        record.stamp = stamp(time);
        record.source = source + 1;
        record.destination = destination + 1;
        file_.write(record);
    }

private:
    static constexpr std::int64_t dilation = 20, first_second = 1'580'000'000, second = 1'000'000'000;

    static std::array<char, 32> stamp(std::int64_t virtual_ns) {
        std::array<char, 32> text{};
        const std::int64_t ns = virtual_ns * dilation;
        std::snprintf(text.data(), text.size(), "%lld.%09lld", static_cast<long long>(first_second + ns / second),
                      static_cast<long long>(ns % second));
        return text;
    }
    void address(EtalonRecord& record, std::size_t at, int rack, std::int32_t host) const {
        record.packet[at] = 10;
        record.packet[at + 1] = 1;
        record.packet[at + 2] = static_cast<std::uint8_t>(rack + 1);
        record.packet[at + 3] = static_cast<std::uint8_t>(host % hosts_per_rack_ + 1);
    }

    File& file_;
    int hosts_per_rack_;
};

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
    nlohmann::json summary{{"voqs", voq_summary(settings, fabric)}};
    if (!settings.buffer) return summary;
    const std::vector<std::int64_t> rates(settings.populated.size(), settings.packet_bps);
    std::int64_t data_packets = 0;
    summary["switches"] = nlohmann::json::array();
    for (std::size_t place = 0; place < settings.populated.size(); ++place) {
        auto& node = fabric.node(place);
        if (trace) node.settle_labels(0);
        summary["switches"].push_back(switch_summary("rack", settings.buffer->bytes, rates, node.counts(),
                                                     node.buffer().queues().occupancy(),
                                                     node.buffer().threshold_deficits()));
        data_packets += node.counts().data_in.packets;
    }
    if (trace) {
        trace->close();
        summary["arrivals"] = trace->rows();
        summary["labelled_drops"] = trace->labelled_drops();
    }
    summary.update({{"cell_bytes", 1 << hosts.scale.cell_shift},
                    {"average_shift", hosts.scale.average_shift},
                    {"tau", predictor.tau()},
                    {"flipped_predictions", predictor.flipped()},
                    {"leaf_data_packets", data_packets}});
    return summary;
}

}  // namespace foretail::packets
