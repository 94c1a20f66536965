// SPDX-License-Identifier: MIT
// A run of the native network in this process: it stops where Python wants, and can go back to where it was.
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bindings/columns.hpp"
#include "bindings/module.hpp"
#include "bindings/native_run.hpp"
#include "native/simulation.h"

namespace foretail::bindings {

nb::ndarray<nb::numpy, std::uint8_t> flow_bytes(const packets::FlowLedger& ledger) {
    const auto records = ledger.records();
    std::vector<std::uint8_t> bytes(records.size() * sizeof(buffer::FlowRecord));
    if (!records.empty()) std::memcpy(bytes.data(), records.data(), bytes.size());
    const std::size_t size = bytes.size();
    return owned(std::move(bytes), {size});
}

namespace {

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
        const auto found =
            run_->counters(checked<std::int64_t>("now_ns", now_ns, 0, std::numeric_limits<std::int64_t>::max()));
        std::vector<std::int32_t> values;
        for (const auto& row : found) values.insert(values.end(), row.begin(), row.end());
        return owned(std::move(values), {found.size(), counter_names.size()});
    }
    void set_alphas(Column<double> alphas) { run_->set_alphas({alphas.data(), alphas.shape(0)}); }
    [[nodiscard]] NativeSnapshot snapshot() const { return {run_->save()}; }
    void snapshot_into(NativeSnapshot& older) const { run_->save(*older.state); }
    void restore(const NativeSnapshot& snapshot) { run_->restore(*snapshot.state); }
    std::string finish() { return run_->finish().dump(); }

private:
    std::unique_ptr<packets::native::Simulation> run_;
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
}

}  // namespace foretail::bindings
