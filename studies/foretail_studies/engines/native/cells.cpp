// SPDX-License-Identifier: MIT
// Cells over circuits, for Python.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <memory>
#include <tuple>
#include <vector>

#include "bindings/module.hpp"
#include "buffer/types.hpp"
#include "cell_fabric.hpp"
#include "studies.hpp"

namespace foretail::bindings {

namespace {

/// Flows of cells over a schedule of circuits, run up to one slot after another.
class CellFabric {
public:
    using Matchings = nb::ndarray<const std::int32_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

    CellFabric(Matchings matchings, Column<std::int64_t> start, Column<std::int32_t> source,
               Column<std::int32_t> destination, Column<std::int64_t> size, const std::string& routing,
               Integer relay_cells, Integer seed) {
        const std::size_t n = start.shape(0);
        between("number of racks", static_cast<std::int64_t>(matchings.shape(2)), 2, 1 << 12);
        between("number of matchings", static_cast<std::int64_t>(matchings.shape(0) * matchings.shape(1)), 1, 1 << 24);
        between("number of flows", static_cast<std::int64_t>(n), 0, (std::int64_t{1} << 31) - 1);
        if (source.shape(0) != n || destination.shape(0) != n || size.shape(0) != n) {
            throw std::invalid_argument("the columns of the flows differ in length");
        }
        const auto racks = static_cast<std::int32_t>(matchings.shape(2));
        for (std::size_t i = 0; i < matchings.size(); ++i) between("node", matchings.data()[i], -1, racks - 1);
        std::vector<fabric::CellFlow> flows(n);
        for (std::size_t i = 0; i < n; ++i) {
            flows[i] = {start(i), size(i), source(i), destination(i)};
            between("start", start(i), i == 0 ? 0 : start(i - 1), latest);
            between("size", size(i), 1, std::int64_t{1} << 31);
            between("source", source(i), 0, racks - 1);
            between("destination", destination(i), 0, racks - 1);
            if (source(i) == destination(i)) throw std::invalid_argument("a flow stays in its rack");
        }
        using fabric::Routing;
        run_ = std::make_unique<fabric::CellFabric>(
            racks, matchings.shape(1), std::vector<std::int32_t>(matchings.data(), matchings.data() + matchings.size()),
            std::move(flows),
            static_cast<Routing>(position(routing, fabric::routing_names, "unknown routing '" + routing + "'")),
            checked("number of cells that a rack relays", relay_cells, 0, latest),
            checked<std::uint32_t>("seed", seed, 0, 0xffffffff));
    }
    void advance(Integer until) {
        const auto slot = checked("slot", until, run_->now(), latest);
        nb::gil_scoped_release release;
        run_->advance(slot);
    }
    nb::ndarray<nb::numpy, std::int64_t> completion() const {
        return owned(run_->completion(), {run_->completion().size()});
    }
    std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t> counts() const {
        const auto& counts = run_->counts();
        return {counts.admitted, counts.direct, counts.first_hop, counts.last_hop};
    }

private:
    std::unique_ptr<fabric::CellFabric> run_;
};

}  // namespace

void add_cells(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<CellFabric>(m, "CellFabric", "Flows of cells over a schedule of circuits.")
        .def(nb::init<CellFabric::Matchings, Column<std::int64_t>, Column<std::int32_t>, Column<std::int32_t>,
                      Column<std::int64_t>, const std::string&, Integer, Integer>(),
             "matchings"_a.noconvert(), "start"_a.noconvert(), "source"_a.noconvert(), "destination"_a.noconvert(),
             "size"_a.noconvert(), nb::kw_only(), "routing"_a, "relay_cells"_a, "seed"_a)
        .def("advance", &CellFabric::advance, "until"_a)
        .def("completion", &CellFabric::completion)
        .def("counts", &CellFabric::counts);
}

}  // namespace foretail::bindings
