// SPDX-License-Identifier: MIT
// Every policy type. Each decides one data arrival from the queues before it; the switch has already found that control
// packets need no decision. A type says what it is called and what it needs (PolicyTraits); where it needs settings or
// the switch's shape, it is built from both.
//
// A policy that has to follow the queues has `about_to_change(queue, time, length)`, called before each of its changes
// with the length that it has had since the last one.
#pragma once

#include <cmath>

#include "buffer/policies/chosen.hpp"
#include "buffer/policies/credence.hpp"
#include "buffer/policies/dynamic_thresholds.hpp"

namespace foretail::buffer {

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

    /// Counts at ingress, and returns the threshold there, over the congested queues of the priority.
    [[nodiscard]] double at_ingress(QueueIndex queue, Tick now, const QueueLengths& queues,
                                    const IngressQueues& ingress) {
        const double shared = ingress.settings().alpha * static_cast<double>(queues.capacity() - queues.occupancy());
        count(now, ingress, [&](QueueIndex, std::size_t priority) { return shared / of(priority); });
        return shared / of(static_cast<std::size_t>(ingress.priority_of(queue)));
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
    static constexpr std::array<std::string_view, 3> parameters = {"alpha", "first_rtt_alpha", "rtt"};

    Abm(const PolicySettings& settings, const Shape& shape)
        : alpha_(settings.alpha),
          strict_(shape.scheduler == Scheduler::strict),
          weights_(shape.scheduler == Scheduler::deficit_round_robin ? shape.quanta
                                                                     : std::vector<Bytes>(alpha_.size(), 1)),
          first_rtt_alpha_(settings.number("first_rtt_alpha")),
          congested_(alpha_.size(), settings.whole("rtt")),
          congested_at_ingress_(congested_) {}

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

    /// At ingress, over the congested queues of the priority there, as if each drained at the rate of its port.
    [[nodiscard]] bool pauses(QueueIndex queue, Bytes reserve, Tick now, const QueueLengths& queues,
                              const IngressQueues& ingress) {
        return static_cast<double>(ingress.length(queue) + reserve) >=
               congested_at_ingress_.at_ingress(queue, now, queues, ingress);
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
    CongestedQueues congested_, congested_at_ingress_;
};

/// Low-pass filter of a length that is constant between its changes (thesis equation 5.11, applied once per tick):
/// after `held` for dt ticks, average = held + (average - held) * keep^dt.
class LowPass {
public:
    /// Takes in that the signal was `held` since the last call.
    void observe(Tick now, Bytes held, double keep) {
        const Tick elapsed = now - last_;
        if (elapsed <= 0) return;
        const double share = elapsed == 1 ? keep : std::pow(keep, static_cast<double>(elapsed));
        value_ = static_cast<double>(held) + (value_ - static_cast<double>(held)) * share;
        last_ = now;
    }
    [[nodiscard]] double value() const { return value_; }

private:
    double value_ = 0;
    Tick last_ = 0;
};

/// Reverie (thesis equations 5.10-5.12): the low-passed length of the queue against alpha times the free buffer over
/// the number of congested queues. The queue is that at egress for lossy packets, and at ingress for those that may not
/// be lost. The buffer's end is a limit of its own.
class Reverie : public PolicyTraits {
public:
    static constexpr std::string_view name = "reverie";
    static constexpr std::array<std::string_view, 3> parameters = {"alpha", "rtt", "low_pass"};

    Reverie(const PolicySettings& settings, const Shape& shape)
        : alpha_(settings.alpha),
          congested_(alpha_.size(), settings.whole("rtt")),
          congested_at_ingress_(congested_),
          keep_(1 - 1 / settings.number("low_pass")),
          averages_(static_cast<std::size_t>(shape.queues())),
          ingress_averages_(averages_) {}

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

    void ingress_about_to_change(QueueIndex queue, Tick time, Bytes length) {
        ingress_averages_[static_cast<std::size_t>(queue)].observe(time, length, keep_);
    }
    [[nodiscard]] bool pauses(QueueIndex queue, Bytes reserve, Tick now, const QueueLengths& queues,
                              const IngressQueues& ingress) {
        const double threshold = congested_at_ingress_.at_ingress(queue, now, queues, ingress);
        ingress_about_to_change(queue, now, ingress.length(queue));
        return ingress_averages_[static_cast<std::size_t>(queue)].value() + static_cast<double>(reserve) > threshold;
    }

private:
    Alphas alpha_;
    CongestedQueues congested_, congested_at_ingress_;
    double keep_;
    std::vector<LowPass> averages_, ingress_averages_;
};

/// The buffer of a switch that runs SONiC (thesis section 5.1.2): every packet counts in a queue at ingress and in one
/// at egress, each with a threshold of its own. A lossy packet has to be below both. Lossless packets pause their
/// sender from the threshold at ingress on, and when the pool for them at egress is full.
///
/// A threshold is what the queue has for itself, and beyond that a fixed number of bytes or alpha times what is free of
/// its pool (equation 5.1). Pools are the one at ingress, and one each for lossy and lossless packets at egress. With
/// `over_congested` that share is divided by the congested queues of the priority, which makes ABM of it with two
/// views, but for its share of the drain rate.
class Sonic : public PolicyTraits {
public:
    static constexpr std::string_view name = "sonic";
    static constexpr std::array<std::string_view, 12> parameters = {"alpha",
                                                                    "rtt",
                                                                    "over_congested",
                                                                    "ingress_pool",
                                                                    "egress_lossless_pool",
                                                                    "egress_lossy_pool",
                                                                    "ingress_alphas",
                                                                    "egress_alphas",
                                                                    "ingress_static",
                                                                    "egress_static",
                                                                    "ingress_reserved",
                                                                    "egress_reserved"};
    static constexpr bool sees_ingress = true;

    Sonic(const PolicySettings& settings, const Shape& shape)
        : ingress_pool_(settings.number_or("ingress_pool", static_cast<double>(shape.capacity))),
          egress_lossless_pool_(settings.number_or("egress_lossless_pool", static_cast<double>(whole_buffer(shape)))),
          egress_lossy_pool_(settings.number_or("egress_lossy_pool", lossy_share * ingress_pool_)),
          ingress_(
              read(settings, usual_alphas(settings, shape), "ingress_alphas", "ingress_static", "ingress_reserved")),
          egress_(read(settings, alphas_of(ingress_), "egress_alphas", "egress_static", "egress_reserved")),
          over_congested_(settings.number_or("over_congested", 0) > 0),
          congested_(settings.alpha.size(), settings.whole("rtt")),
          congested_at_ingress_(congested_) {}

    [[nodiscard]] Outcome decide(const Arrival& arrival, const QueueLengths& queues, const IngressQueues& ingress) {
        count(arrival.time, queues, ingress);
        if (!queues.fits(arrival.size)) return Outcome::buffer_full;
        const auto at = [](Bytes length) { return static_cast<double>(length); };
        const bool below = at(ingress.length(ingress.queue_of(arrival))) < at_ingress(arrival.priority, queues) &&
                           at(queues.length(queues.queue_of(arrival))) < at_egress(arrival.priority, queues, ingress);
        return below ? Outcome::accepted : Outcome::over_threshold;
    }

    [[nodiscard]] bool pauses(QueueIndex queue, Bytes reserve, Tick now, const QueueLengths& queues,
                              const IngressQueues& ingress) {
        count(now, queues, ingress);
        const double lossless = static_cast<double>(ingress.lossless_bytes() + ingress.headroom_bytes());
        return lossless >= egress_lossless_pool_ ||
               static_cast<double>(ingress.length(queue) + reserve) >=
                   at_ingress(static_cast<std::size_t>(ingress.priority_of(queue)), queues);
    }

private:
    static constexpr double lossy_share = 0.8;  ///< of the pool at ingress: the pool of lossy packets at egress

    /// The thresholds of a priority.
    struct Limit {
        double alpha = 0;
        double fixed_bytes = 0;  ///< instead of alpha, where it is not 0
        double reserved_bytes = 0;

        [[nodiscard]] double bytes(double free_of_pool, double sharers) const {
            return reserved_bytes + (fixed_bytes > 0 ? fixed_bytes : alpha * std::max(free_of_pool, 0.0) / sharers);
        }
    };

    static Bytes whole_buffer(const Shape& shape) {
        return shape.capacity + (shape.pause ? shape.pause->headroom_pool : 0);
    }
    static Alphas usual_alphas(const PolicySettings& settings, const Shape& shape) {
        Alphas usual = settings.alpha;
        for (std::size_t p = 0; p < usual.size(); ++p) {
            if (shape.pause && shape.pause->is_lossless(static_cast<int>(p))) usual[p] = shape.pause->alpha;
        }
        return usual;
    }
    static Alphas alphas_of(const std::vector<Limit>& limits) {
        Alphas alphas;
        for (const Limit& limit : limits) alphas.push_back(limit.alpha);
        return alphas;
    }
    static std::vector<Limit> read(const PolicySettings& settings, const Alphas& usual, const char* alphas,
                                   const char* fixed, const char* reserved) {
        const std::size_t priorities = usual.size();
        const std::vector<double> none(priorities);
        const std::vector<double> alpha = settings.list(alphas, priorities, usual);
        const std::vector<double> bytes = settings.list(fixed, priorities, none);
        const std::vector<double> own = settings.list(reserved, priorities, none);
        std::vector<Limit> limits;
        for (std::size_t p = 0; p < priorities; ++p) limits.push_back({alpha[p], bytes[p], own[p]});
        return limits;
    }
    [[nodiscard]] double at_ingress(std::size_t priority, const QueueLengths& queues) const {
        return ingress_[priority].bytes(ingress_pool_ - static_cast<double>(queues.occupancy()),
                                        over_congested_ ? congested_at_ingress_.of(priority) : 1);
    }
    [[nodiscard]] double at_egress(std::size_t priority, const QueueLengths& queues,
                                   const IngressQueues& ingress) const {
        const Bytes lossy = queues.occupancy() - ingress.lossless_bytes();
        return egress_[priority].bytes(egress_lossy_pool_ - static_cast<double>(lossy),
                                       over_congested_ ? congested_.of(priority) : 1);
    }
    /// Counts the congested queues anew, once per round trip.
    void count(Tick now, const QueueLengths& queues, const IngressQueues& ingress) {
        if (!over_congested_) return;
        congested_at_ingress_.count(now, ingress, [&](QueueIndex, std::size_t p) { return at_ingress(p, queues); });
        congested_.count(now, queues, [&](QueueIndex, std::size_t p) { return at_egress(p, queues, ingress); });
    }

    double ingress_pool_, egress_lossless_pool_, egress_lossy_pool_;
    std::vector<Limit> ingress_, egress_;  ///< of priorities
    bool over_congested_;
    CongestedQueues congested_, congested_at_ingress_;
};

/// Credence with guards, for a predictor that may be wrong: a predicted drop happens only where all of them allow it.
/// A packet that they save is accepted, as if the predictor had said so.
class Guarded : public PolicyTraits {
public:
    static constexpr std::string_view name = "guarded";
    static constexpr std::array<std::string_view, 4> parameters = {"spares_first_rtt", "drop_budget", "answers_needed",
                                                                   "rtt"};
    static constexpr bool follows_thresholds = true, asks = true;

    Guarded(const PolicySettings& settings, const Shape& shape)
        : spares_first_rtt_(settings.number("spares_first_rtt") != 0),
          drop_budget_(settings.whole("drop_budget")),
          answers_needed_(static_cast<int>(settings.number("answers_needed"))),
          interval_(settings.whole("rtt")),
          queues_(static_cast<std::size_t>(shape.queues())) {}

    /// Nobody is asked about a packet that is spared.
    template <class Queues, class Ask>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues, Bytes threshold, Ask&& predicts_drop) {
        return Credence{}.decide(arrival, queues, threshold, [&] {
            if (spares_first_rtt_ && arrival.first_rtt) return false;
            return allows(arrival, queues_[static_cast<std::size_t>(queues.queue_of(arrival))], predicts_drop());
        });
    }

private:
    /// The registers of one queue.
    struct Registers {
        int drops_in_a_row = 0;  // of its latest answers, up to answers_needed
        Tick interval_end = 0;   // an interval begins with the first predicted drop after the last one's end
        Bytes dropped = 0;       // by prediction, in this interval
    };

    /// Whether the answer drops the packet.
    [[nodiscard]] bool allows(const Arrival& arrival, Registers& queue, bool predicted) const {
        // Counting in a row takes one addition; how many of the latest eight say drop would take a table.
        queue.drops_in_a_row = predicted ? std::min(queue.drops_in_a_row + 1, answers_needed_) : 0;
        if (!predicted || queue.drops_in_a_row < answers_needed_) return false;
        const bool begins = arrival.time >= queue.interval_end;
        const Bytes dropped = (begins ? 0 : queue.dropped) + arrival.size;
        if (dropped > drop_budget_) return false;
        if (begins) queue.interval_end = arrival.time + interval_;
        queue.dropped = dropped;
        return true;
    }

    bool spares_first_rtt_;
    Bytes drop_budget_;
    int answers_needed_;
    Tick interval_;
    std::vector<Registers> queues_;
};

/// Credence as its public artifact does it, for comparison: the counters that stand for LQD's queues fall with the
/// packets of the real queues, and to zero when a real queue runs empty; the largest gives way by a fixed cut; the
/// safeguard does not count the arrival; the predictor is asked even when the buffer is full; the last byte stays free.
class CredenceArtifact : public PolicyTraits {
public:
    static constexpr std::string_view name = "credence_artifact";
    static constexpr std::array<std::string_view, 1> parameters = {"artifact_cut"};
    static constexpr bool knows_priorities = false, sees_departures = true, asks = true;

    CredenceArtifact(const PolicySettings& settings, const Shape& shape)
        : thresholds_(shape.rates.size()), capacity_(shape.capacity), cut_(settings.whole("artifact_cut")) {}

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
