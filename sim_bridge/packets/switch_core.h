// SPDX-License-Identifier: MIT
// The switch of a network around the shared buffer.
#pragma once

#include "buffer/switch.hpp"
#include "packets/congestion_control.h"
#include "packets/predictor.h"

namespace foretail::packets {

/// What the buffer library has to know of a switch.
inline buffer::SwitchSettings buffer_settings(const Settings& s, std::vector<buffer::LineRate> rates,
                                              std::int64_t buffer_bytes, const Predictor& predictor, bool traced) {
    buffer::SwitchSettings settings;
    settings.shape = {buffer_bytes,   std::move(rates),   s.rules.tie,           false,
                      s.queues.count, s.queues.scheduler, s.queues.quantum_bytes};
    settings.rules = s.rules;
    settings.occamy_oracle = s.occamy_oracle;
    settings.scale = s.scale;
    settings.features = traced ? buffer::FeatureSet::all() : predictor.features();
    settings.labels = traced || settings.features.has_any(buffer::of_virtual_lqd);
    return settings;
}

/// A switch of the buffer library with packets in it, in anybody's time: it counts, marks, asks and keeps the trace.
///
/// FramePtr is a frame with size_bytes, flow, flow_class, first_rtt, ecn_capable, sent_bytes and left_bytes; it owns
/// it, or else wires have lost(frame), for a frame that was refused or pushed out. What has left is handed to wires:
/// departed(port, frame, size, time). Where they have it, they hear of pushed_out(port).
template <class FramePtr>
class SwitchCore {
public:
    struct Queued {
        FramePtr frame;
        buffer::Row row = buffer::no_row;
    };
    using Buffer = buffer::Switch<Queued>;

    struct Decision {
        buffer::Outcome outcome = buffer::Outcome::accepted;
        bool marked = false;
    };
    /// An arrival that was looked at, and is not decided.
    struct Looked {
        buffer::Row row = buffer::no_row;
        bool marked = false;
    };

    SwitchCore(const Settings& s, int index, const buffer::SwitchSettings& settings, Predictor& predictor,
               ArrivalTrace* trace)
        : index_(index),
          buffer_(settings, s.policy.known->make(s.policy.settings, settings.shape)),
          queue_of_(s.queues.queue_of),
          marking_(s.queues.marking),
          priorities_(s.queues.count),
          marks_(s.transport, s.seed, index),
          predictor_(&predictor),
          reads_features_(predictor.reads_features()),
          trace_(trace),
          scale_(settings.scale),
          first_rtt_bytes_(predictor.tells_ends() ? s.first_rtt_bytes() : 0) {
        const bool reads_flows = predictor.tells_ends() || predictor.features().has_any(buffer::of_flows);
        if (trace || reads_flows) flows_.emplace(reads_flows ? s.policy.flow_entries : 0, settings.shape.ports());
    }

    /// Sends what has left by `now`.
    template <class Wires>
    void advance(std::int64_t now, Wires& wires) {
        Sink<Wires> sink{*this, wires};
        buffer_.advance(now, sink);
    }
    /// Pauses a queue of a port, or lets it go on, as the other end of the port's link has said.
    template <class Wires>
    void set_paused(buffer::Port port, int priority, std::int64_t now, bool paused, Wires& wires) {
        Sink<Wires> sink{*this, wires};
        if (trace_) {
            trace_->paused({.time_ns = now,
                            .switch_index = static_cast<std::int16_t>(index_),
                            .port = static_cast<std::int16_t>(port),
                            .priority = static_cast<std::uint8_t>(priority),
                            .paused = paused});
        }
        buffer_.set_paused(port, priority, now, paused, sink);
    }

    /// An arrival, which flows are counted with. What its sender says is replaced where a predictor tells it.
    template <class Frame>
    [[nodiscard]] [[gnu::always_inline]] buffer::Arrival arrival_of(const Frame& frame, buffer::Port port,
                                                                    std::int64_t now, buffer::Port ingress = 0) {
        buffer::Arrival arrival{now,
                                port,
                                frame.size_bytes,
                                is_data(frame),
                                frame.first_rtt,
                                queue_of(frame),
                                frame.sent_bytes,
                                frame.left_bytes,
                                ingress};
        if (flows_ && arrival.data) count_flow(arrival, connection_of(frame));
        return arrival;
    }

