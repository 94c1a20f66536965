// SPDX-License-Identifier: MIT
// The policies, and the one list of them. Each decides one data arrival from the queues before it; the switch has
// already found that control packets need no decision. A type says what it is called and what it needs (PolicyTraits);
// where it needs settings or the switch's shape, it is built from both.
//
// A policy that has to follow the queues has `about_to_change(queue, time, length)`, called before each of its changes
// with the length that it has had since the last one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "buffer/names.hpp"
#include "buffer/policies/credence.hpp"
#include "buffer/policies/dynamic_thresholds.hpp"
#include "buffer/policies/guarded.hpp"
#include "buffer/policies/low_pass.hpp"
#include "buffer/policies/occamy.hpp"
#include "buffer/policies/policy.hpp"
#include "buffer/queues/port_queues.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

/// Accepts whatever fits. (N + 1)-competitive.
struct CompleteSharing : PolicyTraits {
    static constexpr std::string_view name = "cs";

    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues) const {
        return queues.fits(arrival.size) ? Outcome::accepted : Outcome::buffer_full;
    }
};

/// Every queue has its own equal part of the buffer.
struct CompletePartitioning : PolicyTraits {
    static constexpr std::string_view name = "cp";

    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues) const {
        if (!queues.fits(arrival.size)) return Outcome::buffer_full;
        const Bytes after = queues.length(queues.queue_of(arrival)) + arrival.size;
        return queues.queues() * after <= queues.capacity() ? Outcome::accepted : Outcome::over_threshold;
    }
};

/// Kesselman and Mansour's Harmonic policy (2004): however the queues are ordered, the k longest of n together hold at
/// most H_k / H_n of the buffer, H_k = 1 + 1/2 + ... + 1/k. (ln N + 2)-competitive.
class Harmonic : public PolicyTraits {
public:
    static constexpr std::string_view name = "harmonic";

    Harmonic(const PolicySettings&, const Shape& shape)
        : order_(static_cast<std::size_t>(shape.queues())), keys_(order_.size()), limits_(order_.size()) {
        long double sum = 0;
        for (std::size_t k = 0; k < limits_.size(); ++k) {
            order_[k] = static_cast<QueueIndex>(k);
            partial(sum, k);
        }
        const long double whole = sum;
        sum = 0;
        for (std::size_t k = 0; k < limits_.size(); ++k) {
            partial(sum, k);
            // H_k / H_n * capacity may be an integer that rounding has lowered; none is so close below one.
            limits_[k] = static_cast<Bytes>(static_cast<long double>(shape.capacity) * sum / whole + 1e-9L);
        }
    }

    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues) {
        if (!queues.fits(arrival.size)) return Outcome::buffer_full;
        sort(queues, queues.queue_of(arrival), arrival.size);
        Bytes sum = 0;
        for (std::size_t k = 0; k < keys_.size(); ++k) {
            sum += keys_[k];
            if (sum > limits_[k]) return Outcome::over_threshold;
        }
        return Outcome::accepted;
    }

private:
    static void partial(long double& sum, std::size_t k) { sum += 1.0L / static_cast<long double>(k + 1); }

    /// Lengths from the longest down, with `size` added to `own`. Little has moved since the last arrival, so insertion
    /// sort does little more than look at every queue.
    template <class Queues>
    void sort(const Queues& queues, QueueIndex own, Bytes size) {
        for (std::size_t k = 0; k < order_.size(); ++k) {
            const QueueIndex queue = order_[k];
            const Bytes key = queues.length(queue) + (queue == own ? size : 0);
            std::size_t place = k;
            for (; place > 0 && keys_[place - 1] < key; --place) {
                keys_[place] = keys_[place - 1];
                order_[place] = order_[place - 1];
            }
            keys_[place] = key;
            order_[place] = queue;
        }
    }

    std::vector<QueueIndex> order_;
    std::vector<Bytes> keys_, limits_;
};

/// How many queues of each priority are congested, counted once per interval: a queue is, from 0.9 of its threshold on.
class CongestedQueues {
public:
    CongestedQueues(std::size_t priorities, Tick interval) : congested_(priorities, 1), interval_(interval) {}

