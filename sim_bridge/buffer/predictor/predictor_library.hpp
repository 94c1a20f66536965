// SPDX-License-Identifier: MIT
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "buffer/counters/interval_counters.hpp"
#include "buffer/features/features.hpp"
#include "buffer/features/shift_average.hpp"
#include "buffer/predictor/predictor.h"

namespace foretail::buffer {

/// A compiled predictor behind the ABI of predictor.h, opened with dlopen: of drops, from the features of an arrival,
/// or of alphas, from the counters of an interval.
///
/// Refuses, naming what differs, a library of another ABI version, with inputs that this switch does not compute, or
/// computed with other parameters.
class PredictorLibrary {
public:
    PredictorLibrary(const std::string& path, FeatureScale scale)
        : PredictorLibrary(path, feature_names, "feature", [scale](std::size_t index) {
              return feature_parameters(static_cast<Feature>(index), scale);
          }) {}
    PredictorLibrary(const std::string& path, Tick interval)
        : PredictorLibrary(path, counter_names, "counter",
                           [interval](std::size_t) { return counter_parameters(interval); }) {}
    /// Of drops, whose parameters the caller has compared.
    explicit PredictorLibrary(const std::string& path) : PredictorLibrary(path, feature_names, "feature", {}) {}

    [[nodiscard]] std::int64_t default_tau() const { return info_->default_tau; }
    /// What `score` reads of an arrival, where it is one of drops.
    [[nodiscard]] FeatureSet features() const {
        FeatureSet read;
        for (const std::size_t input : inputs_) read.insert(static_cast<Feature>(input));
        return read;
    }
    [[nodiscard]] std::string ir_sha256() const { return info_->ir_sha256; }

    /// Of all features, or of all counters.
    [[nodiscard]] std::int64_t score(std::span<const std::int32_t> inputs) const {
        std::array<std::int64_t, std::max(feature_names.size(), counter_names.size())> values;
        for (std::size_t i = 0; i < inputs_.size(); ++i) values[i] = inputs[inputs_[i]];
        return score_(values.data());
    }

private:
    PredictorLibrary(const std::string& path, std::span<const std::string_view> names, const std::string& what,
                     const std::function<std::string(std::size_t)>& parameters) {
        void* opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (!opened) throw std::runtime_error("cannot load predictor library '" + path + "': " + dlerror());
        handle_.reset(opened, [](void* handle) { dlclose(handle); });
        info_ = symbol<decltype(&foretail_predictor_info)>(path, "foretail_predictor_info")();
        score_ = symbol<decltype(&foretail_predictor_score)>(path, "foretail_predictor_score");
        const auto refuse = [&](const std::string& why) {
            throw std::runtime_error("predictor library '" + path + "' " + why + "; export it again for this switch");
        };
        if (!info_) refuse("has no description");
        if (info_->abi_version != FORETAIL_PREDICTOR_ABI_VERSION) {
            refuse("has ABI version " + std::to_string(info_->abi_version) + " instead of " +
                   std::to_string(FORETAIL_PREDICTOR_ABI_VERSION));
        }
        for (std::uint32_t i = 0; i < info_->n_features; ++i) {
            const std::string name = info_->feature_names[i];
            const auto index = static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
            if (index == names.size()) refuse("wants the " + what + " '" + name + "', which no switch computes");
            const std::string expected = parameters ? parameters(index) : info_->feature_params[i];
            if (info_->feature_params[i] != expected) {
                refuse("was trained on " + what + " '" + name + "' with '" + info_->feature_params[i] +
                       "' but this run has '" + expected + "'");
            }
            if (std::ranges::find(inputs_, index) != inputs_.end())
                refuse("wants the " + what + " '" + name + "' twice");
            inputs_.push_back(index);
        }
    }

    template <class Function>
    Function symbol(const std::string& path, const char* name) {
        // POSIX guarantees that a function pointer survives dlsym's void pointer.
        if (void* found = dlsym(handle_.get(), name)) return reinterpret_cast<Function>(found);
        throw std::runtime_error("'" + path + "' is not a predictor library: it lacks the symbol " + name);
    }
    std::shared_ptr<void> handle_;  ///< of all copies
    const foretail_predictor_info_t* info_ = nullptr;
    decltype(&foretail_predictor_score) score_ = nullptr;
    std::vector<std::size_t> inputs_;
};

}  // namespace foretail::buffer
