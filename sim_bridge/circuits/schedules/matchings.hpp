// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace foretail::fabric {

/// Decomposes a regular bipartite multigraph into perfect matchings, as many as its degree.
///
/// The edges that every pair of nodes has are cyclic shifts, which are spread evenly over the result. For the others,
/// an even degree is halved: edges are paired at each node, and the two of a pair go to different halves, which is an
/// Euler split (Gabow, 1976). An odd degree first gives up one matching, found by random walks (Goel, Kapralov and
/// Khanna, 2013) in an expected n log n steps. All in all about edges times log degree.
class Matchings {
public:
    explicit Matchings(std::size_t size) : n_(size), waiting_(size), chosen_(size), step_(size), left_of_(size) {}

    /// `counts` are the edges from each left node to each right node, row by row; every row and column sums to
    /// `degree`, and there are at most 2^31 edges between at most 2^14 nodes. Returns the partner of each left node,
    /// one matching after another.
    std::vector<std::int32_t> decompose(const std::int64_t* counts, std::size_t degree) {
        const auto common = static_cast<std::size_t>(*std::min_element(counts, counts + n_ * n_));
        degree_ = degree;
        shifts_ = common * n_;
        made_ = 0;
        partners_.clear();
        partners_.reserve(n_ * degree);
        std::vector<Right> edges;
        edges.reserve(n_ * (degree - shifts_));
        for (std::size_t i = 0; i < n_ * n_; ++i) {
            edges.insert(edges.end(), static_cast<std::size_t>(counts[i]) - common, static_cast<Right>(i % n_));
        }
        std::vector<Right> scratch(edges.size());
        other_.resize(edges.size());
        side_.resize(edges.size() / 2);
        std::fill(waiting_.begin(), waiting_.end(), none);
        decompose(edges.data(), scratch.data(), degree - shifts_);
        add_shifts();
        return std::move(partners_);
    }

private:
    using Right = std::uint16_t;
    static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
    static constexpr std::uint8_t undecided = 2;

    /// Edges of left node i are edges[i * degree] to edges[(i + 1) * degree - 1]; `scratch` has as much room.
    void decompose(Right* edges, Right* scratch, std::size_t degree) {
        if (degree % 2 == 1) {
            take_matching(edges, degree);
            --degree;
        }
        if (degree == 0) return;
        halve(edges, scratch, degree);
        const std::size_t half = n_ * degree / 2;
        decompose(scratch, edges, degree / 2);
        decompose(scratch + half, edges + half, degree / 2);
    }

    /// Edges 2 i and 2 i + 1 are a pair at their left node. Pairs of both sides join edges to closed circuits.
    void halve(const Right* edges, Right* halves, std::size_t degree) {
        const std::size_t pairs = n_ * degree / 2;
        for (std::uint32_t edge = 0; edge < 2 * pairs; ++edge) {
            std::uint32_t& waiting = waiting_[edges[edge]];
            if (waiting == none) {
                waiting = edge;
            } else {
                other_[edge] = waiting;
                other_[waiting] = edge;
                waiting = none;
            }
        }
        std::fill_n(side_.begin(), pairs, undecided);
        for (std::size_t pair = 0; pair < pairs; ++pair) {
            for (std::size_t edge = 2 * pair; side_[edge / 2] == undecided; edge = other_[edge ^ 1]) {
                side_[edge / 2] = edge & 1;
            }
        }
        for (std::size_t pair = 0; pair < pairs; ++pair) {
            halves[pair] = edges[2 * pair + side_[pair]];
            halves[pairs + pair] = edges[2 * pair + 1 - side_[pair]];
        }
    }

    /// Adds a perfect matching to the result and removes it from `edges`, whose degree becomes one less.
    void take_matching(Right* edges, std::size_t degree) {
        std::fill(left_of_.begin(), left_of_.end(), none);
        std::fill(chosen_.begin(), chosen_.end(), none);
        for (std::uint32_t left = 0; left < n_; ++left) {
            for (std::uint32_t k = 0; k < degree && chosen_[left] == none; ++k) {
                if (left_of_[edges[left * degree + k]] == none) {
                    left_of_[edges[left * degree + k]] = left;
                    chosen_[left] = k;
                }
            }
        }
        for (std::uint32_t start = 0; start < n_; ++start) {
            if (chosen_[start] == none) augment(edges, degree, start);
        }
        add([&](std::size_t left) { return edges[left * degree + chosen_[left]]; });
        Right* to = edges;
        for (std::size_t left = 0; left < n_; ++left) {
            for (std::size_t k = 0; k < degree; ++k) {
                if (k != chosen_[left]) *to++ = edges[left * degree + k];
            }
        }
    }

    /// Walks at random from a free left node over edges to the right and matched ones back until a right node is free,
    /// then moves the matching to the last edge by which the walk left each node of its path.
    void augment(const Right* edges, std::size_t degree, std::uint32_t start) {
        for (std::uint32_t left = start; left != none; left = left_of_[edges[left * degree + step_[left]]]) {
            const bool matched = chosen_[left] != none;
            const auto drawn = static_cast<std::uint32_t>(std::uint64_t{random_()} * (degree - matched) >> 32);
            step_[left] = drawn + (matched && drawn >= chosen_[left]);
        }
        for (std::uint32_t left = start; left != none;) {
            std::uint32_t& owner = left_of_[edges[left * degree + step_[left]]];
            const std::uint32_t next = owner;
            owner = left;
            chosen_[left] = step_[left];
            left = next;
        }
    }

    template <class Partner>
    void add(Partner&& partner) {
        add_shifts();
        for (std::size_t left = 0; left < n_; ++left) partners_.push_back(partner(left));
        ++made_;
    }

    void add_shifts() {
        for (; made_ < degree_ && (made_ + 1) * shifts_ / degree_ > made_ * shifts_ / degree_; ++made_) {
            const std::size_t shift = made_ * shifts_ / degree_ % n_;
            for (std::size_t left = 0; left < n_; ++left) {
                partners_.push_back(static_cast<std::int32_t>((left + shift) % n_));
            }
        }
    }

    std::size_t n_, degree_ = 0, shifts_ = 0, made_ = 0;
    std::vector<std::int32_t> partners_;
    std::vector<std::uint32_t> other_, waiting_, chosen_, step_, left_of_;
    std::vector<std::uint8_t> side_;
    std::mt19937 random_{1};
};

}  // namespace foretail::fabric
