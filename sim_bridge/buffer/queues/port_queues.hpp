// SPDX-License-Identifier: MIT
// The queues of a switch in bytes and nanoseconds: rates of ports, times of circuits, VOQs that links serve.
#pragma once

#include <cassert>
#include <memory>
#include <optional>

#include "buffer/queues/containers.hpp"
#include "buffer/queues/ingress_queues.hpp"

namespace foretail::buffer {

/// How long a port takes to send a packet: ceil((size + overhead) * ticks / per_bytes).
struct LineRate {
    std::int64_t ticks = 1;
    std::int64_t per_bytes = 1;
    Bytes overhead = 0;

    /// A link of `bps` bits per second with times in nanoseconds; `overhead` bytes travel but use no buffer.
    static constexpr LineRate from_bps(std::int64_t bps, Bytes overhead) { return {8'000'000'000, bps, overhead}; }
    /// One unit packet per slot.
    static constexpr LineRate one_per_slot() { return {}; }

    [[nodiscard]] constexpr Tick duration(Bytes size) const {
        return ((size + overhead) * ticks + per_bytes - 1) / per_bytes;
    }
    [[nodiscard]] constexpr double bytes_per_tick() const {
        return static_cast<double>(per_bytes) / static_cast<double>(ticks);
    }
};

/// When circuits between racks are up: a period of slots that is repeated from time 0 on for ever. A slot is a day, in
/// which the circuits of one matching are up, and the night after it, in which none is.
class CircuitTimes {
public:
    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
    static constexpr int idle = -1;

    /// `matchings[slot][rack]` is the rack that a rack's circuit goes to, or `idle`. All times are in ns.
    CircuitTimes(std::vector<std::vector<int>> matchings, std::int64_t day_ns, std::int64_t night_ns)
        : matchings_(std::move(matchings)), day_ns_(day_ns), slot_ns_(day_ns + night_ns), slots_of_(racks() * racks()) {
        for (std::size_t slot = 0; slot < matchings_.size(); ++slot) {
            for (std::size_t source = 0; source < racks(); ++source) {
                if (matchings_[slot][source] != idle)
                    slots_of_[pair(static_cast<int>(source), matchings_[slot][source])].push_back(
                        static_cast<std::int64_t>(slot));
            }
        }
    }

    [[nodiscard]] std::int64_t period_ns() const { return period() * slot_ns_; }
    /// The rack that a circuit of `source` goes to; `idle` at night, and without one.
    [[nodiscard]] int destination(int source, std::int64_t now) const {
        if (!is_day(now)) return idle;
        return matchings_[static_cast<std::size_t>(slot(now))][static_cast<std::size_t>(source)];
    }
    /// Time to the next circuit of a pair: 0 while it is up, `never` when no slot has it.
    [[nodiscard]] std::int64_t until_circuit(int source, int destination, std::int64_t now) const {
        const std::vector<std::int64_t>& slots = slots_of_[pair(source, destination)];
        if (slots.empty()) return never;
        const std::int64_t current = slot(now), first = is_day(now) ? current : current + 1;
        const auto next = std::ranges::lower_bound(slots, first);
        const std::int64_t ahead = (next != slots.end() ? *next : slots.front() + period()) - current;
        return ahead == 0 ? 0 : ahead * slot_ns_ - now % slot_ns_;
    }
    /// Whether packets of a pair may take the packet network: not while its circuit is up, nor in the night before.
    [[nodiscard]] bool packet_path_open(int source, int destination, std::int64_t now) const {
        return until_circuit(source, destination, now) > slot_ns_ - day_ns_;
    }
    /// When the day of `now` ends, or has ended.
    [[nodiscard]] std::int64_t day_end(std::int64_t now) const { return now - now % slot_ns_ + day_ns_; }
    /// When, after `now`, the next day or night begins.
    [[nodiscard]] std::int64_t next_change(std::int64_t now) const {
        return is_day(now) ? day_end(now) : now - now % slot_ns_ + slot_ns_;
    }

private:
    [[nodiscard]] std::size_t racks() const { return matchings_.front().size(); }
    [[nodiscard]] std::int64_t period() const { return static_cast<std::int64_t>(matchings_.size()); }
    [[nodiscard]] bool is_day(std::int64_t now) const { return now % slot_ns_ < day_ns_; }
    [[nodiscard]] std::int64_t slot(std::int64_t now) const { return now / slot_ns_ % period(); }
    [[nodiscard]] std::size_t pair(int source, int destination) const {
        return static_cast<std::size_t>(source) * racks() + static_cast<std::size_t>(destination);
    }

    std::vector<std::vector<int>> matchings_;
    std::int64_t day_ns_, slot_ns_;
    std::vector<std::vector<std::int64_t>> slots_of_;  // of each pair, rising
};

/// The links of a rack's switch, whose ports are virtual output queues (VOQs), one for each rack with hosts.
struct RackLinks {
    std::shared_ptr<const CircuitTimes> times;
    std::vector<int> racks;  ///< of each port, rising; numbers of the schedule
    int source = 0;          ///< the own rack
    LineRate uplink;         ///< to the packet switch
    LineRate circuit;

    /// Time to the next circuit of a port: 0 while it is up, CircuitTimes::never when there never is one.
    [[nodiscard]] Tick until_circuit(Port port, Tick now) const {
        return times->until_circuit(source, racks[static_cast<std::size_t>(port)], now);
    }
};

/// Serves the VOQs of a rack, real ones and virtual ones: the circuit those of the rack that the schedule names, with
/// packets whose last bit leaves before night; the uplink those whose packet path is open, in turn.
///
/// A packet leaves its VOQ as it is sent. At one instant circuits change first, then links take packets, then packets
/// arrive, and what arrives may be taken at that instant.
class VoqServer {
public:
    explicit VoqServer(RackLinks links) : links_(std::move(links)) {}

    [[nodiscard]] const RackLinks& links() const { return links_; }
    /// Lets links take packets up to `now`, in order of time: take(port, time) removes the head of a queue.
    template <class Queues, class Take>
    void advance(Tick now, const Queues& queues, Take&& take) {
        const Tick begun = served_;
        while (queues.occupancy() > 0) {
            // What two periods with idle links have not moved never will, such as a packet that no day has time for.
            if (served_ - std::max({begun, circuit_free_at_, uplink_free_at_}) > 2 * links_.times->period_ns()) break;
            serve(served_, queues, take);
            Tick next = links_.times->next_change(served_);
            for (const Tick free_at : {circuit_free_at_, uplink_free_at_}) {
                if (free_at > served_) next = std::min(next, free_at);
            }
            if (next > now) break;
            served_ = next;
        }
        served_ = now;
    }

private:
    template <class Queues, class Take>
    void serve(Tick now, const Queues& queues, Take& take) {
        const CircuitTimes& times = *links_.times;
        const std::vector<int>& racks = links_.racks;
        if (circuit_free_at_ <= now) {
            const int up = times.destination(links_.source, now);
            const auto rack = std::ranges::lower_bound(racks, up);
            const auto port = static_cast<Port>(rack - racks.begin());
            if (up != CircuitTimes::idle && rack != racks.end() && *rack == up && queues.length(port) > 0) {
                const Tick sent = now + links_.circuit.duration(queues.head(port).size);
                if (sent <= times.day_end(now)) {
                    circuit_free_at_ = sent;
                    take(port, now);
                }
            }
        }
        if (uplink_free_at_ > now) return;
        for (std::size_t i = 0; i < racks.size(); ++i) {
            const std::size_t place = (turn_ + i) % racks.size();
            const auto port = static_cast<Port>(place);
            if (queues.length(port) == 0 || !times.packet_path_open(links_.source, racks[place], now)) continue;
            turn_ = place + 1;
            uplink_free_at_ = now + links_.uplink.duration(queues.head(port).size);
            take(port, now);
            return;
        }
    }

    RackLinks links_;
    std::size_t turn_ = 0;  // the VOQ that the uplink looks at first
    Tick circuit_free_at_ = 0, uplink_free_at_ = 0;
    Tick served_ = 0;  // up to when
};

/// What a switch is made of, as far as its buffer is concerned.
struct Shape {
    Bytes capacity = 0;
    std::vector<LineRate> rates{};  ///< one per port
    Tie tie = Tie::lowest_port;     ///< which of several longest queues is the longest
    bool preemptive =
        false;           ///< what a port sends is only settled when it has left, and all packets have size 1 (slots)
    int priorities = 1;  ///< queues per port; a queue's number is its class, and the highest the lowest class
    Scheduler scheduler = Scheduler::round_robin;  ///< of the queues of a port
    std::vector<Bytes> quanta{};                   ///< deficit round robin: what each queue may send in its turn
    std::optional<RackLinks> voqs{};               ///< ports are VOQs: these links serve them, not line rates
    std::optional<PauseSettings> pause{};  ///< some queues may not lose; `capacity` is then what headroom leaves

    [[nodiscard]] Port ports() const { return static_cast<Port>(rates.size()); }
    [[nodiscard]] QueueIndex queues() const { return ports() * priorities; }
};

/// A packet of a queue, counted from its head among those that can be removed.
struct QueuePlace {
    QueueIndex queue = 0;
    std::size_t place = 0;
};

/// What policies see of the queues of a switch.
class QueueLengths {
public:
    [[nodiscard]] Port ports() const { return ports_; }
    [[nodiscard]] QueueIndex queues() const { return ports_ * priorities_; }
    [[nodiscard]] int priorities() const { return priorities_; }
    [[nodiscard]] QueueIndex queue_of(const Arrival& arrival) const {
        return priorities_ == 1 ? arrival.port : arrival.port * priorities_ + arrival.priority;
    }
    [[nodiscard]] Port port_of(QueueIndex queue) const { return priorities_ == 1 ? queue : queue / priorities_; }
    [[nodiscard]] int priority_of(QueueIndex queue) const { return priorities_ == 1 ? 0 : queue % priorities_; }
    [[nodiscard]] Bytes capacity() const { return capacity_; }
    [[nodiscard]] Bytes occupancy() const { return occupancy_; }
    [[nodiscard]] Bytes length(QueueIndex queue) const { return lengths_.key(queue); }
    [[nodiscard]] Bytes longest() const { return lengths_.best(); }
    /// Number of queues that hold a packet.
    [[nodiscard]] std::int64_t active() const { return longer_than(0); }
    [[nodiscard]] std::int64_t longer_than(Bytes length) const { return lengths_.above(length); }
    [[nodiscard]] bool fits(Bytes size) const { return occupancy_ + size <= capacity_; }

    /// Number of data packets of a queue that can still be removed.
    [[nodiscard]] virtual std::size_t removable(QueueIndex queue) const = 0;
    /// Of the i-th removable data packet of a queue, counted from the head.
    [[nodiscard]] virtual std::uint8_t rank(QueueIndex queue, std::size_t i) const = 0;
    /// The last of the removable data packets of a queue that have the highest rank; there is one at least.
    [[nodiscard]] virtual std::size_t highest_ranked(QueueIndex queue) const = 0;

protected:
    explicit QueueLengths(const Shape& shape)
        : ports_(shape.ports()),
          priorities_(shape.priorities),
          capacity_(shape.capacity),
          lengths_(shape.queues(), shape.tie, 0) {}
    QueueLengths(const QueueLengths&) = default;
    QueueLengths(QueueLengths&&) = default;
    QueueLengths& operator=(const QueueLengths&) = default;
    QueueLengths& operator=(QueueLengths&&) = default;
    ~QueueLengths() = default;

    Port ports_;
    int priorities_;
    Bytes capacity_;
    Bytes occupancy_ = 0;
    Tournament lengths_;
};

/// First-in-first-out queues, one per port and priority, over one shared buffer; each port sends at its line rate.
/// Round robin takes turns among its non-empty queues, packet by packet; strict takes the lowest number. In deficit
/// round robin (Shreedhar and Varghese) a queue gains its quantum when its turn comes, sends while its head fits into
/// what it has gained, and loses the rest when it runs empty.
///
/// A packet holds its bytes until its last bit has left; departures at time t come before arrivals at time t. Data and
/// control packets share a queue in order of arrival, but only data packets can be removed from it.
template <class Payload>
class PortQueues final : public QueueLengths {
public:
    struct Packet {
        Payload payload{};
        Bytes size = 0;
        std::uint64_t order = 0;
        std::uint8_t rank = 0;  ///< of several that could be pushed out, the highest goes first
        Port ingress = 0;       ///< by which it came
    };

    explicit PortQueues(const Shape& shape)
        : QueueLengths(shape),
          preemptive_(shape.preemptive),
          lossless_(shape.pause ? shape.pause->lossless : std::uint8_t{0}),
          makes_room_(shape.pause ? shape.pause->makes_room : MakesRoom::longer_queues),
          scheduler_(shape.scheduler),
          quanta_(shape.scheduler == Scheduler::deficit_round_robin ? shape.quanta : std::vector<Bytes>{}),
          deficits_(quanta_.empty() ? 0 : static_cast<std::size_t>(shape.queues())),
          queues_(static_cast<std::size_t>(shape.queues())),
          links_(shape.rates.size()),
          next_departure_(shape.ports()),
          tie_(shape.tie) {
        if (shape.voqs) server_.emplace(*shape.voqs);
        for (std::size_t i = 0; i < links_.size(); ++i) {
            links_[i].rate = shape.rates[i];
            links_[i].last_priority = priorities_ - 1;
        }
    }

    [[nodiscard]] bool sending(Port port) const { return link(port).sending; }
    /// When the packet being sent will have left. Only meaningful while sending.
    [[nodiscard]] Tick busy_until(Port port) const { return link(port).busy_until; }

    /// Appends a packet without starting its transmission, so that a push-out may still take it back.
    [[gnu::always_inline]] void push(const Arrival& arrival, Payload payload, std::uint8_t rank = 0) {
        const QueueIndex index = queue_of(arrival);
        auto& queue = at(index);
        (arrival.data ? queue.data : queue.control)
            .push_back({std::move(payload), arrival.size, next_order_++, rank, arrival.ingress});
        ++link(arrival.port).packets;
        resize(index, arrival.size);
    }

    /// Starts sending at time `now` on an idle port; does nothing on a busy or empty one.
    [[gnu::always_inline]] void start(Port port, Tick now) {
        Link& link = this->link(port);
        if (!link.sending && link.packets != 0 && !server_) start_next(link, port, now);
    }

    /// Pauses a queue of a port, or resumes it. The packet that is being sent goes on; `start` has to follow.
    void set_paused(Port port, int priority, bool paused) {
        auto& link = this->link(port);
        const auto bit = static_cast<std::uint8_t>(1U << priority);
        link.paused = static_cast<std::uint8_t>(paused ? link.paused | bit : link.paused & ~bit);
    }
    [[nodiscard]] bool any_paused() const {
        return std::ranges::any_of(links_, [](const Link& link) { return link.paused != 0; });
    }
    /// Lets all queues go on.
    void end_pauses(Tick now) {
        for (Port port = 0; port < ports(); ++port) {
            link(port).paused = 0;
            start(port, now);
        }
    }
    [[nodiscard]] bool is_paused(Port port, int priority) const { return (link(port).paused >> priority & 1) != 0; }

    /// Takes bytes of queued packets out of the shared buffer into headroom, or brings them back.
    void move_to_headroom(Bytes size) { occupancy_ -= size; }

    /// Packets of a port.
    [[nodiscard]] std::int64_t packets(Port port) const { return link(port).packets; }
    /// What a queue with packets would send next.
    [[nodiscard]] const Packet& head(QueueIndex index) const {
        const Queue& queue = at(index);
        return (control_first(queue) ? queue.control : queue.data).front();
    }
    /// Time to the next circuit of a VOQ, CircuitTimes::never where there are none.
    [[nodiscard]] Tick until_circuit(QueueIndex queue, Tick now) const {
        return server_ ? server_->links().until_circuit(queue, now) : CircuitTimes::never;
    }

    /// Whether nothing leaves by `now`.
    [[nodiscard]] bool is_quiet(Tick now) const { return next_departure_.time() > now && !server_; }
    /// Sends everything that has left by `now`, in order of time and then port.
    /// `departing(queue, time)` is called before a packet leaves, `departed(queue, packet, time)` with it.
    template <class Departing, class Departed>
    [[gnu::always_inline]] void advance(Tick now, Departing&& departing, Departed&& departed) {
        if (server_) {
            server_->advance(now, *this, [&](QueueIndex queue, Tick time) {
                departing(queue, time);
                departed(queue, take(queue), time);
            });
            return;
        }
        now = std::min(now, EarliestPort::never - 1);
        while (next_departure_.time() <= now) {
            const Port port = next_departure_.port();
            auto& link = this->link(port);
            const Tick time = link.busy_until;
            if (preemptive_) choose(link, port);
            const QueueIndex queue = link.queue;
            departing(queue, time);
            Packet packet = outgoing(link).pop_front();
            --link.packets;
            resize(queue, -packet.size);
            link.sending = false;
            if (link.packets == 0 || !start_next(link, port, time)) next_departure_.set(port, EarliestPort::never);
            departed(queue, std::move(packet), time);
        }
    }

    /// Whether a queue may not lose a packet.
    [[nodiscard]] bool is_lossless(QueueIndex queue) const {
        return lossless_ != 0 && (lossless_ >> priority_of(queue) & 1) != 0;
    }

    /// Whose packets may be pushed out for one that may not be lost.
    [[nodiscard]] MakesRoom makes_room() const { return makes_room_; }

    [[nodiscard]] std::size_t removable(QueueIndex queue) const override {
        if (is_lossless(queue)) return 0;
        return at(queue).data.size() - first_removable(queue);
    }

    [[nodiscard]] std::uint8_t rank(QueueIndex queue, std::size_t i) const override {
        return at(queue).data[first_removable(queue) + i].rank;
    }

    [[nodiscard]] std::size_t highest_ranked(QueueIndex queue) const override {
        std::size_t victim = removable(queue) - 1;
        for (std::size_t i = victim; i-- > 0;) {
            if (rank(queue, i) > rank(queue, victim)) victim = i;
        }
        return victim;
    }

    /// The longest queue that holds a removable packet, or -1.
    [[nodiscard]] QueueIndex longest_removable(Order order) const {
        if (priorities_ > 1 && order == Order::lower_classes_first) {
            QueueIndex longest = -1;
            for (int priority = priorities_; longest < 0 && priority-- > 0;) longest = scan(priority, priorities_);
            return longest;
        }
        return removable(lengths_.winner()) > 0 ? lengths_.winner() : scan(0, 1);
    }

    /// Removes the i-th removable data packet of a queue, counted from the head.
    Packet remove(QueueIndex queue, std::size_t i) {
        assert(i < removable(queue));
        const Port port = port_of(queue);
        Packet packet = at(queue).data.erase(first_removable(queue) + i);
        resize(queue, -packet.size);
        auto& link = this->link(port);
        if (--link.packets == 0) {  // only a preemptive port can lose the packet that it sends
            link.sending = false;
            next_departure_.set(port, EarliestPort::never);
        }
        return packet;
    }

    /// Takes back a control packet that was pushed last and could not be kept.
    Packet take_back_control(const Arrival& arrival) {
        auto& ring = at(queue_of(arrival)).control;
        Packet packet = ring.erase(ring.size() - 1);
        --link(arrival.port).packets;
        resize(queue_of(arrival), -packet.size);
        return packet;
    }

    /// Calls `visit(payload)` for the first data and the first control packet of every queue.
    template <class Visit>
    void for_each_front(Visit&& visit) const {
        for (const auto& queue : queues_) {
            if (!queue.data.empty()) visit(queue.data.front().payload);
            if (!queue.control.empty()) visit(queue.control.front().payload);
        }
    }

    /// Length of all queues of a port.
    [[nodiscard]] Bytes port_length(Port port) const {
        if (priorities_ == 1) return length(port);
        Bytes sum = 0;
        for (int p = 0; p < priorities_; ++p) sum += length(port * priorities_ + p);
        return sum;
    }
    /// The same, recounted packet by packet (for checks).
    [[nodiscard]] Bytes recount(Port port) const {
        Bytes sum = 0;
        for (int p = 0; p < priorities_; ++p) {
            const auto& queue = at(port * priorities_ + p);
            for (std::size_t i = 0; i < queue.data.size(); ++i) sum += queue.data[i].size;
            for (std::size_t i = 0; i < queue.control.size(); ++i) sum += queue.control[i].size;
        }
        return sum;
    }

private:
    struct Queue {
        Ring<Packet> data, control;
    };
    struct Link {
        LineRate rate;
        Tick busy_until = 0;
        Bytes last_size = 0;  // packets come in few sizes, and a division costs more than this comparison
        Tick last_duration = 0;
        std::int32_t packets = 0;
        QueueIndex queue = 0;  // that it sends from
        int last_priority = 0;
        bool sending = false, sending_control = false;
        std::uint8_t paused = 0;  ///< priorities, one bit each

        [[nodiscard]] Tick duration(Bytes size) {
            if (size != last_size) {
                last_size = size;
                last_duration = rate.duration(size);
            }
            return last_duration;
        }
    };

    [[nodiscard]] Queue& at(QueueIndex queue) { return queues_[static_cast<std::size_t>(queue)]; }
    [[nodiscard]] const Queue& at(QueueIndex queue) const { return queues_[static_cast<std::size_t>(queue)]; }
    [[nodiscard]] Link& link(Port port) { return links_[static_cast<std::size_t>(port)]; }
    [[nodiscard]] const Link& link(Port port) const { return links_[static_cast<std::size_t>(port)]; }
    [[nodiscard]] Ring<Packet>& outgoing(const Link& link) {
        return link.sending_control ? at(link.queue).control : at(link.queue).data;
    }

    /// Removes the head of a VOQ.
    Packet take(QueueIndex index) {
        Queue& queue = at(index);
        Packet packet = (control_first(queue) ? queue.control : queue.data).pop_front();
        --link(index).packets;
        resize(index, -packet.size);
        return packet;
    }

    /// The longest of every `step`-th queue that holds a removable packet, or -1.
    [[nodiscard]] QueueIndex scan(QueueIndex first, QueueIndex step) const {
        QueueIndex longest = -1;
        for (QueueIndex queue = first; queue < queues(); queue += step) {
            if (removable(queue) == 0) continue;
            if (longest < 0 || length(queue) > length(longest) ||
                (tie_ == Tie::highest_port && length(queue) == length(longest))) {
                longest = queue;
            }
        }
        return longest;
    }

    /// Starts sending on an idle port with packets; returns whether one of its queues may.
    [[gnu::always_inline]] bool start_next(Link& link, Port port, Tick now) {
        if (link.paused != 0 && !is_any_ready(port)) return false;
        link.sending = true;
        link.busy_until = now + link.duration(preemptive_ ? 1 : choose(link, port).front().size);
        next_departure_.set(port, link.busy_until);
        return true;
    }
    /// Settles which queue the port sends from, once for each packet that it sends; returns where that is at the head.
    [[gnu::always_inline]] Ring<Packet>& choose(Link& link, Port port) {
        QueueIndex index = port;
        if (priorities_ > 1) {
            link.last_priority = next(port * priorities_, link.last_priority);
            index = port * priorities_ + link.last_priority;
        }
        Queue& queue = at(index);
        link.queue = index;
        link.sending_control = control_first(queue);
        return link.sending_control ? queue.control : queue.data;
    }
    /// The priority to serve after `priority`, of the queues from `first` on, one of which holds a packet.
    [[nodiscard]] [[gnu::noinline]] int next(QueueIndex first, int priority) {
        if (scheduler_ == Scheduler::deficit_round_robin) {
            while (!affords(first + priority)) {
                priority = priority + 1 == priorities_ ? 0 : priority + 1;
                const QueueIndex queue = first + priority;
                if (is_ready(queue)) deficit(queue) += quanta_[static_cast<std::size_t>(priority)];
            }
            deficit(first + priority) -= head(first + priority).size;
            return priority;
        }
        if (scheduler_ == Scheduler::strict) priority = priorities_ - 1;
        do {
            priority = priority + 1 == priorities_ ? 0 : priority + 1;
        } while (!is_ready(first + priority));
        return priority;
    }
    /// Whether a queue has something that may be sent.
    [[nodiscard]] bool is_ready(QueueIndex queue) const {
        return length(queue) > 0 && !is_paused(port_of(queue), priority_of(queue));
    }
    [[nodiscard]] [[gnu::noinline]] bool is_any_ready(Port port) const {
        for (int p = 0; p < priorities_; ++p) {
            if (is_ready(port * priorities_ + p)) return true;
        }
        return false;
    }
    [[nodiscard]] Bytes& deficit(QueueIndex queue) { return deficits_[static_cast<std::size_t>(queue)]; }
    /// Whether the head of a queue fits into its deficit.
    [[nodiscard]] bool affords(QueueIndex queue) { return is_ready(queue) && head(queue).size <= deficit(queue); }
    [[nodiscard]] static bool control_first(const Queue& queue) {
        if (queue.control.empty() || queue.data.empty()) return queue.data.empty();
        return queue.control.front().order < queue.data.front().order;
    }
    [[nodiscard]] std::size_t first_removable(QueueIndex queue) const {
        const auto& link = this->link(port_of(queue));
        return link.sending && link.queue == queue && !link.sending_control && !preemptive_ ? 1 : 0;
    }
    [[gnu::always_inline]] void resize(QueueIndex queue, Bytes change) {
        const Bytes length = lengths_.key(queue) + change;
        lengths_.set(queue, length);
        occupancy_ += change;
        if (length == 0 && !deficits_.empty()) deficit(queue) = 0;
    }

    bool preemptive_;
    std::uint8_t lossless_;  ///< priorities, one bit each
    MakesRoom makes_room_;
    std::optional<VoqServer> server_;
    Scheduler scheduler_;
    std::vector<Bytes> quanta_, deficits_;  // of each priority, and of each queue
    std::uint64_t next_order_ = 0;
    std::vector<Queue> queues_;
    std::vector<Link> links_;
    EarliestPort next_departure_;
    Tie tie_;
};

}  // namespace foretail::buffer
