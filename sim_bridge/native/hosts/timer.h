// SPDX-License-Identifier: MIT
#pragma once

#include "packets/network/event_queue.h"

namespace foretail::packets::native {

/// A timer that may be armed again and again before it fires, while a queue of events holds it once: what it finds
/// there before its time is put back with its own.
class Timer {
public:
    [[nodiscard]] bool is_pending() const { return pending_; }
    void cancel() { pending_ = false; }
    /// Returns whether the queue has to be given the moment.
    bool arm(Moment moment) {
        pending_ = true;
        moment_ = moment;
        if (queued_ && !(moment < in_queue_)) return false;
        queued_ = true;
        in_queue_ = moment;
        return true;
    }
    enum class Found { nothing, later, now };
    /// The queue has come to a moment: nothing to do, to be queued again at `moment`, or to fire.
    Found reach(std::uint64_t order) {
        if (!queued_ || in_queue_.order != order) return Found::nothing;
        queued_ = false;
        if (!pending_) return Found::nothing;
        if (moment_.order == order) {
            pending_ = false;
            return Found::now;
        }
        queued_ = true;
        in_queue_ = moment_;
        return Found::later;
    }
    [[nodiscard]] Moment moment() const { return moment_; }

private:
    Moment moment_, in_queue_;
    bool pending_ = false, queued_ = false;
};

}  // namespace foretail::packets::native
