// SPDX-License-Identifier: MIT
#pragma once

#include "packets/branches.h"
#include "packets/congestion_control.h"
#include "packets/network/links.h"
#include "packets/switch_core.h"

namespace foretail::packets {

/// A star, a leaf-spine network or a fat tree in virtual time, without a clock: hosts with an unbounded queue onto one
/// link each, and switches under one policy. Switches and ports have the numbers that they have in ns-3.
///
/// Events are arrivals at the ends of links, in order of time and then of their scheduling: a host's packet is
/// scheduled when it is sent, that of a switch when it is the next on its link. A link has at most one event, that of
/// the packet sent longest ago; so events are never taken back, and their number is that of links. `order` numbers
/// them, and may number events outside the network too.
///
/// Where some queues may not lose a packet, switches pause those who send to them. The frame that says so waits for the
/// packet that its port is sending, and takes the time of its bytes and of the link, but no room on it. It comes before
/// all other events of its time, but after what the port that it reaches has sent by then; several come in the order in
/// which they were decided on. The interfaces of hosts then have the queues of a switch's port, without limit, and
/// their packets are scheduled as those of switches.
///
/// FramePtr is a frame as SwitchCore needs it, with source, destination, path_hash and mark_congestion(frame). Frames
/// that are lent can be copied with the network: a copy is its state, which can be assigned to the network that it is
/// of.
template <class FramePtr>
class LeafSpine {
public:
    using Switch = SwitchCore<FramePtr>;
    using Pool = FramePool<std::remove_pointer_t<FramePtr>>;

    /// `alphas` sets those of a policy that takes them; none where they stay.
    LeafSpine(const Settings& settings, Predictor& predictor, ArrivalTrace* trace, EventOrder& order,
              AlphaPredictor* alphas = nullptr)
        : topology_(settings.topology), order_(&order), predictor_(&predictor), alphas_(alphas) {
        using buffer::LineRate;
        const auto server_rate = LineRate::from_bps(topology_.server_link_bps, topology_.wire_overhead_bytes);
        for (int host = 0; host < topology_.servers(); ++host) {
            add_line(server_rate, -1, 0);
            places_.emplace_back(lines_.back().far_node, lines_.back().far_port);
        }
        for (int node = 0; node < topology_.switches(); ++node) add_switch(settings, node, predictor, trace);
        watched_ = !setters_.empty() || predictor.waits();
        line_count_ = lines_.size();
        pauses_ = settings.queues.lossless != 0;
        for (Line& line : lines_) line.numbered = line.node < 0 && !pauses_;
        events_ =
            LinkEvents(line_count_, topology_.link_delay_ns +
                                        server_rate.duration(settings.packet_bytes(settings.transport.segment_bytes)));
        if (topology_.erasure_probability > 0) erasures_.emplace(settings.seed, std::uint64_t{1} << 40);
        if (!pauses_) return;
        buffer::Shape shape{.capacity = std::numeric_limits<buffer::Bytes>::max(),
                            .rates = {server_rate},
                            .priorities = settings.queues.count,
                            .scheduler = settings.queues.scheduler,
                            .quanta = settings.queues.quantum_bytes};
        for (int host = 0; host < topology_.servers(); ++host) interfaces_.emplace_back(shape);
        queue_of_ = settings.queues.queue_of;
    }

    /// Divides the run where these say so; with policies that do not push out.
    void divide(BranchPoints& branches) {
        branches_ = &branches;
        watched_ = true;
    }
    /// Lets switches write telemetry on data packets that leave them, where frames have a number.
    void measure(FrameTelemetry& telemetry) {
        telemetry_ = &telemetry;
        sent_bytes_.resize(lines_.size());
    }
    /// Calls `tell(host, priority, paused, time)` when a host has to stop sending to a lossless queue, or may go on.
    void tell_hosts(std::function<void(int, int, bool, std::int64_t)> tell) { tell_ = std::move(tell); }
    /// Hands frames that are lost to a pool, which has lent them.
    void give_lost_to(Pool& pool) { pool_ = &pool; }

