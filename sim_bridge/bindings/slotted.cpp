// SPDX-License-Identifier: MIT
// Unit packets in slots: policies, and the offline optimum.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include "bindings/runs.hpp"
#include "buffer/lqd/late_qd.hpp"

namespace foretail::bindings {

namespace {

nb::ndarray<nb::numpy, Row> rows_array(const std::vector<Row>& rows) { return owned(rows, {rows.size()}); }

void check_arrivals(const Column<std::int64_t>& slot, const Column<std::int32_t>& port, Port ports, Tick last) {
    if (port.shape(0) != slot.shape(0)) throw std::invalid_argument("slot and port differ in length");
    for (std::size_t i = 0; i < slot.shape(0); ++i) {
        in_range(port(i), ports, i);
        in_order("slot", slot(i), last, i);
        last = slot(i);
    }
}

/// One policy over unit packets in slots, fed in order, batch by batch.
class SlottedRun {
public:
    SlottedRun(const std::string& policy, Integer ports, Integer buffer, bool labels, const WantedFeatures& features,
               Integer cell_bytes, const std::shared_ptr<Scorer>& scorer, const nb::kwargs& keywords)
        : ports_(ports_of(ports)), features_(features_of(features)), labels_(labels || !features_.empty()) {
        const RunSettings given(keywords, Units::slots);
        given.oracle.require_unit_packets();
        priorities_ = given.queueing.count;
        SwitchSettings settings;
        settings.rules = given.oracle.rules;
        settings.shape = slotted_shape(ports_, buffer_of(buffer), settings.rules.tie, given.queueing);
        settings.scale = scale_in_slots(cell_bytes, given.average_shift);
        settings.labels = labels_;
        settings.features = features_;
        if (scorer) let_ask(settings, *scorer, policy);
        run_ = recorded_run(policy, given.policy, settings);
        if (scorer) run_->ask(scorer);
    }

    SlottedRun(const SlottedRun&) = delete;
    SlottedRun& operator=(const SlottedRun&) = delete;

