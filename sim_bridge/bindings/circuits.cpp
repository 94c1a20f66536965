// SPDX-License-Identifier: MIT
// Matchings for a demand matrix, flows over the graph that a schedule emulates, and cells over the schedule.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "bindings/module.hpp"
#include "circuits/concurrent_flow.hpp"
#include "circuits/matchings.hpp"

namespace foretail::bindings {

namespace {

/// Number of rows, after the checks.
template <class T>
std::size_t square(const Matrix<T>& matrix, std::size_t most) {
    const std::size_t n = matrix.shape(0);
    if (n == 0 || n > most || matrix.shape(1) != n) {
        throw std::invalid_argument("the matrix is not square with 1 to " + std::to_string(most) + " rows");
    }
    for (std::size_t i = 0; i < n * n; ++i) {
        if (!(matrix.data()[i] >= 0)) throw std::invalid_argument("the matrix has a negative entry");
    }
    return n;
}

constexpr std::size_t most_nodes = 1 << 14;

nb::ndarray<nb::numpy, std::int64_t> round_matrix(Matrix<std::int64_t> entries, Integer fraction_bits) {
    const std::size_t n = square(entries, most_nodes);
    const int bits = checked<int>("number of fraction bits", fraction_bits, 0, 60);
    for (std::size_t i = 0; i < n; ++i) {
        std::int64_t row = 0, column = 0;
        for (std::size_t j = 0; j < n; ++j) {
            if (__builtin_add_overflow(row, entries(i, j), &row) ||
                __builtin_add_overflow(column, entries(j, i), &column)) {
                throw std::invalid_argument("a row or column sum of the matrix does not fit 64 bits");
            }
        }
    }
    std::vector<std::int64_t> rounded;
    {
        nb::gil_scoped_release release;
        rounded = fabric::MatrixRounding({entries.data(), entries.data() + n * n}, n, bits).run();
    }
    return owned(std::move(rounded), {n, n});
}

nb::ndarray<nb::numpy, std::int32_t> perfect_matchings(Matrix<std::int64_t> counts) {
    const std::size_t n = square(counts, most_nodes);
    std::int64_t degree = 0;
    for (std::size_t j = 0; j < n; ++j) degree += counts(0, j);
    between("degree of the multigraph", degree, 0, (std::int64_t{1} << 31) / static_cast<std::int64_t>(n));
    for (std::size_t i = 0; i < n; ++i) {
        std::int64_t row = 0, column = 0;
        for (std::size_t j = 0; j < n; ++j) {
            row += counts(i, j);
            column += counts(j, i);
        }
        if (row != degree || column != degree) {
            throw std::invalid_argument("node " + std::to_string(i) + " has degrees " + std::to_string(row) + " and " +
                                        std::to_string(column) + ", not " + std::to_string(degree) +
                                        ": only a regular multigraph is a union of perfect matchings");
        }
    }
    std::vector<std::int32_t> partners;
    {
        nb::gil_scoped_release release;
        partners = fabric::Matchings(n).decompose(counts.data(), static_cast<std::size_t>(degree));
    }
    return owned(std::move(partners), {static_cast<std::size_t>(degree), n});
}

/// A maximum concurrent flow, improved sweep by sweep.
class ConcurrentFlow {
public:
    ConcurrentFlow(Matrix<double> capacity, Matrix<double> demand) : n_(square(capacity, 512)) {
        if (square(demand, 512) != n_) throw std::invalid_argument("capacity and demand differ in size");
        const double* of_demand = demand.data();
        if (std::none_of(of_demand, of_demand + n_ * n_, [](double sent) { return sent > 0; })) {
            throw std::invalid_argument("there is no demand");
        }
        run_ = std::make_unique<fabric::ConcurrentFlow>(n_,
                                                        std::vector<double>(capacity.data(), capacity.data() + n_ * n_),
                                                        std::vector<double>(of_demand, of_demand + n_ * n_));
    }
    void advance(Integer sweeps) {
        const auto count = checked<std::int64_t>("number of sweeps", sweeps, 0, 1 << 20);
        nb::gil_scoped_release release;
        run_->advance(count);
    }
    std::tuple<double, double> bounds() const { return {run_->lower(), run_->upper()}; }
    nb::ndarray<nb::numpy, double> flow() const { return owned(run_->flow(), {n_, n_, n_}); }
    nb::ndarray<nb::numpy, double> lengths() const { return owned(run_->lengths(), {n_, n_}); }

private:
    std::size_t n_;
    std::unique_ptr<fabric::ConcurrentFlow> run_;
};

}  // namespace

void add_circuits(nb::module_& m) {
    using namespace nb::literals;
    m.def("round_matrix", &round_matrix, "entries"_a.noconvert(), "fraction_bits"_a,
          "Fixed-point entries rounded so that all entries, row sums and column sums are rounded up or down: int64[n, "
          "n].");
    m.def("perfect_matchings", &perfect_matchings, "counts"_a.noconvert(),
          "Perfect matchings whose union is a regular bipartite multigraph, partner of each left node: int32[degree, "
          "n].");
    nb::class_<ConcurrentFlow>(m, "ConcurrentFlow", "A maximum concurrent flow, improved sweep by sweep.")
        .def(nb::init<Matrix<double>, Matrix<double>>(), "capacity"_a.noconvert(), "demand"_a.noconvert())
        .def("advance", &ConcurrentFlow::advance, "sweeps"_a)
        .def("bounds", &ConcurrentFlow::bounds)
        .def("flow", &ConcurrentFlow::flow)
        .def("lengths", &ConcurrentFlow::lengths);
}

}  // namespace foretail::bindings