    /// Decides about an arrival. `mark(frame)` sets the congestion mark; `settled` is that of buffer::Switch::admit.
    template <class Wires, class Mark, class Settled = std::identity>
    Decision receive(FramePtr frame, const buffer::Arrival& arrival, Wires& wires, Mark&& mark,
                     Settled&& settled = {}) {
        const Looked looked = look(*frame, arrival, wires, mark);
        return decide(std::move(frame), arrival, looked, wires, settled);
    }
    /// The first half of that: brings the switch up to an arrival. The second has to follow before another arrival.
    template <class Frame, class Wires, class Mark>
    [[gnu::always_inline]] Looked look(Frame& frame, const buffer::Arrival& arrival, Wires& wires, Mark&& mark) {
        Sink<Wires> sink{*this, wires};
        (arrival.data ? counts_.data_in : counts_.control_in).add(arrival.size);

        Looked looked;
        if (trace_) looked.row = open_record(frame, arrival);
        buffer_.observe(arrival, looked.row, sink);
        if (trace_ && arrival.data) {
            buffer::ArrivalRecord& record = trace_->record(looked.row);
            record.features = buffer_.features(arrival);
            record.exposed = buffer_.exposed(arrival);
        }
        if (frame.ecn_capable && marks_.marks(marked_length(arrival))) {
            mark(frame);
            looked.marked = true;
            ++counts_.marked;
        }
        return looked;
    }
    template <class Wires, class Settled = std::identity>
    [[gnu::always_inline]] Decision decide(FramePtr frame, const buffer::Arrival& arrival, const Looked& looked,
                                           Wires& wires, Settled&& settled = {}) {
        Sink<Wires> sink{*this, wires};
        const buffer::Row row = looked.row;
        Decision decision{.marked = looked.marked};
        const auto ask = [this, &arrival, row] {
            ++counts_.asked;
            buffer::ArrivalRecord* record = trace_ ? &trace_->record(row) : nullptr;
            buffer::FeatureVector features{};
            if (record) {
                features = record->features;
            } else if (reads_features_) {
                features = buffer_.features(arrival);
            }
            const auto answer = predictor_->ask(features);
            if (record) {
                record->asked = buffer::Asked::yes;
                record->score = answer.score;
            }
            return answer.drop;
        };
        const bool held = trace_ && arrival.data && may_lose_late();
        if (held) trace_->hold(row);
        if constexpr (requires { wires.lost(frame); }) {
            const FramePtr lent = frame;
            decision.outcome = buffer_.admit(arrival, {lent, row}, ask, sink, settled);
            if (decision.outcome != buffer::Outcome::accepted) wires.lost(lent);
        } else {
            decision.outcome = buffer_.admit(arrival, {std::move(frame), row}, ask, sink, settled);
        }
        if (buffer_.queues().is_lossless(buffer_.queues().queue_of(arrival))) count_lossless(arrival, decision.outcome);
        if (decision.outcome == buffer::Outcome::accepted) return decision;
        const auto why = static_cast<std::size_t>(decision.outcome);
        (arrival.data ? counts_.data_drops : counts_.control_drops)[why].add(arrival.size);
        if (trace_) trace_->record(row).outcome = decision.outcome;
        if (held) trace_->let_go(row);
        return decision;
    }

    /// Bytes of all packets that it holds, in the shared buffer and in headroom.
    [[nodiscard]] std::int64_t queued_bytes() const {
        const auto& ingress = buffer_.ingress();
        return buffer_.queues().occupancy() + (ingress ? ingress->headroom_bytes() : 0);
    }
    [[nodiscard]] buffer::OccupancyRecord sample(std::int64_t now) const {
        const auto& ingress = buffer_.ingress();
        return {.time_ns = now,
                .occupancy_bytes = queued_bytes(),
                .longest_bytes = buffer_.queues().longest(),
                .switch_index = index_,
                .lossless_bytes =
                    ingress ? static_cast<std::int32_t>(ingress->lossless_bytes() + ingress->headroom_bytes()) : 0};
    }
    /// Settles the labels of what the virtual LQD still holds. The run has ended at `now`.
    void settle_labels(std::int64_t now) {
        struct Nowhere {
            void departed(buffer::Port, FramePtr, std::int64_t, std::int64_t) {}
        } nowhere;
        Sink<Nowhere> sink{*this, nowhere};
        buffer_.settle_labels(now, sink);
    }
    /// Throws std::logic_error when bytes in are not bytes out, dropped and queued, on any port or in all.
    void check_conservation() const {
        std::int64_t gone = counts_.data_out.bytes + counts_.control_out.bytes, queued = 0;
        for (const auto& drops : {counts_.data_drops, counts_.control_drops}) {
            for (const auto& drop : drops) gone += drop.bytes;
        }
        for (buffer::Port port = 0; port < buffer_.queues().ports(); ++port) {
            if (!buffer_.conserves_bytes(port)) fail_conservation("port " + std::to_string(port));
            queued += buffer_.queues().port_length(port);
        }
        const auto& ingress = buffer_.ingress();
        if (ingress) check_ingress(*ingress, queued);
        if (queued != queued_bytes() || counts_.data_in.bytes + counts_.control_in.bytes != gone + queued)
            fail_conservation("the buffer");
    }

