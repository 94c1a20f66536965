// SPDX-License-Identifier: MIT
#pragma once

#include "buffer/lqd/virtual_lqd.hpp"
#include "buffer/policies/credence.hpp"

namespace foretail::buffer {

struct SwitchSettings {
    Shape shape;
    PushOutRules rules;
    std::optional<PolicySettings> occamy_oracle;  ///< Occamy, so set, decides labels and thresholds instead of LQD
    FeatureScale scale;
    bool labels = false;  ///< run the virtual LQD, for labels and virtual features
    FeatureSet features;  ///< that are read
};

/// Bytes through one port: in = out + refused + pushed_out + queued, always.
struct PortBytes {
    Bytes in = 0, out = 0, refused = 0, pushed_out = 0;
};

/// A shared-memory switch under one policy: the same object decides in the slotted simulator, in replay and in ns-3.
///
/// Per arrival: `observe`, then read `features` and `exposed` if wanted, then `admit`. A sink receives
///   departed(port, packet, time)  when the last bit of a packet has left,
///   pushed_out(port, packet)      when a queued packet is removed, that of the arrival inside its `admit` perhaps,
///   paused(port, priority, time, on)  when it tells the sender at an ingress port to stop, or to go on; where it has
///   it, fate(row, time, dropped)      when the virtual LQD has sent or dropped the row (only with `labels`).
template <class Payload>
class Switch {
public:
    using Packet = typename PortQueues<Payload>::Packet;

    Switch(const SwitchSettings& settings, std::unique_ptr<AnyPolicy> policy)
        : policy_(std::move(policy)),
          about_(policy_->about()),
          queues_(settings.shape),
          push_out_(settings.rules),
          averages_(settings.shape.queues(), settings.scale),
          tracked_(settings.shape.queues()),
          arrival_rates_(settings.shape.queues(), settings.scale),
          scale_(settings.scale),
          bytes_(settings.shape.rates.size()) {
        if (settings.labels || about_.follows_thresholds) {
            lqd_.emplace(settings.shape, settings.rules, settings.scale, settings.features, settings.occamy_oracle);
        }
        if (settings.shape.pause || about_.sees_ingress)
            ingress_.emplace(settings.shape.ports(), settings.shape.priorities,
                             settings.shape.pause.value_or(PauseSettings{}));
        keep(settings.features);
    }

    /// Sends all that has left the real queues by `now`. The virtual ones follow with the next arrival.
    template <class Sink>
    [[gnu::always_inline]] void advance(Tick now, Sink& sink) {
        if (!queues_.is_quiet(now)) send(now, sink);
    }

    /// The sender at the other end of a port's link pauses a queue of that port, or lets it go on.
    template <class Sink>
    void set_paused(Port port, int priority, Tick now, bool paused, Sink& sink) {
        advance(now, sink);
        queues_.set_paused(port, priority, paused);
        queues_.start(port, now);
        if (lqd_) lqd_->set_paused(port, priority, now, paused, fates(sink));
    }

    /// Brings queues, thresholds, averages and rates up to an arrival, before any decision on it.
    template <class Sink>
    [[gnu::always_inline]] void observe(const Arrival& arrival, Row row, Sink& sink) {
        advance(arrival.time, sink);
        if (watches_arrivals_) watch(arrival, row, sink);
        if (watches_lengths_) about_to_change(queues_.queue_of(arrival), arrival.time);
    }

    /// Features of an observed arrival; `features` names those that count, and those of the virtual LQD need `labels`.
    [[nodiscard]] FeatureVector features(const Arrival& arrival) const {
        FeatureVector out{};
        with_wanted(features_, scale_, [&](auto wanted, auto scale) {
            read_real_features(out, arrival, queues_, averages_, tracked_, ingress_ ? &*ingress_ : nullptr, scale,
                               wanted);
            const QueueIndex queue = queues_.queue_of(arrival);
            read_packet_features(out, arrival, queues_.until_circuit(queue, arrival.time), scale, wanted);
            const Bytes length = queues_.length(queue);
            if (lqd_) read_virtual_features(out, arrival, *lqd_, length, scale, wanted);
            read_traffic_features(out, queue, arrival_rates_, wanted);
        });
        return out;
    }

    /// Whether Credence's safeguard would not apply on these queues.
    [[nodiscard]] bool exposed(const Arrival& arrival) const { return !Credence::safe(arrival, queues_); }

    /// Whether `admit` would call `predicts_drop()` for an observed arrival.
    [[nodiscard]] bool asks(const Arrival& arrival) const {
        const QueueIndex queue = queues_.queue_of(arrival);
        if (!about_.asks || !arrival.data || queues_.is_lossless(queue)) return false;
        return policy_->would_ask(arrival, queues_, followed(queue));
    }

