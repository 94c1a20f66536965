// SPDX-License-Identifier: MIT
// Runs of the native network in this process: one that Python stops, copies and restores, and many side by side that
// stop wherever their policy asks.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>

#include <cstring>

#include "bindings/runs.hpp"
#include "native/simulation.h"

namespace foretail::bindings {

namespace {

/// The slowdowns of what has been completed so far: of flows, and of queries, which the last of their answers
/// completes. sim_bridge/packets/cost.py says which flows count, and what the sums mean for the cost of a run.
class CostMeter {
public:
    /// Queries, short flows and long flows.
    static constexpr std::size_t kinds = 3;

    /// A flow or a query.
    struct Item {
        std::uint8_t kind = 0;
        double ideal_ns = 1;
        std::int32_t left = 0;  ///< flows that are not delivered
        std::int64_t time_ns = 0;
    };

    CostMeter() = default;
    /// `item_of` has the item of every flow, -1 where it does not count; the items have all their flows left.
    CostMeter(std::vector<std::int32_t> item_of, std::vector<Item> items)
        : item_of_(std::move(item_of)), items_(std::move(items)) {}

    /// Takes in what has been delivered since the last call.
    void read(const packets::FlowLedger& ledger) {
        if (item_of_.empty()) return;
        for (const auto& delivered = ledger.delivered(); read_ < delivered.size(); ++read_) {
            const std::size_t flow = delivered[read_];
            if (item_of_[flow] < 0) continue;
            Item& item = items_[static_cast<std::size_t>(item_of_[flow])];
            item.time_ns = std::max(item.time_ns, ledger.record(flow).fct_ns);
            if (--item.left == 0) sums_[item.kind] += static_cast<double>(item.time_ns) / item.ideal_ns - 1;
        }
    }
    /// By kind: slowdowns less 1, summed over what is complete.
    [[nodiscard]] const std::array<double, kinds>& sums() const { return sums_; }

private:
    std::vector<std::int32_t> item_of_;
    std::vector<Item> items_;
    std::size_t read_ = 0;
    std::array<double, kinds> sums_{};
};

/// The records of all flows, byte by byte.
nb::ndarray<nb::numpy, std::uint8_t> flow_bytes(const packets::FlowLedger& ledger) {
    const auto records = ledger.records();
    std::vector<std::uint8_t> bytes(records.size() * sizeof(buffer::FlowRecord));
    if (!records.empty()) std::memcpy(bytes.data(), records.data(), bytes.size());
    const std::size_t size = bytes.size();
    return owned(std::move(bytes), {size});
}

/// Lets Ctrl-C end a run.
void check_signals(std::int64_t, std::int64_t) {
    nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

struct NativeSnapshot {
    std::unique_ptr<packets::native::Snapshot> state;
};

class NativeRun {
public:
    NativeRun(const std::string& document, const std::string& folder) {
        nb::gil_scoped_release release;
        run_ = packets::native::make_simulation(nlohmann::json::parse(document), folder);
    }
    NativeRun(const NativeRun&) = delete;
    NativeRun& operator=(const NativeRun&) = delete;

    void advance(Integer until_ns) {
        const auto until = checked<std::int64_t>("until_ns", until_ns, 0, std::numeric_limits<std::int64_t>::max());
        nb::gil_scoped_release release;
        run_->advance(until, check_signals);
    }
    [[nodiscard]] bool is_over() const { return run_->is_over(); }
    [[nodiscard]] std::int64_t now_ns() const { return run_->now_ns(); }
    [[nodiscard]] nb::ndarray<nb::numpy, std::uint8_t> flows() const { return flow_bytes(run_->ledger()); }
    [[nodiscard]] nb::ndarray<nb::numpy, std::int32_t> counters(Integer now_ns) {
        const auto rows =
            run_->counters(checked<std::int64_t>("now_ns", now_ns, 0, std::numeric_limits<std::int64_t>::max()));
        std::vector<std::int32_t> values;
        for (const auto& row : rows) values.insert(values.end(), row.begin(), row.end());
        return owned(std::move(values), {rows.size(), counter_names.size()});
    }
    void set_alphas(Column<double> alphas) { run_->set_alphas({alphas.data(), alphas.shape(0)}); }
    [[nodiscard]] NativeSnapshot snapshot() const { return {run_->save()}; }
    void snapshot_into(NativeSnapshot& older) const { run_->save(*older.state); }
    void restore(const NativeSnapshot& snapshot) { run_->restore(*snapshot.state); }
    std::string finish() { return run_->finish().dump(); }

private:
    std::unique_ptr<packets::native::Simulation> run_;
};

class ClosedLoopRuns {
public:
    ClosedLoopRuns(Integer runs, const std::vector<std::string>& features)
        : runs_(checked<std::size_t>("number of runs", runs, 1, 1 << 16)),
          meters_(runs_.size()),
          questions_(runs_.size(), features),
          sums_(runs_.size() * CostMeter::kinds),
          time_ns_(runs_.size()),
          switch_(runs_.size()),
          ended_(runs_.size(), 1) {}
    ClosedLoopRuns(const ClosedLoopRuns&) = delete;
    ClosedLoopRuns& operator=(const ClosedLoopRuns&) = delete;

    /// Plans a run, whose traffic has not begun.
    void begin(Integer index, const std::string& document) {
        const std::size_t i = questions_.place(index);
        nb::gil_scoped_release release;
        runs_[i] = packets::native::make_simulation(nlohmann::json::parse(document), "", questions_.wanted);
        meters_[i] = {};
    }
    /// Says what counts in the cost of a run that is planned; kinds and ideal times are those of items.
    void measure(Integer index, Column<std::int32_t> item_of, Column<std::uint8_t> kind, Column<double> ideal_ns) {
        const std::size_t i = questions_.place(index), items = kind.shape(0);
        if (item_of.shape(0) != planned(i).ledger().planned() || ideal_ns.shape(0) != items)
            throw std::invalid_argument(
                "there must be an item for each flow, and a kind and an ideal time for each item");
        std::vector<CostMeter::Item> entries(items);
        for (std::size_t k = 0; k < items; ++k) {
            if (kind(k) >= CostMeter::kinds || !(ideal_ns(k) > 0))
                throw std::invalid_argument("item " + std::to_string(k) + " has no kind or no ideal time");
            entries[k] = {kind(k), ideal_ns(k), 0, 0};
        }
        for (std::size_t flow = 0; flow < item_of.shape(0); ++flow) {
            if (item_of(flow) >= static_cast<std::int64_t>(items))
                throw std::invalid_argument("flow " + std::to_string(flow) + " has an item that is not there");
            if (item_of(flow) >= 0) ++entries[static_cast<std::size_t>(item_of(flow))].left;
        }
        meters_[i] = CostMeter({item_of.data(), item_of.data() + item_of.shape(0)}, std::move(entries));
    }
    /// Lets a run that is planned go on to where it asks first.
    void start(Integer index) {
        const std::size_t i = questions_.place(index);
        static_cast<void>(planned(i));
        nb::gil_scoped_release release;
        advance(i);
    }
    /// Answers every run that has not ended and lets it go on to where it asks next.
    void step(Column<std::uint8_t> drop) {
        questions_.require_one_each(drop);
        nb::gil_scoped_release release;
        for (std::size_t i = 0; i < runs_.size(); ++i) {
            if (ended_[i]) continue;
            runs_[i]->answer(drop.data()[i] != 0);
            advance(i);
        }
    }
    [[nodiscard]] nb::ndarray<nb::numpy, std::uint8_t> flows(Integer index) const {
        return flow_bytes(planned(questions_.place(index)).ledger());
    }
    [[nodiscard]] std::int64_t now_ns(Integer index) const { return planned(questions_.place(index)).now_ns(); }
    /// Ends a run and returns its summary.
    std::string finish(Integer index) {
        const std::size_t i = questions_.place(index);
        static_cast<void>(planned(i));
        ended_[i] = 1;
        return runs_[i]->finish().dump();
    }

    /// The arrays that the runs write, a row for each run.
    static nb::dict columns(ClosedLoopRuns& self) {
        const nb::object owner = nb::find(self);
        nb::dict out;
        out["features"] = self.questions_.array(owner);
        out["sums"] =
            nb::ndarray<nb::numpy, const double>(self.sums_.data(), {self.runs_.size(), CostMeter::kinds}, owner);
        out["time_ns"] = view(self.time_ns_, owner);
        out["switch"] = view(self.switch_, owner);
        out["ended"] = view(self.ended_, owner);
        return out;
    }

private:
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
        questions_.write(i, seen);
    }

    std::vector<std::unique_ptr<packets::native::Simulation>> runs_;
    std::vector<CostMeter> meters_;
    Questions questions_;
    std::vector<double> sums_;
    std::vector<std::int64_t> time_ns_;
    std::vector<std::int32_t> switch_;
    std::vector<std::uint8_t> ended_;
};

}  // namespace

void add_native(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<NativeSnapshot>(m, "NativeSnapshot", "The state of a run of the native network at a moment, in memory.");
    nb::class_<NativeRun>(m, "NativeRun", "A run of the native network in this process.")
        .def(nb::init<const std::string&, const std::string&>(), "settings"_a, "folder"_a = "")
        .def("advance", &NativeRun::advance, "until_ns"_a)
        .def("is_over", &NativeRun::is_over)
        .def("now_ns", &NativeRun::now_ns)
        .def("flows", &NativeRun::flows)
        .def("counters", &NativeRun::counters, "now_ns"_a)
        .def("set_alphas", &NativeRun::set_alphas, "alphas"_a.noconvert())
        .def("snapshot", &NativeRun::snapshot)
        .def("snapshot_into", &NativeRun::snapshot_into, "older"_a)
        .def("restore", &NativeRun::restore, "snapshot"_a)
        .def("finish", &NativeRun::finish);
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
