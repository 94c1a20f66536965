// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "buffer/queues/port_queues.hpp"
#include "buffer/queues/ring.hpp"
#include "emulator/frame.hpp"
#include "emulator/racks/circuit_times.hpp"
#include "emulator/racks/rack_settings.hpp"

namespace foretail::packets::emulator {

/// What became of the packets of a virtual output queue (VOQ).
struct VoqCounts {
    std::int64_t arrived = 0, dropped = 0;
    std::int64_t by_packet = 0, by_circuit = 0;  ///< sent, by the network that took them
    std::int64_t longest = 0;                    ///< packets
};

/// Racks around a packet switch and a circuit switch, in virtual time and without a clock. A rack's switch has one VOQ
/// for every other rack. Its uplink to the packet switch serves those whose packet path is open, in turn; its circuit
/// serves the VOQ of the rack that the schedule gives it, with packets whose last bit leaves before night.
///
/// A packet leaves its VOQ as it is sent; what finds `capacity` packets there is dropped, and nothing else is: hosts,
/// the packet switch and links to hosts queue without limit. At one instant circuits change first, then links take
/// packets, then packets arrive.
///
/// Log: departed(frame, entered, left, by_circuit, source, destination, left_behind) for each packet that reaches the
///      switch of its rack, with the racks, when it came to its VOQ, and how many packets that holds now;
///      circuit(up, time, source, destination) when a circuit of a rack with hosts goes up or down.
template <class Log>
class RackFabric {
public:
    RackFabric(const RackSettings& settings, Log& log)
        : log_(log),
          times_(settings.matchings, settings.day_ns, settings.night_ns),
          rack_(settings.populated),
          voq_packets_(settings.voq_packets),
          resize_(settings.resize.value_or(Resize{settings.voq_packets, 0})),
          below_(static_cast<std::size_t>(settings.hosts_per_rack)),
          voqs_(racks() * racks()),
          turn_(racks(), 0),
          up_(racks(), CircuitTimes::idle) {
        using buffer::LineRate;
        const auto add = [&](std::size_t count, std::int64_t bps, std::int64_t delay_ns) {
            for (std::size_t i = 0; i < count; ++i) {
                Link& link = links_.emplace_back();
                link.rate = LineRate::from_bps(bps, 0);
                link.delay_ns = delay_ns;
            }
        };
        add(2 * hosts(), settings.host_bps, 0);
        add(2 * racks(), settings.packet_bps, settings.packet_delay_ns);
        add(racks(), settings.circuit_bps, settings.circuit_delay_ns);
        events_.reserve(2 * links_.size() + 1);
        push(0, Kind::change, 0);
    }

    /// A host sends at `now`, which is not before anything that has happened.
    void send(FramePool::Handle frame, std::int64_t now) {
        const auto host = static_cast<std::size_t>(frame->source);
        put(host, {std::move(frame), 0, 0}, now);
    }

    /// Lets everything up to `now` happen; `deliver(frame, time)` is called for each packet that reaches its host.
    template <class Deliver>
    void advance(std::int64_t now, Deliver&& deliver) {
        while (events_.front().time <= now) {
            std::pop_heap(events_.begin(), events_.end(), std::greater{});
            const Event event = events_.back();
            events_.pop_back();
            switch (event.kind) {
                case Kind::change: change(event.time); break;
                case Kind::ready:
                    event.link < circuit(0) ? serve_uplink(event.link - uplink(0), event.time)
                                            : serve_circuit(event.link - circuit(0), event.time);
                    break;
                case Kind::arrival: arrive(event.link, event.time, deliver);
            }
        }
    }
    /// When the next thing happens.
    [[nodiscard]] std::int64_t next_ns() const { return events_.front().time; }

    /// The VOQ of a pair of racks that have hosts, by their places among these.
    [[nodiscard]] const VoqCounts& counts(std::size_t source, std::size_t destination) const {
        return voqs_[source * racks() + destination].counts;
    }
    /// Packets that wait there.
    [[nodiscard]] std::size_t waiting(std::size_t source, std::size_t destination) const {
        return voqs_[source * racks() + destination].packets.size();
    }

private:
    /// A packet in a VOQ or on a link.
    struct Travelling {
        FramePool::Handle frame;
        std::int64_t entered = 0;  ///< when it came to its VOQ
        std::int64_t time = 0;     ///< of its arrival at the end of the link
    };
    struct Link {
        buffer::LineRate rate;
        std::int64_t delay_ns = 0, free_at = 0;
        buffer::Ring<Travelling> in_flight;
    };
    struct Voq {
        buffer::Ring<Travelling> packets;
        VoqCounts counts;
    };
    enum class Kind { change, ready, arrival };
    struct Event {
        std::int64_t time = 0;
        Kind kind = Kind::change;
        std::uint64_t order = 0;
        std::size_t link = 0;
        [[nodiscard]] bool operator>(const Event& other) const {
            return std::tie(time, kind, order) > std::tie(other.time, other.kind, other.order);
        }
    };

    // Links: of hosts to their switch, back, of racks to the packet switch, back, and circuits by their source.
    [[nodiscard]] std::size_t racks() const { return rack_.size(); }
    [[nodiscard]] std::size_t hosts() const { return racks() * below_; }
    [[nodiscard]] std::size_t downlink(std::size_t host) const { return hosts() + host; }
    [[nodiscard]] std::size_t uplink(std::size_t rack) const { return 2 * hosts() + rack; }
    [[nodiscard]] std::size_t output(std::size_t rack) const { return 2 * hosts() + racks() + rack; }
    [[nodiscard]] std::size_t circuit(std::size_t rack) const { return 2 * (hosts() + racks()) + rack; }
    [[nodiscard]] std::size_t rack_of(std::int32_t host) const { return static_cast<std::size_t>(host) / below_; }

