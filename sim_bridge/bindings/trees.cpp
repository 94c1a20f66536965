// SPDX-License-Identifier: MIT
#include "buffer/predictor/tree.hpp"

#include "bindings/columns.hpp"
#include "bindings/module.hpp"

namespace foretail::bindings {

namespace {

nb::ndarray<nb::numpy, std::int64_t> tree_leaves(Column<std::int32_t> feature, Column<std::int64_t> cut,
                                                 Column<std::int32_t> left, Column<std::int32_t> right,
                                                 Matrix<std::int64_t> x) {
    const std::size_t n = feature.shape(0), rows = x.shape(0), inputs = x.shape(1);
    const Tree tree{feature.data(), cut.data(), left.data(), right.data(), n};
    if (cut.shape(0) != n || left.shape(0) != n || right.shape(0) != n || !tree.can_be_walked(inputs)) {
        throw std::invalid_argument("the arrays are no tree over the columns of x");
    }
    std::vector<std::int64_t> leaves(rows);
    {
        nb::gil_scoped_release release;
        for (std::size_t row = 0; row < rows; ++row) leaves[row] = tree.leaf(x.data() + row * inputs);
    }
    return owned(std::move(leaves), {rows});
}

}  // namespace

void add_trees(nb::module_& m) {
    using namespace nb::literals;
    m.def("tree_leaves", &tree_leaves, "feature"_a.noconvert(), "cut"_a.noconvert(), "left"_a.noconvert(),
          "right"_a.noconvert(), "x"_a.noconvert(),
          "Index of the leaf that every row reaches in a tree of parallel arrays (docs/reference/ensemble.md): "
          "int64[rows].");
}

}  // namespace foretail::bindings
