// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

namespace foretail::fabric {

/// A flow that sends the same share of every demand, and lengths that bound how much larger that share can be.
///
/// All demand is routed, and the length of an edge grows exponentially with its congestion, as in the primal-dual
/// methods of Garg and Koenemann (2007) and Fleischer (2000). Those add flow in small steps. Here each pair of nodes
/// keeps its paths, gets its shortest path as a new one, and moves flow until its paths are equally long: a Newton step
/// on the logarithms of their lengths, over-relaxed. When the flow is near that equilibrium, the exponent grows.
class ConcurrentFlow {
public:
    /// `capacity` and `demand` go from each node to each, row by row, at least 0. Throws std::invalid_argument when a
    /// demand has no path.
    ConcurrentFlow(std::size_t nodes, std::vector<double> capacity, std::vector<double> demand)
        : n_(nodes),
          capacity_(std::move(capacity)),
          demand_(std::move(demand)),
          load_(n_ * n_),
          length_(n_ * n_, infinite),
          change_(n_ * n_),
          distance_(n_ * n_),
          before_(n_),
          closed_(n_),
          paths_(n_ * n_) {
        for (std::size_t e = 0; e < n_ * n_; ++e) {
            if (capacity_[e] > 0) length_[e] = 1 / capacity_[e];
        }
        for (std::size_t s = 0; s < n_; ++s) {
            find_distances(s);
            for (std::size_t t = 0; t < n_; ++t) {
                const double sent = demand_[s * n_ + t];
                if (sent <= 0) continue;
                if (distance_[s * n_ + t] == infinite) throw std::invalid_argument("a demand has no path");
                paths_[s * n_ + t].push_back({sent, way(s, before_[t], t)});
                for (const std::size_t e : paths_[s * n_ + t].back().edges) load_[e] += sent;
            }
        }
        exponent_ = first_exponent / most_congested();
        settle();
    }

    /// Improves the flow `sweeps` times, then its bounds.
    void advance(std::int64_t sweeps) {
        for (; sweeps > 0; --sweeps) sweep();
        settle();
    }

    [[nodiscard]] double lower() const { return lower_; }
    [[nodiscard]] double upper() const { return upper_; }

    /// The lengths that prove `upper`, edge by edge, 0 where there is none.
    [[nodiscard]] const std::vector<double>& lengths() const { return proof_; }

    /// Flow of each source on each edge when all demand is sent: [source, from, to].
    [[nodiscard]] std::vector<double> flow() const {
        std::vector<double> flow(n_ * n_ * n_);
        for (std::size_t pair = 0; pair < n_ * n_; ++pair) {
            for (const Path& path : paths_[pair]) {
                for (const std::size_t e : path.edges) flow[pair / n_ * n_ * n_ + e] += path.flow;
            }
        }
        return flow;
    }

private:
    struct Path {
        double flow;
        std::vector<std::uint32_t> edges;
    };

    static constexpr double infinite = std::numeric_limits<double>::infinity();
    static constexpr double first_exponent = 20;   // times the congestion of the most congested edge
    static constexpr double most_growth = 4;       // of the exponent at once
    static constexpr double relaxation = 1.8;      // of a Newton step; below 2
    static constexpr double least_exponent = 600;  // no length falls below e^-600 of the longest one's
    static constexpr double shorter = 1 - 1e-9;    // a new path is shorter by more than rounding
    static constexpr int new_paths = 3;            // of a pair in a sweep
    static constexpr int repeats = 8;              // of all moves between known paths, in a sweep

    [[nodiscard]] double most_congested() const {
        double most = 0;
        for (std::size_t e = 0; e < n_ * n_; ++e) {
            if (capacity_[e] > 0) most = std::max(most, load_[e] / capacity_[e]);
        }
        return most;
    }

    [[nodiscard]] double length_at(std::size_t e, double load) const {
        return std::exp(std::max(exponent_ * (load / capacity_[e] - reference_), -least_exponent)) / capacity_[e];
    }

