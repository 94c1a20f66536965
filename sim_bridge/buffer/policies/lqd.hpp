// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "buffer/policies/lossless/lossless.hpp"
#include "buffer/policies/policy.hpp"

namespace foretail::buffer {

/// Longest Queue Drop pushes out, which the switch does itself (longest_queue_drop.hpp).
struct PushOut : PolicyTraits, PauseWhenFull {
    static constexpr std::string_view name = "lqd";
    static constexpr bool pushes_out = true;
};

}  // namespace foretail::buffer