    /// Decides an observed arrival. `predicts_drop()` is called at most once, only by Credence where it must ask.
    /// `settled(outcome)` has the last word on data arrivals of policies that do not push out, and may only let in
    /// what fits.
    template <class Ask, class Sink, class Settled = std::identity>
    [[gnu::always_inline]] Outcome admit(const Arrival& arrival, Payload payload, const Ask& predicts_drop, Sink& sink,
                                         Settled&& settled = {}) {
        at(arrival.port).in += arrival.size;
        if (tracks_queues_) tracked_.arrive(queues_, arrival);
        Outcome outcome = Outcome::accepted;
        if (queues_.is_lossless(queues_.queue_of(arrival))) {
            outcome = lossless(sink).admit(arrival, std::move(payload));
        } else if (about_.pushes_out) {
            charge(arrival);
            const bool admitted = push_out_.admit(
                queues_, arrival, std::move(payload), [&](QueueIndex queue) { about_to_change(queue, arrival.time); },
                pushed_out(sink));
            if (!admitted) outcome = Outcome::buffer_full;
            if (!admitted && ingress_) ingress_->release(ingress_->queue_of(arrival), arrival.size);
        } else {
            if (!arrival.data) {
                outcome = CompleteSharing{}.decide(arrival, queues_);
            } else {
                const Bytes threshold = followed(queues_.queue_of(arrival));
                outcome = settled(policy_->decide(
                    arrival, queues_, {threshold, ingress_ ? &*ingress_ : nullptr, PredictsDrop(predicts_drop)}));
            }
            if (outcome == Outcome::accepted) {
                charge(arrival);
                queues_.push(arrival, std::move(payload), about_.expels ? policy_->rank(arrival) : std::uint8_t{0});
                queues_.start(arrival.port, arrival.time);
                expel(arrival.time, sink);
            }
        }
        if (outcome != Outcome::accepted) at(arrival.port).refused += arrival.size;
        assert(conserves_bytes(arrival.port));
        return outcome;
    }

    /// Lets all queues go on that are paused at the end of a run.
    template <class Sink>
    void end_pauses(Tick now, Sink& sink) {
        if (!queues_.any_paused()) return;
        advance(now, sink);
        queues_.end_pauses(now);
    }
    /// Runs the virtual LQD empty after the end of a run at `now`, so that every row has its fate. No arrival may
    /// follow.
    template <class Sink>
    void settle_labels(Tick now, Sink& sink) {
        if (lqd_) lqd_->end_pauses(now, fates(sink));
        if (lqd_) lqd_->advance(std::numeric_limits<Tick>::max(), fates(sink));
    }

    /// The oldest row without a fate, or `none`.
    [[nodiscard]] Row oldest_open(Row none) const { return lqd_ ? lqd_->oldest_open(none) : none; }

    [[nodiscard]] const PortQueues<Payload>& queues() const { return queues_; }
    /// Where packets came in; none where nobody keeps it.
    [[nodiscard]] const std::optional<IngressQueues>& ingress() const { return ingress_; }
    [[nodiscard]] AnyPolicy& policy() { return *policy_; }
    [[nodiscard]] std::span<const Turn> turns() const { return policy_->turns(); }
    [[nodiscard]] const KnownPolicy& about_policy() const { return about_; }
    [[nodiscard]] const PortBytes& bytes(Port port) const { return bytes_[static_cast<std::size_t>(port)]; }
    /// Data arrivals that the virtual LQD kept although the real queue was already above their threshold: never, when
    /// the real queues run LQD too and the thresholds are exact.
    [[nodiscard]] std::int64_t threshold_deficits() const { return threshold_deficits_; }

    /// The invariant of PortBytes, with the queued bytes recounted packet by packet.
    [[nodiscard]] bool conserves_bytes(Port port) const {
        const auto& count = bytes(port);
        const Bytes queued = queues_.recount(port);
        return queued == queues_.port_length(port) && count.in == count.out + count.refused + count.pushed_out + queued;
    }

private:
    /// Keeps what these features and the policy need.
    void keep(FeatureSet features) {
        features_ = features;
        keeps_averages_ = features.has_any(of_real_averages);
        tracks_queues_ = features.has_any(of_tracked_queues);
        keeps_arrival_rates_ = features.has_any(of_arrival_rates);
        watches_arrivals_ = keeps_arrival_rates_ || lqd_ || about_.sees_arrivals || about_.expels;
        watches_departures_ = tracks_queues_ || about_.sees_departures || ingress_;
        watches_lengths_ = keeps_averages_ || about_.follows_changes;
    }
    /// Brings up to an arrival what is kept beside the real queues, where anything is.
    template <class Sink>
    [[gnu::noinline]] void watch(const Arrival& arrival, Row row, Sink& sink) {
        const QueueIndex queue = queues_.queue_of(arrival);
        if (keeps_arrival_rates_) arrival_rates_.arrive(queue, arrival);
        if (lqd_) {
            lqd_->advance(arrival.time, fates(sink));
            lqd_->arrive(arrival, row, fates(sink));
        }
        if (about_.sees_arrivals) policy_->arrive(arrival);
        expel(arrival.time, sink);
        if (arrival.data && lqd_) {
            threshold_deficits_ += lqd_->kept_last() && queues_.length(queue) + arrival.size > lqd_->threshold(queue);
        }
    }
    template <class Sink>
    [[gnu::noinline]] void send(Tick now, Sink& sink) {
        queues_.advance(
            now, [&](QueueIndex queue, Tick time) { about_to_change(queue, time); },
            [&](QueueIndex queue, Packet&& packet, Tick time) __attribute__((always_inline)) {
                const Port port = queues_.port_of(queue);
                at(port).out += packet.size;
                if (watches_departures_) {
                    if (tracks_queues_) tracked_.departed(queue, packet.size);
                    if (about_.sees_departures) policy_->departed(port, packet.size, queues_.length(queue));
                    if (ingress_) lossless(sink).release(queue, packet, time);
                }
                sink.departed(port, std::move(packet), time);
                if (watches_departures_ && ingress_ && !ingress_->paused().empty()) lossless(sink).resume(time);
            });
    }
    /// What the taking in of lossless packets asks of this switch.
    template <class Sink>
    struct LosslessHooks {
        Switch& node;
        Sink& sink;