    /// Of this priority, in the last interval; none counts as one.
    [[nodiscard]] double of(std::size_t priority) const { return congested_[priority]; }

    /// Counts at the first call of an interval. `threshold(queue, priority)` still sees the old counts.
    template <class Queues, class Threshold>
    void count(Tick now, const Queues& queues, Threshold&& threshold) {
        if (now < next_) return;
        next_ = (now / interval_ + 1) * interval_;
        const auto priorities = static_cast<QueueIndex>(congested_.size());
        for (QueueIndex p = 0; p < priorities; ++p) {
            int congested = 0;
            for (QueueIndex queue = p; queue < queues.queues(); queue += priorities) {
                const Bytes length = queues.length(queue);
                congested +=
                    length > 0 && static_cast<double>(length) >= 0.9 * threshold(queue, static_cast<std::size_t>(p));
            }
            congested_[static_cast<std::size_t>(p)] = std::max(congested, 1);
        }
    }

private:
    std::vector<double> congested_;
    Tick interval_, next_ = 0;
};

/// ABM (thesis equation 4.9): Dynamic Thresholds over the number of congested queues of the priority, times the queue's
/// share of its port. Of the port's non-empty queues, its own always among them, every one has the same share under
/// round robin, one as its quantum under deficit round robin, and the first has all of it under strict priority.
class Abm : public PolicyTraits {
public:
    static constexpr std::string_view name = "abm";

    Abm(const PolicySettings& settings, const Shape& shape)
        : alpha_(settings.alpha),
          strict_(shape.scheduler == Scheduler::strict),
          weights_(shape.scheduler == Scheduler::deficit_round_robin ? shape.quanta
                                                                     : std::vector<Bytes>(alpha_.size(), 1)),
          first_rtt_alpha_(settings.first_rtt_alpha),
          congested_(alpha_.size(), settings.interval) {}

    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues) {
        congested_.count(arrival.time, queues, [&](QueueIndex queue, std::size_t priority) {
            return threshold(alpha_[priority], queue, priority, queues);
        });
        if (!queues.fits(arrival.size)) return Outcome::buffer_full;
        const double alpha = arrival.first_rtt ? first_rtt_alpha_ : alpha_[arrival.priority];
        const QueueIndex queue = queues.queue_of(arrival);
        return static_cast<double>(queues.length(queue)) < threshold(alpha, queue, arrival.priority, queues)
                   ? Outcome::accepted
                   : Outcome::over_threshold;
    }

private:
    template <class Queues>
    [[nodiscard]] double threshold(double alpha, QueueIndex queue, std::size_t priority, const Queues& queues) const {
        const double sharers = congested_.of(priority) * one_over_share(queue, queues);
        return alpha * static_cast<double>(queues.capacity() - queues.occupancy()) / sharers;
    }
    /// Over the queue's share of its port; infinite where a queue goes first.
    template <class Queues>
    [[nodiscard]] double one_over_share(QueueIndex queue, const Queues& queues) const {
        if (alpha_.size() == 1) return 1;
        const auto priorities = static_cast<QueueIndex>(alpha_.size());
        const QueueIndex first = queues.port_of(queue) * priorities;
        Bytes active = 0, own = 0;
        for (QueueIndex p = 0; p < priorities; ++p) {
            const Bytes weight = weights_[static_cast<std::size_t>(p)];
            if (first + p == queue) {
                if (strict_) return 1;
                active += own = weight;
            } else if (queues.length(first + p) > 0) {
                if (strict_) return std::numeric_limits<double>::infinity();
                active += weight;
            }
        }
        return static_cast<double>(active) / static_cast<double>(own);
    }

    Alphas alpha_;
    bool strict_;
    std::vector<Bytes> weights_;
    double first_rtt_alpha_;
    CongestedQueues congested_;
};

/// Reverie for lossy traffic (thesis equations 5.10-5.12): the low-passed length of the queue against alpha times the
/// free buffer over the number of congested queues. The buffer's end is a limit of its own.
class Reverie : public PolicyTraits {
public:
    static constexpr std::string_view name = "reverie";

