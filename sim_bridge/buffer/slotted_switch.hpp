// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "buffer/features/features.hpp"
#include "buffer/lqd/slotted_lqd.hpp"
#include "buffer/policies/any_policy.hpp"
#include "buffer/policies/credence.hpp"
#include "buffer/queues/circuit_times.hpp"
#include "buffer/queues/slot_queues.hpp"
#include "buffer/run.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

/// Whether the queues of two switches of one shape are equally long.
template <class Queues>
bool equally_long(const Queues& left, const Queues& right) {
    if (left.occupancy() != right.occupancy()) return false;
    for (QueueIndex queue = 0; queue < left.queues(); ++queue) {
        if (left.length(queue) != right.length(queue)) return false;
    }
    return true;
}

/// A switch on unit packets in slots with one priority: the same policies over SlotQueues. Under LQD its own queues are
/// those of the virtual LQD. Policy is PolicyOf a type, which is compiled into the loop, or PolicyValue.
template <class Policy>
class SlottedSwitch final : public RecordedRun {
public:
    SlottedSwitch(const SwitchSettings& settings, Policy policy)
        : policy_(std::move(policy)),
          about_(&this->policy().about()),
          labels_(settings.labels),
          observes_(settings.labels && !settings.features.empty()),
          features_(settings.features),
          scale_(settings.scale),
          own_(settings.shape.ports(), settings.shape.capacity, settings.rules.tie),
          averages_(settings.shape.ports(), settings.scale),
          tracked_(settings.shape.ports()),
          arrival_rates_(settings.shape.ports(), settings.scale),
          changed_(settings.shape.rates.size()) {
        if (labels_ || about().follows_thresholds || about().pushes_out) {
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
        const bool asks = about().asks && policy().would_ask(arrival, own_, followed(arrival.port));
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
    static constexpr bool is_compiled = !std::is_same_v<Policy, PolicyValue>;
    static constexpr bool pushes_out = [] {
        if constexpr (is_compiled) return Policy::known.pushes_out;
        return false;
    }();

    [[nodiscard]] const KnownPolicy& about() const {
        if constexpr (is_compiled) return Policy::known;
        return *about_;
    }
    [[nodiscard]] auto& policy() {
        if constexpr (is_compiled) {
            return policy_;
        } else {
            return *policy_;
        }
    }
    /// The threshold of a port where the policy follows it.
    [[nodiscard]] Bytes followed(Port port) const { return about().follows_thresholds ? lqd_->threshold(port) : 0; }

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
            outcome = policy().decide(arrival, own_, {followed(arrival.port), nullptr, PredictsDrop(ask)});
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
        if (about().follows_changes) {
            Tick& changed = changed_[static_cast<std::size_t>(arrival.port)];
            own_.departures_since(arrival.port, changed, [&](Tick time, Bytes length) {
                policy().about_to_change(arrival.port, time, length);
            });
            policy().about_to_change(arrival.port, arrival.time, own_.length(arrival.port));
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
    const KnownPolicy* about_;
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

}  // namespace foretail::buffer
