// SPDX-License-Identifier: MIT
#include "native/racks/rack_simulation.h"

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "packets/racks/fabric.h"

namespace foretail::packets::native {

std::unique_ptr<Simulation> make_rack_simulation(RackRun run, const std::string& folder) {
    return with_rack_policy(run.racks, [&](const auto& policy) -> std::unique_ptr<Simulation> {
        return std::make_unique<RackSimulation<std::remove_cvref_t<decltype(policy)>>>(std::move(run), policy, folder);
    });
}

}  // namespace foretail::packets::native