    Reverie(const PolicySettings& settings, const Shape& shape)
        : alpha_(settings.alpha),
          congested_(alpha_.size(), settings.interval),
          keep_(1 - 1 / static_cast<double>(settings.low_pass)),
          averages_(static_cast<std::size_t>(shape.queues())) {}

    void about_to_change(QueueIndex queue, Tick time, Bytes length) {
        averages_[static_cast<std::size_t>(queue)].observe(time, length, keep_);
    }

    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues) {
        const auto threshold = [&](QueueIndex, std::size_t priority) {
            return alpha_[priority] * static_cast<double>(queues.capacity() - queues.occupancy()) /
                   congested_.of(priority);
        };
        congested_.count(arrival.time, queues, threshold);
        if (!queues.fits(arrival.size)) return Outcome::buffer_full;
        const QueueIndex queue = queues.queue_of(arrival);
        return averages_[static_cast<std::size_t>(queue)].value() <= threshold(queue, arrival.priority)
                   ? Outcome::accepted
                   : Outcome::over_threshold;
    }

private:
    Alphas alpha_;
    CongestedQueues congested_;
    double keep_;
    std::vector<LowPass> averages_;
};

/// Longest Queue Drop pushes out, which the switch does itself (longest_queue_drop.hpp).
struct PushOut : PolicyTraits {
    static constexpr std::string_view name = "lqd";
    static constexpr bool pushes_out = true;
};

/// A learned rule: Complete Sharing, but for the packets that a predictor drops. It asks for every data packet.
struct Learned : PolicyTraits {
    static constexpr std::string_view name = "learned";
    static constexpr bool asks = true;

    template <class Queues, class Ask>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues, Ask&& predicts_drop) const {
        return predicts_drop() ? Outcome::predicted : CompleteSharing{}.decide(arrival, queues);
    }
};

/// Credence as its public artifact does it, for comparison: the counters that stand for LQD's queues fall with the
/// packets of the real queues, and to zero when a real queue runs empty; the largest gives way by a fixed cut; the
/// safeguard does not count the arrival; the predictor is asked even when the buffer is full; the last byte stays free.
class CredenceArtifact : public PolicyTraits {
public:
    static constexpr std::string_view name = "credence_artifact";
    static constexpr bool knows_priorities = false, sees_departures = true, asks = true;

    CredenceArtifact(const PolicySettings& settings, const Shape& shape)
        : thresholds_(shape.rates.size()), capacity_(shape.capacity), cut_(settings.artifact_cut) {}

    void arrive(const Arrival& arrival) {
        while (sum_ + arrival.size > capacity_) {
            const auto largest = std::max_element(thresholds_.begin(), thresholds_.end());
            if (*largest == 0) break;
            lower(*largest, cut_);
        }
        thresholds_[static_cast<std::size_t>(arrival.port)] += arrival.size;
        sum_ = std::min(sum_ + arrival.size, capacity_);
    }
    void departed(Port port, Bytes size, Bytes left) {
        auto& threshold = thresholds_[static_cast<std::size_t>(port)];
        lower(threshold, left == 0 ? threshold : size);
    }

    template <class Queues, class Ask>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues, Ask&& predicts_drop) const {
        if (queues.ports() * queues.longest() > queues.capacity()) {
            const Bytes threshold = thresholds_[static_cast<std::size_t>(arrival.port)];
            if (queues.length(arrival.port) + arrival.size > threshold) return Outcome::over_threshold;
            if (predicts_drop()) return Outcome::predicted;
        }
        return queues.fits(arrival.size + 1) ? Outcome::accepted : Outcome::buffer_full;
    }

private:
    void lower(Bytes& threshold, Bytes by) {
        const Bytes cut = std::min(threshold, by);
        threshold -= cut;
        sum_ -= cut;
    }

    std::vector<Bytes> thresholds_;
    Bytes capacity_, cut_, sum_ = 0;
};

}  // namespace foretail::buffer

