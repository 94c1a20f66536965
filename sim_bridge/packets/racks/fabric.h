// SPDX-License-Identifier: MIT
#pragma once

#include "packets/network/links.h"
#include "packets/racks/rack_settings.h"
#include "packets/switch_core.h"

namespace foretail::packets {

using buffer::CircuitTimes;

/// What became of the packets of a virtual output queue (VOQ).
struct VoqCounts {
    std::int64_t arrived = 0, dropped = 0;       ///< dropped: pushed out of it included
    std::int64_t by_packet = 0, by_circuit = 0;  ///< sent, by the network that took them
    std::int64_t longest = 0;                    ///< packets
};

/// Racks around a packet switch and a circuit switch, in virtual time and without a clock. A rack's switch has one VOQ
/// for every other rack, which its circuit and its uplink to the packet switch serve (buffer::VoqServer).
///
/// What finds `capacity` packets in its VOQ is dropped; or a policy decides, over a buffer that the VOQs of a rack
/// share. Nothing else is dropped: hosts, the packet switch and links to hosts queue without limit. At one instant
/// circuits change first, then links take packets, then packets arrive; a virtual LQD does so before each arrival.
///
/// FramePtr owns a frame as SwitchCore needs it, with source and destination.
/// Log: departed(frame, entered, left, by_circuit, source, destination, left_behind) for each packet that reaches the
///      switch of its rack, with the racks, when it came to its VOQ, and how many packets that holds now;
///      circuit(up, time, source, destination) when a circuit of a rack with hosts goes up or down.
template <class FramePtr, class Log>
class RackFabric {
public:
    /// A packet, in a VOQ or on a link.
    struct Waiting {
        FramePtr frame;
        std::int64_t entered = 0;  ///< when it came to its VOQ
        [[nodiscard]] auto& operator*() const { return *frame; }
        [[nodiscard]] auto* operator->() const { return frame.get(); }
    };
    /// A port is a VOQ, by the place of its destination.
    using Switch = SwitchCore<Waiting>;

    /// `common` is what hosts and switches have to know, their policy too; `trace` may be null.
    RackFabric(const RackSettings& settings, const Settings& common, Predictor& predictor, ArrivalTrace* trace,
               Log& log)
        : log_(log),
          times_(std::make_shared<const CircuitTimes>(settings.matchings, settings.day_ns, settings.night_ns)),
          rack_(settings.populated),
          voq_packets_(settings.voq_packets.value_or(without_limit)),
          resize_(settings.resize.value_or(Resize{voq_packets_, 0})),
          below_(static_cast<std::size_t>(settings.hosts_per_rack)),
          counts_(racks() * racks()),
          up_(racks(), CircuitTimes::idle) {
        using buffer::LineRate;
        buffer::SwitchSettings own =
            buffer_settings(common, std::vector<LineRate>(racks()),
                            settings.buffer ? settings.buffer->bytes : without_limit, predictor, trace != nullptr);
        switches_.reserve(racks());
        for (std::size_t i = 0; i < racks(); ++i) {
            own.shape.voqs = {times_, rack_, rack_[i], LineRate::from_bps(settings.packet_bps, 0),
                              LineRate::from_bps(settings.circuit_bps, 0)};
            switches_.emplace_back(common, static_cast<int>(i), own, predictor, trace);
        }
        const auto add = [&](std::size_t count, std::int64_t bps, std::int64_t delay_ns) {
            for (std::size_t i = 0; i < count; ++i) links_.emplace_back(LineRate::from_bps(bps, 0), delay_ns);
        };
        add(2 * hosts(), settings.host_bps, 0);
        add(2 * racks(), settings.packet_bps, settings.packet_delay_ns);
        add(racks(), settings.circuit_bps, settings.circuit_delay_ns);
        events_.reserve(2 * links_.size() + 1);
        schedule(0, Kind::change, 0);
    }

    /// A host sends at `now`, which is not before anything that has happened.
    void send(FramePtr frame, std::int64_t now) {
        const auto host = static_cast<std::size_t>(frame->source);
        put(host, {std::move(frame), 0}, now);
    }

    /// Lets everything up to `now` happen; `deliver(frame, time)` is called for each packet that reaches its host.
    template <class Deliver>
    void advance(std::int64_t now, Deliver&& deliver) {
        while (next_ns() <= now) {
            const Event event = events_.pop();
            const std::int64_t time = event.moment.time;
            switch (static_cast<Kind>(event.moment.order >> order_bits)) {
                case Kind::change: change(time); break;
                case Kind::ready: serve(event.what - (event.what < circuit(0) ? uplink(0) : circuit(0)), time); break;
                case Kind::arrival: arrive(event.what, time, deliver);
            }
        }
    }
    /// When the next thing happens.
    [[nodiscard]] std::int64_t next_ns() const { return events_.next().time; }

