// SPDX-License-Identifier: MIT
// A policy from outside as a shared library, which guest_library.cpp becomes with the policy's header.
#pragma once

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

#include "buffer/run.hpp"

namespace foretail::buffer {

/// Sizes of what crosses: a library that was compiled with other headers has others.
inline constexpr std::array<std::size_t, 6> guest_layout = {sizeof(RecordedRun),    sizeof(RunColumns),
                                                            sizeof(PolicySettings), sizeof(SwitchSettings),
                                                            sizeof(Arrival),        sizeof(FeatureVector)};

extern "C" {
using GuestLayout = const std::size_t*();
using GuestRun = RecordedRun*(const PolicySettings*, const SwitchSettings*);
}

/// A run under the policy of a library, which stays loaded: the run's code is in it.
inline std::unique_ptr<RecordedRun> guest_run(const std::string& library, const PolicySettings& policy_settings,
                                              const SwitchSettings& settings) {
    void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) throw std::invalid_argument("cannot load the policy library '" + library + "': " + dlerror());
    // POSIX guarantees that a function pointer survives dlsym's void pointer.
    const auto layout = reinterpret_cast<GuestLayout*>(dlsym(handle, "foretail_guest_layout"));
    const auto run = reinterpret_cast<GuestRun*>(dlsym(handle, "foretail_guest_run"));
    if (!layout || !run) throw std::invalid_argument("'" + library + "' is not a policy library");
    for (std::size_t i = 0; i < guest_layout.size(); ++i) {
        if (layout()[i] != guest_layout[i]) {
            throw std::invalid_argument("the policy library '" + library +
                                        "' was compiled with other headers: install foretail again");
        }
    }
    return std::unique_ptr<RecordedRun>(run(&policy_settings, &settings));
}

}  // namespace foretail::buffer
