// SPDX-License-Identifier: MIT
#include "buffer/run.hpp"

#include "buffer/policies/chosen.hpp"

namespace foretail::buffer {

namespace {

struct RecordedPacket {
    Row row = no_row;
    bool data = false;
};

/// Any switch.
class RecordedSwitch final : public RecordedRun {
public:
    RecordedSwitch(const SwitchSettings& settings, std::unique_ptr<AnyPolicy> policy)
        : switch_(settings, std::move(policy)),
          labels_(settings.labels),
          observes_(settings.labels && !settings.features.empty()) {}

    void feed(const Arrival* arrivals, std::size_t n, const std::uint8_t* predictions) override {
        for (std::size_t k = 0; k < n; ++k) {
            look(arrivals[k]);
            admit(arrivals[k], predictions && predictions[k] != 0);
        }
    }
    bool offer(const Arrival& arrival) override {
        look(arrival);
        offered_ = arrival;
        if (switch_.asks(arrival)) return true;
        admit(arrival, false);
        return false;
    }
    void answer(bool drop) override {
        const auto scorer = std::exchange(scorer_, nullptr);
        admit(offered_, drop);
        scorer_ = scorer;
    }
    void set_paused(Port port, int priority, Tick time, bool paused) override {
        switch_.set_paused(port, priority, time, paused, *this);
    }
    void drain(Tick now) override {
        switch_.end_pauses(now, *this);
        switch_.advance(std::numeric_limits<Tick>::max(), *this);
        switch_.settle_labels(now, *this);
    }
    [[nodiscard]] Row settled() const override { return switch_.oldest_open(next_row_); }
    [[nodiscard]] Bytes transmitted_data() const override { return transmitted_; }
    [[nodiscard]] std::int64_t transmitted_packets() const override { return packets_; }
    [[nodiscard]] std::int64_t threshold_deficits() const override { return switch_.threshold_deficits(); }
    [[nodiscard]] std::span<const Turn> turns() const override { return switch_.turns(); }
    [[nodiscard]] bool fits(Bytes size) const override { return switch_.queues().fits(size); }

    // Sink of the switch.
    void departed(Port, const Switch<RecordedPacket>::Packet& packet, Tick) {
        if (!packet.payload.data) return;
        transmitted_ += packet.size;
        ++packets_;
    }
    void pushed_out(Port, const Switch<RecordedPacket>::Packet& packet) {
        const Row i = packet.payload.row - first_row_;
        if (out_.outcome && i >= 0) out_.outcome[i] = static_cast<std::uint8_t>(Outcome::pushed_out);
    }
    void fate(Row row, Tick, bool dropped) {
        if (labels_) label(row, dropped);
    }

private:
    void look(const Arrival& arrival) {
        const Row row = next_row_++;
        const Row i = row - first_row_;
        switch_.observe(arrival, row, *this);
        if (scorer_) seen_ = switch_.features(arrival);
        if (out_.features && observes_) out_.features[i] = switch_.features(arrival);
        if (out_.exposed) out_.exposed[i] = switch_.exposed(arrival);
    }
    /// Decides the arrival that was looked at last.
    void admit(const Arrival& arrival, bool prediction) {
        const Row row = next_row_ - 1;
        const Row i = row - first_row_;
        bool asked = false;
        if (out_.outcome) out_.outcome[i] = static_cast<std::uint8_t>(Outcome::accepted);
        const Outcome outcome = switch_.admit(
            arrival, {row, arrival.data},
            [&] {
                asked = true;
                return drops(prediction);
            },
            *this);
        // Accepted and then pushed out at once, it has its outcome already.
        if (out_.outcome && outcome != Outcome::accepted) out_.outcome[i] = static_cast<std::uint8_t>(outcome);
        if (out_.asked) out_.asked[i] = asked;
    }

    Switch<RecordedPacket> switch_;
    Arrival offered_;
    bool labels_, observes_;
    Bytes transmitted_ = 0;
    std::int64_t packets_ = 0;
};

/// A switch on unit packets in slots with one priority: the same policies over SlotQueues. Under LQD its own queues are
/// those of the virtual LQD. Policy is PolicyOf a type, which is compiled into the loop, or PolicyValue.
template <class Policy>
class SlottedSwitch final : public RecordedRun {
public:
    SlottedSwitch(const SwitchSettings& settings, Policy policy)
        : policy_(std::move(policy)),
          labels_(settings.labels),
          observes_(settings.labels && !settings.features.empty()),
          features_(settings.features),
          scale_(settings.scale),
          own_(settings.shape.ports(), settings.shape.capacity, settings.rules.tie),
          averages_(settings.shape.ports(), settings.scale),
          tracked_(settings.shape.ports()),
          arrival_rates_(settings.shape.ports(), settings.scale),
          changed_(settings.shape.rates.size()) {
        if (labels_ || policy_.about().follows_thresholds || policy_.about().pushes_out) {
            FeatureSet virtual_features = settings.features;  // under LQD the averages of its queues are the real ones
            if (pushes_out && virtual_features.has_any(of_real_averages))
                virtual_features.insert(Feature::threshold_average);
            lqd_.emplace(settings.shape.ports(), settings.shape.capacity, settings.rules, settings.scale,
                         virtual_features);
        }
    }

