// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "buffer/features/features.hpp"
#include "buffer/policies/policy.hpp"
#include "buffer/queues/port_queues.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

struct SwitchSettings {
    Shape shape;
    PushOutRules rules;
    std::optional<PolicySettings> occamy_oracle;  ///< Occamy, so set, decides labels and thresholds instead of LQD
    FeatureScale scale;
    bool labels = false;  ///< run the virtual LQD, for labels and virtual features
    FeatureSet features;  ///< that are read
    std::optional<Bytes>
        fluid_slack;  ///< thresholds from fluid counters with this slack instead of the exact ones; one queue per port
};

}  // namespace foretail::buffer
