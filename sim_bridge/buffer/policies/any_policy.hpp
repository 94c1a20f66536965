// SPDX-License-Identifier: MIT
// A policy behind one interface, whatever its type: what networks, recorded arrivals and policies from outside use.
#pragma once

#include "buffer/policies/policy.hpp"
#include "buffer/queues/slot_queues.hpp"

namespace foretail::buffer {

class AnyPolicy;

/// What a policy says of itself (PolicyTraits), and how it is made.
struct KnownPolicy {
    std::string_view name;
    std::span<const std::string_view> parameters;
    bool asks, knows_priorities, follows_thresholds, sees_departures, pushes_out, expels, sees_ingress, takes_alpha;
    bool follows_changes;  ///< it has `about_to_change`
    bool sees_arrivals;    ///< it has `arrive`, for all that comes
    bool can_be_copied;
    /// Makes one for a switch; throws std::invalid_argument when the settings do not fit its shape.
    std::unique_ptr<AnyPolicy> (*make)(const PolicySettings&, const Shape&);

    /// Whether it removes packets that it has accepted.
    [[nodiscard]] constexpr bool removes_packets() const { return pushes_out || expels; }
};

/// Foretail's own policies.
std::span<const KnownPolicy* const> policies();

/// The policy of that name, or the one in a library (guests/guest_library.cpp), whose path has a slash; throws
/// std::invalid_argument when there is none.
const KnownPolicy& known_policy(std::string_view name);

/// A predictor that answers at most once. It refers to a function, which has to outlive it.
class PredictsDrop {
public:
    template <class Ask>
    explicit PredictsDrop(const Ask& ask)
        : ask_(&ask), call_([](const void* ask) -> bool { return (*static_cast<const Ask*>(ask))(); }) {}
    bool operator()() const { return call_(ask_); }

private:
    const void* ask_;
    bool (*call_)(const void*);
};

/// What a decision may need beside the queues.
struct DecisionInputs {
    Bytes threshold = 0;                     ///< of the virtual LQD, for policies that follow thresholds
    const IngressQueues* ingress = nullptr;  ///< for policies that see where packets came in
    PredictsDrop predicts_drop;
};

/// One policy of one switch. What a policy does not have does nothing; the switch asks KnownPolicy first.
class AnyPolicy {
public:
    virtual ~AnyPolicy() = default;

    [[nodiscard]] virtual const KnownPolicy& about() const = 0;
    /// Throws std::invalid_argument when it cannot be copied.
    [[nodiscard]] virtual std::unique_ptr<AnyPolicy> clone() const = 0;

    /// Decides a data arrival.
    virtual Outcome decide(const Arrival& arrival, const QueueLengths& queues, const DecisionInputs& inputs) = 0;
    virtual Outcome decide(const Arrival& arrival, const UnitQueues& queues, const DecisionInputs& inputs) = 0;
    /// Whether `decide` would ask; the threshold is that of the arrival's queue.
    template <class Queues>
    [[nodiscard]] bool would_ask(const Arrival& arrival, const Queues& queues, Bytes threshold) const {
        return asks(*clone(), arrival, queues, threshold);
    }

    virtual void arrive(const Arrival&) {}
    virtual void departed(Port, [[maybe_unused]] Bytes size, [[maybe_unused]] Bytes left) {}
    virtual void about_to_change(QueueIndex, Tick, [[maybe_unused]] Bytes length) {}
    virtual void ingress_about_to_change(QueueIndex, Tick, [[maybe_unused]] Bytes length) {}
    /// Whether a queue at ingress that may not lose, with `reserve` bytes more, is so long that its sender pauses.
    virtual bool pauses(QueueIndex queue, Bytes reserve, Tick now, const QueueLengths& queues,
                        const IngressQueues& ingress) = 0;
    /// Of a packet that is pushed.
    [[nodiscard]] virtual std::uint8_t rank(const Arrival&) const { return 0; }
    /// The packet to expel now; none when all may stay.
    virtual std::optional<QueuePlace> next_expelled(const QueueLengths&) { return std::nullopt; }
    virtual void expelled([[maybe_unused]] Bytes size) {}
    virtual void set_alpha(QueueIndex, [[maybe_unused]] double alpha) {}
    /// The rules that were in force; none where it has but one.
    [[nodiscard]] virtual std::span<const Turn> turns() const { return {}; }

protected:
    /// Whether a copy asks, whose decision does not count.
    template <class Policy, class Queues>
    static bool asks(Policy& copy, const Arrival& arrival, const Queues& queues, Bytes threshold) {
        bool asked = false;
        const auto ask = [&] {
            asked = true;
            return false;
        };
        copy.decide(arrival, queues, {threshold, nullptr, PredictsDrop(ask)});
        return asked;
    }
};

/// A policy of any type as a value: copies are policies of their own, in the same state.
class PolicyValue {
public:
    static constexpr bool pushes_out = false;  // as far as a compiler knows, which PolicyOf tells more