    [[nodiscard]] int index() const { return index_; }
    [[nodiscard]] Buffer& buffer() { return buffer_; }
    [[nodiscard]] const Buffer& buffer() const { return buffer_; }
    [[nodiscard]] const SwitchCounts& counts() const { return counts_; }
    /// What is known of lossless packets at the end of the run.
    [[nodiscard]] LosslessCounts lossless(std::int64_t now) const {
        LosslessCounts counts = counts_.lossless;
        counts.paused_ns += now * (counts.pauses - counts.resumes);
        return counts;
    }

private:
    /// Counts a data packet with its flow, and tells what a predictor says of it.
    [[gnu::noinline]] void count_flow(buffer::Arrival& arrival, std::int32_t connection) {
        if (connection >= 0) flows_->arrive(arrival, static_cast<std::uint32_t>(connection));
        if (!predictor_->tells_ends()) return;
        buffer::FeatureVector counted{};
        buffer::read_packet_features(counted, arrival, 0, scale_, buffer::of_flows);
        // Sizes have heavy tails: a long message has about as much to come as has come.
        const bool ends = predictor_->ends_message(counted);
        arrival.left = ends ? 0 : std::max(arrival.flow_sent, buffer::least_left);
        arrival.first_rtt = arrival.flow_sent < first_rtt_bytes_;
    }
    template <class Wires>
    struct Sink {
        SwitchCore& core;
        Wires& wires;

        [[gnu::always_inline]] void departed(buffer::Port port, typename Buffer::Packet packet, buffer::Tick time) {
            Queued& queued = packet.payload;
            const bool data = is_data(*queued.frame);
            if (queued.row != buffer::no_row && data && core.may_lose_late()) core.trace_->let_go(queued.row);
            (data ? core.counts_.data_out : core.counts_.control_out).add(packet.size);
            if (core.is_lossless(queued.frame->flow_class)) core.counts_.lossless.out.add(packet.size);
            wires.departed(port, std::move(queued.frame), packet.size, time);
        }
        void pushed_out(buffer::Port port, const typename Buffer::Packet& packet) {
            constexpr auto outcome = buffer::Outcome::pushed_out;
            if constexpr (requires { wires.pushed_out(port); }) wires.pushed_out(port);
            if constexpr (requires { wires.lost(packet.payload.frame); }) wires.lost(packet.payload.frame);
            core.counts_.data_drops[static_cast<std::size_t>(outcome)].add(packet.size);
            if (packet.payload.row == buffer::no_row) return;
            core.trace_->record(packet.payload.row).outcome = outcome;
            core.trace_->let_go(packet.payload.row);
        }
        void paused(buffer::Port port, int priority, buffer::Tick time, bool on) {
            LosslessCounts& counts = core.counts_.lossless;
            ++(on ? counts.pauses : counts.resumes);
            counts.paused_ns += on ? -time : time;
            if constexpr (requires { wires.paused(port, priority, time, on); }) wires.paused(port, priority, time, on);
        }
        void fate(buffer::Row row, buffer::Tick time, bool dropped) { core.trace_->settle(row, time, dropped); }
    };

