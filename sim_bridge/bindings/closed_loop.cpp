// SPDX-License-Identifier: MIT
// Runs of the native network that stop wherever their policy asks, many side by side: what environments and live
// predictors in the closed loop step through.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/columns.hpp"
#include "bindings/module.hpp"
#include "bindings/native_run.hpp"
#include "buffer/names.hpp"
#include "native/cost_meter.h"
#include "native/simulation.h"

namespace foretail::bindings {

namespace {

using packets::native::CostMeter;

class ClosedLoopRuns {
public:
    ClosedLoopRuns(Integer runs, const std::vector<std::string>& features)
        : runs_(checked<std::size_t>("number of runs", runs, 1, 1 << 16)),
          meters_(runs_.size()),
          sums_(runs_.size() * CostMeter::kinds),
          time_ns_(runs_.size()),
          switch_(runs_.size()),
          ended_(runs_.size(), 1) {
        for (const auto& name : features) {
            chosen_.push_back(position(name, feature_names, "unknown feature '" + name + "'"));
            wanted_.insert(static_cast<Feature>(chosen_.back()));
        }
        features_.resize(runs_.size() * chosen_.size());
    }
    ClosedLoopRuns(const ClosedLoopRuns&) = delete;
    ClosedLoopRuns& operator=(const ClosedLoopRuns&) = delete;

    /// Plans a run, whose traffic has not begun.
    void begin(Integer index, const std::string& document) {
        const std::size_t i = place(index);
        nb::gil_scoped_release release;
        runs_[i] = packets::native::make_simulation(nlohmann::json::parse(document), "", wanted_);
        meters_[i] = {};
    }
    /// Says what counts in the cost of a run that is planned; kinds and ideal times are those of items.
    void measure(Integer index, Column<std::int32_t> item_of, Column<std::uint8_t> kind, Column<double> ideal_ns) {
        const std::size_t i = place(index), items = kind.shape(0);
        if (item_of.shape(0) != planned(i).ledger().planned() || ideal_ns.shape(0) != items)
            throw std::invalid_argument(
                "there must be an item for each flow, and a kind and an ideal time for each item");
        std::vector<CostMeter::Item> found(items);
        for (std::size_t k = 0; k < items; ++k) {
            if (kind(k) >= CostMeter::kinds || !(ideal_ns(k) > 0))
                throw std::invalid_argument("item " + std::to_string(k) + " has no kind or no ideal time");
            found[k] = {kind(k), ideal_ns(k), 0, 0};
        }
        for (std::size_t flow = 0; flow < item_of.shape(0); ++flow) {
            if (item_of(flow) >= static_cast<std::int64_t>(items))
                throw std::invalid_argument("flow " + std::to_string(flow) + " has an item that is not there");
            if (item_of(flow) >= 0) ++found[static_cast<std::size_t>(item_of(flow))].left;
        }
        meters_[i] = CostMeter({item_of.data(), item_of.data() + item_of.shape(0)}, std::move(found));
    }
    /// Lets a run that is planned go on to where it asks first.
    void start(Integer index) {
        const std::size_t i = place(index);
        static_cast<void>(planned(i));
        nb::gil_scoped_release release;
        advance(i);
    }
    /// Answers every run that has not ended and lets it go on to where it asks next.
    void step(Column<std::uint8_t> drop) {
        if (drop.shape(0) != runs_.size()) {
            throw std::invalid_argument("there are " + std::to_string(drop.shape(0)) + " answers for " +
                                        std::to_string(runs_.size()) + " runs");
        }
        nb::gil_scoped_release release;
        for (std::size_t i = 0; i < runs_.size(); ++i) {
            if (ended_[i]) continue;
            runs_[i]->answer(drop.data()[i] != 0);
            advance(i);
        }
    }
    [[nodiscard]] nb::ndarray<nb::numpy, std::uint8_t> flows(Integer index) const {
        return flow_bytes(planned(place(index)).ledger());
    }
    [[nodiscard]] std::int64_t now_ns(Integer index) const { return planned(place(index)).now_ns(); }
    /// Ends a run and returns its summary.
    std::string finish(Integer index) {
        const std::size_t i = place(index);
        static_cast<void>(planned(i));
        ended_[i] = 1;
        return runs_[i]->finish().dump();
    }

