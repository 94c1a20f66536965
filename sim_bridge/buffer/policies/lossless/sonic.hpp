// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "buffer/policies/policy.hpp"
#include "buffer/queues/congested_queues.hpp"
#include "buffer/queues/ingress_queues.hpp"
#include "buffer/queues/port_queues.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

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
        Alphas found;
        for (const Limit& limit : limits) found.push_back(limit.alpha);
        return found;
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

}  // namespace foretail::buffer
