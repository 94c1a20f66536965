// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "packets/records/flow_ledger.h"

namespace foretail::packets::native {

/// The slowdowns of what has been completed so far: of flows, and of queries, which the last of their answers
/// completes. sim_bridge/packets/cost.py says which flows count, and what the sums mean for the cost of a run.
class CostMeter {
public:
    /// Queries, short flows and long flows.
    static constexpr std::size_t kinds = 3;

    /// A flow or a query.
    struct Item {
        std::uint8_t kind = 0;
        double ideal_ns = 1;
        std::int32_t left = 0;  ///< flows that are not delivered
        std::int64_t time_ns = 0;
    };

    CostMeter() = default;
    /// `item_of` has the item of every flow, -1 where it does not count; the items have all their flows left.
    CostMeter(std::vector<std::int32_t> item_of, std::vector<Item> items)
        : item_of_(std::move(item_of)), items_(std::move(items)) {}

    /// Takes in what has been delivered since the last call.
    void read(const FlowLedger& ledger) {
        if (item_of_.empty()) return;
        for (const auto& delivered = ledger.delivered(); read_ < delivered.size(); ++read_) {
            const std::size_t flow = delivered[read_];
            if (item_of_[flow] < 0) continue;
            Item& item = items_[static_cast<std::size_t>(item_of_[flow])];
            item.time_ns = std::max(item.time_ns, ledger.record(flow).fct_ns);
            if (--item.left == 0) sums_[item.kind] += static_cast<double>(item.time_ns) / item.ideal_ns - 1;
        }
    }
    /// By kind: slowdowns less 1, summed over what is complete.
    [[nodiscard]] const std::array<double, kinds>& sums() const { return sums_; }

private:
    std::vector<std::int32_t> item_of_;
    std::vector<Item> items_;
    std::size_t read_ = 0;
    std::array<double, kinds> sums_{};
};

}  // namespace foretail::packets::native