        bool pauses(QueueIndex queue, Bytes reserve, Tick now) {
            return node.policy_->pauses(queue, reserve, now, node.queues_, *node.ingress_);
        }
        bool make_room(const Arrival& arrival) {
            if (!node.about_.pushes_out) return node.queues_.fits(arrival.size);
            return node.push_out_.make_room(
                node.queues_, arrival, [&](QueueIndex queue) { node.about_to_change(queue, arrival.time); },
                node.pushed_out(sink));
        }
        void ingress_about_to_change(QueueIndex queue, Tick now) { node.ingress_about_to_change(queue, now); }
        void paused(Port port, int priority, Tick now, bool on) {
            if constexpr (requires { sink.paused(port, priority, now, on); }) sink.paused(port, priority, now, on);
        }
    };
    template <class Sink>
    auto lossless(Sink& sink) {
        return LosslessAdmission(queues_, *ingress_, LosslessHooks<Sink>{*this, sink});
    }
    /// Counts a lossy packet where it came in, if anybody asks for it.
    void charge(const Arrival& arrival) {
        if (!ingress_) return;
        const QueueIndex queue = ingress_->queue_of(arrival);
        ingress_about_to_change(queue, arrival.time);
        ingress_->charge(queue, arrival.size);
    }
    void ingress_about_to_change(QueueIndex queue, Tick now) {
        policy_->ingress_about_to_change(queue, now, ingress_->length(queue));
    }
    [[nodiscard]] PortBytes& at(Port port) { return bytes_[static_cast<std::size_t>(port)]; }
    /// That threshold where the policy follows it.
    [[nodiscard]] Bytes followed(QueueIndex queue) const {
        return about_.follows_thresholds ? lqd_->threshold(queue) : 0;
    }
    [[gnu::always_inline]] void about_to_change(QueueIndex queue, Tick now) {
        if (!watches_lengths_) return;
        const Bytes length = queues_.length(queue);
        if (keeps_averages_) averages_.observe(queue, now, length, queues_.occupancy());
        if (about_.follows_changes) policy_->about_to_change(queue, now, length);
    }
    /// Lets a policy that expels remove packets, the one of the last arrival perhaps among them.
    template <class Sink>
    void expel(Tick now, Sink& sink) {
        if (!about_.expels) return;
        buffer::expel(*policy_, queues_, [&](QueueIndex queue) { about_to_change(queue, now); }, pushed_out(sink));
    }
    template <class Sink>
    auto pushed_out(Sink& sink) {
        return [this, &sink](QueueIndex queue, Packet victim) {
            const Port port = queues_.port_of(queue);
            at(port).pushed_out += victim.size;
            if (ingress_)
                ingress_->release(ingress_->queue_of(victim.ingress, queues_.priority_of(queue)), victim.size);
            sink.pushed_out(port, std::move(victim));
        };
    }
    template <class Sink>
    static auto fates(Sink& sink) {
        return [&sink](Row row, Tick time, bool dropped) {
            if (row != no_row) sink.fate(row, time, dropped);
        };
    }

    PolicyValue policy_;
    KnownPolicy about_;
    PortQueues<Payload> queues_;
    std::optional<IngressQueues> ingress_;
    LongestQueueDrop push_out_;
    QueueAverages averages_;
    TrackedQueues tracked_;
    ArrivalRates arrival_rates_;
    FeatureScale scale_;
    FeatureSet features_;
    bool keeps_averages_, tracks_queues_, keeps_arrival_rates_;
    bool watches_arrivals_, watches_departures_, watches_lengths_;  // whether anything of such a kind is kept
    std::vector<PortBytes> bytes_;
    std::optional<VirtualLqd> lqd_;
    std::int64_t threshold_deficits_ = 0;
};

}  // namespace foretail::buffer