    explicit PolicyValue(std::unique_ptr<AnyPolicy> policy) : policy_(std::move(policy)), about_(&policy_->about()) {}
    PolicyValue(const PolicyValue& other) : PolicyValue(other.policy_->clone()) {}
    PolicyValue(PolicyValue&&) noexcept = default;
    PolicyValue& operator=(const PolicyValue& other) { return *this = PolicyValue(other); }
    PolicyValue& operator=(PolicyValue&&) noexcept = default;
    ~PolicyValue() = default;

    [[nodiscard]] const KnownPolicy& about() const { return *about_; }
    [[nodiscard]] AnyPolicy& operator*() { return *policy_; }
    [[nodiscard]] AnyPolicy* operator->() { return policy_.get(); }
    [[nodiscard]] const AnyPolicy* operator->() const { return policy_.get(); }

private:
    std::unique_ptr<AnyPolicy> policy_;
    const KnownPolicy* about_;
};

/// Lets a policy expel packets: `expelling(queue)` is called before and `expelled(queue, packet)` after the removal of
/// each.
template <class Policy, class Queues, class Expelling, class Expelled>
void expel(Policy& policy, Queues& queues, Expelling&& expelling, Expelled&& expelled) {
    while (const std::optional<QueuePlace> next = policy.next_expelled(queues)) {
        expelling(next->queue);
        auto packet = queues.remove(next->queue, next->place);
        policy.expelled(packet.size);
        expelled(next->queue, std::move(packet));
    }
}

/// Sizes of what a policy library shares with this program: one that was compiled with other headers has others.
inline constexpr std::array<std::size_t, 7> guest_layout = {
    sizeof(KnownPolicy),  sizeof(PolicySettings), sizeof(Shape),         sizeof(Arrival),
    sizeof(QueueLengths), sizeof(UnitQueues),     sizeof(DecisionInputs)};

/// A policy type behind the interface. Where its type is known, the compiler sees through it.
template <class Policy>
class PolicyOf final : public AnyPolicy {
public:
    static constexpr bool pushes_out = Policy::pushes_out;

    explicit PolicyOf(Policy policy) : policy_(std::move(policy)) {}
    PolicyOf* operator->() { return this; }
    const PolicyOf* operator->() const { return this; }

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
        return decided(arrival, queues, inputs);
    }
    Outcome decide(const Arrival& arrival, const UnitQueues& queues, const DecisionInputs& inputs) override {
        return decided(arrival, queues, inputs);
    }

    /// The same as that of any policy, without memory for the copy.
    template <class Queues>
    [[nodiscard]] bool would_ask(const Arrival& arrival, const Queues& queues, Bytes threshold) const {
        PolicyOf copy = *this;
        return asks(copy, arrival, queues, threshold);
    }

    void arrive(const Arrival& arrival) override {
        if constexpr (known.sees_arrivals) policy_.arrive(arrival);
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
    [[nodiscard]] std::span<const Turn> turns() const override {
        if constexpr (requires { policy_.turns(); }) return policy_.turns();
        return {};
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
    Outcome decided(const Arrival& arrival, const Queues& queues, const DecisionInputs& inputs) {
        constexpr bool in_slots = std::is_same_v<Queues, UnitQueues>;
        if constexpr (Policy::pushes_out || (in_slots && (Policy::sees_ingress || Policy::sees_departures))) {
            throw std::logic_error("policy '" + std::string(Policy::name) + "' does not decide here");
        } else if constexpr (Policy::sees_ingress) {
            return policy_.decide(arrival, queues, *inputs.ingress);
        } else if constexpr (Policy::asks && Policy::follows_thresholds) {
            return policy_.decide(arrival, queues, inputs.threshold, inputs.predicts_drop);
        } else if constexpr (Policy::asks) {
            return policy_.decide(arrival, queues, inputs.predicts_drop);
        } else if constexpr (Policy::follows_thresholds) {
            return policy_.decide(arrival, queues, inputs.threshold);
        } else {
            return policy_.decide(arrival, queues);
        }
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
        .sees_arrivals = requires(Policy& policy) { policy.arrive(Arrival{}); },
        .can_be_copied = std::is_copy_constructible_v<Policy>,
        .make = &PolicyOf::make};
};

}  // namespace foretail::buffer