    /// The VOQ of a pair of racks that have hosts, by their places among these.
    [[nodiscard]] const VoqCounts& counts(std::size_t source, std::size_t destination) const {
        return counts_[source * racks() + destination];
    }
    /// Throws std::logic_error when packets that came to a VOQ are not those that left, were dropped or wait.
    void check_conservation() const {
        for (std::size_t source = 0; source < racks(); ++source) {
            switches_[source].check_conservation();
            for (std::size_t destination = 0; destination < racks(); ++destination) {
                const VoqCounts& voq = counts(source, destination);
                if (voq.arrived != voq.dropped + voq.by_packet + voq.by_circuit + waiting(source, destination))
                    throw std::logic_error("the VOQ from rack " + std::to_string(rack_[source]) + " to rack " +
                                           std::to_string(rack_[destination]) + " lost or invented packets");
            }
        }
    }
    /// The switch of a rack that has hosts, by its place among these.
    [[nodiscard]] Switch& node(std::size_t place) { return switches_[place]; }
    /// Packets that wait there.
    [[nodiscard]] std::int64_t waiting(std::size_t source, std::size_t destination) const {
        return switches_[source].buffer().queues().packets(static_cast<buffer::Port>(destination));
    }

private:
    /// What leaves the VOQs of a rack.
    struct Wires {
        RackFabric& fabric;
        std::size_t source;
        void departed(buffer::Port port, Waiting packet, std::int64_t, std::int64_t time) {
            fabric.take(source, static_cast<std::size_t>(port), std::move(packet), time);
        }
        void pushed_out(buffer::Port port) {
            ++fabric.counts_[source * fabric.racks() + static_cast<std::size_t>(port)].dropped;
        }
    };
    static constexpr std::int64_t without_limit = std::int64_t{1} << 40;
    enum class Kind : std::uint8_t { change, ready, arrival };
    static constexpr int order_bits = 60;  // of a number, whose higher bits are the kind

    // Links: of hosts to their switch, back, of racks to the packet switch, back, and circuits by their source.
    [[nodiscard]] std::size_t racks() const { return rack_.size(); }
    [[nodiscard]] std::size_t hosts() const { return racks() * below_; }
    [[nodiscard]] std::size_t downlink(std::size_t host) const { return hosts() + host; }
    [[nodiscard]] std::size_t uplink(std::size_t rack) const { return 2 * hosts() + rack; }
    [[nodiscard]] std::size_t output(std::size_t rack) const { return 2 * hosts() + racks() + rack; }
    [[nodiscard]] std::size_t circuit(std::size_t rack) const { return 2 * (hosts() + racks()) + rack; }
    [[nodiscard]] std::size_t rack_of(std::int32_t host) const { return static_cast<std::size_t>(host) / below_; }

    /// The larger one while the circuit of a pair is up, or near.
    [[nodiscard]] std::int64_t capacity(std::size_t source, std::size_t destination, std::int64_t now) const {
        const bool is_near = times_->until_circuit(rack_[source], rack_[destination], now) <= resize_.ahead_ns;
        return is_near ? resize_.packets : voq_packets_;
    }

    /// At one time events are in order of kind, and then of being scheduled.
    void schedule(std::int64_t time, Kind kind, std::size_t link) {
        events_.push({{time, static_cast<std::uint64_t>(kind) << order_bits | scheduled_++}, link});
    }
    /// Circuits go down, and others up.
    void change(std::int64_t now) {
        schedule(times_->next_change(now), Kind::change, 0);
        for (std::size_t source = 0; source < racks(); ++source) {
            if (up_[source] != CircuitTimes::idle) log_.circuit(false, now, rack_[source], up_[source]);
            up_[source] = times_->destination(rack_[source], now);
            if (up_[source] != CircuitTimes::idle) log_.circuit(true, now, rack_[source], up_[source]);
            serve(source, now);
        }
    }

    void enter(Waiting packet, std::int64_t now) {
        const std::size_t source = rack_of(packet.frame->source), destination = rack_of(packet.frame->destination);
        VoqCounts& counts = counts_[source * racks() + destination];
        ++counts.arrived;
        if (waiting(source, destination) >= capacity(source, destination, now)) {
            ++counts.dropped;
            return;
        }
        Switch& node = switches_[source];
        const buffer::Arrival arrival = node.arrival_of(*packet.frame, static_cast<buffer::Port>(destination), now);
        Wires wires{*this, source};
        const auto decision = node.receive({std::move(packet.frame), now}, arrival, wires, [](const auto&) {});
        counts.dropped += decision.outcome != buffer::Outcome::accepted;
        serve(source, now);
        counts.longest = std::max(counts.longest, waiting(source, destination));
    }
    /// Lets the links of a rack take what they may.
    void serve(std::size_t source, std::int64_t now) {
        Wires wires{*this, source};
        switches_[source].advance(now, wires);
    }
    /// A link of a rack, which is free, sends what it has taken: while their circuit is up, no VOQ has a packet path.
    void take(std::size_t source, std::size_t destination, Waiting packet, std::int64_t now) {
        const bool by_circuit = times_->until_circuit(rack_[source], rack_[destination], now) == 0;
        const std::size_t index = by_circuit ? circuit(source) : uplink(source);
        VoqCounts& counts = counts_[source * racks() + destination];
        ++(by_circuit ? counts.by_circuit : counts.by_packet);
        put(index, std::move(packet), now);
        schedule(links_[index].free_at_ns(), Kind::ready, index);
    }

    template <class Deliver>
    void arrive(std::size_t index, std::int64_t now, Deliver&& deliver) {
        Waiting packet = links_[index].take();
        if (!links_[index].empty()) schedule(links_[index].next_ns(), Kind::arrival, index);
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
    void put(std::size_t index, Waiting packet, std::int64_t now) {
        Link<Waiting>& link = links_[index];
        const bool awaited = !link.empty();
        const auto size = packet.frame->size_bytes;
        link.send(std::move(packet), size, now);
        if (!awaited) schedule(link.next_ns(), Kind::arrival, index);
    }

    Log& log_;
    std::shared_ptr<const CircuitTimes> times_;
    std::vector<int> rack_;  // with hosts, rising; all else here goes by places in it
    std::int64_t voq_packets_;
    Resize resize_;
    std::size_t below_;  // hosts of a rack
    std::vector<Switch> switches_;
    std::vector<VoqCounts> counts_;  // of each VOQ
    std::vector<int> up_;            // of each circuit: the rack it goes to
    std::vector<Link<Waiting>> links_;
    EventQueue events_;  // one change, and for each link at most one arrival
    std::uint64_t scheduled_ = 0;
};

}  // namespace foretail::packets
