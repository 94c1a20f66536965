// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "buffer/policies/policy.hpp"
#include "buffer/queues/port_queues.hpp"
#include "buffer/types.hpp"

namespace foretail::buffer {

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
