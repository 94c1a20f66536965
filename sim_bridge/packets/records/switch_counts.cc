// SPDX-License-Identifier: MIT
#include "packets/records/switch_counts.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

namespace foretail::packets {
namespace {

using nlohmann::json;

json to_json(const ClassCount& count) { return {{"packets", count.packets}, {"bytes", count.bytes}}; }

json to_json(const std::array<ClassCount, 5>& drops) {
    return {{"over_threshold", to_json(drops[1])},
            {"predicted", to_json(drops[2])},
            {"buffer_full", to_json(drops[3])},
            {"pushed_out", to_json(drops[4])}};
}

}  // namespace

json switch_summary(std::string_view role, std::int64_t buffer_bytes, const std::vector<std::int64_t>& rates_bps,
                    const SwitchCounts& counts, std::int64_t queued_bytes, std::int64_t threshold_deficits) {
    return {{"role", role},
            {"buffer_bytes", buffer_bytes},
            {"port_rates_bps", rates_bps},
            {"data_in", to_json(counts.data_in)},
            {"data_out", to_json(counts.data_out)},
            {"control_in", to_json(counts.control_in)},
            {"control_out", to_json(counts.control_out)},
            {"data_drops", to_json(counts.data_drops)},
            {"control_drops", to_json(counts.control_drops)},
            {"queued_bytes", queued_bytes},
            {"asked", counts.asked},
            {"marked", counts.marked},
            {"threshold_deficits", threshold_deficits}};
}

json lossless_summary(const LosslessCounts& counts, const buffer::PauseSettings& settings) {
    return {{"in", to_json(counts.in)},
            {"out", to_json(counts.out)},
            {"drops", to_json(counts.drops)},
            {"pauses", counts.pauses},
            {"resumes", counts.resumes},
            {"paused_ns", counts.paused_ns},
            {"most_headroom_bytes", counts.most_headroom_bytes},
            {"headroom_pool_bytes", settings.headroom_pool},
            {"xon_offset_bytes", settings.xon_offset}};
}

json switch_summary(const Topology& t, int index, const SwitchCounts& counts, std::int64_t queued_bytes,
                    std::int64_t threshold_deficits) {
    const bool leaf = index < t.leaves;
    std::vector<std::int64_t> rates(leaf ? static_cast<std::size_t>(t.servers_per_leaf) : 0, t.server_link_bps);
    if (leaf) {
        for (int spine = 0; spine < t.spines; ++spine) rates.push_back(t.bps_of_spine(spine));
    } else {
        rates.assign(static_cast<std::size_t>(t.leaves), t.bps_of_spine(index - t.leaves));
    }
    return switch_summary(leaf ? "leaf" : "spine", leaf ? t.leaf_buffer_bytes() : t.spine_buffer_bytes(), rates, counts,
                          queued_bytes, threshold_deficits);
}

}  // namespace foretail::packets
