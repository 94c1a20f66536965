// SPDX-License-Identifier: MIT
// Predictors in the process of a run: trees, adaptive thresholds, functions in Python, and compiled libraries.
#pragma once

#include <dlfcn.h>

#include <cmath>
#include <functional>
#include <memory>
#include <variant>

#include "buffer/features.hpp"
#include "buffer/predictor/predictor.h"

namespace foretail::buffer {

/// A decision tree as parallel arrays, node 0 the root (docs/reference/ensemble.md): left iff x[feature] <= cut,
/// feature -1 at a leaf. Every child comes after its parent.
struct Tree {
    const std::int32_t* feature;
    const std::int64_t* cut;
    const std::int32_t* left;
    const std::int32_t* right;
    std::size_t nodes;

    /// Whether a walk over rows of `inputs` values stays inside the arrays and ends.
    [[nodiscard]] bool can_be_walked(std::size_t inputs) const {
        const auto after = [this](std::int32_t child, std::size_t node) {
            return child >= 0 && static_cast<std::size_t>(child) > node && static_cast<std::size_t>(child) < nodes;
        };
        for (std::size_t i = 0; i < nodes; ++i) {
            if (feature[i] < 0) continue;
            if (static_cast<std::size_t>(feature[i]) >= inputs || !after(left[i], i) || !after(right[i], i)) {
                return false;
            }
        }
        return nodes > 0;
    }

    /// Index of the leaf that a row reaches.
    [[nodiscard]] std::int32_t leaf(const std::int64_t* x) const {
        std::int32_t node = 0;
        while (feature[node] >= 0) node = x[feature[node]] <= cut[node] ? left[node] : right[node];
        return node;
    }
};

/// Trees with integer votes: a packet is dropped iff the votes of the leaves that it reaches add up to more than `tau`.
struct VotingTrees {
    struct Node {
        std::int32_t feature;  ///< its place in FeatureVector, or -1 at a leaf
        std::int32_t cut;      ///< left iff the value is at most this
        std::int32_t left, right;
        std::int64_t votes;  ///< of a leaf
    };

    std::vector<Node> nodes;  ///< of all trees; every child comes after its parent
    std::vector<std::int32_t> roots;
    std::int64_t tau = 0;

    [[nodiscard]] std::int64_t margin(const FeatureVector& x) const {
        std::int64_t score = 0;
        for (const std::int32_t root : roots) {
            const Node* node = &nodes[static_cast<std::size_t>(root)];
            while (node->feature >= 0) {
                const bool goes_left = x[static_cast<std::size_t>(node->feature)] <= node->cut;
                node = &nodes[static_cast<std::size_t>(goes_left ? node->left : node->right)];
            }
            score += node->votes;
        }
        return score - tau;
    }
};

/// A threshold on a queue that adapts: a packet is dropped iff weights times its features, or their logarithms in
/// eighths of octaves, add up to more than a bound. Two tests choose one of three sets of weights. A packet for an
/// empty queue is accepted.
struct AdaptiveThreshold {
    struct Term {
        Feature feature;
        bool logarithm;  ///< of the value plus 1
    };

    static constexpr std::array terms = std::to_array<Term>({{Feature::pressure, false},
                                                             {Feature::queue_share, true},
                                                             {Feature::active_queues, true},
                                                             {Feature::arrival_rate, true},
                                                             {Feature::arrivals_rate, true},
                                                             {Feature::arrivals_rate_slow, true}});
    static constexpr std::array tests = {Feature::arrival_rate, Feature::arrivals_rate_slow};
    static constexpr std::size_t sets = tests.size() + 1, of_set = 1 + terms.size();

    /// Of each set the bound and the weights, in 1/256; then the largest value with which each test takes its set.
    std::array<std::int64_t, sets * of_set + tests.size()> numbers;

    [[nodiscard]] static constexpr FeatureSet reads() {
        FeatureSet out;
        for (const Term& term : terms) out.insert(term.feature);
        for (const Feature test : tests) out.insert(test);
        return out;
    }
    [[nodiscard]] std::int64_t margin(const FeatureVector& x) const {
        const auto value = [&](Feature feature) -> std::int64_t { return x[static_cast<std::size_t>(feature)]; };
        if (value(Feature::pressure) == 0) return 0;
        std::size_t set = 0;
        while (set < tests.size() && value(tests[set]) > numbers[sets * of_set + set]) ++set;
        const std::int64_t* number = &numbers[set * of_set];
        std::int64_t score = -*number;
        for (const Term& term : terms) {
            const std::int64_t of_term = value(term.feature);
            score += *++number * (term.logarithm ? eighths_of_octaves(of_term + 1) : of_term);
        }
        return score;
    }
};

/// A predictor in the process of a run, which asks it about each packet as it arrives.
class Scorer {
public:
    using Margin = std::function<std::int64_t(const FeatureVector&)>;

    Scorer(VotingTrees trees, FeatureSet features) : decides_(std::move(trees)), features_(features) {}
    explicit Scorer(const AdaptiveThreshold& rule) : decides_(rule), features_(AdaptiveThreshold::reads()) {}
    /// Any other predictor: a compiled library, or a function in Python.
    Scorer(Margin margin, FeatureSet features) : decides_(std::move(margin)), features_(features) {}

    /// What it reads.
    [[nodiscard]] FeatureSet features() const { return features_; }
    /// By how much its score is above the bound; a packet is dropped where this is above 0.
    [[nodiscard]] std::int64_t margin(const FeatureVector& x) const {
        if (const auto* trees = std::get_if<VotingTrees>(&decides_)) return trees->margin(x);
        if (const auto* rule = std::get_if<AdaptiveThreshold>(&decides_)) return rule->margin(x);
        return std::get<Margin>(decides_)(x);
    }
    [[nodiscard]] bool drops(const FeatureVector& x) const { return margin(x) > 0; }

private:
    std::variant<VotingTrees, AdaptiveThreshold, Margin> decides_;
    FeatureSet features_;
};

/// Rules whose numbers follow each other; throws std::invalid_argument where these are not the numbers of whole rules.
inline std::vector<std::shared_ptr<const Scorer>> adaptive_thresholds(std::span<const double> numbers) {
    constexpr double largest = 1LL << 36;  // times 2^24, no sum of the terms overflows
    std::vector<std::shared_ptr<const Scorer>> rules;
    AdaptiveThreshold rule;
    const std::size_t n = rule.numbers.size();
    if (numbers.size() % n != 0)
        throw std::invalid_argument("an adaptive threshold has " + std::to_string(n) + " numbers, and there are " +
                                    std::to_string(numbers.size()) + ": give those of whole rules");
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (!(std::abs(numbers[i]) <= largest) || std::trunc(numbers[i]) != numbers[i])
            throw std::invalid_argument("number " + std::to_string(i) +
                                        " of an adaptive threshold is no whole number from -2^36 to 2^36: give one");
        rule.numbers[i % n] = static_cast<std::int64_t>(numbers[i]);
        if (i % n == n - 1) rules.push_back(std::make_shared<const Scorer>(rule));
    }
    return rules;
}

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
        if (void* symbol = dlsym(handle_.get(), name)) return reinterpret_cast<Function>(symbol);
        throw std::runtime_error("'" + path + "' is not a predictor library: it lacks the symbol " + name);
    }
    std::shared_ptr<void> handle_;  ///< of all copies
    const foretail_predictor_info_t* info_ = nullptr;
    decltype(&foretail_predictor_score) score_ = nullptr;
    std::vector<std::size_t> inputs_;
};

}  // namespace foretail::buffer
