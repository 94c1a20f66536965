// SPDX-License-Identifier: MIT
#pragma once

#include "packets/racks/rack_settings.h"

namespace foretail::packets::emulator {

/// What an emulation has beyond a scenario: the group `emulation` of the settings.
struct Emulation {
    std::int64_t factor = 1;            ///< ns of the machine's clock per virtual ns
    std::string control;                ///< congestion control, one of the kernel
    std::string background_control;     ///< of background flows
    bool tail_loss_probes = true;       ///< of the kernel: what is lost at the end is asked for before a timeout
    double lateness_share = 0;          ///< of the base round trip: a run whose 99th percentile is later is invalid
    std::vector<std::string> command;   ///< a program that every host runs, and its arguments; empty: none
    std::int64_t command_limit_ns = 0;  ///< of the clock, within which it has to end on host 0
};

struct EmulatorSettings {
    Settings network;  ///< with racks only what hosts have to know
    Emulation emulation;
    std::optional<RackSettings> racks;

    /// Round trip of a full segment and its acknowledgement in the idle network; with racks, without a circuit.
    [[nodiscard]] std::int64_t base_rtt_ns() const {
        if (!racks) return network.base_rtt_ns();
        return racks->base_rtt_ns(network.packet_bytes(network.transport.segment_bytes), network.packet_bytes(0));
    }
};

}  // namespace foretail::packets::emulator