    /// Whether a packet may be removed after its label is known: by a policy that expels, or where the real queues
    /// stand still while those of the virtual LQD go on.
    [[nodiscard]] bool may_lose_late() const {
        const buffer::KnownPolicy& policy = buffer_.about_policy();
        return policy.expels || (policy.pushes_out && buffer_.ingress());
    }
    /// That of a frame which knows its own, or that of its class.
    template <class Frame>
    [[nodiscard]] std::uint8_t queue_of(const Frame& frame) const {
        if constexpr (requires { frame.queue; }) {
            return frame.queue;
        } else {
            return queue_of_[static_cast<std::size_t>(frame.flow_class)];
        }
    }
    /// That of a frame which knows its own; elsewhere every flow has one of its own.
    template <class Frame>
    [[nodiscard]] static std::int32_t connection_of(const Frame& frame) {
        if constexpr (requires { frame.connection; }) {
            return frame.connection;
        } else {
            return frame.flow;
        }
    }
    template <class Frame>
    static bool is_data(const Frame& frame) {
        return frame.flow_class != buffer::FlowClass::control;
    }
    /// Opens the record of an arrival, and returns its row.
    template <class Frame>
    [[gnu::noinline]] buffer::Row open_record(const Frame& frame, const buffer::Arrival& arrival) {
        buffer::Row row = buffer::no_row;
        auto& record = trace_->open(row);
        record.time_ns = arrival.time;
        record.flow = frame.flow;
        record.size_bytes = frame.size_bytes;
        record.switch_index = static_cast<std::int16_t>(index_);
        record.port = static_cast<std::int16_t>(arrival.port);
        record.flow_class = frame.flow_class;
        record.first_rtt = frame.first_rtt;
        record.asked = buffer_.about_policy().asks ? buffer::Asked::no : buffer::Asked::never;
        if (buffer_.ingress()) record.ingress = static_cast<std::int16_t>(arrival.ingress);
        if constexpr (requires { frame.priority; }) trace_->sent_at(frame.priority);
        return row;
    }
    [[nodiscard]] bool is_lossless(buffer::FlowClass flow_class) const {
        const auto& ingress = buffer_.ingress();
        return ingress && ingress->settings().is_lossless(queue_of_[static_cast<std::size_t>(flow_class)]);
    }
    void count_lossless(const buffer::Arrival& arrival, buffer::Outcome outcome) {
        LosslessCounts& counts = counts_.lossless;
        counts.in.add(arrival.size);
        if (outcome != buffer::Outcome::accepted) counts.drops.add(arrival.size);
        counts.most_headroom_bytes = std::max(counts.most_headroom_bytes, buffer_.ingress()->headroom_bytes());
    }
    /// What is counted at ingress is what is queued, every sender that was paused goes on or is known as paused, and
    /// what may not be lost is where it was sent.
    void check_ingress(const buffer::IngressQueues& ingress, std::int64_t queued) const {
        std::int64_t counted = 0;
        for (buffer::QueueIndex queue = 0; queue < ingress.queues(); ++queue)
            counted += ingress.length(queue) + ingress.headroom(queue);
        std::int64_t lossless = 0;
        for (buffer::QueueIndex queue = 0; queue < buffer_.queues().queues(); ++queue) {
            if (buffer_.queues().is_lossless(queue)) lossless += buffer_.queues().length(queue);
        }
        const LosslessCounts& counts = counts_.lossless;
        if (counted != queued || lossless != ingress.lossless_bytes() + ingress.headroom_bytes() ||
            counts.in.bytes != counts.out.bytes + counts.drops.bytes + lossless)
            fail_conservation("the ports at which they came in");
        if (counts.pauses != counts.resumes + static_cast<std::int64_t>(ingress.paused().size()))
            throw std::logic_error("switch " + std::to_string(index_) + " has lost count of whom it paused");
    }
    [[noreturn]] void fail_conservation(const std::string& where) const {
        throw std::logic_error("switch " + std::to_string(index_) + " lost or invented bytes on " + where);
    }

    int index_;
    Buffer buffer_;
    /// The length that decides on an arrival's mark: of its port, or of its queue where queues mark by themselves.
    [[nodiscard]] std::int64_t marked_length(const buffer::Arrival& arrival) const {
        if (marking_ == 0) return buffer_.queues().port_length(arrival.port);
        if ((marking_ >> arrival.priority & 1U) == 0) return 0;
        return buffer_.queues().length(arrival.port * priorities_ + arrival.priority);
    }

    std::array<std::uint8_t, 3> queue_of_;  // of a port, by FlowClass
    std::uint8_t marking_;                  // queues that mark by their own length, one bit each
    int priorities_;
    CongestionMarks marks_;
    Predictor* predictor_;
    bool reads_features_;
    ArrivalTrace* trace_;
    buffer::FeatureScale scale_;
    std::optional<buffer::FlowTable> flows_;  // where somebody reads it
    std::int64_t first_rtt_bytes_;            // for a predictor in the place of senders
    SwitchCounts counts_;
};

/// Ends a run: what its summary says of switches, of the trace, which it closes, and of predictions. `core` gives the
/// SwitchCore of one of `switches`, which have the leaves first.
template <class Switches, class Core = std::identity>
nlohmann::json finish_switches(const Settings& settings, const Predictor& predictor, ArrivalTrace* trace,
                               const Switches& switches, Core core = {}) {
    nlohmann::json summary{{"format", 1},
                           {"switches", nlohmann::json::array()},
                           {"base_rtt_ns", settings.base_rtt_ns()},
                           {"first_rtt_bytes", settings.first_rtt_bytes()},
                           {"average_shift", settings.scale.average_shift},
                           {"tau", predictor.tau()},
                           {"flipped_predictions", predictor.flipped()}};
    std::int64_t leaf_data_packets = 0;
    for (const auto& one : switches) {
        const auto& node = core(one);
        const auto index = static_cast<int>(summary["switches"].size());
        summary["switches"].push_back(switch_summary(settings.topology, index, node.counts(), node.queued_bytes(),
                                                     node.buffer().threshold_deficits()));
        for (const buffer::Turn& turn : node.buffer().turns())
            summary["switches"].back()["rules"].push_back({turn.start, turn.rule});
        if (index < settings.topology.leaves) leaf_data_packets += node.counts().data_in.packets;
    }
    summary["leaf_data_packets"] = leaf_data_packets;
    if (trace) {
        trace->close();
        summary["arrivals"] = trace->rows();
        summary["labelled_drops"] = trace->labelled_drops();
    }
    return summary;
}

}  // namespace foretail::packets
