// SPDX-License-Identifier: MIT
// Dynamic Thresholds, and Occamy, which expels queued packets above them.
#pragma once

#include "buffer/policies/policy.hpp"

namespace foretail::buffer {

/// Choudhury and Hahne's Dynamic Thresholds: a queue may grow while it is shorter than alpha times the free buffer.
class DynamicThresholds : public PolicyTraits {
public:
    static constexpr std::string_view name = "dt";
    static constexpr std::array<std::string_view, 1> parameters = {"alpha"};
    static constexpr bool takes_alpha = true;

    DynamicThresholds(const PolicySettings& settings, const Shape& shape) {
        for (Port port = 0; port < shape.ports(); ++port)
            alpha_.insert(alpha_.end(), settings.alpha.begin(), settings.alpha.end());
    }

    template <class Queues>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues) const {
        if (!queues.fits(arrival.size)) return Outcome::buffer_full;
        const QueueIndex queue = queues.queue_of(arrival);
        const double length = static_cast<double>(queues.length(queue));
        return length < threshold(queue, queues) ? Outcome::accepted : Outcome::over_threshold;
    }

    template <class Queues>
    [[nodiscard]] double threshold(QueueIndex queue, const Queues& queues) const {
        return alpha(queue) * static_cast<double>(queues.capacity() - queues.occupancy());
    }

    [[nodiscard]] double alpha(QueueIndex queue) const { return alpha_[static_cast<std::size_t>(queue)]; }
    void set_alpha(QueueIndex queue, double alpha) { alpha_[static_cast<std::size_t>(queue)] = alpha; }

private:
    Alphas alpha_;  // of each queue
};

/// Occamy (Shan et al., EuroSys 2025): Dynamic Thresholds, and an engine that expels packets from the head of queues
/// that are longer than their threshold, one packet at a time, the queues in turn.
///
/// The engine has the memory bandwidth that departures leave. Tokens come at the sum of the port rates and the spare
/// bandwidth, whatever departs or is expelled costs its bytes, and it acts while they are not negative. It runs before
/// and after every decision: between two arrivals queues only drain and thresholds only rise.
///
/// Occamy may spare the last packets of messages, whose loss costs a timeout, by what senders say of packets. A packet
/// with at most `spared` bytes of its message after it is then accepted while it fits and never expelled. The engine
/// expels the packet of the queue whose message has most left, the last of several.
class Occamy : public PolicyTraits {
public:
    static constexpr std::string_view name = "occamy";
    static constexpr std::array<std::string_view, 4> parameters = {"alpha", "spare_bandwidth", "bucket", "spared"};
    static constexpr bool sees_departures = true, expels = true;

    Occamy(const PolicySettings& settings, const Shape& shape)
        : admission_(settings, shape),
          strictest_(static_cast<QueueIndex>(std::ranges::min_element(settings.alpha) - settings.alpha.begin())),
          bucket_(settings.number("bucket")),
          tokens_(bucket_),
          spared_(static_cast<Bytes>(settings.number_or("spared", -1))),
          expelled_last_(shape.queues() - 1) {
        for (const LineRate& rate : shape.rates) tokens_per_tick_ += rate.bytes_per_tick();
        tokens_per_tick_ *= 1 + settings.number("spare_bandwidth");
    }

    void departed(Port, Bytes size, Bytes) { departed_ += size; }
    void arrive(const Arrival& arrival) {
        const auto gained =
            tokens_per_tick_ * static_cast<double>(arrival.time - filled_) - static_cast<double>(departed_);
        tokens_ = std::min(bucket_, tokens_ + gained);
        filled_ = arrival.time;
        departed_ = 0;
    }

    [[nodiscard]] Outcome decide(const Arrival& arrival, const QueueLengths& queues) const {
        return rank(arrival) == spared_rank ? CompleteSharing{}.decide(arrival, queues)
                                            : admission_.decide(arrival, queues);
    }

    /// The packet of a queue with the highest rank is expelled: eighths of octaves of what is left of its message.
    [[nodiscard]] std::uint8_t rank(const Arrival& arrival) const {
        if (!spares()) return 1;
        if (arrival.left <= spared_) return spared_rank;
        return static_cast<std::uint8_t>(std::clamp(eighths_of_octaves(arrival.left), spared_rank + 1, 255));
    }

    /// The packet to expel now; none when all may stay.
    [[nodiscard]] std::optional<QueuePlace> next_expelled(const QueueLengths& queues) {
        if (tokens_ < 0 || !turn(queues)) return std::nullopt;
        return QueuePlace{expelled_last_, spares() ? queues.highest_ranked(expelled_last_) : 0};
    }
    void expelled(Bytes size) { tokens_ -= static_cast<double>(size); }

private:
    static constexpr std::uint8_t spared_rank = 0;

    [[nodiscard]] bool spares() const { return spared_ >= 0; }
    /// Whether a queue has a packet that may be expelled.
    [[nodiscard]] bool may_lose(const QueueLengths& queues, QueueIndex queue) const {
        return queues.removable(queue) > 0 &&
               (!spares() || queues.rank(queue, queues.highest_ranked(queue)) != spared_rank);
    }
    /// Goes on to the next queue that is too long and has a packet to lose; false when there is none.
    [[nodiscard]] bool turn(const QueueLengths& queues) {
        if (static_cast<double>(queues.longest()) <= admission_.threshold(strictest_, queues)) return false;
        QueueIndex queue = expelled_last_;
        for (QueueIndex seen = 0; seen < queues.queues(); ++seen) {
            queue = queue + 1 == queues.queues() ? 0 : queue + 1;
            if (static_cast<double>(queues.length(queue)) > admission_.threshold(queue, queues) &&
                may_lose(queues, queue)) {
                expelled_last_ = queue;
                return true;
            }
        }
        return false;
    }

    DynamicThresholds admission_;
    QueueIndex strictest_;  // of those with the smallest threshold, the first
    double bucket_, tokens_, tokens_per_tick_ = 0;
    Tick filled_ = 0;
    Bytes departed_ = 0;
    Bytes spared_;  // -1: none is
    QueueIndex expelled_last_;
};

/// Settings of Occamy with which its authors evaluate it, but for the alphas: 10 % of spare memory bandwidth, and a
/// bucket of 200 cells of 200 bytes.
inline PolicySettings occamy_of_its_authors(Alphas alpha) {
    return {std::move(alpha), {{"spare_bandwidth", 0.1}, {"bucket", 40'000}}};
}

}  // namespace foretail::buffer