    void set_lengths() {
        reference_ = most_congested();
        for (std::size_t e = 0; e < n_ * n_; ++e) {
            if (capacity_[e] > 0) length_[e] = length_at(e, load_[e]);
        }
    }

    /// Dijkstra from `s` in a matrix; `before_` has each node's predecessor.
    void find_distances(std::size_t s) {
        double* distance = distance_.data() + s * n_;
        std::fill_n(distance, n_, infinite);
        std::fill(closed_.begin(), closed_.end(), 0);
        distance[s] = 0;
        for (;;) {
            std::size_t nearest = n_;
            double least = infinite;
            for (std::size_t v = 0; v < n_; ++v) {
                if (!closed_[v] && distance[v] < least) {
                    least = distance[v];
                    nearest = v;
                }
            }
            if (nearest == n_) return;
            closed_[nearest] = 1;
            const double* length = length_.data() + nearest * n_;
            for (std::size_t v = 0; v < n_; ++v) {
                if (least + length[v] < distance[v]) {
                    distance[v] = least + length[v];
                    before_[v] = static_cast<std::uint32_t>(nearest);
                }
            }
        }
    }

    /// Edges from `s` to `via` by its shortest path and on to `t`, the last one first; none if that passes `t` before.
    [[nodiscard]] std::vector<std::uint32_t> way(std::size_t s, std::size_t via, std::size_t t) const {
        std::vector<std::uint32_t> edges{static_cast<std::uint32_t>(via * n_ + t)};
        for (std::size_t v = via; v != s; v = before_[v]) {
            if (before_[v] == t) return {};
            edges.push_back(static_cast<std::uint32_t>(before_[v] * n_ + v));
        }
        return edges;
    }

    [[nodiscard]] double length_of(const std::vector<std::uint32_t>& edges) const {
        double length = 0;
        for (const std::size_t e : edges) length += length_[e];
        return length;
    }

    void sweep() {
        set_lengths();
        for (std::size_t s = 0; s < n_; ++s) {
            find_distances(s);
            for (std::size_t t = 0; t < n_; ++t) {
                if (demand_[s * n_ + t] > 0) add_paths(s, t);
            }
        }
        for (int i = 0; i < repeats; ++i) {
            for (std::vector<Path>& paths : paths_) equalise(paths);
        }
        for (std::vector<Path>& paths : paths_) std::erase_if(paths, [](const Path& path) { return path.flow <= 0; });
    }

    /// Adds shorter paths from `s` to `t`, by the distances from `s` at the start of its turn, and moves flow to them.
    void add_paths(std::size_t s, std::size_t t) {
        std::vector<Path>& paths = paths_[s * n_ + t];
        std::fill(closed_.begin(), closed_.end(), 0);
        closed_[t] = 1;
        for (int i = 0; i < new_paths; ++i) {
            double least = infinite;
            for (const Path& path : paths) least = std::min(least, length_of(path.edges));
            std::size_t via = n_;
            double length = least * shorter;
            for (std::size_t v = 0; v < n_; ++v) {
                if (!closed_[v] && distance_[s * n_ + v] + length_[v * n_ + t] < length) {
                    length = distance_[s * n_ + v] + length_[v * n_ + t];
                    via = v;
                }
            }
            if (via == n_) break;
            closed_[via] = 1;
            std::vector<std::uint32_t> edges = way(s, via, t);
            if (edges.empty() || length_of(edges) >= least * shorter) continue;
            paths.push_back({0, std::move(edges)});
            equalise(paths);
        }
        equalise(paths);
    }

