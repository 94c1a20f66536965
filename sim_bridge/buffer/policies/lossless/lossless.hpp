// SPDX-License-Identifier: MIT
// When queues at ingress that may not lose a packet are as long as they may be. A policy with a rule of its own has
//   pauses(queue, reserve, now, queues, ingress)
// which says whether a queue with `reserve` bytes more would be; all others have that of DynamicPause.
#pragma once

#include "buffer/queues/ingress_queues.hpp"
#include "buffer/queues/port_queues.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

/// Dynamic Thresholds at ingress, as switches have them: a queue pauses its sender from alpha times the free buffer on.
struct DynamicPause {
    [[nodiscard]] static bool pauses(QueueIndex queue, Bytes reserve, const QueueLengths& queues,
                                     const IngressQueues& ingress) {
        const Bytes free = queues.capacity() - queues.occupancy();
        return static_cast<double>(ingress.length(queue) + reserve) >=
               ingress.settings().alpha * static_cast<double>(free);
    }
};

/// Complete Sharing and Longest Queue Drop: only a full buffer does.
struct PauseWhenFull {
    [[nodiscard]] static bool pauses(QueueIndex, Bytes, Tick, const QueueLengths&, const IngressQueues&) {
        return false;
    }
};

}  // namespace foretail::buffer
