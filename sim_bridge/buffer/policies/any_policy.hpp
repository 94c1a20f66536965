// SPDX-License-Identifier: MIT
// A policy behind one interface, whatever its type: what networks, recorded arrivals and policies from outside use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "buffer/policies/policy.hpp"
#include "buffer/queues/ingress_queues.hpp"
#include "buffer/queues/port_queues.hpp"
#include "buffer/queues/slot_queues.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

class AnyPolicy;

/// What a policy says of itself (PolicyTraits), and how it is made.
struct KnownPolicy {
    std::string_view name;
    std::span<const std::string_view> parameters;
    bool asks, knows_priorities, follows_thresholds, sees_departures, pushes_out, expels, sees_ingress, takes_alpha;
    bool follows_changes;  ///< it has `about_to_change`
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
    [[nodiscard]] virtual bool would_ask(const Arrival& arrival, const QueueLengths& queues, Bytes threshold) const = 0;
    [[nodiscard]] virtual bool would_ask(const Arrival& arrival, const UnitQueues& queues, Bytes threshold) const = 0;

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
};

/// A policy as a value: copies are policies of their own, in the same state.
class PolicyValue {
public:
    explicit PolicyValue(std::unique_ptr<AnyPolicy> policy) : policy_(std::move(policy)) {}
    PolicyValue(const PolicyValue& other) : policy_(other.policy_->clone()) {}
    PolicyValue(PolicyValue&&) noexcept = default;
    PolicyValue& operator=(const PolicyValue& other) {
        policy_ = other.policy_->clone();
        return *this;
    }
    PolicyValue& operator=(PolicyValue&&) noexcept = default;
    ~PolicyValue() = default;

    [[nodiscard]] AnyPolicy& operator*() { return *policy_; }
    [[nodiscard]] const AnyPolicy& operator*() const { return *policy_; }
    [[nodiscard]] AnyPolicy* operator->() { return policy_.get(); }
    [[nodiscard]] const AnyPolicy* operator->() const { return policy_.get(); }

private:
    std::unique_ptr<AnyPolicy> policy_;
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

}  // namespace foretail::buffer
