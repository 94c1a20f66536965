// SPDX-License-Identifier: MIT
// What every run over known arrivals fills.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/columns.hpp"
#include "bindings/run_settings.hpp"
#include "buffer/names.hpp"
#include "buffer/policies/any_policy.hpp"
#include "buffer/run.hpp"

namespace foretail::bindings {

/// Lets a switch know what a scorer reads; refuses policies that ask nobody.
inline void let_ask(SwitchSettings& settings, const Scorer& scorer, const std::string& policy) {
    if (!known_policy(policy).asks) {
        throw std::invalid_argument("policy '" + policy + "' asks no predictor: give none");
    }
    settings.features = settings.features | scorer.features();
    settings.labels = settings.labels || settings.features.has_any(of_virtual_lqd);
}

inline std::int32_t feature_of(const std::string& name) {
    return static_cast<std::int32_t>(position(name, feature_names, "unknown feature '" + name + "'"));
}

inline FeatureSet features_of(const std::vector<std::string>& names) {
    FeatureSet features;
    for (const auto& name : names) features.insert(static_cast<Feature>(feature_of(name)));
    return features;
}

inline Port ports_of(Integer ports) { return checked<Port>("number of ports", ports, 1, max_ports); }
inline Bytes buffer_of(Integer buffer) { return checked("buffer in packets", buffer, 1, max_packets); }

/// A switch on unit packets, whose ports send one in each slot.
inline Shape slotted_shape(Port ports, Bytes buffer, Tie tie, const Queueing& queueing) {
    return {buffer,
            std::vector<LineRate>(static_cast<std::size_t>(ports), LineRate::one_per_slot()),
            tie,
            true,
            queueing.count,
            queueing.scheduler,
            queueing.quanta};
}

/// The scale of features in bytes: cells of a power of two, ticks of 1024 ns; without cells nothing is observed.
inline FeatureScale scale_in_bytes(Integer cell_bytes, int average_shift, std::int64_t least_cell_bytes) {
    const auto cell = static_cast<std::uint64_t>(checked("cell_bytes", cell_bytes, least_cell_bytes, 65'536));
    if (cell > 0 && !std::has_single_bit(cell)) throw std::invalid_argument("cell_bytes must be a power of two");
    return {cell > 0 ? std::countr_zero(cell) : 0, average_shift, 10};
}

/// The scale of features in slots: a packet has 1024 bytes, and a slot is the unit of averages and times.
inline FeatureScale scale_in_slots(Integer cell_bytes, int average_shift) {
    FeatureScale scale = scale_in_bytes(cell_bytes, average_shift, 1);
    scale.tick_shift = 0;
    scale.unit_shift = 10;
    return scale;
}

static_assert(sizeof(FeatureVector) == feature_count * sizeof(std::int32_t));

/// The vectors as rows of an array.
inline nb::ndarray<nb::numpy, std::int32_t> owned(std::unique_ptr<FeatureVector[]> values, std::size_t n) {
    void* const held = values.release();  // the address of a vector is that of its first value
    nb::capsule owner(held, [](void* p) noexcept { delete[] static_cast<FeatureVector*>(p); });
    return {held, {n, feature_count}, owner};
}

/// Columns that a run fills for n rows, and their way to Python.
struct Filled {
    Filled(std::size_t n, bool with_labels, bool with_features)
        : outcome(n),
          lqd_drop(with_labels ? n : 0),
          asked(n),
          exposed(n),
          // Every row is written, so zeros first would only cost time.
          features(std::make_unique_for_overwrite<FeatureVector[]>(with_features ? n : 0)),
          with_labels_(with_labels),
          with_features_(with_features) {}

    RunColumns columns() {
        return {outcome.data(), with_labels_ ? lqd_drop.data() : nullptr, asked.data(), exposed.data(),
                with_features_ ? features.get() : nullptr};
    }
    nb::dict to_dict() {
        const std::size_t n = outcome.size();
        nb::dict out;
        if (with_features_) out["features"] = owned(std::move(features), n);
        out["outcome"] = owned(std::move(outcome), {n});
        if (with_labels_) out["lqd_drop"] = owned(std::move(lqd_drop), {n});
        out["asked"] = owned(std::move(asked), {n});
        out["exposed"] = owned(std::move(exposed), {n});
        return out;
    }

    std::vector<std::uint8_t> outcome, lqd_drop, asked, exposed;
    std::unique_ptr<FeatureVector[]> features;

private:
    bool with_labels_, with_features_;
};

}  // namespace foretail::bindings
