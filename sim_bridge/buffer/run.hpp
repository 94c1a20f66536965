// SPDX-License-Identifier: MIT
// Runs a switch over arrivals that are all known beforehand: unit packets in slots, or recorded bytes and nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "buffer/lqd/slotted_lqd.hpp"
#include "buffer/policies/policies.hpp"
#include "buffer/predictor/scorer.hpp"
#include "buffer/queues/circuit_times.hpp"
#include "buffer/queues/slot_queues.hpp"
#include "buffer/switch.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

/// Where a run over known arrivals writes what it finds, a batch at a time; any pointer may be null.
struct RunColumns {
    std::uint8_t* outcome = nullptr;   ///< Outcome, pushed_out included
    std::uint8_t* lqd_drop = nullptr;  ///< what the virtual LQD did; zero beforehand
    std::uint8_t* asked = nullptr;     ///< whether Credence used a prediction
    std::uint8_t* exposed = nullptr;   ///< whether the safeguard did not apply
    FeatureVector* features = nullptr;
};

/// A switch with its policy chosen at run time, fed in batches: no virtual call per packet.
///
/// A packet of an earlier batch that is dropped late leaves the columns of that batch as they are; with labels, its row
/// is among `late_drops`.
class RecordedRun {
public:
    virtual ~RecordedRun() = default;
    /// Begins a batch whose rows fill `out` from its start.
    void begin_batch(const RunColumns& out) {
        out_ = out;
        first_row_ = next_row_;
        late_drops_.clear();
    }
    /// Takes the next `n` arrivals of the batch in order of time; `predictions[i]` nonzero = drop, null = always
    /// accept.
    virtual void feed(const Arrival* arrivals, std::size_t n, const std::uint8_t* predictions) = 0;
    /// Takes the next arrival of the batch alone. True: the policy asks for a prediction, and `answer` must follow.
    virtual bool offer(const Arrival& arrival) = 0;
    /// Decides the arrival at which `offer` has asked, also where there is a scorer.
    virtual void answer(bool drop) = 0;
    /// The other end of a port's link pauses a queue of the port, or lets it go on, before the next arrival.
    virtual void set_paused(Port port, int priority, Tick time, bool paused) = 0;
    /// Lets go of the columns.
    void end_batch() { begin_batch({}); }
    /// Lets `scorer` answer in the place of predictions; the switch has its features. Call before the first arrival.
    void ask(std::shared_ptr<const Scorer> scorer) { scorer_ = std::move(scorer); }
    /// Inverts this share of the scorer's answers, as `seed` draws them.
    void invert(double share, std::uint64_t seed) {
        inverted_ = std::bernoulli_distribution(share);
        random_.seed(seed);
    }
    /// What the policy may know of the arrival that was taken last, which a scorer answers from.
    [[nodiscard]] const FeatureVector& seen() const { return seen_; }
    /// The same run in the same state.
    [[nodiscard]] virtual std::unique_ptr<RecordedRun> clone() const = 0;
    /// Whether the queues of both are equally long.
    [[nodiscard]] virtual bool has_queues_of(const RecordedRun& other) const = 0;
    /// Whether the buffer has room for so much more.
    [[nodiscard]] virtual bool fits(Bytes size) const = 0;
    /// Sends what is still queued at the end of a run at `now`, as part of the batch.
    virtual void drain(Tick now) = 0;
    /// The same where nobody pauses ports.
    void drain() { drain(0); }

    /// Rows of earlier batches that the virtual LQD dropped in this one.
    [[nodiscard]] const std::vector<Row>& late_drops() const { return late_drops_; }
    /// Every row before this one has its label.
    [[nodiscard]] virtual Row settled() const = 0;
    [[nodiscard]] Row rows() const { return next_row_; }
    [[nodiscard]] virtual Bytes transmitted_data() const = 0;
    [[nodiscard]] virtual std::int64_t transmitted_packets() const = 0;
    [[nodiscard]] virtual std::int64_t threshold_deficits() const = 0;

protected:
    void label(Row row, bool dropped) {
        if (row >= first_row_) {
            if (out_.lqd_drop) out_.lqd_drop[row - first_row_] = dropped;
        } else if (dropped) {
            late_drops_.push_back(row);
        }
    }

    RecordedRun() = default;
    RecordedRun(const RecordedRun&) = default;
    RecordedRun& operator=(const RecordedRun&) = default;

    /// Whether the arrival that was taken last is dropped, as the scorer or else the prediction says.
    [[nodiscard]] bool drops(bool prediction) {
        if (!scorer_) return prediction;
        const bool inverted = inverted_.p() > 0 && inverted_(random_);
        return scorer_->drops(seen_) != inverted;
    }

    RunColumns out_;
    Row first_row_ = 0, next_row_ = 0;
    std::vector<Row> late_drops_;
    std::shared_ptr<const Scorer> scorer_;
    FeatureVector seen_{};

private:
    std::bernoulli_distribution inverted_{0.0};
    std::minstd_rand random_;
};

/// Whether the queues of two switches of one shape are equally long.
template <class Queues>
bool equally_long(const Queues& left, const Queues& right) {
    if (left.occupancy() != right.occupancy()) return false;
    for (QueueIndex queue = 0; queue < left.queues(); ++queue) {
        if (left.length(queue) != right.length(queue)) return false;
    }
    return true;
}

