// SPDX-License-Identifier: MIT
// Policies that are watched while another one decides: those that never differ would have made the same run.
#pragma once

#include "buffer/policies/policies.hpp"
#include "packets/predictor.h"

namespace foretail::packets {

/// The policies that a network's switches watch. One of them that would have decided an arrival otherwise, for another
/// reason even, differs from then on; all that it asks and counts until then is its own.
class Watching {
public:
    explicit Watching(const Settings& s) {
        const bool decides_alone =
            s.queues.lossless != 0 || s.trace || s.counters || s.branches || s.policy.known->pushes_out;
        for (const PolicyChoice& policy : s.watched) {
            Settings of_policy = s;
            of_policy.policy = policy;
            policies_.push_back({.policy = policy,
                                 .predictor = Predictor(of_policy),
                                 .differs = decides_alone || !can_be_watched(s.policy) || !can_be_watched(policy),
                                 .asked = std::vector<std::int64_t>(static_cast<std::size_t>(s.topology.switches()))});
        }
        count();
    }

    [[nodiscard]] std::size_t size() const { return policies_.size(); }
    [[nodiscard]] const PolicyChoice& policy(std::size_t i) const { return policies_[i].policy; }
    [[nodiscard]] bool differs(std::size_t i) const { return policies_[i].differs; }
    void set_differs(std::size_t i) {
        policies_[i].differs = true;
        count();
    }
    /// Whether none is left that has not differed.
    [[nodiscard]] bool is_over() const { return alike_ == 0; }

    /// What the predictors read that may still be asked.
    [[nodiscard]] buffer::FeatureSet features() const {
        buffer::FeatureSet features;
        for (const Watched& one : policies_) {
            if (!one.differs) features = features | one.predictor.features();
        }
        return features;
    }
    /// Lets a policy decide, whose questions are its own.
    template <class Decide>
    auto as(std::size_t i, Decide&& decide) {
        asking_ = i;
        const auto decided = decide();
        asking_.reset();
        return decided;
    }
    /// Whether a watched policy asks, not the one that decides.
    [[nodiscard]] bool asks() const { return asking_.has_value(); }
    [[nodiscard]] bool reads_features() const { return policies_[*asking_].predictor.reads_features(); }
    [[nodiscard]] bool answer(int node, const buffer::FeatureVector& features) {
        Watched& one = policies_[*asking_];
        ++one.asked[static_cast<std::size_t>(node)];
        return one.predictor.ask(features).drop;
    }

    /// Adds to a run's summary what would be otherwise in that of each policy, and removes from it what only they need.
    void finish(nlohmann::json& summary, const Settings& s, const Predictor& predictor) {
        nlohmann::json& switches = summary["switches"];
        const bool loses_control = std::ranges::any_of(switches, [](const nlohmann::json& node) {
            return std::ranges::any_of(node["control_drops"], [](const auto& drops) { return drops["packets"] > 0; });
        });
        for (const Watched& one : policies_) {
            const bool has_lqd = runs_virtual_lqd(one.policy, one.predictor);
            // LQD takes in control packets, too, by pushing others out, which no policy is asked about.
            const bool differs = one.differs || (one.policy.known->pushes_out && loses_control);
            nlohmann::json counts = nlohmann::json::array();
            for (std::size_t node = 0; node < switches.size(); ++node) {
                const nlohmann::json none = 0;
                counts.push_back({{"asked", one.asked[node]},
                                  {"threshold_deficits", has_lqd ? switches[node]["threshold_deficits"] : none}});
            }
            summary["watched"].push_back({{"differs", differs},
                                          {"tau", one.predictor.tau()},
                                          {"flipped_predictions", one.predictor.flipped()},
                                          {"switches", std::move(counts)}});
        }
        if (runs_virtual_lqd(s.policy, predictor)) return;
        for (nlohmann::json& node : switches) node["threshold_deficits"] = 0;
    }

private:
    struct Watched {
        PolicyChoice policy;
        Predictor predictor;
        bool differs = false;
        std::vector<std::int64_t> asked;  ///< by switch
    };

    /// Whether all that a policy does to a switch is to decide data packets.
    static bool can_be_watched(const PolicyChoice& policy) {
        const buffer::KnownPolicy& known = *policy.known;
        return !known.expels && !known.sees_ingress && !(known.takes_alpha && !policy.library.empty()) &&
               policy.message_end.empty() && known.name != buffer::Chosen::name;
    }
    static bool runs_virtual_lqd(const PolicyChoice& policy, const Predictor& predictor) {
        return policy.known->follows_thresholds || predictor.features().has_any(buffer::of_virtual_lqd);
    }
    void count() {
        alike_ = std::ranges::count_if(policies_, [](const Watched& one) { return !one.differs; });
    }

