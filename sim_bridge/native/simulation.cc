// SPDX-License-Identifier: MIT
#include "native/simulation.h"

#include <limits>
#include <utility>

#include "buffer/policies/policies.hpp"
#include "native/policy_simulation.h"
#include "packets/settings_group.h"

namespace foretail::packets::native {
namespace {

/// Throws std::runtime_error on settings of which this network does not simulate all.
void require_native(const Settings& settings) {
    const auto refuse_here = [](const std::string& what) {
        refuse(what + " is not simulated by the native network: run it in ns-3");
    };
    const auto& sizes = settings.background.size_bytes;
    if (settings.background.load > 0 && !sizes.empty() && sizes.back() > std::numeric_limits<std::uint32_t>::max())
        refuse_here("a flow above 4 GiB in setting 'background.size_bytes'");
}

}  // namespace

std::unique_ptr<Simulation> make_simulation(Settings settings, const std::string& folder,
                                            std::optional<buffer::FeatureSet> outside) {
    require_native(settings);
    if (outside && !buffer::known_policy(settings.policy.name).asks)
        refuse("policy '" + settings.policy.name + "' asks nobody: choose one that asks a predictor");
    const PolicyChoice policy = settings.policy;
    buffer::Shape shape;
    shape.priorities = settings.queues.count;
    return buffer::with_policy(policy.name, policy.settings, shape, [&](auto chosen) -> std::unique_ptr<Simulation> {
        return std::make_unique<PolicySimulation<decltype(chosen)>>(std::move(settings), folder, outside);
    });
}

}  // namespace foretail::packets::native
