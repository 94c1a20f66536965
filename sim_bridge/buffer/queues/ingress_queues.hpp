// SPDX-License-Identifier: MIT
// Queues at the ports by which packets came in, for traffic that may not be lost.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "buffer/types.hpp"

namespace foretail::buffer {

/// Out of which lossy queues Longest Queue Drop makes room for a packet that may not be lost: of those that are longer
/// than its own queue with it, of any, or of none.
enum class MakesRoom : std::uint8_t { longer_queues, any_queue, no_queue };
inline constexpr std::array<std::string_view, 3> makes_room_names = {"longer_queues", "any_queue", "no_queue"};

/// Queues that may not lose a packet: instead of dropping, a switch pauses those who send to them (priority flow
/// control, IEEE 802.1Qbb), and keeps in headroom what is on its way until they stop.
struct PauseSettings {
    std::uint8_t lossless = 0;    ///< priorities that may not lose, one bit each
    double alpha = 1;             ///< of the ingress threshold of policies that have none of their own
    std::vector<Bytes> headroom;  ///< of each port: what one of its ingress queues may hold of it
    Bytes headroom_pool = 0;      ///< what all ingress queues may hold of it together, beside the shared buffer
    Bytes xon_offset = 0;         ///< a queue at ingress resumes its sender when it is so far below its threshold
    /// And when it is at most so long, whatever its threshold. An empty one always does: headroom is room of its own,
    /// so that switches with full buffers do not wait for each other.
    Bytes xon = 0;
    MakesRoom makes_room = MakesRoom::longer_queues;

    [[nodiscard]] bool is_lossless(int priority) const { return (lossless >> priority & 1) != 0; }
    /// The same where senders do not hear of pauses, so that no headroom is enough: it has no end.
    [[nodiscard]] PauseSettings unheard() const {
        constexpr Bytes no_end = Bytes{1} << 60;
        PauseSettings settings = *this;
        settings.headroom.assign(headroom.size(), no_end);
        settings.headroom_pool = no_end;
        return settings;
    }
};

/// Where the packets of a switch came in: a queue for each port and priority, whose number is that of the port's queue
/// at egress. Of a lossless queue some bytes are in headroom, which they leave first; all others are in the shared
/// buffer.
class IngressQueues {
public:
    IngressQueues(Port ports, int priorities, PauseSettings settings)
        : settings_(std::move(settings)),
          priorities_(priorities),
          queues_(static_cast<std::size_t>(ports) * static_cast<std::size_t>(priorities)) {
        settings_.headroom.resize(static_cast<std::size_t>(ports));
    }

    [[nodiscard]] const PauseSettings& settings() const { return settings_; }
    [[nodiscard]] QueueIndex queues() const { return static_cast<QueueIndex>(queues_.size()); }
    [[nodiscard]] QueueIndex queue_of(Port ingress, int priority) const { return ingress * priorities_ + priority; }
    [[nodiscard]] QueueIndex queue_of(const Arrival& arrival) const {
        return queue_of(arrival.ingress, arrival.priority);
    }
    [[nodiscard]] Port port_of(QueueIndex queue) const { return queue / priorities_; }
    [[nodiscard]] int priority_of(QueueIndex queue) const { return queue % priorities_; }
    [[nodiscard]] bool is_lossless(QueueIndex queue) const { return settings_.is_lossless(priority_of(queue)); }

    /// Bytes of a queue in the shared buffer.
    [[nodiscard]] Bytes length(QueueIndex queue) const { return at(queue).shared; }
    [[nodiscard]] Bytes headroom(QueueIndex queue) const { return at(queue).headroom; }
    /// Of all queues that may not lose.
    [[nodiscard]] Bytes lossless_bytes() const { return lossless_bytes_; }
    [[nodiscard]] Bytes headroom_bytes() const { return headroom_bytes_; }
    [[nodiscard]] bool is_paused(QueueIndex queue) const { return at(queue).paused; }
    [[nodiscard]] const std::vector<QueueIndex>& paused() const { return paused_; }

    void charge(QueueIndex queue, Bytes size) {
        at(queue).shared += size;
        if (is_lossless(queue)) lossless_bytes_ += size;
    }
    /// Whether headroom has room for a packet.
    [[nodiscard]] bool has_headroom(QueueIndex queue, Bytes size) const {
        return headroom(queue) + size <= settings_.headroom[static_cast<std::size_t>(port_of(queue))] &&
               headroom_bytes_ + size <= settings_.headroom_pool;
    }
    void charge_headroom(QueueIndex queue, Bytes size) {
        at(queue).headroom += size;
        headroom_bytes_ += size;
    }
    /// A packet has left a queue; returns how much of it was in headroom.
    Bytes release(QueueIndex queue, Bytes size) {
        Queue& own = at(queue);
        const Bytes from_headroom = std::min(own.headroom, size);
        own.headroom -= from_headroom;
        headroom_bytes_ -= from_headroom;
        own.shared -= size - from_headroom;
        if (is_lossless(queue)) lossless_bytes_ -= size - from_headroom;
        return from_headroom;
    }
    void pause(QueueIndex queue) {
        at(queue).paused = true;
        paused_.push_back(queue);
    }
    void resume(QueueIndex queue) {
        at(queue).paused = false;
        std::erase(paused_, queue);
    }

private:
    struct Queue {
        Bytes shared = 0, headroom = 0;
        bool paused = false;
    };
    [[nodiscard]] Queue& at(QueueIndex queue) { return queues_[static_cast<std::size_t>(queue)]; }
    [[nodiscard]] const Queue& at(QueueIndex queue) const { return queues_[static_cast<std::size_t>(queue)]; }

    PauseSettings settings_;
    int priorities_;
    std::vector<Queue> queues_;
    std::vector<QueueIndex> paused_;  ///< those that are paused, in the order in which they were
    Bytes lossless_bytes_ = 0, headroom_bytes_ = 0;
};

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