    /// A host sends at `now`, which is not before anything that has happened.
    void send(FramePtr frame, std::int64_t now) { send(std::move(frame), now, order_->take()); }
    /// The same with a number of the packet's arrival that was taken before.
    [[gnu::always_inline]] void send(FramePtr frame, std::int64_t now, std::uint64_t order) {
        const auto host = static_cast<std::size_t>(frame->source);
        const auto size = frame->size_bytes;
        if (!interfaces_.empty()) {
            collect_host(host, now);
            const buffer::Arrival arrival{
                .time = now, .size = size, .priority = queue_of_[static_cast<std::size_t>(frame->flow_class)]};
            interfaces_[host].push(arrival, std::move(frame));
            interfaces_[host].start(0, now);
            return schedule(host, now);
        }
        lines_[host].link.send(std::move(frame), size, now, order);
        schedule(host, now);
    }

    /// Lets everything up to `now` happen; `deliver(frame, time)` is called for each packet that reaches its host.
    template <class Deliver>
    void advance(std::int64_t now, Deliver&& deliver) {
        while (next_ns() <= now) step(deliver);
    }
    /// Lets the next thing happen, and returns whether a host hears of it. There must be one.
    template <class Deliver>
    [[gnu::always_inline]] bool step(Deliver&& deliver) {
        const Event event = events_.pop();
        if (event.what < line_count_) {
            return arrive(event.what, event.moment.time, deliver);
        } else if (event.what == line_count_) {
            take_samples(event.moment.time);
        } else {
            set_paused(event.what - line_count_ - 1, event.moment.time);
        }
        return true;
    }
    /// When the next thing happens; the largest number when nothing will.
    [[nodiscard]] std::int64_t next_ns() const { return events_.front().moment.time; }
    [[nodiscard]] const Moment& next() const { return events_.front().moment; }
    /// Whether that is the arrival of a packet at a switch. There must be something.
    [[nodiscard]] bool next_reaches_switch() const {
        const std::size_t link = events_.front().what;
        return link < line_count_ && lines_[link].far_node >= 0;
    }

    /// An arrival that waits for the answer of somebody outside. Nothing else may happen before `resume`.
    struct Waiting {
        int node = 0;
        FramePtr frame{};
        buffer::Arrival arrival;
        typename Switch::Looked looked;
    };
    [[nodiscard]] const std::optional<Waiting>& waiting() const { return waiting_; }
    /// Decides the arrival that waits, now that the predictor has its answer.
    void resume() {
        Waiting waiting = std::move(*waiting_);
        waiting_.reset();
        Wires wires{*this, first_line_[static_cast<std::size_t>(waiting.node)]};
        decide(waiting.node, std::move(waiting.frame), waiting.arrival, waiting.looked, wires);
    }

    /// Samples every switch every `interval_ns` from `from_ns` to before `until_ns`.
    void sample(std::int64_t from_ns, std::int64_t until_ns, std::int64_t interval_ns,
                std::function<void(const buffer::OccupancyRecord&)> take) {
        interval_ns_ = interval_ns;
        until_ns_ = until_ns;
        take_ = std::move(take);
        events_.push_other({{from_ns, order_->take()}, line_count_});
    }

    /// Closes the intervals of counters that have ended by `now`, before which everything has happened; returns what
    /// each queue counted, switch by switch.
    std::vector<buffer::CounterVector> counters(std::int64_t now) {
        std::vector<buffer::CounterVector> counted;
        for (std::size_t index = 0; index < setters_.size(); ++index) {
            auto& buffer = switches_[index].buffer();
            setters_[index].advance(now, buffer.policy());
            for (buffer::QueueIndex queue = 0; queue < buffer.queues().queues(); ++queue)
                counted.push_back(setters_[index].counters().of(queue));
        }
        return counted;
    }
    /// How many queues that is; 0 where nothing is counted.
    [[nodiscard]] std::size_t counted_queues() const {
        std::size_t queues = 0;
        if (setters_.empty()) return queues;
        for (const auto& node : switches_) queues += static_cast<std::size_t>(node.buffer().queues().queues());
        return queues;
    }
    /// Sets the alpha of each queue, in the order of `counters`.
    void set_alphas(std::span<const double> alphas) {
        auto next = alphas.begin();
        for (auto& node : switches_) {
            for (buffer::QueueIndex queue = 0; queue < node.buffer().queues().queues(); ++queue)
                node.buffer().policy().set_alpha(queue, *next++);
        }
    }

