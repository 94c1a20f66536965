// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
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

/// Rounds a square matrix of fixed-point numbers with `fraction_bits` so that every entry, every row sum and every
/// column sum is its value rounded up or down (Bacharach's matrix rounding).
///
/// Entries, row sums and column sums are a circulation through rows, columns and a hub behind both. Its edges whose
/// last fractional bit is set have even degree at every node; walked in closed circuits, adding the bit along an edge
/// and taking it away against it keeps the circulation and clears the bit. Each node keeps its edges as bits, and a
/// walk leaves it by the first. Linear in the entries for each bit.
class MatrixRounding {
public:
    MatrixRounding(std::vector<std::int64_t> entries, std::size_t size, int fraction_bits)
        : n_(size), words_((size + 63) / 64), bits_(fraction_bits), values_(std::move(entries)), sums_(2 * size) {
        for (std::size_t i = 0; i < n_; ++i) {
            for (std::size_t j = 0; j < n_; ++j) {
                sums_[i] += values_[i * n_ + j];
                sums_[n_ + j] += values_[i * n_ + j];
            }
        }
    }

    /// The rounded entries, row by row, as whole numbers.
    std::vector<std::int64_t> run() {
        std::int64_t any = 0;
        for (const std::int64_t value : values_) any |= value;
        const int lowest = any == 0 ? bits_ : std::countr_zero(static_cast<Word>(any));
        for (int bit = lowest; bit < bits_; ++bit) clear(bit);
        for (std::int64_t& value : values_) value >>= bits_;
        return std::move(values_);
    }

private:
    using Word = std::uint64_t;

    void clear(int bit) {
        index(bit);
        const std::int64_t unit = std::int64_t{1} << bit;
        for (std::size_t start = 0; start <= 2 * n_; ++start) {
            for (std::size_t node = start; node != nowhere;) node = leave(node, unit);
        }
    }

    /// Walks the first edge of a node: to the node at its other end, or nowhere when none is left.
    std::size_t leave(std::size_t node, std::int64_t unit) {
        if (node == 2 * n_) {
            while (hub_at_ < hub_.size() && hub_[hub_at_] == 0) ++hub_at_;
            if (hub_at_ == hub_.size()) return nowhere;
            const std::size_t line = 64 * hub_at_ + static_cast<std::size_t>(std::countr_zero(hub_[hub_at_]));
            hub_[hub_at_] &= hub_[hub_at_] - 1;
            sums_[line] += line < n_ ? unit : -unit;
            return line;
        }
        const bool is_row = node < n_;
        const std::size_t line = is_row ? node : node - n_;
        std::size_t& at = (is_row ? row_at_ : column_at_)[line];
        for (; at < words_; ++at) {
            Word& word = is_row ? rows_[line * words_ + at] : columns_[at * n_ + line];
            if (word == 0) continue;
            const std::size_t crossed = 64 * at + static_cast<std::size_t>(std::countr_zero(word));
            word &= word - 1;
            if (is_row) {
                columns_[line / 64 * n_ + crossed] &= ~(Word{1} << line % 64);
                values_[line * n_ + crossed] += unit;
                return n_ + crossed;
            }
            rows_[crossed * words_ + line / 64] &= ~(Word{1} << line % 64);
            values_[crossed * n_ + line] -= unit;
            return crossed;
        }
        const Word of_line = Word{1} << node % 64;
        if ((hub_[node / 64] & of_line) == 0) return nowhere;
        hub_[node / 64] &= ~of_line;
        sums_[node] += is_row ? -unit : unit;
        return 2 * n_;
    }

    /// Bit j of row i, and bit i of column j, whose words of one block of 64 rows are neighbours.
    void index(int bit) {
        rows_.assign(n_ * words_, 0);
        columns_.assign(n_ * words_, 0);
        hub_.assign((2 * n_ + 63) / 64, 0);
        row_at_.assign(n_, 0);
        column_at_.assign(n_, 0);
        hub_at_ = 0;
        for (std::size_t i = 0; i < n_; ++i) {
            const std::int64_t* line = values_.data() + i * n_;
            Word* of_block = columns_.data() + i / 64 * n_;
            for (std::size_t j = 0; j < n_; ++j) of_block[j] |= static_cast<Word>(line[j] >> bit & 1) << i % 64;
            for (std::size_t at = 0; at < words_; ++at) {
                Word word = 0;
                const std::size_t end = std::min<std::size_t>(64, n_ - 64 * at);
                for (std::size_t j = 0; j < end; ++j) word |= static_cast<Word>(line[64 * at + j] >> bit & 1) << j;
                rows_[i * words_ + at] = word;
            }
        }
        for (std::size_t i = 0; i < 2 * n_; ++i) hub_[i / 64] |= static_cast<Word>(sums_[i] >> bit & 1) << i % 64;
    }

    static constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

    std::size_t n_, words_;
    int bits_;
    std::vector<std::int64_t> values_, sums_;  // of sums: those of rows, then those of columns
    std::vector<Word> rows_, columns_, hub_;
    std::vector<std::size_t> row_at_, column_at_;  // first word that may have an edge
    std::size_t hub_at_ = 0;
};

}  // namespace foretail::fabric
