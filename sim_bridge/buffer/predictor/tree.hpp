// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

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

}  // namespace foretail::buffer
