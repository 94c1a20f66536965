// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <utility>

#include "buffer/queues/ingress_queues.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

/// Takes packets that may not be lost into the queues of a switch: into the shared buffer, or, once their sender is
/// paused, into headroom.
///
/// Hooks say whether a queue at ingress with `reserve` bytes more is too long, `pauses(queue, reserve, now)`, push
/// packets out for an arrival, `make_room(arrival)`, which returns whether it fits then, and hear of
/// `ingress_about_to_change(queue, now)` and `paused(port, priority, now, on)`.
template <class Queues, class Hooks>
class LosslessAdmission {
public:
    LosslessAdmission(Queues& queues, IngressQueues& ingress, Hooks hooks)
        : queues_(&queues), ingress_(&ingress), hooks_(std::move(hooks)) {}

    template <class Payload>
    [[gnu::noinline]] Outcome admit(const Arrival& arrival, Payload payload) {
        const QueueIndex queue = ingress_->queue_of(arrival);
        hooks_.ingress_about_to_change(queue, arrival.time);
        if (!ingress_->is_paused(queue) && (hooks_.pauses(queue, 0, arrival.time) || !hooks_.make_room(arrival))) {
            ingress_->pause(queue);
            hooks_.paused(arrival.ingress, arrival.priority, arrival.time, true);
        }
        if (ingress_->is_paused(queue)) {
            if (!ingress_->has_headroom(queue, arrival.size)) {
                resume(arrival.time);  // an empty queue, which nothing will leave
                return Outcome::buffer_full;
            }
            ingress_->charge_headroom(queue, arrival.size);
            queues_->move_to_headroom(arrival.size);
        } else {
            ingress_->charge(queue, arrival.size);
        }
        queues_->push(arrival, std::move(payload));
        queues_->start(arrival.port, arrival.time);
        return Outcome::accepted;
    }

    /// A packet has left a queue of a port.
    template <class Packet>
    void release(QueueIndex queue, const Packet& packet, Tick now) {
        const QueueIndex at_ingress = ingress_->queue_of(packet.ingress, queues_->priority_of(queue));
        hooks_.ingress_about_to_change(at_ingress, now);
        queues_->move_to_headroom(-ingress_->release(at_ingress, packet.size));
    }

    /// Tells senders to go on whose queue at ingress has room again.
    [[gnu::noinline]] void resume(Tick now) {
        for (std::size_t i = 0; i < ingress_->paused().size();) {
            const QueueIndex queue = ingress_->paused()[i];
            if (!resumes(queue, now)) {
                ++i;
                continue;
            }
            ingress_->resume(queue);
            hooks_.paused(ingress_->port_of(queue), ingress_->priority_of(queue), now, false);
        }
    }

private:
    [[nodiscard]] bool resumes(QueueIndex queue, Tick now) {
        if (ingress_->headroom(queue) > 0) return false;
        const PauseSettings& settings = ingress_->settings();
        if (ingress_->length(queue) <= settings.xon) return true;
        return queues_->fits(settings.xon_offset) && !hooks_.pauses(queue, settings.xon_offset, now);
    }

    Queues* queues_;
    IngressQueues* ingress_;
    Hooks hooks_;
};

}  // namespace foretail::buffer
