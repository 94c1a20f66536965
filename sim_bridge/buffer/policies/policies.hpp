// SPDX-License-Identifier: MIT
// Every policy type. Each decides one data arrival from the queues before it; the switch has already found that control
// packets need no decision. A type says what it is called and what it needs (PolicyTraits); where it needs settings or
// the switch's shape, it is built from both.
//
// A policy that has to follow the queues has `about_to_change(queue, time, length)`, called before each of its changes
// with the length that it has had since the last one.
#pragma once

#include "buffer/policies/abm.hpp"
#include "buffer/policies/complete_partitioning.hpp"
#include "buffer/policies/complete_sharing.hpp"
#include "buffer/policies/credence.hpp"
#include "buffer/policies/credence_artifact.hpp"
#include "buffer/policies/dynamic_thresholds.hpp"
#include "buffer/policies/followlqd.hpp"
#include "buffer/policies/guarded.hpp"
#include "buffer/policies/harmonic.hpp"
#include "buffer/policies/learned.hpp"
#include "buffer/policies/lossless/reverie.hpp"
#include "buffer/policies/lossless/sonic.hpp"
#include "buffer/policies/lqd.hpp"
#include "buffer/policies/occamy.hpp"
#include "buffer/policies/policy.hpp"