// A policy from outside, FORETAIL_GUEST_TYPE in the header FORETAIL_GUEST_HEADER, under the name FORETAIL_GUEST_NAME.
#ifdef FORETAIL_GUEST_TYPE
#include FORETAIL_GUEST_HEADER
namespace foretail::buffer {

using GuestType = FORETAIL_GUEST_TYPE;
static_assert(std::is_convertible_v<GuestType*, PolicyTraits*>,
              "a policy must derive publicly from foretail::buffer::PolicyTraits");
static_assert(!GuestType::pushes_out && !GuestType::expels, "a policy decides arrivals: only lqd and occamy push out");

struct Guest final : GuestType {
    using GuestType::GuestType;
    static constexpr std::string_view name = FORETAIL_GUEST_NAME;

    template <class Queues, class... Told>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues, Told&&... told) {
        const Outcome outcome = GuestType::decide(arrival, queues, std::forward<Told>(told)...);
        if (outcome == Outcome::accepted && !queues.fits(arrival.size)) {
            throw std::invalid_argument("the policy " + std::string(name) +
                                        " accepts a packet that does not fit: let it ask queues.fits(arrival.size)");
        }
        if (outcome == Outcome::pushed_out) {
            throw std::invalid_argument("the policy " + std::string(name) +
                                        " answers pushed_out, which says what becomes of a queued packet");
        }
        return outcome;
    }
};

}  // namespace foretail::buffer
#endif

namespace foretail::buffer {

template <class... Policy>
struct PolicyList {
    static constexpr std::array<std::string_view, sizeof...(Policy)> names = {Policy::name...};
};
using Policies = PolicyList<CompleteSharing, CompletePartitioning, DynamicThresholds, Harmonic, Abm, Reverie, Occamy,
                            PushOut, FollowLqd, Credence, Guarded, Learned, CredenceArtifact
#ifdef FORETAIL_GUEST_TYPE
                            ,
                            Guest
#endif
                            >;

namespace detail {

template <class Policy, class Make>
auto make_with(const PolicySettings& settings, const Shape& shape, Make& make) {
    if (shape.priorities > 1 && !Policy::knows_priorities) {
        throw std::invalid_argument("policy '" + std::string(Policy::name) + "' knows one queue per port: give it one");
    }
    if constexpr (std::is_constructible_v<Policy, const PolicySettings&, const Shape&>) {
        const auto priorities = static_cast<std::size_t>(shape.priorities);
        PolicySettings own = settings;
        if (own.alpha.size() == 1) own.alpha.resize(priorities, own.alpha.front());
        if (own.alpha.size() != priorities) {
            throw std::invalid_argument("alpha has " + std::to_string(own.alpha.size()) + " numbers, and a port has " +
                                        std::to_string(priorities) + " queues: give one for each, or one for all");
        }
        return make(Policy{own, shape});
    } else {
        return make(Policy{});
    }
}

}  // namespace detail

/// Calls `make(policy)` with the policy of that name in `Known` for a switch of this shape; throws
/// std::invalid_argument when there is none, or when it knows one queue per port and the shape has several.
template <class Known = Policies, class Make>
auto with_policy(std::string_view name, const PolicySettings& settings, const Shape& shape, Make&& make) {
    const std::size_t chosen = position(name, Known::names, "unknown policy '" + std::string(name) + "'");
    return [&]<class... Policy>(PolicyList<Policy...>) {
        const auto makers = {&detail::make_with<Policy, std::remove_reference_t<Make>>...};
        return makers.begin()[chosen](settings, shape, make);
    }(Known{});
}

/// What a policy decides on a data arrival, given what it needs: `threshold()` is that of the arrival's queue.
template <class Policy, class Queues, class Threshold, class Ask>
Outcome decide(Policy& policy, const Arrival& arrival, const Queues& queues, Threshold&& threshold,
               Ask&& predicts_drop) {
    if constexpr (Policy::asks && Policy::follows_thresholds) {
        return policy.decide(arrival, queues, threshold(), std::forward<Ask>(predicts_drop));
    } else if constexpr (Policy::asks) {
        return policy.decide(arrival, queues, std::forward<Ask>(predicts_drop));
    } else if constexpr (Policy::follows_thresholds) {
        return policy.decide(arrival, queues, threshold());
    } else {
        return policy.decide(arrival, queues);
    }
}

}  // namespace foretail::buffer