    [[nodiscard]] std::int64_t capacity(std::size_t source, std::size_t destination, std::int64_t now) const {
        const bool enlarged = times_.until_circuit(rack_[source], rack_[destination], now) <= resize_.ahead_ns;
        return enlarged ? resize_.packets : voq_packets_;
    }

    /// Circuits go down, and others up.
    void change(std::int64_t now) {
        push(times_.next_change(now), Kind::change, 0);
        for (std::size_t source = 0; source < racks(); ++source) {
            if (up_[source] != CircuitTimes::idle) log_.circuit(false, now, rack_[source], up_[source]);
            up_[source] = times_.destination(rack_[source], now);
            if (up_[source] != CircuitTimes::idle) log_.circuit(true, now, rack_[source], up_[source]);
            serve_circuit(source, now);
            serve_uplink(source, now);
        }
    }

    void enter(Travelling packet, std::int64_t now) {
        const std::size_t source = rack_of(packet.frame->source), destination = rack_of(packet.frame->destination);
        Voq& voq = voqs_[source * racks() + destination];
        ++voq.counts.arrived;
        if (static_cast<std::int64_t>(voq.packets.size()) >= capacity(source, destination, now)) {
            ++voq.counts.dropped;
            return;
        }
        packet.entered = now;
        voq.packets.push_back(std::move(packet));
        serve_circuit(source, now);
        serve_uplink(source, now);
        voq.counts.longest = std::max(voq.counts.longest, static_cast<std::int64_t>(voq.packets.size()));
    }
    void serve_uplink(std::size_t source, std::int64_t now) {
        const std::size_t index = uplink(source);
        if (links_[index].free_at > now) return;
        for (std::size_t i = 0; i < racks(); ++i) {
            const std::size_t destination = (turn_[source] + i) % racks();
            Voq& voq = voqs_[source * racks() + destination];
            if (voq.packets.empty() || !times_.packet_path_open(rack_[source], rack_[destination], now)) continue;
            turn_[source] = destination + 1;
            ++voq.counts.by_packet;
            put(index, voq.packets.pop_front(), now);
            push(links_[index].free_at, Kind::ready, index);
            return;
        }
    }
    void serve_circuit(std::size_t source, std::int64_t now) {
        const std::size_t index = circuit(source);
        Link& link = links_[index];
        const auto found = std::ranges::lower_bound(rack_, up_[source]);
        if (link.free_at > now || found == rack_.end() || *found != up_[source]) return;
        Voq& voq = voqs_[source * racks() + static_cast<std::size_t>(found - rack_.begin())];
        if (voq.packets.empty()) return;
        const std::int64_t sent_at = now + link.rate.duration(voq.packets.front().frame->size_bytes);
        if (sent_at > times_.day_end(now)) return;
        ++voq.counts.by_circuit;
        put(index, voq.packets.pop_front(), now);
        push(link.free_at, Kind::ready, index);
    }

    template <class Deliver>
    void arrive(std::size_t index, std::int64_t now, Deliver&& deliver) {
        buffer::Ring<Travelling>& in_flight = links_[index].in_flight;
        Travelling packet = in_flight.pop_front();
        if (!in_flight.empty()) push(in_flight.front().time, Kind::arrival, index);
        const std::int32_t host = packet.frame->destination;
        if (index < downlink(0)) {
            enter(std::move(packet), now);
        } else if (index < uplink(0)) {
            deliver(std::move(packet.frame), now);
        } else if (index < output(0)) {
            put(output(rack_of(host)), std::move(packet), now);
        } else {
            const std::size_t source = rack_of(packet.frame->source), destination = rack_of(host);
            log_.departed(*packet.frame, packet.entered, now, index >= circuit(0), rack_[source], rack_[destination],
                          waiting(source, destination));
            put(downlink(static_cast<std::size_t>(host)), std::move(packet), now);
        }
    }
    /// Sends on a link, after what it is given before.
    void put(std::size_t index, Travelling packet, std::int64_t now) {
        Link& link = links_[index];
        link.free_at = std::max(now, link.free_at) + link.rate.duration(packet.frame->size_bytes);
        packet.time = link.free_at + link.delay_ns;
        if (link.in_flight.empty()) push(packet.time, Kind::arrival, index);
        link.in_flight.push_back(std::move(packet));
    }
    void push(std::int64_t time, Kind kind, std::size_t link) {
        events_.push_back({time, kind, next_order_++, link});
        std::push_heap(events_.begin(), events_.end(), std::greater{});
    }

    Log& log_;
    CircuitTimes times_;
    std::vector<int> rack_;  // with hosts, rising; all else here goes by places in it
    std::int64_t voq_packets_;
    Resize resize_;
    std::size_t below_;  // hosts of a rack
    std::vector<Voq> voqs_;
    std::vector<std::size_t> turn_;  // of each uplink: the VOQ that it looks at first
    std::vector<int> up_;            // of each circuit: the rack it goes to
    std::vector<Link> links_;
    std::vector<Event> events_;  // a heap; one change, and at most one ready and one arrival of a link
    std::uint64_t next_order_ = 0;
};

}  // namespace foretail::packets::emulator