    void feed(const Arrival* arrivals, std::size_t n, const std::uint8_t* predictions) override {
        with_wanted(features_, scale_, [&](auto wanted, auto scale) {
            for (std::size_t k = 0; k < n; ++k) {
                look(arrivals[k], wanted, scale);
                admit(arrivals[k], predictions && predictions[k] != 0);
            }
        });
    }
    bool offer(const Arrival& arrival) override {
        look(arrival, features_, scale_);
        offered_ = arrival;
        const bool asks = policy_.about().asks && policy_->would_ask(arrival, own_, followed(arrival.port));
        if (!asks) admit(arrival, false);
        return asks;
    }
    void answer(bool drop) override {
        const auto scorer = std::exchange(scorer_, nullptr);
        admit(offered_, drop);
        scorer_ = scorer;
    }
    void set_paused(Port, int, Tick, bool) override {
        throw std::invalid_argument("nobody pauses ports in slots: give no pauses");
    }
    void drain(Tick) override {
        constexpr Tick end = std::numeric_limits<Tick>::max();
        own_.advance(end, [](Tick) {});
        if (lqd_) lqd_->advance(end);
    }
    [[nodiscard]] Row settled() const override { return lqd_ ? lqd_->oldest_open(next_row_) : next_row_; }
    [[nodiscard]] Bytes transmitted_data() const override { return transmitted_packets(); }
    [[nodiscard]] std::int64_t transmitted_packets() const override {
        return accepted_ - (pushes_out ? lqd_->queues().occupancy() : own_.occupancy());
    }
    [[nodiscard]] std::int64_t threshold_deficits() const override { return threshold_deficits_; }
    [[nodiscard]] std::span<const Turn> turns() const override { return policy_->turns(); }
    [[nodiscard]] bool fits(Bytes size) const override { return own_.fits(size); }

private:
    static constexpr bool pushes_out = Policy::pushes_out;

    /// The threshold of a port where the policy follows it.
    [[nodiscard]] Bytes followed(Port port) const {
        return policy_.about().follows_thresholds ? lqd_->threshold(port) : 0;
    }

    // Inlined where batches are fed: a call per packet costs a twentieth of the speed.
    template <class Wanted, class Scale>
    [[gnu::always_inline]] void look(const Arrival& arrival, Wanted wanted, Scale scale) {
        if constexpr (pushes_out) {
            look(arrival, wanted, scale, lqd_->queues(), lqd_->averages());
        } else {
            look(arrival, wanted, scale, own_, averages_);
        }
    }
    template <class Wanted, class Scale, class Queues, class Averages>
    [[gnu::always_inline]] void look(const Arrival& arrival, Wanted wanted, Scale scale, const Queues& queues,
                                     const Averages& averages) {
        const Row row = next_row_++;
        const Row i = row - first_row_;
        if constexpr (!pushes_out) advance_own(arrival, wanted.has_any(of_real_averages));
        if (lqd_) {
            lqd_->advance(arrival.time);
            lqd_->touch(arrival.port);
        }
        if (wanted.has_any(of_arrival_rates)) arrival_rates_.arrive(arrival.port, arrival);
        const bool tracks_queues = wanted.has_any(of_tracked_queues);
        if (tracks_queues) tracked_.advance(queues);
        FeatureVector* const features = out_.features && observes_ ? &out_.features[i] : scorer_ ? &seen_ : nullptr;
        if (features) {
            read_real_features(*features, arrival, queues, averages, tracked_, nullptr, scale, wanted);
            read_traffic_features(*features, arrival.port, arrival_rates_, wanted);
            read_packet_features(*features, arrival, CircuitTimes::never, scale, wanted);
        }
        if (out_.exposed) out_.exposed[i] = !Credence::safe(arrival, queues);
        if (tracks_queues) tracked_.arrive(queues, arrival);

        const Bytes length = queues.length(arrival.port);
        if (lqd_) {
            lqd_->arrive(arrival, row, [&](Row victim) { lose(victim, row); });
            if (features) read_virtual_features(*features, arrival, *lqd_, length, scale, wanted);
            threshold_deficits_ += lqd_->kept_last() && length + 1 > lqd_->threshold(arrival.port);
        }
        if (scorer_ && features != &seen_) seen_ = *features;
    }
    /// Decides the arrival that was looked at last.
    [[gnu::always_inline]] void admit(const Arrival& arrival, bool prediction) {
        const Row i = next_row_ - 1 - first_row_;
        Outcome outcome = Outcome::accepted;
        if constexpr (pushes_out) {
            outcome = lqd_->kept_last() ? Outcome::accepted : Outcome::buffer_full;
            accepted_ += lqd_->kept_last();
        } else {
            bool asked = false;
            const auto ask = [&] {
                asked = true;
                return drops(prediction);
            };
            outcome = policy_->decide(arrival, own_, {followed(arrival.port), nullptr, PredictsDrop(ask)});
            if (outcome == Outcome::accepted) {
                own_.push(arrival, {});
                ++accepted_;
            }
            if (out_.asked) out_.asked[i] = asked;
        }
        if (out_.outcome) out_.outcome[i] = static_cast<std::uint8_t>(outcome);
    }