    /// Ends the run at `now`: departures up to then, and the labels of what is left.
    void finish(std::int64_t now, bool labels) {
        for (auto& node : switches_) {
            collect(node, now);
            node.check_conservation();
            if (labels) node.settle_labels(now);
        }
    }
    [[nodiscard]] const std::vector<Switch>& switches() const { return switches_; }
    /// Packets that links have lost.
    [[nodiscard]] std::int64_t erased() const { return erased_; }

private:
    /// The link of a host, by its number, or of a port of a switch, in order of switches and ports.
    struct Line {
        Link<FramePtr> link;
        int node = -1;  ///< the switch that sends on it; -1: a host
        buffer::Port port = 0;
        int far_node = -1, far_port = 0;  ///< the switch at its other end and its port; -1 and a host
        bool numbered = false;            ///< its packets have the numbers of their arrivals
        bool scheduled = false;
    };
    /// What a switch does with packets that have left.
    struct Wires {
        LeafSpine& network;
        std::size_t first;
        void departed(buffer::Port port, FramePtr frame, std::int64_t size, std::int64_t time) {
            const std::size_t index = first + static_cast<std::size_t>(port);
            if constexpr (requires { frame->number; }) {
                if (network.telemetry_) network.write_telemetry(*frame, index, size, time);
            }
            network.lines_[index].link.carry(std::move(frame), time);
        }
        void lost(FramePtr frame)
            requires std::is_pointer_v<FramePtr>
        {
            network.pool_->give_back(frame);
        }
        void paused(buffer::Port port, int priority, std::int64_t time, bool on) {
            network.send_pause(first + static_cast<std::size_t>(port), priority, time, on);
        }
    };
    void add_line(buffer::LineRate rate, int node, buffer::Port port) {
        const auto [far_node, far_port] = topology_.far_end(node, node < 0 ? static_cast<int>(lines_.size()) : port);
        lines_.push_back({Link<FramePtr>(rate, topology_.link_delay_ns), node, port, far_node, far_port});
    }
    void add_switch(const Settings& s, int index, Predictor& predictor, ArrivalTrace* trace) {
        first_line_.push_back(lines_.size());
        std::vector<buffer::LineRate> rates;
        for (const std::int64_t bps : topology_.port_rates_bps(index)) {
            rates.push_back(buffer::LineRate::from_bps(bps, topology_.wire_overhead_bytes));
            add_line(rates.back(), index, static_cast<buffer::Port>(rates.size() - 1));
        }
        buffer::SwitchSettings settings =
            buffer_settings(s, std::move(rates), topology_.buffer_bytes(index), predictor, trace != nullptr);
        s.set_headroom_aside(settings.shape);
        switches_.emplace_back(s, index, settings, predictor, trace);
        if (alphas_ && alphas_->interval_ns()) setters_.emplace_back(*alphas_, settings.shape, index);
    }

