// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace foretail::fabric {

using Node = std::int32_t;

struct Edge {
    Node from, to;
};

/// Walks every edge of an undirected multigraph in which all degrees are even exactly once, in closed circuits, so that
/// a node is entered as often as it is left. Linear in nodes and edges.
class EulerTour {
public:
    explicit EulerTour(Node nodes) : first_(static_cast<std::size_t>(nodes) + 1), next_(first_.size()) {}

    /// Calls `visit(edge, along)` for each edge, `along` when it is walked from `from` to `to`.
    template <class Visit>
    void walk(const std::vector<Edge>& edges, Visit&& visit) {
        index(edges);
        walked_.assign(edges.size(), 0);
        for (std::size_t start = 0; start + 1 < first_.size(); ++start) {
            for (std::size_t node = start;;) {
                while (next_[node] < first_[node + 1] && walked_[at_[next_[node]]]) ++next_[node];
                if (next_[node] == first_[node + 1]) break;  // all degrees are even, so this is where it began
                const std::size_t edge = at_[next_[node]++];
                walked_[edge] = 1;
                const bool along = static_cast<std::size_t>(edges[edge].from) == node;
                visit(edge, along);
                node = static_cast<std::size_t>(along ? edges[edge].to : edges[edge].from);
            }
        }
    }

private:
    /// Edges of node i are at_[first_[i]] to at_[first_[i + 1] - 1].
    void index(const std::vector<Edge>& edges) {
        first_.assign(first_.size(), 0);
        for (const Edge& edge : edges) {
            ++first_[static_cast<std::size_t>(edge.from) + 1];
            ++first_[static_cast<std::size_t>(edge.to) + 1];
        }
        for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
        next_ = first_;
        at_.resize(2 * edges.size());
        for (std::size_t i = 0; i < edges.size(); ++i) {
            at_[next_[static_cast<std::size_t>(edges[i].from)]++] = i;
            at_[next_[static_cast<std::size_t>(edges[i].to)]++] = i;
        }
        next_ = first_;
    }

    std::vector<std::size_t> first_, next_, at_;
    std::vector<std::uint8_t> walked_;
};

}  // namespace foretail::fabric
