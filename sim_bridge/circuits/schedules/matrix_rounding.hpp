// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace foretail::fabric {

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
