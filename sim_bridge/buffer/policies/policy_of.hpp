// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "buffer/policies/any_policy.hpp"
#include "buffer/policies/lossless/lossless.hpp"
#include "buffer/policies/policy.hpp"

namespace foretail::buffer {

/// A policy type behind the interface. Where its type is known, the compiler sees through it.
template <class Policy>
class PolicyOf final : public AnyPolicy {
public:
    explicit PolicyOf(Policy policy) : policy_(std::move(policy)) {}

    [[nodiscard]] const KnownPolicy& about() const override { return known; }
    [[nodiscard]] std::unique_ptr<AnyPolicy> clone() const override {
        if constexpr (known.can_be_copied) {
            return std::make_unique<PolicyOf>(*this);
        } else {
            throw std::invalid_argument("policy '" + std::string(Policy::name) +
                                        "' cannot be copied, so there is no snapshot of its runs");
        }
    }

    Outcome decide(const Arrival& arrival, const QueueLengths& queues, const DecisionInputs& inputs) override {
        return decided(policy_, arrival, queues, inputs);
    }
    Outcome decide(const Arrival& arrival, const UnitQueues& queues, const DecisionInputs& inputs) override {
        return decided(policy_, arrival, queues, inputs);
    }
    [[nodiscard]] bool would_ask(const Arrival& arrival, const QueueLengths& queues, Bytes threshold) const override {
        return asks(arrival, queues, threshold);
    }
    [[nodiscard]] bool would_ask(const Arrival& arrival, const UnitQueues& queues, Bytes threshold) const override {
        return asks(arrival, queues, threshold);
    }

    void arrive(const Arrival& arrival) override {
        if constexpr (Policy::sees_departures) policy_.arrive(arrival);
    }
    void departed(Port port, Bytes size, Bytes left) override {
        if constexpr (Policy::sees_departures) policy_.departed(port, size, left);
    }
    void about_to_change(QueueIndex queue, Tick now, Bytes length) override {
        if constexpr (known.follows_changes) policy_.about_to_change(queue, now, length);
    }
    void ingress_about_to_change(QueueIndex queue, Tick now, Bytes length) override {
        if constexpr (requires { policy_.ingress_about_to_change(queue, now, length); })
            policy_.ingress_about_to_change(queue, now, length);
    }
    bool pauses(QueueIndex queue, Bytes reserve, Tick now, const QueueLengths& queues,
                const IngressQueues& ingress) override {
        if constexpr (requires { policy_.pauses(queue, reserve, now, queues, ingress); }) {
            return policy_.pauses(queue, reserve, now, queues, ingress);
        } else {
            return DynamicPause::pauses(queue, reserve, queues, ingress);
        }
    }
    [[nodiscard]] std::uint8_t rank(const Arrival& arrival) const override {
        if constexpr (Policy::expels) return policy_.rank(arrival);
        return 0;
    }
    std::optional<QueuePlace> next_expelled(const QueueLengths& queues) override {
        if constexpr (Policy::expels) return policy_.next_expelled(queues);
        return std::nullopt;
    }
    void expelled(Bytes size) override {
        if constexpr (Policy::expels) policy_.expelled(size);
    }
    void set_alpha(QueueIndex queue, double alpha) override {
        if constexpr (Policy::takes_alpha) policy_.set_alpha(queue, alpha);
    }

private:
    static std::unique_ptr<AnyPolicy> make(const PolicySettings& settings, const Shape& shape) {
        if (shape.priorities > 1 && !Policy::knows_priorities) {
            throw std::invalid_argument("policy '" + std::string(Policy::name) +
                                        "' knows one queue per port: give it one");
        }
        if constexpr (std::is_constructible_v<Policy, const PolicySettings&, const Shape&>) {
            const auto priorities = static_cast<std::size_t>(shape.priorities);
            PolicySettings own = settings;
            if (own.alpha.size() == 1) own.alpha.resize(priorities, own.alpha.front());
            if (own.alpha.size() != priorities) {
                throw std::invalid_argument("alpha has " + std::to_string(own.alpha.size()) +
                                            " numbers, and a port has " + std::to_string(priorities) +
                                            " queues: give one for each, or one for all");
            }
            return std::make_unique<PolicyOf>(Policy{own, shape});
        } else {
            return std::make_unique<PolicyOf>(Policy{});
        }
    }

    /// What `decide` of the type takes, which depends on its traits.
    template <class Queues>
    static Outcome decided(Policy& policy, const Arrival& arrival, const Queues& queues, const DecisionInputs& inputs) {
        constexpr bool in_slots = std::is_same_v<Queues, UnitQueues>;
        if constexpr (Policy::pushes_out || (in_slots && (Policy::sees_ingress || Policy::sees_departures))) {
            throw std::logic_error("policy '" + std::string(Policy::name) + "' does not decide here");
        } else if constexpr (Policy::sees_ingress) {
            return policy.decide(arrival, queues, *inputs.ingress);
        } else if constexpr (Policy::asks && Policy::follows_thresholds) {
            return policy.decide(arrival, queues, inputs.threshold, inputs.predicts_drop);
        } else if constexpr (Policy::asks) {
            return policy.decide(arrival, queues, inputs.predicts_drop);
        } else if constexpr (Policy::follows_thresholds) {
            return policy.decide(arrival, queues, inputs.threshold);
        } else {
            return policy.decide(arrival, queues);
        }
    }
    template <class Queues>
    [[nodiscard]] bool asks(const Arrival& arrival, const Queues& queues, Bytes threshold) const {
        if constexpr (Policy::asks) {
            Policy trial = policy_;  // what it decides here does not count
            bool asked = false;
            const auto ask = [&] {
                asked = true;
                return false;
            };
            decided(trial, arrival, queues, {threshold, nullptr, PredictsDrop(ask)});
            return asked;
        }
        return false;
    }

    Policy policy_;

public:
    static constexpr KnownPolicy known = {
        .name = Policy::name,
        .parameters = Policy::parameters,
        .asks = Policy::asks,
        .knows_priorities = Policy::knows_priorities,
        .follows_thresholds = Policy::follows_thresholds,
        .sees_departures = Policy::sees_departures,
        .pushes_out = Policy::pushes_out,
        .expels = Policy::expels,
        .sees_ingress = Policy::sees_ingress,
        .takes_alpha = Policy::takes_alpha,
        .follows_changes = requires(Policy& policy) { policy.about_to_change(QueueIndex{}, Tick{}, Bytes{}); },
        .can_be_copied = std::is_copy_constructible_v<Policy>,
        .make = &PolicyOf::make};
};

}  // namespace foretail::buffer
