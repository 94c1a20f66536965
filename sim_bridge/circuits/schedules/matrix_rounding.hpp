// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "circuits/schedules/euler_tour.hpp"

namespace foretail::fabric {

/// Rounds a square matrix of fixed-point numbers with `fraction_bits` so that every entry, every row sum and every
/// column sum is its value rounded up or down (Bacharach's matrix rounding).
///
/// Entries, row sums and column sums are a circulation. Its edges whose last fractional bit is set have even degree at
/// every node; walked in closed circuits, adding the bit along an edge and taking it away against it keeps the
/// circulation and clears the bit. Linear in the entries for each bit.
class MatrixRounding {
public:
    MatrixRounding(std::vector<std::int64_t> entries, Node size, int fraction_bits)
        : size_(size), bits_(fraction_bits), values_(std::move(entries)), tour_(2 * size + 1) {
        const std::size_t n = static_cast<std::size_t>(size);
        std::vector<std::int64_t> rows(n), columns(n);
        for (std::size_t i = 0; i < n; ++i) {
            for (std::size_t j = 0; j < n; ++j) {
                rows[i] += values_[i * n + j];
                columns[j] += values_[i * n + j];
            }
        }
        values_.insert(values_.end(), rows.begin(), rows.end());
        values_.insert(values_.end(), columns.begin(), columns.end());
    }

    /// The rounded entries, row by row, as whole numbers.
    std::vector<std::int64_t> run() {
        const std::size_t n = static_cast<std::size_t>(size_);
        std::vector<Edge> edges;
        std::vector<std::size_t> which;
        for (int bit = 0; bit < bits_; ++bit) {
            const std::int64_t unit = std::int64_t{1} << bit;
            edges.clear();
            which.clear();
            for (std::size_t i = 0; i < values_.size(); ++i) {
                if ((values_[i] & unit) == 0) continue;
                edges.push_back(edge(i));
                which.push_back(i);
            }
            tour_.walk(edges, [&](std::size_t k, bool along) { values_[which[k]] += along ? unit : -unit; });
        }
        values_.resize(n * n);
        for (std::int64_t& value : values_) value >>= bits_;
        return std::move(values_);
    }

private:
    /// Nodes: rows, columns, and a hub behind both; edges run hub -> row -> column -> hub.
    [[nodiscard]] Edge edge(std::size_t value) const {
        const std::size_t n = static_cast<std::size_t>(size_);
        const Node hub = 2 * size_;
        if (value < n * n) return {static_cast<Node>(value / n), static_cast<Node>(n + value % n)};
        const Node node = static_cast<Node>(value - n * n);  // rows first, columns after them
        return node < size_ ? Edge{hub, node} : Edge{node, hub};
    }

    Node size_;
    int bits_;
    std::vector<std::int64_t> values_;
    EulerTour tour_;
};

}  // namespace foretail::fabric
