// SPDX-License-Identifier: MIT
// A policy from outside as a shared library, which guest_library.cpp becomes with the policy's header.
#pragma once

#include <array>
#include <cstddef>

#include "buffer/policies/any_policy.hpp"

namespace foretail::buffer {

/// Sizes of what crosses: a library that was compiled with other headers has others.
inline constexpr std::array<std::size_t, 7> guest_layout = {
    sizeof(KnownPolicy),  sizeof(PolicySettings), sizeof(Shape),         sizeof(Arrival),
    sizeof(QueueLengths), sizeof(UnitQueues),     sizeof(DecisionInputs)};

extern "C" {
using GuestLayout = const std::size_t*();
using GuestPolicy = const KnownPolicy*();
}

}  // namespace foretail::buffer
