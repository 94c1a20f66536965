// SPDX-License-Identifier: MIT
// Switches of any topology, whose ports have schedulers: store and forward, queues at outputs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <queue>
#include <random>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "port.hpp"

namespace foretail::schedulers {

/// Ports that packets pass, one route after another.
struct Routes {
    std::vector<std::int64_t> begin;  ///< of each, and the end of the last
    std::vector<std::int32_t> ports;

    [[nodiscard]] std::span<const std::int32_t> operator[](std::int32_t route) const {
        const auto first = begin[static_cast<std::size_t>(route)], last = begin[static_cast<std::size_t>(route) + 1];
        return {ports.data() + first, static_cast<std::size_t>(last - first)};
    }
};

struct NetworkSettings {
    Drop drop = Drop::arrival;
    bool preemptive = false;  ///< an arrival that is served first interrupts a transmission, which goes on later
    Bands bands;
    std::uint64_t seed = 0;
};

/// Packets through ports. `Ends` has `delivered(packet, now)`, `dropped(packet, now)`, `woken(what, now)`, and
/// `idle(port, now)`, which may put a packet to a port with nothing to send.
///
/// At a time transmissions end before packets arrive, and ports choose after both. So a choice sees all that is there.
/// A packet holds its bytes until its last bit has left, and is not dropped while it is being sent. It is delivered
/// when its last bit leaves the last port of its route. `dropped` must not inject.
template <class Ends>
class Network {
public:
    Network(std::span<const PortSettings> ports, Routes routes, std::vector<std::int64_t> buffer_bytes,
            const NetworkSettings& settings, Ends& ends)
        : settings_(settings),
          routes_(std::move(routes)),
          buffer_bytes_(std::move(buffer_bytes)),
          held_bytes_(buffer_bytes_.size()),
          ports_of_(buffer_bytes_.size()),
          random_(settings.seed),
          ends_(&ends) {
        ports_.reserve(ports.size());
        for (std::size_t i = 0; i < ports.size(); ++i) {
            ports_.emplace_back(ports[i], &memory_);
            ports_of_[static_cast<std::size_t>(ports[i].owner)].push_back(static_cast<std::int32_t>(i));
        }
    }

    /// Takes a packet at its first port at a time; returns its number, which is used again when it is gone.
    std::int32_t inject(Time time, const Packet& packet) {
        std::int32_t number = static_cast<std::int32_t>(packets_.size());
        if (free_.empty()) {
            packets_.push_back(packet);
        } else {
            number = free_.back();
            free_.pop_back();
            packets_[static_cast<std::size_t>(number)] = packet;
        }
        packets_[static_cast<std::size_t>(number)].injected = injected_++;
        push(time, Kind::arrival, number);
        return number;
    }
    void wake(Time time, std::int32_t what) { push(time, Kind::wake, what); }
    void ask_to_pick(std::int32_t port, Time now) {
        if (!std::exchange(ports_[static_cast<std::size_t>(port)].picks, true)) push(now, Kind::pick, port);
    }

    void run() {
        while (!events_.empty()) {
            const Event event = events_.top();
            events_.pop();
            switch (event.kind) {
                case Kind::finish: finish(event.what, event.version, event.time); break;
                case Kind::arrival: arrive(event.what, event.time); break;
                case Kind::wake: ends_->woken(event.what, event.time); break;
                case Kind::pick: pick(event.what, event.time); break;
            }
        }
    }

    [[nodiscard]] std::span<const std::int32_t> route(std::int32_t number) const { return routes_[number]; }

private:
    enum class Kind : std::uint8_t { finish, arrival, wake, pick };  // in this order at a time
    struct Event {
        Time time;
        Kind kind;
        std::uint64_t order;
        std::int32_t what;
        std::uint32_t version;
        bool operator<(const Event& other) const {  // of std::priority_queue, whose top is the greatest
            return std::tie(time, kind, order) > std::tie(other.time, other.kind, other.order);
        }
    };

    void push(Time time, Kind kind, std::int32_t what, std::uint32_t version = 0) {
        events_.push({time, kind, order_++, what, version});
    }
    Packet& packet(std::int32_t number) { return packets_[static_cast<std::size_t>(number)]; }
    Port& port_of(const Packet& packet) {
        return ports_[static_cast<std::size_t>(routes_[packet.route][static_cast<std::size_t>(packet.hop)])];
    }

    std::int64_t key_of(const Packet& packet, Port& port, Time now) {
        switch (port.settings.scheduler) {
            case Scheduler::lifo: return -now;
            case Scheduler::priority: return packet.value;
            case Scheduler::fair: return port.finish_tag(packet.flow, packet.size_bytes);
            case Scheduler::lstf: return packet.value - packet.waited_ns + now + packet.left_ns;
            case Scheduler::edf: return packet.value - least_ns_after(packet);
            case Scheduler::bands: return band_of(packet.value - packet.waited_ns, settings_.bands);
            default: return 0;
        }
    }
    /// What a packet takes from the end of its transmission here to its exit, if it does not wait.
    Time least_ns_after(const Packet& packet) const {
        const auto ports = routes_[packet.route];
        Time least_ns = 0;
        for (auto hop = static_cast<std::size_t>(packet.hop); hop + 1 < ports.size(); ++hop) {
            least_ns += ports_[static_cast<std::size_t>(ports[hop])].settings.delay_ns;
            const auto next = static_cast<std::size_t>(ports[hop + 1]);
            least_ns += transmission_ns(packet.size_bytes, ports_[next].settings.rate_bps);
        }
        return least_ns;
    }

