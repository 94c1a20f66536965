// SPDX-License-Identifier: MIT
#include "native/simulation.h"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "buffer/policies/policies.hpp"
#include "native/policy_simulation.h"
#include "packets/settings/settings_group.h"

namespace foretail::packets::native {

std::vector<buffer::CounterVector> Simulation::counters(std::int64_t) {
    throw std::invalid_argument(
        "nothing is counted: choose a policy whose alpha is set per interval, and setting 'counters' = true");
}

void Simulation::set_alphas(std::span<const double>) { static_cast<void>(Simulation::counters(now_ns())); }

std::unique_ptr<Simulation> make_simulation(const nlohmann::json& document, const std::string& folder,
                                            std::optional<buffer::FeatureSet> outside) {
    const Group root(document, "");
    if (auto racks = read_rack_run(root)) return make_rack_simulation(std::move(*racks), folder);
    Settings settings = resolved(read_settings(root));
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