    nb::dict feed(Column<std::int64_t> slot, Column<std::int32_t> port, std::optional<Column<std::uint8_t>> predictions,
                  std::optional<Column<std::uint8_t>> first_rtt, std::optional<Column<std::uint8_t>> priority,
                  bool columns) {
        return take(slot, port, predictions, first_rtt, priority, columns, false);
    }
    nb::dict finish() {
        nb::dict out;
        if (!finished_) run_->drain();
        finished_ = true;
        return totals(out);
    }
    nb::dict take(const Column<std::int64_t>& slot, const Column<std::int32_t>& port,
                  const std::optional<Column<std::uint8_t>>& predictions,
                  const std::optional<Column<std::uint8_t>>& first_rtt,
                  const std::optional<Column<std::uint8_t>>& priority, bool columns, bool last) {
        const std::size_t n = slot.shape(0);
        if (finished_) throw std::invalid_argument("a finished run takes no more arrivals: begin another");
        same_length("predictions", predictions, n);
        same_length("first_rtt", first_rtt, n);
        known_priorities(priority, n, priorities_);
        check_arrivals(slot, port, ports_, last_slot_);
        Filled filled(columns ? n : 0, columns && labels_, columns ? features_ : FeatureSet{});
        {
            nb::gil_scoped_release release;
            run_->begin_batch(columns ? filled.columns() : RunColumns{});
            std::array<Arrival, 1024> block;  // small enough to stay in the cache
            for (std::size_t from = 0; from < n; from += block.size()) {
                const std::size_t size = std::min(block.size(), n - from);
                for (std::size_t k = 0; k < size; ++k) {
                    const std::size_t i = from + k;
                    block[k] = {slot(i),
                                port(i),
                                1,
                                true,
                                first_rtt && (*first_rtt)(i) != 0,
                                priority ? (*priority)(i) : std::uint8_t{0}};
                }
                run_->feed(block.data(), size, predictions ? predictions->data() + from : nullptr);
            }
            if (last) run_->drain();
        }
        finished_ = last;
        if (n > 0) last_slot_ = slot(n - 1);
        nb::dict out = columns ? filled.to_dict() : nb::dict();
        if (columns && labels_) {
            out["late_drops"] = rows_array(run_->late_drops());
            out["settled"] = run_->settled();
        }
        run_->end_batch();
        return last ? totals(out) : out;
    }

private:
    nb::dict totals(nb::dict out) const {
        out["arrivals"] = run_->rows();
        out["transmitted"] = run_->transmitted_packets();
        out["dropped"] = run_->rows() - run_->transmitted_packets();
        out["threshold_deficits"] = run_->threshold_deficits();
        out["turns"] = turns_of(*run_);
        if (!out.contains("late_drops")) out["late_drops"] = rows_array(run_->late_drops());
        return out;
    }
    Port ports_;
    int priorities_ = 1;
    FeatureSet features_;
    bool labels_;
    std::unique_ptr<RecordedRun> run_;
    Tick last_slot_ = 0;
    bool finished_ = false;
};

/// All of it at once.
nb::dict slotted(const std::string& policy, Integer ports, Integer buffer, Column<std::int64_t> slot,
                 Column<std::int32_t> port, std::optional<Column<std::uint8_t>> predictions,
                 std::optional<Column<std::uint8_t>> first_rtt, std::optional<Column<std::uint8_t>> priority,
                 bool labels, const WantedFeatures& features, Integer cell_bytes, const nb::kwargs& keywords) {
    SlottedRun run(policy, ports, buffer, labels, features, cell_bytes, nullptr, keywords);
    return run.take(slot, port, predictions, first_rtt, priority, true, true);
}

nb::dict late_qd(Integer ports_given, Integer buffer_given, Column<std::int64_t> slot, Column<std::int32_t> port) {
    const Port ports = ports_of(ports_given);
    const Bytes buffer = buffer_of(buffer_given);
    check_arrivals(slot, port, ports, 0);
    const std::size_t n = slot.shape(0);
    std::vector<std::uint8_t> drop(n);
    std::int64_t transmitted = 0;
    {
        nb::gil_scoped_release release;
        transmitted = LateQd(ports, buffer, slot.data(), port.data(), n).run(drop.data());
    }
    nb::dict out;
    out["transmitted"] = transmitted;
    out["drop"] = owned(std::move(drop), {n});
    return out;
}

}  // namespace

void add_slotted(nb::module_& m) {
    using namespace nb::literals;
    // noconvert: a column of another type would be rounded or wrapped silently.
    m.def("slotted", &slotted, "policy"_a, "ports"_a, "buffer"_a, "slot"_a.noconvert(), "port"_a.noconvert(),
          "predictions"_a.noconvert() = nb::none(), "first_rtt"_a.noconvert() = nb::none(),
          "priority"_a.noconvert() = nb::none(), nb::kw_only(), "labels"_a = true, "features"_a = false,
          "cell_bytes"_a = 256, "settings"_a,
          "Run a policy on unit packets in slots: arrivals in order, then every non-empty port sends one packet.");
    m.def("late_qd", &late_qd, "ports"_a, "buffer"_a, "slot"_a.noconvert(), "port"_a.noconvert(),
          "The offline optimum of unit packets in slots: most packets that any policy could send, and which to drop.");
    nb::class_<SlottedRun>(m, "SlottedRun", "One policy over unit packets in slots, fed in order, batch by batch.")
        .def(nb::init<const std::string&, Integer, Integer, bool, const WantedFeatures&, Integer,
                      const std::shared_ptr<Scorer>&, const nb::kwargs&>(),
             "policy"_a, "ports"_a, "buffer"_a, nb::kw_only(), "labels"_a = false, "features"_a = false,
             "cell_bytes"_a = 256, "scorer"_a.none() = nb::none(), "settings"_a)
        .def("feed", &SlottedRun::feed, "slot"_a.noconvert(), "port"_a.noconvert(),
             "predictions"_a.noconvert() = nb::none(), "first_rtt"_a.noconvert() = nb::none(),
             "priority"_a.noconvert() = nb::none(), nb::kw_only(), "columns"_a = true)
        .def("finish", &SlottedRun::finish);
}

}  // namespace foretail::bindings