    void arrive(std::int32_t number, Time now) {
        Packet& arrival = packet(number);
        Port& port = port_of(arrival);
        arrival.arrived_ns = now;
        arrival.left_ns = transmission_ns(arrival.size_bytes, port.settings.rate_bps);
        if (port.is_busy()) ++arrival.congested;
        const Entry entry{key_of(arrival, port, now), now, arrival.injected, number};
        const auto owner = static_cast<std::size_t>(port.settings.owner);
        if (!make_room(owner, port, entry, now)) return drop(number, now);
        held_bytes_[owner] += arrival.size_bytes;
        port.queued_bytes += arrival.size_bytes;
        port.put(entry);
        if (port.serving.packet < 0) return ask_to_pick(port_index(port), now);
        if (settings_.preemptive && entry < port.serving) {
            packet(port.serving.packet).left_ns -= now - port.started_ns;
            ++port.version;
            port.put(std::exchange(port.serving, Entry{}));
            ask_to_pick(port_index(port), now);
        }
    }

    /// Drops what the rule names until the arrival fits; returns whether it does.
    bool make_room(std::size_t owner, Port& port, const Entry& entry, Time now) {
        const std::int64_t size_bytes = packet(entry.packet).size_bytes;
        while (held_bytes_[owner] + size_bytes > buffer_bytes_[owner]) {
            Port* const from = settings_.drop == Drop::arrival         ? nullptr
                               : settings_.drop == Drop::longest_queue ? longest(owner, port, size_bytes)
                                                                       : with_largest_key(owner, entry);
            if (!from || !from->last() || (from == &port && *from->last() < entry)) return false;
            const std::int32_t victim = from->last()->packet;
            from->remove_last();
            from->queued_bytes -= packet(victim).size_bytes;
            held_bytes_[owner] -= packet(victim).size_bytes;
            drop(victim, now);
        }
        return true;
    }
    /// The arrival counts in its own queue, and of equal queues the first is the longest.
    Port* longest(std::size_t owner, const Port& port, std::int64_t size_bytes) {
        Port* fullest = nullptr;
        std::int64_t most = -1;
        for (const std::int32_t index : ports_of_[owner]) {
            Port& one = ports_[static_cast<std::size_t>(index)];
            const std::int64_t bytes = one.queued_bytes + (&one == &port ? size_bytes : 0);
            if (bytes > most) std::tie(fullest, most) = std::pair(&one, bytes);
        }
        return fullest;
    }
    /// None where the arrival itself has the largest.
    Port* with_largest_key(std::size_t owner, const Entry& entry) {
        Port* latest = nullptr;
        Entry most = entry;
        for (const std::int32_t index : ports_of_[owner]) {
            Port& one = ports_[static_cast<std::size_t>(index)];
            if (const Entry* last = one.last(); last && most < *last) std::tie(latest, most) = std::pair(&one, *last);
        }
        return latest;
    }
    void drop(std::int32_t number, Time now) {
        const Packet gone = packet(number);
        free_.push_back(number);
        ends_->dropped(gone, now);
    }

    void pick(std::int32_t index, Time now) {
        Port& port = ports_[static_cast<std::size_t>(index)];
        port.picks = false;
        if (port.serving.packet >= 0) return;
        if (port.is_empty()) {
            port.rest();
            return ends_->idle(index, now);
        }
        port.serving = port.take(random_);
        port.started_ns = now;
        push(now + packet(port.serving.packet).left_ns, Kind::finish, index, port.version);
    }

    void finish(std::int32_t index, std::uint32_t version, Time now) {
        Port& port = ports_[static_cast<std::size_t>(index)];
        if (version != port.version) return;
        const std::int32_t number = std::exchange(port.serving, Entry{}).packet;
        Packet& sent = packet(number);
        sent.waited_ns += now - sent.arrived_ns - transmission_ns(sent.size_bytes, port.settings.rate_bps);
        port.queued_bytes -= sent.size_bytes;
        held_bytes_[static_cast<std::size_t>(port.settings.owner)] -= sent.size_bytes;
        ask_to_pick(index, now);
        if (static_cast<std::size_t>(++sent.hop) < routes_[sent.route].size()) {
            return push(now + port.settings.delay_ns, Kind::arrival, number);
        }
        const Packet arrived = sent;
        free_.push_back(number);
        ends_->delivered(arrived, now);
    }
    std::int32_t port_index(const Port& port) const { return static_cast<std::int32_t>(&port - ports_.data()); }

    NetworkSettings settings_;
    Routes routes_;
    std::vector<std::int64_t> buffer_bytes_, held_bytes_;  ///< of switches
    std::vector<std::vector<std::int32_t>> ports_of_;
    std::pmr::unsynchronized_pool_resource memory_;  ///< of queues: entries are used again
    std::vector<Port> ports_;
    std::vector<Packet> packets_;
    std::vector<std::int32_t> free_;
    std::priority_queue<Event> events_;
    std::uint64_t order_ = 0;
    std::int64_t injected_ = 0;
    std::mt19937_64 random_;
    Ends* ends_;
};

}  // namespace foretail::schedulers
