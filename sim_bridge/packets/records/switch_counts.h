// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "buffer/queues/ingress_queues.hpp"
#include "packets/settings/settings.h"

namespace foretail::packets {

/// Packets and bytes of one class through one switch.
struct ClassCount {
    std::int64_t packets = 0, bytes = 0;
    void add(std::int64_t size) {
        ++packets;
        bytes += size;
    }
};

/// What became of the packets that may not be lost, and how often their senders were paused and resumed.
struct LosslessCounts {
    ClassCount in, out, drops;
    std::int64_t pauses = 0, resumes = 0;
    std::int64_t paused_ns = 0;            ///< of all queues at ingress together
    std::int64_t most_headroom_bytes = 0;  ///< in use at one time
};

/// What a switch saw: arrivals of control and data, departures, and data and control drops by outcome.
struct SwitchCounts {
    ClassCount data_in, control_in, data_out, control_out;
    std::array<ClassCount, 5> data_drops, control_drops;  ///< by buffer::Outcome; `accepted` stays empty
    std::int64_t asked = 0;
    std::int64_t marked = 0;
    LosslessCounts lossless;
};

/// A switch in a run's summary.
nlohmann::json switch_summary(std::string_view role, std::int64_t buffer_bytes,
                              const std::vector<std::int64_t>& rates_bps, const SwitchCounts& counts,
                              std::int64_t queued_bytes, std::int64_t threshold_deficits);

/// What a switch that can pause senders adds to that.
nlohmann::json lossless_summary(const LosslessCounts& counts, const buffer::PauseSettings& settings);

/// The same of a leaf or a spine, by its number in the network: leaves first, then spines.
nlohmann::json switch_summary(const Topology& topology, int index, const SwitchCounts& counts,
                              std::int64_t queued_bytes, std::int64_t threshold_deficits);

}  // namespace foretail::packets
