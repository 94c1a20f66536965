// SPDX-License-Identifier: MIT
// Compiled on the user's machine with a policy from outside (sim_bridge/guest_policies.py); opened by
// guest_library.hpp.
#include "buffer/guests/guest_library.hpp"

#include <utility>

using namespace foretail::buffer;

// Hidden but for these two: several such libraries, each with a Guest of its own, live in one process.
#pragma GCC visibility push(default)
extern "C" {

const std::size_t* foretail_guest_layout() { return guest_layout.data(); }

RecordedRun* foretail_guest_run(const PolicySettings* policy_settings, const SwitchSettings* settings) {
    const auto make = [&](Guest policy) { return recorded_run(std::move(policy), *settings).release(); };
    return detail::make_with<Guest>(*policy_settings, settings->shape, make);
}

}  // extern "C"
#pragma GCC visibility pop
