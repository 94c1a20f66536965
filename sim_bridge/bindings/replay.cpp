// SPDX-License-Identifier: MIT
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <bit>
#include <memory>
#include <optional>

#include "bindings/module.hpp"
#include "bindings/recorded_arrivals.hpp"
#include "bindings/runs.hpp"

namespace foretail::bindings {

namespace {

/// One policy over the recorded arrivals of all switches of a network, fed in order, chunk by chunk.
class Replay {
public:
    Replay(const std::string& policy, const Switches& switches, Integer wire_overhead_bytes,
           const std::string& counting, const std::string& tie, const std::string& victim, Seed seed,
           Integer cell_bytes, Integer average_shift, const std::vector<double>& alpha, double first_rtt_alpha,
           std::optional<Integer> rtt_ns, Integer low_pass_ns, Integer artifact_cut_bytes, double spare_bandwidth,
           Integer bucket_bytes, Integer spares_first_rtt, Integer drop_budget_bytes, Integer answers_needed,
           const std::string& order, Integer queues, const std::string& scheduler, const std::vector<Integer>& quanta,
           const std::string& oracle, double oracle_alpha, const std::optional<Voqs>& voqs)
        : observed_(cell_bytes.value > 0), queueing_(queueing(queues, scheduler, quanta)) {
        SwitchSettings settings;
        settings.rules = push_out_rules(counting, tie, victim, seed, order);
        settings.occamy_oracle = oracle_settings(oracle, oracle_alpha, queueing_.count);
        settings.labels = observed_;
        if (observed_) settings.features = FeatureSet::all();
        const auto cell = static_cast<std::uint64_t>(checked("cell_bytes", cell_bytes, 0, 65'536));
        if (observed_ && !std::has_single_bit(cell)) {
            throw std::invalid_argument("cell_bytes must be a power of two");
        }
        const int shift = checked<int>("average_shift", average_shift, 0, 24);
        cell_shift_ = observed_ ? std::countr_zero(cell) : 0;
        settings.rules.cell_shift = cell_shift_;
        settings.scale = {cell_shift_, shift, 10};
        const auto chosen = policy_settings(
            alpha, first_rtt_alpha, checked("rtt_ns", rtt_ns.value_or(Integer{Tick{1} << shift}), 1, longest),
            checked("low_pass_ns", low_pass_ns, 1, longest),
            checked("artifact_cut_bytes", artifact_cut_bytes, 1, max_packets), spare_bandwidth,
            checked("bucket_bytes", bucket_bytes, 0, max_packets),
            guards_of(spares_first_rtt, "drop_budget_bytes", drop_budget_bytes, answers_needed));
        std::vector<Shape> shapes = shapes_of(switches, wire_overhead_bytes, settings.rules.tie, queueing_);
        if (voqs) {
            if (queueing_.count > 1) throw std::invalid_argument("a VOQ is one queue: give queues=1");
            serve_voqs(shapes, *voqs);
        }
        for (auto& shape : shapes) {
            settings.shape = std::move(shape);
            ports_.push_back(settings.shape.ports());
            runs_.push_back(run_under(policy, chosen, settings));
        }
    }

    Replay(const Replay&) = delete;
    Replay& operator=(const Replay&) = delete;

    nb::dict feed(Column<std::int64_t> time_ns, Column<std::int16_t> switch_index, Column<std::int16_t> port,
                  Column<std::int32_t> size_bytes, Column<std::uint8_t> data, Column<std::uint8_t> first_rtt,
                  std::optional<Column<std::uint8_t>> predictions, std::optional<Column<std::uint8_t>> priority,
                  std::optional<Column<std::uint8_t>> message_left) {
        const std::size_t n = time_ns.shape(0);
        if (first_rtt.shape(0) != n) throw std::invalid_argument("the columns of the arrivals differ in length");
        same_length("predictions", predictions, n);
        same_length("message_left", message_left, n);
        known_priorities(priority, n, queueing_.count);
        if (finished_) throw std::invalid_argument("a finished replay takes no more arrivals: begin another");
        RecordedArrivals{time_ns, switch_index, port, size_bytes, data}.check(ports_, last_time_);
        Filled filled(n, observed_, observed_);
        {
            nb::gil_scoped_release release;
            for (std::size_t s = 0; s < runs_.size(); ++s) {
                rows_.clear();
                arrivals_.clear();
                answers_.clear();
                for (std::size_t i = 0; i < n; ++i) {
                    if (static_cast<std::size_t>(switch_index(i)) != s) continue;
                    rows_.push_back(i);
                    arrivals_.push_back({time_ns(i), port(i), size_bytes(i), data(i) != 0, first_rtt(i) != 0,
                                         priority ? (*priority)(i) : std::uint8_t{0}});
                    if (message_left) arrivals_.back().left = Bytes{(*message_left)(i)} << cell_shift_;
                    if (predictions) answers_.push_back((*predictions)(i));
                }
                Filled part(rows_.size(), observed_, observed_);
                runs_[s]->begin_batch(part.columns());
                runs_[s]->feed(arrivals_.data(), rows_.size(), predictions ? answers_.data() : nullptr);
                runs_[s]->end_batch();
                for (std::size_t k = 0; k < rows_.size(); ++k) {
                    const std::size_t i = rows_[k];
                    filled.outcome[i] = part.outcome[k];
                    if (observed_) filled.lqd_drop[i] = part.lqd_drop[k];
                    filled.asked[i] = part.asked[k];
                    filled.exposed[i] = part.exposed[k];
                    if (observed_) filled.features[i] = part.features[k];
                }
            }
        }
        return filled.to_dict();
    }

    nb::dict finish() {
        finished_ = true;
        Bytes bytes = 0;
        std::int64_t packets = 0, deficits = 0;
        for (auto& run : runs_) {
            run->drain();
            bytes += run->transmitted_data();
            packets += run->transmitted_packets();
            deficits += run->threshold_deficits();
        }
        nb::dict out;
        out["transmitted_bytes"] = bytes;
        out["transmitted_packets"] = packets;
        out["threshold_deficits"] = deficits;
        return out;
    }

private:
    bool observed_;
    int cell_shift_ = 0;
    Queueing queueing_;
    std::vector<Port> ports_;
    std::vector<std::unique_ptr<RecordedRun>> runs_;
    Tick last_time_ = 0;
    bool finished_ = false;
    std::vector<std::size_t> rows_;
    std::vector<Arrival> arrivals_;
    std::vector<std::uint8_t> answers_;
};

}  // namespace

void add_replay(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<Replay>(m, "Replay",
                       "One policy over recorded arrivals of a network's switches, in bytes and nanoseconds.")
        .def(nb::init<const std::string&, const Switches&, Integer, const std::string&, const std::string&,
                      const std::string&, Seed, Integer, Integer, const std::vector<double>&, double,
                      std::optional<Integer>, Integer, Integer, double, Integer, Integer, Integer, Integer,
                      const std::string&, Integer, const std::string&, const std::vector<Integer>&, const std::string&,
                      double, const std::optional<Voqs>&>(),
             "policy"_a, "switches"_a, nb::kw_only(), "wire_overhead_bytes"_a, "counting"_a, "tie"_a, "victim"_a,
             "seed"_a = 0, "cell_bytes"_a = 0, "average_shift"_a = 15, "alpha"_a = policy_defaults.alpha,
             "first_rtt_alpha"_a = policy_defaults.first_rtt_alpha, "rtt_ns"_a = nb::none(),
             "low_pass_ns"_a = policy_defaults.low_pass, "artifact_cut_bytes"_a = policy_defaults.artifact_cut,
             "spare_bandwidth"_a = policy_defaults.spare_bandwidth, "bucket_bytes"_a = policy_defaults.bucket,
             "spares_first_rtt"_a = static_cast<int>(policy_defaults.spares_first_rtt),
             "drop_budget_bytes"_a = policy_defaults.drop_budget, "answers_needed"_a = policy_defaults.answers_needed,
             "order"_a = "longest_queue", "queues"_a = 1, "scheduler"_a = "round_robin", "quanta"_a = nb::tuple(),
             "oracle"_a = "lqd", "oracle_alpha"_a = 8.0, "voqs"_a = nb::none())
        .def("feed", &Replay::feed, "time_ns"_a.noconvert(), "switch_index"_a.noconvert(), "port"_a.noconvert(),
             "size_bytes"_a.noconvert(), "data"_a.noconvert(), "first_rtt"_a.noconvert(),
             "predictions"_a.noconvert() = nb::none(), "priority"_a.noconvert() = nb::none(),
             "message_left"_a.noconvert() = nb::none())
        .def("finish", &Replay::finish);
}

}  // namespace foretail::bindings