    template <class Deliver>
    [[gnu::always_inline]] bool arrive(std::size_t index, std::int64_t time, Deliver&& deliver) {
        Line& line = lines_[index];
        // A packet on the link has left its switch, and what has left since can wait: only pauses follow from that.
        if (line.link.empty() || pauses_) collect(index, time);
        FramePtr frame = line.link.take();
        line.scheduled = false;
        schedule(index, time);
        if (erasures_ && erasures_->uniform() < topology_.erasure_probability) return erase(std::move(frame));
        if (line.far_node < 0) {
            deliver(std::move(frame), time);
            return true;
        }
        receive(line.far_node, line.far_port, std::move(frame), time);
        return false;
    }
    /// The link loses a packet, which no switch counts as a drop and no host hears of.
    bool erase(FramePtr frame) {
        ++erased_;
        if constexpr (std::is_pointer_v<FramePtr>) pool_->give_back(frame);
        return false;
    }
    [[gnu::always_inline]] void receive(int number, buffer::Port ingress, FramePtr frame, std::int64_t now) {
        const auto index = static_cast<std::size_t>(number);
        const auto [leaf, port_of_leaf] = places_[static_cast<std::size_t>(frame->destination)];
        const buffer::Port port = topology_.cores > 0
                                      ? topology_.port_towards(number, frame->destination, frame->path_hash)
                                  : number >= topology_.leaves ? leaf
                                  : number == leaf             ? port_of_leaf
                                                               : topology_.port_upwards(frame->path_hash);
        Wires wires{*this, first_line_[index]};
        Switch& node = switches_[index];
        const buffer::Arrival arrival = node.arrival_of(*frame, port, now, ingress);
        if (watched_ && branches_) branches_->arrived();
        if (watched_ && !setters_.empty()) setters_[index].advance(now, node.buffer().policy());
        const auto looked = node.look(*frame, arrival, wires, [](auto& marked) { mark_congestion(marked); });
        if (watched_ && predictor_->waits() && node.buffer().asks(arrival)) {
            waiting_ = Waiting{number, std::move(frame), arrival, looked};
            return;
        }
        decide(number, std::move(frame), arrival, looked, wires);
    }
    [[gnu::always_inline]] void decide(int number, FramePtr frame, const buffer::Arrival& arrival,
                                       const typename Switch::Looked& looked, Wires& wires) {
        const auto index = static_cast<std::size_t>(number);
        const std::size_t line = wires.first + static_cast<std::size_t>(arrival.port);
        Switch& node = switches_[index];
        // The frame may be gone when it has been decided.
        const std::uint32_t path_hash = frame->path_hash;
        const buffer::FlowClass flow_class = frame->flow_class;
        const auto settled = [&](buffer::Outcome outcome) {
            return branches_ ? branched(node, arrival, flow_class, outcome) : outcome;
        };
        const auto decision = node.decide(std::move(frame), arrival, looked, wires, settled);
        if (watched_ && branches_) lines_[line].link.lengthen(branches_->longer_ns());
        if (watched_ && !setters_.empty())
            setters_[index].count(arrival, path_hash, decision.outcome != buffer::Outcome::accepted, decision.marked,
                                  node.buffer().queues());
        schedule(line, arrival.time);
    }
    /// What the policy's decision becomes where the run divides, or in a branch.
    buffer::Outcome branched(Switch& node, const buffer::Arrival& arrival, buffer::FlowClass flow_class,
                             buffer::Outcome outcome) {
        const bool fits = node.buffer().queues().fits(arrival.size);
        if (!branches_->begun() && branches_->divides(outcome, fits) && branches_->planned())
            branches_->begin(*branches_->planned(), node.index(), arrival, flow_class, outcome);
        return branches_->begun() ? branches_->decided(node.index(), arrival, flow_class, outcome, fits) : outcome;
    }
    /// A packet leaves by a line of a switch.
    template <class Frame>
    void write_telemetry(const Frame& frame, std::size_t index, std::int64_t size, std::int64_t time) {
        const Line& line = lines_[index];
        const buffer::LineRate& rate = line.link.rate();
        sent_bytes_[index] += size + rate.overhead;
        if (frame.flow_class == buffer::FlowClass::control) return;
        const auto& queues = switches_[static_cast<std::size_t>(line.node)].buffer().queues();
        (*telemetry_)[frame.number].append({.time_ns = time,
                                            .queue_bytes = queues.port_length(line.port),
                                            .sent_bytes = sent_bytes_[index],
                                            .bytes_per_ns = rate.bytes_per_tick()});
    }
    void collect(Switch& node, std::int64_t now) {
        Wires wires{*this, first_line_[static_cast<std::size_t>(node.index())]};
        node.advance(now, wires);
    }
    /// Sends all that has left the sender of a line.
    [[gnu::noinline]] void collect(std::size_t index, std::int64_t now) {
        const int node = lines_[index].node;
        node >= 0 ? collect(switches_[static_cast<std::size_t>(node)], now) : collect_host(index, now);
    }
    [[gnu::noinline]] void collect_host(std::size_t host, std::int64_t now) {
        interfaces_[host].advance(
            now, [](buffer::QueueIndex, std::int64_t) {},
            [&](buffer::QueueIndex, auto packet, std::int64_t time) {
                lines_[host].link.carry(std::move(packet.payload), time);
            });
    }

    /// Events beyond those of lines and samples: each priority of each line stops, or goes on.
    static constexpr std::size_t pause_events = 2 * 8;

