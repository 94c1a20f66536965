// SPDX-License-Identifier: MIT
// A policy that changes its rule between windows of time, by what each rule would have sent in them.
#pragma once

#include <algorithm>
#include <memory>

#include "buffer/policies/policy.hpp"
#include "buffer/predictor/predictor.hpp"

namespace foretail::buffer {

/// What a rule sends of arrivals on a switch that is empty before them, in packets in slots, else in bytes of data: a
/// run of the policy `learned` (run.cpp).
std::int64_t sent_by(const std::shared_ptr<const Scorer>& rule, const Shape& shape, FeatureScale scale,
                     std::span<const Arrival> arrivals);

/// Decides by one of several adaptive thresholds. All arrivals of a sampled window are mirrored, and replayed under
/// each rule when it ends. The rule that has sent most in the replays of the last sampled windows, the first of equals,
/// decides in the next window. A window ends with the first arrival after it, and no arrival sees it later.
class Chosen : public PolicyTraits {
public:
    static constexpr std::string_view name = "chosen";
    static constexpr std::array<std::string_view, 4> parameters = {"rules", "window", "memory", "sampled"};

    Chosen(const PolicySettings& settings, const Shape& shape)
        : shape_(shape),
          scale_(settings.scale),
          rates_(shape.queues(), scale_),
          averages_(0, scale_),
          tracked_(0),
          window_(settings.whole("window")),
          memory_(settings.whole("memory")),
          sampled_(settings.whole("sampled")),
          end_(window_) {
        const auto rules = settings.lists.find("rules");
        if (rules != settings.lists.end()) rules_ = adaptive_thresholds(rules->second);
        if (rules_.empty())
            throw std::invalid_argument("policy 'chosen' has no rules: give the numbers of at least one, as the zoo");
        sums_.resize(rules_.size());
        sent_.resize(rules_.size() * static_cast<std::size_t>(memory_));
    }

    void arrive(const Arrival& arrival) {
        if (arrival.time >= end_) [[unlikely]]
            turn(arrival.time / window_);
        rates_.arrive(shape_.priorities == 1 ? arrival.port : arrival.port * shape_.priorities + arrival.priority,
                      arrival);
        if (!mirrors_) return;
        mirror_.push_back(arrival);
        if (!shape_.voqs) mirror_.back().time -= end_ - window_;  // circuits come at times of the whole run
    }

    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues) const {
        if (!queues.fits(arrival.size)) return Outcome::buffer_full;
        FeatureVector seen{};
        read_real_features(seen, arrival, queues, averages_, tracked_, nullptr, scale_, AdaptiveThreshold::reads());
        read_traffic_features(seen, queues.queue_of(arrival), rates_, AdaptiveThreshold::reads());
        return rules_[turns_.back().rule]->drops(seen) ? Outcome::over_threshold : Outcome::accepted;
    }

    [[nodiscard]] std::span<const Turn> turns() const { return turns_; }

private:
    /// Sampled windows before a window: every `sampled_`-th is one, from the first on.
    [[nodiscard]] Tick samples_before(Tick window) const { return (window + sampled_ - 1) / sampled_; }

    /// Ends the open window and those without an arrival after it, and begins `window`.
    void turn(Tick window) {
        const std::size_t n = rules_.size();
        const Tick mirrored = samples_before(end_ / window_ - 1), after = samples_before(window);
        for (Tick sample = std::max(mirrored, after - memory_); sample < after; ++sample) {
            for (std::size_t rule = 0; rule < n; ++rule) {
                Bytes& sent = sent_[static_cast<std::size_t>(sample % memory_) * n + rule];
                sums_[rule] -= sent;
                sent = sample == mirrored && mirrors_ ? sent_by(rules_[rule], shape_, scale_, mirror_) : 0;
                sums_[rule] += sent;
            }
        }
        mirror_.clear();
        mirrors_ = window % sampled_ == 0;
        end_ = (window + 1) * window_;
        const auto best = static_cast<std::size_t>(std::ranges::max_element(sums_) - sums_.begin());
        if (best != turns_.back().rule) turns_.push_back({window * window_, best});
    }

    Shape shape_;
    FeatureScale scale_;
    ArrivalRates rates_;
    QueueAverages averages_;  // no rule reads them, nor tracked queues
    TrackedQueues tracked_;
    Tick window_, memory_, sampled_;
    Tick end_;  // of the open window
    bool mirrors_ = true;
    std::vector<std::shared_ptr<const Scorer>> rules_;
    std::vector<Bytes> sent_, sums_;  // in the replays of the last sampled windows, [memory][rules], and together
    std::vector<Arrival> mirror_;     // of the open window, with times from its start; its memory is used again
    std::vector<Turn> turns_{{0, 0}};
};

}  // namespace foretail::buffer
