// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "buffer/policies/policies.hpp"
#include "buffer/queues/port_queues.hpp"
#include "buffer/queues/ring.hpp"
#include "buffer/switch.hpp"
#include "buffer/types.hpp"
#include "packets/racks/circuit_times.h"
#include "packets/racks/rack_settings.h"

namespace foretail::packets {

/// What became of the packets of a virtual output queue (VOQ).
struct VoqCounts {
    std::int64_t arrived = 0, dropped = 0;       ///< dropped: pushed out of it included
    std::int64_t by_packet = 0, by_circuit = 0;  ///< sent, by the network that took them
    std::int64_t longest = 0;                    ///< packets
};

/// Racks around a packet switch and a circuit switch, in virtual time and without a clock. A rack's switch has one VOQ
/// for every other rack. Its uplink to the packet switch serves those whose packet path is open, in turn; its circuit
/// serves the VOQ of the rack that the schedule gives it, with packets whose last bit leaves before night.
///
/// A packet leaves its VOQ as it is sent. What finds `capacity` packets there is dropped; or a policy decides, over a
/// buffer that the VOQs of a rack share. Nothing else is dropped: hosts, the packet switch and links to hosts queue
/// without limit. At one instant circuits change first, then links take packets, then packets arrive.
///
/// With `announces_circuits` a rack's switch tells its hosts when their circuit to a rack is up, or its VOQ enlarged:
/// it calls announce_circuit(frame), where frames have that, for each packet that comes from this rack meanwhile.
///
/// FramePtr owns a frame with size_bytes, source, destination and flow_class.
/// Log: departed(frame, entered, left, by_circuit, source, destination, left_behind) for each packet that reaches the
///      switch of its rack, with the racks, when it came to its VOQ, and how many packets that holds now;
///      circuit(up, time, source, destination) when a circuit of a rack with hosts goes up or down.
template <class Policy, class FramePtr, class Log>
class RackFabric {
public:
    RackFabric(const RackSettings& settings, const Policy& policy, Log& log)
        : log_(log),
          times_(settings.matchings, settings.day_ns, settings.night_ns),
          rack_(settings.populated),
          voq_packets_(settings.voq_packets.value_or(without_limit)),
          resize_(settings.resize.value_or(Resize{voq_packets_, 0})),
          below_(static_cast<std::size_t>(settings.hosts_per_rack)),
          announces_(settings.announces_circuits),
          counts_(racks() * racks()),
          turn_(racks(), 0),
          up_(racks(), CircuitTimes::idle) {
        using buffer::LineRate;
        switches_.reserve(racks());
        for (std::size_t i = 0; i < racks(); ++i) switches_.emplace_back(voqs_of(settings), policy);
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
    void send(FramePtr frame, std::int64_t now) {
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
        return counts_[source * racks() + destination];
    }
    /// Throws std::logic_error when packets that came to a VOQ are not those that left, were dropped or wait.
    void check_conservation() const {
        for (std::size_t source = 0; source < racks(); ++source) {
            for (std::size_t destination = 0; destination < racks(); ++destination) {
                const VoqCounts& found = counts(source, destination);
                if (found.arrived != found.dropped + found.by_packet + found.by_circuit + waiting(source, destination))
                    throw std::logic_error("the VOQ from rack " + std::to_string(rack_[source]) + " to rack " +
                                           std::to_string(rack_[destination]) + " lost or invented packets");
            }
        }
    }
    /// Packets that wait there.
    [[nodiscard]] std::int64_t waiting(std::size_t source, std::size_t destination) const {
        return switches_[source].queues().packets(static_cast<buffer::Port>(destination));
    }

private:
    /// A packet in a VOQ or on a link.
    struct Travelling {
        FramePtr frame;
        std::int64_t entered = 0;  ///< when it came to its VOQ
        std::int64_t time = 0;     ///< of its arrival at the end of the link
    };
    struct Link {
        buffer::LineRate rate;
        std::int64_t delay_ns = 0, free_at = 0;
        buffer::Ring<Travelling> in_flight;
    };
    /// A port is a VOQ, by the place of its destination.
    using Switch = buffer::Switch<Policy, Travelling>;
    /// What a policy pushes out of the VOQs of a rack.
    struct PushedOut {
        RackFabric& fabric;
        std::size_t source;
        void pushed_out(buffer::Port port, typename Switch::Packet) {
            ++fabric.counts_[source * fabric.racks() + static_cast<std::size_t>(port)].dropped;
        }
        void departed(buffer::Port, typename Switch::Packet, std::int64_t) {}
        void fate(buffer::Row, std::int64_t, bool) {}
    };
    static constexpr std::int64_t without_limit = std::int64_t{1} << 40;
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

    [[nodiscard]] static buffer::SwitchSettings voqs_of(const RackSettings& settings) {
        buffer::SwitchSettings found;
        found.shape.capacity = settings.buffer ? settings.buffer->bytes : without_limit;
        found.shape.rates.resize(settings.populated.size());
        found.shape.taken_from = true;
        return found;
    }
    [[nodiscard]] std::int64_t capacity(std::size_t source, std::size_t destination, std::int64_t now) const {
        return is_enlarged(source, destination, now) ? resize_.packets : voq_packets_;
    }
    /// Whether the circuit of a pair is up, or so near that its VOQ has the larger capacity.
    [[nodiscard]] bool is_enlarged(std::size_t source, std::size_t destination, std::int64_t now) const {
        return times_.until_circuit(rack_[source], rack_[destination], now) <= resize_.ahead_ns;
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
        VoqCounts& counts = counts_[source * racks() + destination];
        ++counts.arrived;
        if (waiting(source, destination) >= capacity(source, destination, now)) {
            ++counts.dropped;
            return;
        }
        packet.entered = now;
        const buffer::Arrival arrival{.time = now,
                                      .port = static_cast<buffer::Port>(destination),
                                      .size = packet.frame->size_bytes,
                                      .data = packet.frame->flow_class != buffer::FlowClass::control};
        PushedOut sink{*this, source};
        switches_[source].observe(arrival, buffer::no_row, sink);
        const buffer::Outcome outcome = switches_[source].admit(arrival, std::move(packet), [] { return false; }, sink);
        counts.dropped += outcome != buffer::Outcome::accepted;
        serve_circuit(source, now);
        serve_uplink(source, now);
        counts.longest = std::max(counts.longest, waiting(source, destination));
    }
    void serve_uplink(std::size_t source, std::int64_t now) {
        const std::size_t index = uplink(source);
        if (links_[index].free_at > now) return;
        for (std::size_t i = 0; i < racks(); ++i) {
            const std::size_t destination = (turn_[source] + i) % racks();
            if (waiting(source, destination) == 0 || !times_.packet_path_open(rack_[source], rack_[destination], now))
                continue;
            turn_[source] = destination + 1;
            ++counts_[source * racks() + destination].by_packet;
            take(index, source, destination, now);
            return;
        }
    }
    void serve_circuit(std::size_t source, std::int64_t now) {
        const Link& link = links_[circuit(source)];
        const auto found = std::ranges::lower_bound(rack_, up_[source]);
        if (link.free_at > now || found == rack_.end() || *found != up_[source]) return;
        const auto destination = static_cast<std::size_t>(found - rack_.begin());
        if (waiting(source, destination) == 0) return;
        const auto& next = switches_[source].queues().head(static_cast<buffer::QueueIndex>(destination));
        if (now + link.rate.duration(next.size) > times_.day_end(now)) return;
        ++counts_[source * racks() + destination].by_circuit;
        take(circuit(source), source, destination, now);
    }
    /// Sends the head of a VOQ on a link that is free.
    void take(std::size_t index, std::size_t source, std::size_t destination, std::int64_t now) {
        put(index, switches_[source].take(static_cast<buffer::QueueIndex>(destination), now).payload, now);
        push(links_[index].free_at, Kind::ready, index);
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
            if constexpr (requires { announce_circuit(*packet.frame); }) {
                if (announces_ && is_enlarged(destination, source, now)) announce_circuit(*packet.frame);
            }
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
    bool announces_;
    std::vector<Switch> switches_;
    std::vector<VoqCounts> counts_;  // of each VOQ
    std::vector<std::size_t> turn_;  // of each uplink: the VOQ that it looks at first
    std::vector<int> up_;            // of each circuit: the rack it goes to
    std::vector<Link> links_;
    std::vector<Event> events_;  // a heap; one change, and for each link at most one arrival
    std::uint64_t next_order_ = 0;
};

/// Calls `use(fabric)` with racks under the policy that decides over the buffer of a rack's VOQs; those with a capacity
/// each share nothing.
template <class FramePtr, class Log, class Use>
decltype(auto) with_rack_fabric(const RackSettings& settings, Log& log, Use&& use) {
    const auto under = [&](const auto& policy) {
        RackFabric<std::remove_cvref_t<decltype(policy)>, FramePtr, Log> fabric(settings, policy, log);
        return use(fabric);
    };
    if (!settings.buffer || settings.buffer->policy == buffer::CompleteSharing::name)
        return under(buffer::CompleteSharing{});
    if (settings.buffer->policy == buffer::PushOut::name) return under(buffer::PushOut{});
    buffer::PolicySettings found;
    found.alpha = {settings.buffer->alpha};
    buffer::Shape shape;
    shape.rates.resize(settings.populated.size());
    return under(buffer::DynamicThresholds(found, shape));
}

}  // namespace foretail::packets