    /// The arrays that the runs write, a row for each run.
    static nb::dict columns(ClosedLoopRuns& self) {
        const nb::object owner = nb::find(self);
        const auto view = [&]<class T>(std::vector<T>& values) {
            return nb::ndarray<nb::numpy, const T>(values.data(), {values.size()}, owner);
        };
        nb::dict out;
        out["features"] = nb::ndarray<nb::numpy, const std::int32_t>(self.features_.data(),
                                                                     {self.runs_.size(), self.chosen_.size()}, owner);
        out["sums"] =
            nb::ndarray<nb::numpy, const double>(self.sums_.data(), {self.runs_.size(), CostMeter::kinds}, owner);
        out["time_ns"] = view(self.time_ns_);
        out["switch"] = view(self.switch_);
        out["ended"] = view(self.ended_);
        return out;
    }

private:
    [[nodiscard]] std::size_t place(Integer index) const {
        return checked<std::size_t>("index of a run", index, 0, static_cast<std::int64_t>(runs_.size()) - 1);
    }
    [[nodiscard]] const packets::native::Simulation& planned(std::size_t i) const {
        if (!runs_[i]) throw std::invalid_argument("run " + std::to_string(i) + " has not begun: call begin first");
        return *runs_[i];
    }
    /// Goes on until the policy asks or the run ends, and writes what there is to see.
    void advance(std::size_t i) {
        packets::native::Simulation& run = *runs_[i];
        run.advance(std::numeric_limits<std::int64_t>::max(), {});
        meters_[i].read(run.ledger());
        std::copy_n(meters_[i].sums().begin(), CostMeter::kinds,
                    sums_.begin() + static_cast<std::ptrdiff_t>(i * CostMeter::kinds));
        time_ns_[i] = run.now_ns();
        ended_[i] = run.is_over();
        FeatureVector seen{};
        if (!run.is_over()) {
            seen = run.features();
            switch_[i] = run.switch_index();
        }
        for (std::size_t k = 0; k < chosen_.size(); ++k) features_[i * chosen_.size() + k] = seen[chosen_[k]];
    }

    std::vector<std::unique_ptr<packets::native::Simulation>> runs_;
    std::vector<CostMeter> meters_;
    std::vector<std::size_t> chosen_;
    FeatureSet wanted_;
    std::vector<std::int32_t> features_;
    std::vector<double> sums_;
    std::vector<std::int64_t> time_ns_;
    std::vector<std::int32_t> switch_;
    std::vector<std::uint8_t> ended_;
};

}  // namespace

void add_closed_loop(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<ClosedLoopRuns>(m, "ClosedLoopRuns", "Runs of the native network that stop where their policy asks.")
        .def(nb::init<Integer, const std::vector<std::string>&>(), "runs"_a, "features"_a)
        .def("begin", &ClosedLoopRuns::begin, "index"_a, "settings"_a)
        .def("measure", &ClosedLoopRuns::measure, "index"_a, "item_of"_a.noconvert(), "kind"_a.noconvert(),
             "ideal_ns"_a.noconvert())
        .def("start", &ClosedLoopRuns::start, "index"_a)
        .def("step", &ClosedLoopRuns::step, "drop"_a.noconvert())
        .def("flows", &ClosedLoopRuns::flows, "index"_a)
        .def("now_ns", &ClosedLoopRuns::now_ns, "index"_a)
        .def("finish", &ClosedLoopRuns::finish, "index"_a)
        .def("columns", &ClosedLoopRuns::columns);
}

}  // namespace foretail::bindings