    std::vector<Watched> policies_;
    std::ptrdiff_t alike_ = 0;
    std::optional<std::size_t> asking_;
};

/// The policy of one switch, with those that are watched.
class WatchingPolicy final : public buffer::AnyPolicy {
public:
    WatchingPolicy(std::unique_ptr<AnyPolicy> decides, Watching& watching, const buffer::Shape& shape)
        : decides_(std::move(decides)), about_(decides_->about()), watching_(&watching) {
        for (std::size_t i = 0; i < watching.size(); ++i) {
            const PolicyChoice& policy = watching.policy(i);
            watched_.push_back(policy.known->make(policy.settings, shape));
            if (watching.differs(i)) continue;
            about_.follows_thresholds |= policy.known->follows_thresholds;
            about_.sees_departures |= policy.known->sees_departures;
            about_.follows_changes |= policy.known->follows_changes;
            about_.sees_arrivals |= policy.known->sees_arrivals;
        }
    }
    WatchingPolicy(const WatchingPolicy& other)
        : decides_(other.decides_->clone()), about_(other.about_), watching_(other.watching_) {
        for (const auto& one : other.watched_) watched_.push_back(one->clone());
    }

    /// Gives the policy that decides away, after which nothing may be asked here.
    [[nodiscard]] std::unique_ptr<AnyPolicy> release() { return std::move(decides_); }

    [[nodiscard]] const buffer::KnownPolicy& about() const override { return about_; }
    [[nodiscard]] std::unique_ptr<AnyPolicy> clone() const override { return std::make_unique<WatchingPolicy>(*this); }

    buffer::Outcome decide(const buffer::Arrival& arrival, const buffer::QueueLengths& queues,
                           const buffer::DecisionInputs& inputs) override {
        return decided(arrival, queues, inputs);
    }
    buffer::Outcome decide(const buffer::Arrival& arrival, const buffer::UnitQueues& queues,
                           const buffer::DecisionInputs& inputs) override {
        return decided(arrival, queues, inputs);
    }
    void arrive(const buffer::Arrival& arrival) override {
        each([&](AnyPolicy& policy) { policy.arrive(arrival); });
    }
    void departed(buffer::Port port, buffer::Bytes size, buffer::Bytes left) override {
        each([&](AnyPolicy& policy) { policy.departed(port, size, left); });
    }
    void about_to_change(buffer::QueueIndex queue, buffer::Tick now, buffer::Bytes length) override {
        each([&](AnyPolicy& policy) { policy.about_to_change(queue, now, length); });
    }
    bool pauses(buffer::QueueIndex queue, buffer::Bytes reserve, buffer::Tick now, const buffer::QueueLengths& queues,
                const buffer::IngressQueues& ingress) override {
        return decides_->pauses(queue, reserve, now, queues, ingress);
    }

private:
    template <class Queues>
    buffer::Outcome decided(const buffer::Arrival& arrival, const Queues& queues,
                            const buffer::DecisionInputs& inputs) {
        const buffer::Outcome outcome = decides_->decide(arrival, queues, inputs);
        if (watching_->is_over()) return outcome;
        for (std::size_t i = 0; i < watched_.size(); ++i) {
            if (watching_->differs(i)) continue;
            const buffer::Outcome other = watching_->as(i, [&] {
                // Longest Queue Drop lets in what fits; elsewhere it pushes out, which no other policy does.
                if (watched_[i]->about().pushes_out)
                    return queues.fits(arrival.size) ? buffer::Outcome::accepted : buffer::Outcome::pushed_out;
                return watched_[i]->decide(arrival, queues, inputs);
            });
            if (other != outcome) watching_->set_differs(i);
        }
        return outcome;
    }
    template <class Tell>
    void each(Tell&& tell) {
        tell(*decides_);
        if (watching_->is_over()) return;
        for (std::size_t i = 0; i < watched_.size(); ++i) {
            if (!watching_->differs(i)) tell(*watched_[i]);
        }
    }

    std::unique_ptr<AnyPolicy> decides_;
    buffer::KnownPolicy about_;
    Watching* watching_;
    std::vector<std::unique_ptr<AnyPolicy>> watched_;
};

}  // namespace foretail::packets