namespace detail {

struct RecordedPacket {
    Row row = no_row;
    bool data = false;
};

/// Any switch.
template <class Policy>
class RecordedSwitch final : public RecordedRun {
public:
    RecordedSwitch(const SwitchSettings& settings, Policy policy)
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
    [[nodiscard]] std::unique_ptr<RecordedRun> clone() const override {
        return std::make_unique<RecordedSwitch>(*this);
    }
    [[nodiscard]] bool has_queues_of(const RecordedRun& other) const override {
        return equally_long(switch_.queues(), static_cast<const RecordedSwitch&>(other).switch_.queues());
    }
    [[nodiscard]] bool fits(Bytes size) const override { return switch_.queues().fits(size); }

    // Sink of the switch.
    void departed(Port, const typename Switch<Policy, RecordedPacket>::Packet& packet, Tick) {
        if (!packet.payload.data) return;
        transmitted_ += packet.size;
        ++packets_;
    }
    void pushed_out(Port, const typename Switch<Policy, RecordedPacket>::Packet& packet) {
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

    Switch<Policy, RecordedPacket> switch_;
    Arrival offered_;
    bool labels_, observes_;
    Bytes transmitted_ = 0;
    std::int64_t packets_ = 0;
};

/// A switch on unit packets in slots with one priority: the same policies over SlotQueues. Under LQD its own queues are
/// those of the virtual LQD.
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
        if (labels_ || pushes_out || Policy::follows_thresholds) {
            lqd_.emplace(settings.shape.ports(), settings.shape.capacity, settings.rules, settings.scale,
                         settings.features);
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
        bool asks = false;
        if constexpr (Policy::asks) {
            Policy trial = policy_;  // what it decides here does not count
            judge(trial, arrival, [&] {
                asks = true;
                return false;
            });
        }
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
    [[nodiscard]] std::unique_ptr<RecordedRun> clone() const override { return std::make_unique<SlottedSwitch>(*this); }
    [[nodiscard]] bool has_queues_of(const RecordedRun& other) const override {
        return equally_long(own_, static_cast<const SlottedSwitch&>(other).own_);
    }
    [[nodiscard]] bool fits(Bytes size) const override { return own_.fits(size); }

private:
    struct Nothing {};

    static constexpr bool pushes_out = Policy::pushes_out;

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
            outcome = judge(policy_, arrival, [&] {
                asked = true;
                return drops(prediction);
            });
            if (outcome == Outcome::accepted) {
                own_.push(arrival, {});
                ++accepted_;
            }
            if (out_.asked) out_.asked[i] = asked;
        }
        if (out_.outcome) out_.outcome[i] = static_cast<std::uint8_t>(outcome);
    }

    template <class Ask>
    Outcome judge(Policy& policy, const Arrival& arrival, Ask&& predicts_drop) const {
        return decide(
            policy, arrival, own_, [&] { return lqd_->threshold(arrival.port); }, std::forward<Ask>(predicts_drop));
    }

    void advance_own(const Arrival& arrival, bool keeps_averages) {
        own_.advance(arrival.time, [&](Tick end) {
            if (keeps_averages) averages_.slot_ends(end, own_.occupancy());
        });
        if (keeps_averages) averages_.touch(own_, arrival.port);
        if constexpr (requires { policy_.about_to_change(arrival.port, arrival.time, Bytes{}); }) {
            Tick& changed = changed_[static_cast<std::size_t>(arrival.port)];
            own_.departures_since(arrival.port, changed, [&](Tick time, Bytes length) {
                policy_.about_to_change(arrival.port, time, length);
            });
            policy_.about_to_change(arrival.port, arrival.time, own_.length(arrival.port));
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
    SlotQueues<Nothing> own_;
    SlottedAverages averages_;
    TrackedQueues tracked_;
    ArrivalRates arrival_rates_;
    std::vector<Tick> changed_;  // when an arrival was last decided, per port
    std::optional<SlottedLqd> lqd_;
    std::int64_t accepted_ = 0;
    std::int64_t threshold_deficits_ = 0;
};

/// More than this for the sets of SlotQueues, and a slotted run takes the general queues.
inline constexpr std::size_t slot_queue_limit = std::size_t{1} << 28;

}  // namespace detail

template <class Policy>
std::unique_ptr<RecordedRun> recorded_run(Policy policy, const SwitchSettings& settings) {
    const Shape& shape = settings.shape;
    if (Policy::sees_ingress && !shape.pause)
        throw std::invalid_argument("policy '" + std::string(Policy::name) +
                                    "' has to know where packets came in, which these arrivals do not say: simulate a "
                                    "network, or choose another policy");
    if constexpr (!Policy::sees_departures && !Policy::sees_ingress) {  // which SlotQueues does not show
        if (shape.preemptive && shape.priorities == 1 && !settings.fluid_slack &&
            SlotQueues<Row>::set_bytes(shape.ports(), shape.capacity) <= detail::slot_queue_limit) {
            return std::make_unique<detail::SlottedSwitch<Policy>>(settings, std::move(policy));
        }
    }
    return std::make_unique<detail::RecordedSwitch<Policy>>(settings, std::move(policy));
}

inline std::unique_ptr<RecordedRun> recorded_run(std::string_view policy, const PolicySettings& policy_settings,
                                                 const SwitchSettings& settings) {
    return with_policy(policy, policy_settings, settings.shape,
                       [&](auto chosen) { return recorded_run(std::move(chosen), settings); });
}

}  // namespace foretail::buffer
