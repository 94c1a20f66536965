// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <variant>
#include <vector>

#include "buffer/features/features.hpp"

namespace foretail::buffer {

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

/// A threshold on a queue that adapts: a packet is dropped iff `weights` times its features, or their logarithms in
/// eighths of octaves, add up to more than a bound. Two tests choose one of three sets of weights. A packet for an
/// empty queue is accepted.
struct AdaptiveThreshold {
    struct Term {
        std::int32_t feature;
        bool logarithm;  ///< of the value plus 1
    };
    struct Test {
        std::int32_t feature;
        std::int64_t cut;
    };

    static constexpr std::size_t sets = 3;

    std::vector<Term> terms;
    std::vector<std::int64_t> weights;  ///< [sets][terms], in 1/256
    std::array<std::int64_t, sets> bounds{};
    Test first, second;

    [[nodiscard]] std::int64_t margin(const FeatureVector& x) const {
        if (at(x, static_cast<std::int32_t>(Feature::pressure)) == 0) return 0;
        const std::size_t set = at(x, first.feature) <= first.cut ? 0 : at(x, second.feature) <= second.cut ? 1 : 2;
        const std::int64_t* weight = &weights[set * terms.size()];
        std::int64_t score = 0;
        for (const Term& term : terms) {
            const std::int64_t value = at(x, term.feature);
            score += *weight++ * (term.logarithm ? eighths_of_octaves(value + 1) : value);
        }
        return score - bounds[set];
    }

private:
    static std::int64_t at(const FeatureVector& x, std::int32_t feature) {
        return x[static_cast<std::size_t>(feature)];
    }
};

/// A predictor in the process of a run, which asks it about each packet as it arrives.
class Scorer {
public:
    using Margin = std::function<std::int64_t(const FeatureVector&)>;

    Scorer(VotingTrees trees, FeatureSet features) : decides_(std::move(trees)), features_(features) {}
    Scorer(AdaptiveThreshold rule, FeatureSet features) : decides_(std::move(rule)), features_(features) {}
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

}  // namespace foretail::buffer