    /// A switch tells the sender at the other end of a line to stop, or to go on.
    [[gnu::noinline]] void send_pause(std::size_t index, int priority, std::int64_t now, bool on) {
        const Line& line = lines_[index];
        const Switch& node = switches_[static_cast<std::size_t>(line.node)];
        const auto& queues = node.buffer().queues();
        const std::int64_t free_at = queues.sending(line.port) ? std::max(now, queues.busy_until(line.port)) : now;
        const auto port = static_cast<std::size_t>(line.far_port);
        const std::size_t stops =
            line.far_node < 0 ? port : first_line_[static_cast<std::size_t>(line.far_node)] + port;
        events_.push_other(
            {{free_at + line.link.rate().duration(Pauses::frame_bytes) + line.link.delay_ns(), order_->take_early()},
             line_count_ + 1 + stops * pause_events + 2 * static_cast<std::size_t>(priority) + (on ? 1 : 0)});
    }
    [[gnu::noinline]] void set_paused(std::size_t what, std::int64_t now) {
        const std::size_t index = what / pause_events;
        const Line& line = lines_[index];
        const int priority = static_cast<int>(what % pause_events / 2);
        const bool on = what % 2 == 1;
        if (line.node >= 0) {
            Wires wires{*this, first_line_[static_cast<std::size_t>(line.node)]};
            switches_[static_cast<std::size_t>(line.node)].set_paused(line.port, priority, now, on, wires);
        } else {
            collect_host(index, now);
            interfaces_[index].set_paused(0, priority, on);
            interfaces_[index].start(0, now);
            if (tell_) tell_(static_cast<int>(index), priority, on, now);
        }
        schedule(index, now);
    }
    void take_samples(std::int64_t now) {
        for (auto& node : switches_) {
            collect(node, now);
            take_(node.sample(now));
        }
        if (now + interval_ns_ < until_ns_) events_.push_other({{now + interval_ns_, order_->take()}, line_count_});
    }

    [[gnu::always_inline]] void schedule(std::size_t index, std::int64_t now) {
        Line& line = lines_[index];
        if (line.scheduled) return;
        std::int64_t time = 0;
        if (!line.link.empty()) {
            time = line.link.next_ns();
        } else if (line.node < 0) {
            if (interfaces_.empty() || !interfaces_[index].sending(0)) return;
            time = interfaces_[index].busy_until(0) + line.link.delay_ns();
        } else {
            const auto& queues = switches_[static_cast<std::size_t>(line.node)].buffer().queues();
            if (!queues.sending(line.port)) return;
            time = queues.busy_until(line.port) + line.link.delay_ns();
        }
        line.scheduled = true;
        events_.push({{std::max(time, now), line.numbered ? line.link.next_order() : order_->take()}, index});
    }

    Topology topology_;
    std::optional<SmallRandom> erasures_;  // where links lose packets
    std::int64_t erased_ = 0;
    EventOrder* order_;
    Predictor* predictor_;
    AlphaPredictor* alphas_;
    BranchPoints* branches_ = nullptr;
    bool pauses_ = false;   // some queues may not lose
    bool watched_ = false;  // something here or outside looks at every arrival
    FrameTelemetry* telemetry_ = nullptr;
    std::vector<std::int64_t> sent_bytes_;  // of each line, where telemetry is written
    Pool* pool_ = nullptr;
    std::vector<Line> lines_;  // one more stands for the sampler
    std::size_t line_count_ = 0;
    std::vector<std::size_t> first_line_;               // of each switch
    std::vector<std::pair<int, buffer::Port>> places_;  // of servers: the leaf, and its port
    std::vector<Switch> switches_;
    std::vector<buffer::PortQueues<FramePtr>> interfaces_;  // of hosts, where somebody may pause them
    std::array<std::uint8_t, 3> queue_of_{};                // of a port, by FlowClass
    std::function<void(int, int, bool, std::int64_t)> tell_;
    std::optional<Waiting> waiting_;
    std::vector<AlphaSetter> setters_;  // of switches, where alphas are set or counters logged
    LinkEvents events_;
    std::int64_t interval_ns_ = 0, until_ns_ = 0;
    std::function<void(const buffer::OccupancyRecord&)> take_;
};

}  // namespace foretail::packets
