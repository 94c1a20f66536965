// SPDX-License-Identifier: MIT
// Unit packets in slots: policies, and the offline optimum.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "bindings/module.hpp"
#include "bindings/runs.hpp"
#include "buffer/lqd/late_qd.hpp"

namespace foretail::bindings {

namespace {

nb::ndarray<nb::numpy, Row> rows_array(const std::vector<Row>& rows) { return owned(rows, {rows.size()}); }

Port ports_of(Integer ports) { return checked<Port>("number of ports", ports, 1, max_ports); }
Bytes buffer_of(Integer buffer) { return checked("buffer in packets", buffer, 1, max_packets); }

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
    SlottedRun(const std::string& policy, Integer ports, Integer buffer, const std::string& counting,
               const std::string& tie, const std::string& victim, Seed seed, const std::vector<double>& alpha,
               double first_rtt_alpha, Integer rtt_slots, Integer low_pass_slots, double spare_bandwidth,
               Integer bucket_packets, Integer spares_first_rtt, Integer drop_budget_packets, Integer answers_needed,
               Integer average_shift, bool labels, bool features, const std::string& order, Integer queues,
               const std::string& scheduler, const std::vector<Integer>& quanta)
        : ports_(ports_of(ports)),
          priorities_(queueing(queues, scheduler, quanta).count),
          labels_(labels || features),
          features_(features) {
        SwitchSettings settings;
        settings.rules = untagged_rules(counting, tie, victim, seed, order);
        auto served = queueing(queues, scheduler, quanta);
        settings.shape = {buffer_of(buffer),
                          std::vector<LineRate>(static_cast<std::size_t>(ports_), LineRate::one_per_slot()),
                          settings.rules.tie,
                          true,
                          served.count,
                          served.scheduler,
                          std::move(served.quanta)};
        settings.scale = {0, checked<int>("average_shift", average_shift, 0, 24), 0};
        settings.labels = labels_;
        if (features) settings.features = FeatureSet::all();
        run_ = run_under(
            policy,
            policy_settings(alpha, first_rtt_alpha, checked("rtt_slots", rtt_slots, 1, longest),
                            checked("low_pass_slots", low_pass_slots, 1, longest), 1, spare_bandwidth,
                            checked("bucket_packets", bucket_packets, 0, max_packets),
                            guards_of(spares_first_rtt, "drop_budget_packets", drop_budget_packets, answers_needed)),
            settings);
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
        Filled filled(columns ? n : 0, columns && labels_, columns && features_);
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
        if (!out.contains("late_drops")) out["late_drops"] = rows_array(run_->late_drops());
        return out;
    }
    Port ports_;
    int priorities_;
    bool labels_, features_;
    std::unique_ptr<RecordedRun> run_;
    Tick last_slot_ = 0;
    bool finished_ = false;
};

/// All of it at once.
nb::dict slotted(const std::string& policy, Integer ports, Integer buffer, Column<std::int64_t> slot,
                 Column<std::int32_t> port, std::optional<Column<std::uint8_t>> predictions,
                 std::optional<Column<std::uint8_t>> first_rtt, std::optional<Column<std::uint8_t>> priority,
                 const std::string& counting, const std::string& tie, const std::string& victim, Seed seed,
                 const std::vector<double>& alpha, double first_rtt_alpha, Integer rtt_slots, Integer low_pass_slots,
                 double spare_bandwidth, Integer bucket_packets, Integer spares_first_rtt, Integer drop_budget_packets,
                 Integer answers_needed, Integer average_shift, bool labels, bool features, const std::string& order,
                 Integer queues, const std::string& scheduler, const std::vector<Integer>& quanta) {
    SlottedRun run(policy, ports, buffer, counting, tie, victim, seed, alpha, first_rtt_alpha, rtt_slots,
                   low_pass_slots, spare_bandwidth, bucket_packets, spares_first_rtt, drop_budget_packets,
                   answers_needed, average_shift, labels, features, order, queues, scheduler, quanta);
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
          "priority"_a.noconvert() = nb::none(), nb::kw_only(), "counting"_a = "counted", "tie"_a = "lowest_port",
          "victim"_a = "tail", "seed"_a = 0, "alpha"_a = policy_defaults.alpha,
          "first_rtt_alpha"_a = policy_defaults.first_rtt_alpha, "rtt_slots"_a = slots_per_rtt,
          "low_pass_slots"_a = 1024, "spare_bandwidth"_a = policy_defaults.spare_bandwidth, "bucket_packets"_a = 25,
          "spares_first_rtt"_a = static_cast<int>(policy_defaults.spares_first_rtt),
          "drop_budget_packets"_a = budget_in_packets, "answers_needed"_a = policy_defaults.answers_needed,
          "average_shift"_a = 5, "labels"_a = true, "features"_a = false, "order"_a = "longest_queue", "queues"_a = 1,
          "scheduler"_a = "round_robin", "quanta"_a = nb::tuple(),
          "Run a policy on unit packets in slots: arrivals in order, then every non-empty port sends one packet.");
    m.def("late_qd", &late_qd, "ports"_a, "buffer"_a, "slot"_a.noconvert(), "port"_a.noconvert(),
          "The offline optimum of unit packets in slots: most packets that any policy could send, and which to drop.");
    nb::class_<SlottedRun>(m, "SlottedRun", "One policy over unit packets in slots, fed in order, batch by batch.")
        .def(nb::init<const std::string&, Integer, Integer, const std::string&, const std::string&, const std::string&,
                      Seed, const std::vector<double>&, double, Integer, Integer, double, Integer, Integer, Integer,
                      Integer, Integer, bool, bool, const std::string&, Integer, const std::string&,
                      const std::vector<Integer>&>(),
             "policy"_a, "ports"_a, "buffer"_a, nb::kw_only(), "counting"_a = "counted", "tie"_a = "lowest_port",
             "victim"_a = "tail", "seed"_a = 0, "alpha"_a = policy_defaults.alpha,
             "first_rtt_alpha"_a = policy_defaults.first_rtt_alpha, "rtt_slots"_a = slots_per_rtt,
             "low_pass_slots"_a = 1024, "spare_bandwidth"_a = policy_defaults.spare_bandwidth, "bucket_packets"_a = 25,
             "spares_first_rtt"_a = static_cast<int>(policy_defaults.spares_first_rtt),
             "drop_budget_packets"_a = budget_in_packets, "answers_needed"_a = policy_defaults.answers_needed,
             "average_shift"_a = 5, "labels"_a = false, "features"_a = false, "order"_a = "longest_queue",
             "queues"_a = 1, "scheduler"_a = "round_robin", "quanta"_a = nb::tuple())
        .def("feed", &SlottedRun::feed, "slot"_a.noconvert(), "port"_a.noconvert(),
             "predictions"_a.noconvert() = nb::none(), "first_rtt"_a.noconvert() = nb::none(),
             "priority"_a.noconvert() = nb::none(), nb::kw_only(), "columns"_a = true)
        .def("finish", &SlottedRun::finish);
}

}  // namespace foretail::bindings