    /// Moves flow between the paths of a pair towards equal lengths, each path as if it shared no edge with another.
    void equalise(std::vector<Path>& paths) {
        if (paths.size() < 2) return;
        moves_.assign(paths.size(), {});
        for (std::size_t k = 0; k < paths.size(); ++k) {
            double length = 0, slope = 0;
            for (const std::size_t e : paths[k].edges) {
                length += length_[e];
                slope += length_[e] / capacity_[e];
            }
            moves_[k] = {std::log(length), relaxation * length / (exponent_ * slope), 0, false};
        }
        for (bool emptied = true; emptied;) {  // of a path that would have less than no flow
            double wanted = 0, weight = 0;
            for (std::size_t k = 0; k < paths.size(); ++k) {
                wanted += moves_[k].empties ? paths[k].flow : moves_[k].height * moves_[k].width;
                weight += moves_[k].empties ? 0 : moves_[k].width;
            }
            emptied = false;
            for (std::size_t k = 0; k < paths.size(); ++k) {
                if (moves_[k].empties) continue;
                moves_[k].flow = (wanted / weight - moves_[k].height) * moves_[k].width;
                if (moves_[k].flow >= -paths[k].flow) continue;
                moves_[k].flow = -paths[k].flow;
                moves_[k].empties = emptied = true;
            }
        }
        for (std::size_t k = 0; k < paths.size(); ++k) {
            for (const std::size_t e : paths[k].edges) {
                if (change_[e] == 0) touched_.push_back(e);
                change_[e] += moves_[k].flow;
            }
        }
        const double share = apply();
        for (std::size_t k = 0; k < paths.size(); ++k) {
            paths[k].flow = share == 1 && moves_[k].empties ? 0 : paths[k].flow + share * moves_[k].flow;
        }
    }

    /// Changes loads by as large a share of `change_` as does not go far beyond the best one, and returns that share.
    double apply() {
        double gain = 0;
        for (const std::size_t e : touched_) gain -= length_[e] * change_[e];
        double share = gain > 0 ? 1 : 0;
        for (double loss = infinite; share > 0; share /= 2) {
            loss = 0;
            for (const std::size_t e : touched_) {
                length_[e] = length_at(e, load_[e] + share * change_[e]);
                loss += length_[e] * change_[e];
            }
            if (loss <= (relaxation / 2) * gain) break;
        }
        for (const std::size_t e : touched_) {
            load_[e] += share * change_[e];
            change_[e] = 0;
        }
        touched_.clear();
        return share;
    }

    /// Bounds from the present flow and lengths, then a larger exponent as far as the flow is in equilibrium.
    void settle() {
        set_lengths();
        double offered = 0, travelled = 0, shortest = 0;
        for (std::size_t e = 0; e < n_ * n_; ++e) {
            if (capacity_[e] > 0) offered += capacity_[e] * length_[e];
            if (capacity_[e] > 0) travelled += load_[e] * length_[e];
        }
        for (std::size_t s = 0; s < n_; ++s) {
            find_distances(s);
            for (std::size_t t = 0; t < n_; ++t) {
                if (demand_[s * n_ + t] > 0) shortest += demand_[s * n_ + t] * distance_[s * n_ + t];
            }
        }
        lower_ = 1 / reference_;
        if (offered / shortest < upper_) {
            upper_ = offered / shortest;
            proof_ = length_;
            for (std::size_t e = 0; e < n_ * n_; ++e) {
                if (capacity_[e] <= 0) proof_[e] = 0;
            }
        }
        const double imbalance = 1 - shortest / travelled, gap = 1 - lower_ * shortest / offered;
        exponent_ *= 2 * most_growth * imbalance <= gap ? most_growth : std::max(1.0, gap / (2 * imbalance));
    }

    struct Move {
        double height, width, flow;  // logarithm of the length, and flow that adds 1 to it
        bool empties;
    };

    std::size_t n_;
    std::vector<double> capacity_, demand_, load_, length_, change_, distance_, proof_;
    std::vector<std::uint32_t> before_;
    std::vector<std::uint8_t> closed_;
    std::vector<std::vector<Path>> paths_;
    std::vector<Move> moves_;
    std::vector<std::size_t> touched_;
    double exponent_ = 0, reference_ = 0, lower_ = 0, upper_ = infinite;
};

}  // namespace foretail::fabric