    void advance_own(const Arrival& arrival, bool keeps_averages) {
        own_.advance(arrival.time, [&](Tick end) {
            if (keeps_averages) averages_.slot_ends(end, own_.occupancy());
        });
        if (keeps_averages) averages_.touch(own_, arrival.port);
        if (policy_.about().sees_arrivals) policy_->arrive(arrival);
        if (policy_.about().follows_changes) {
            Tick& changed = changed_[static_cast<std::size_t>(arrival.port)];
            own_.departures_since(arrival.port, changed, [&](Tick time, Bytes length) {
                policy_->about_to_change(arrival.port, time, length);
            });
            policy_->about_to_change(arrival.port, arrival.time, own_.length(arrival.port));
            changed = arrival.time;
        }
    }

    /// The virtual LQD drops a row: the arrival itself or an earlier one.
    void lose(Row victim, Row arrival) {
        if (labels_) label(victim, true);
        if constexpr (pushes_out) {
            if (victim == arrival) return;
            --accepted_;
            if (out_.outcome && victim >= first_row_) {
                out_.outcome[victim - first_row_] = static_cast<std::uint8_t>(Outcome::pushed_out);
            }
        }
    }

    Policy policy_;
    Arrival offered_;
    bool labels_, observes_;
    FeatureSet features_;
    FeatureScale scale_;
    UnitQueues own_;
    SlottedAverages averages_;
    TrackedQueues tracked_;
    ArrivalRates arrival_rates_;
    std::vector<Tick> changed_;  // when an arrival was last decided, per port
    std::optional<SlottedLqd> lqd_;
    std::int64_t accepted_ = 0;
    std::int64_t threshold_deficits_ = 0;
};

/// More than this for the sets of SlotQueues, and a slotted run takes the general queues.
constexpr std::size_t slot_queue_limit = std::size_t{1} << 28;

/// A slotted run that is compiled for one of these policies; null for any other.
template <class... Policy>
std::unique_ptr<RecordedRun> compiled_run(const SwitchSettings& settings, AnyPolicy& policy) {
    std::unique_ptr<RecordedRun> run;
    const auto compile = [&]<class One>() {
        if (&policy.about() == &PolicyOf<One>::known)
            run = std::make_unique<SlottedSwitch<PolicyOf<One>>>(settings, static_cast<PolicyOf<One>&>(policy));
    };
    (compile.template operator()<Policy>(), ...);
    return run;
}

}  // namespace

std::unique_ptr<RecordedRun> recorded_run(std::string_view name, const PolicySettings& policy_settings,
                                          const SwitchSettings& settings) {
    const KnownPolicy& about = known_policy(name);
    const Shape& shape = settings.shape;
    PolicySettings own = policy_settings;
    own.scale = settings.scale;
    auto policy = about.make(own, shape);
    if (about.sees_ingress && !shape.pause)
        throw std::invalid_argument("policy '" + std::string(about.name) +
                                    "' has to know where packets came in, which these arrivals do not say: simulate a "
                                    "network, or choose another policy");
    if (!about.sees_departures && !about.sees_ingress &&  // which SlotQueues does not show
        shape.preemptive && shape.priorities == 1 &&
        SlotQueues<Row>::set_bytes(shape.ports(), shape.capacity) <= slot_queue_limit) {
        if (auto run = compiled_run<PushOut, CompleteSharing, DynamicThresholds, Learned, Credence>(settings, *policy))
            return run;
        return std::make_unique<SlottedSwitch<PolicyValue>>(settings, PolicyValue(std::move(policy)));
    }
    return std::make_unique<RecordedSwitch>(settings, std::move(policy));
}

std::int64_t sent_by(const std::shared_ptr<const Scorer>& rule, const Shape& shape, FeatureScale scale,
                     std::span<const Arrival> arrivals) {
    SwitchSettings settings{
        .shape = shape, .rules = {}, .occamy_oracle = {}, .scale = scale, .features = rule->features()};
    if (shape.pause) settings.shape.pause = shape.pause->unheard();
    const auto run = recorded_run(Learned::name, {}, settings);
    run->ask(rule);
    run->feed(arrivals.data(), arrivals.size(), nullptr);
    run->drain();
    return run->transmitted_data();
}

}  // namespace foretail::buffer
