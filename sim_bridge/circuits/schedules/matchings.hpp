// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "circuits/schedules/euler_tour.hpp"

namespace foretail::fabric {

/// Decomposes a regular bipartite multigraph into perfect matchings, as many as its degree.
///
/// An even degree is halved along closed circuits; an odd one first gives up one matching (Hopcroft and Karp), which a
/// regular graph always has. With few odd degrees on the way down that is near linear in the number of edges.
class Matchings {
public:
    explicit Matchings(Node size) : size_(size), tour_(2 * size), level_(n()), queue_(n()), next_(n()) {}

    /// `edges` go from a left node in [0, size) to a right node in [size, 2 size); every node has the degree
    /// edges / size. Calls `matching(partner)` once per matching, partner[left] in [0, size).
    template <class Matching>
    void decompose(std::vector<Edge> edges, Matching&& matching) {
        const std::size_t degree = edges.size() / n();
        if (degree == 0) return;
        if (degree % 2 == 1) {
            matching(take_matching(edges));
            decompose_even(std::move(edges), matching);
        } else {
            decompose_even(std::move(edges), matching);
        }
    }

private:
    static constexpr Node none = -1;
    static constexpr Node unreached = std::numeric_limits<Node>::max();

    [[nodiscard]] std::size_t n() const { return static_cast<std::size_t>(size_); }

    template <class Matching>
    void decompose_even(std::vector<Edge> edges, Matching&& matching) {
        if (edges.empty()) return;
        std::vector<Edge> half;
        half.reserve(edges.size() / 2);
        std::vector<Edge> other;
        other.reserve(edges.size() / 2);
        tour_.walk(edges, [&](std::size_t i, bool along) { (along ? half : other).push_back(edges[i]); });
        std::vector<Edge>().swap(edges);
        decompose(std::move(half), matching);
        decompose(std::move(other), matching);
    }

    /// Removes a perfect matching from `edges` and returns it.
    std::vector<Node> take_matching(std::vector<Edge>& edges) {
        first_.assign(n() + 1, 0);
        for (const Edge& edge : edges) ++first_[static_cast<std::size_t>(edge.from) + 1];
        for (std::size_t i = 0; i < n(); ++i) first_[i + 1] += first_[i];
        right_.resize(edges.size());
        next_ = {first_.begin(), first_.end() - 1};
        for (const Edge& edge : edges) right_[next_[static_cast<std::size_t>(edge.from)]++] = edge.to - size_;
        left_of_.assign(n(), none);
        std::vector<Node> partner(n(), none);
        for (std::size_t left = 0; left < n(); ++left) {
            for (std::size_t k = first_[left]; k < first_[left + 1] && partner[left] == none; ++k) {
                if (left_of_[static_cast<std::size_t>(right_[k])] == none) pair(partner, left, right_[k]);
            }
        }
        while (layer(partner)) {
            next_ = {first_.begin(), first_.end() - 1};
            for (std::size_t left = 0; left < n(); ++left) {
                if (partner[left] == none) augment(partner, left);
            }
        }
        std::vector<std::uint8_t> taken(n());
        std::size_t kept = 0;
        for (const Edge& edge : edges) {
            const auto left = static_cast<std::size_t>(edge.from);
            if (!taken[left] && partner[left] == edge.to - size_) {
                taken[left] = 1;
            } else {
                edges[kept++] = edge;
            }
        }
        edges.resize(kept);
        return partner;
    }

    void pair(std::vector<Node>& partner, std::size_t left, Node right) {
        partner[left] = right;
        left_of_[static_cast<std::size_t>(right)] = static_cast<Node>(left);
    }

    /// Distances of left nodes from free ones along alternating paths; false when no free right node is reached.
    bool layer(const std::vector<Node>& partner) {
        std::size_t head = 0, tail = 0;
        for (std::size_t left = 0; left < n(); ++left) {
            level_[left] = partner[left] == none ? 0 : unreached;
            if (partner[left] == none) queue_[tail++] = left;
        }
        bool found = false;
        while (head < tail) {
            const std::size_t left = queue_[head++];
            for (std::size_t k = first_[left]; k < first_[left + 1]; ++k) {
                const Node back = left_of_[static_cast<std::size_t>(right_[k])];
                if (back == none) {
                    found = true;
                } else if (level_[static_cast<std::size_t>(back)] == unreached) {
                    level_[static_cast<std::size_t>(back)] = level_[left] + 1;
                    queue_[tail++] = static_cast<std::size_t>(back);
                }
            }
        }
        return found;
    }

    /// A path along the layers to a free right node, by hand on a stack: paths can be as long as there are nodes.
    bool augment(std::vector<Node>& partner, std::size_t start) {
        path_.assign(1, start);
        while (!path_.empty()) {
            const std::size_t left = path_.back();
            if (next_[left] == first_[left + 1]) {
                path_.pop_back();
                if (!path_.empty()) ++next_[path_.back()];
                continue;
            }
            const Node back = left_of_[static_cast<std::size_t>(right_[next_[left]])];
            if (back == none) {
                for (const std::size_t node : path_) pair(partner, node, right_[next_[node]]);
                for (const std::size_t node : path_) ++next_[node];
                return true;
            }
            if (level_[static_cast<std::size_t>(back)] == level_[left] + 1) {
                path_.push_back(static_cast<std::size_t>(back));
            } else {
                ++next_[left];
            }
        }
        return false;
    }

    Node size_;
    EulerTour tour_;
    std::vector<Node> level_;
    std::vector<std::size_t> queue_, next_, first_, path_;
    std::vector<Node> right_, left_of_;
};

}  // namespace foretail::fabric
