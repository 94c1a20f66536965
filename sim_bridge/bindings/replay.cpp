// SPDX-License-Identifier: MIT
// Replays of recorded arrivals under a policy.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>

#include <deque>

#include "bindings/runs.hpp"
#include "buffer/records.hpp"

namespace foretail::bindings {

namespace {

/// One policy over the recorded arrivals of all switches of a network, fed in order, chunk by chunk.
class Replay {
public:
    Replay(const std::string& policy, const Switches& switches, Integer wire_overhead_bytes, Integer cell_bytes,
           const std::optional<Voqs>& voqs, const std::optional<Pauses>& pauses, const WantedFeatures& features,
           const std::shared_ptr<Scorer>& scorer, const nb::kwargs& keywords)
        : features_(features_of(features)), labels_(!features_.empty()) {
        const RunSettings given(keywords, Units::bytes);
        queueing_ = given.queueing;
        SwitchSettings settings;
        settings.rules = given.oracle.rules;
        settings.scale = scale_in_bytes(cell_bytes, given.average_shift, labels_ || scorer ? 1 : 0);
        settings.rules.cell_shift = cell_shift_ = settings.scale.cell_shift;
        settings.labels = labels_;
        settings.features = features_;
        if (scorer) let_ask(settings, *scorer, policy);
        if (given.oracle.occamy_alpha) {
            settings.occamy_oracle =
                occamy_of_its_authors(Alphas(static_cast<std::size_t>(queueing_.count), *given.oracle.occamy_alpha));
        }
        std::vector<Shape> shapes = shapes_of(switches, wire_overhead_bytes, settings.rules.tie, queueing_);
        if (voqs) {
            if (queueing_.count > 1) throw std::invalid_argument("a VOQ is one queue: give queues=1");
            serve_voqs(shapes, *voqs);
        }
        if (pauses) keep_lossless(shapes, *pauses);
        pauses_.resize(shapes.size());
        for (auto& shape : shapes) {
            settings.shape = std::move(shape);
            ports_.push_back(settings.shape.ports());
            runs_.push_back(recorded_run(policy, given.policy, settings));
            if (scorer) runs_.back()->ask(scorer);
        }
    }

    Replay(const Replay&) = delete;
    Replay& operator=(const Replay&) = delete;

    /// Says which queues will be paused, or go on, in order of time. Call before the first arrival.
    void expect_pauses(Column<std::int64_t> time_ns, Column<std::int16_t> switch_index, Column<std::int16_t> port,
                       Column<std::uint8_t> priority, Column<std::uint8_t> paused) {
        const std::size_t n = time_ns.shape(0);
        for (const std::size_t rows : {switch_index.shape(0), port.shape(0), priority.shape(0), paused.shape(0)}) {
            if (rows != n) throw std::invalid_argument("the columns of the pauses differ in length");
        }
        Tick last = 0;
        for (std::size_t i = 0; i < n; ++i) {
            in_order("time", time_ns(i), std::exchange(last, time_ns(i)), i);
            if (switch_index(i) < 0 || static_cast<std::size_t>(switch_index(i)) >= ports_.size())
                throw std::invalid_argument("row " + std::to_string(i) + " of the pauses has an unknown switch");
            const auto of = static_cast<std::size_t>(switch_index(i));
            in_range(port(i), ports_[of], i);
            if (priority(i) >= queueing_.count)
                throw std::invalid_argument("row " + std::to_string(i) + " of the pauses has an unknown queue");
            pauses_[of].push_back({time_ns(i), port(i), priority(i), paused(i) != 0});
            last_pause_ = time_ns(i);
        }
    }

    nb::dict feed(Column<std::int64_t> time_ns, Column<std::int16_t> switch_index, Column<std::int16_t> port,
                  Column<std::int32_t> size_bytes, Column<std::uint8_t> data, Column<std::uint8_t> first_rtt,
                  std::optional<Column<std::uint8_t>> predictions, std::optional<Column<std::uint8_t>> priority,
                  std::optional<Column<std::uint8_t>> message_left, std::optional<Column<std::int16_t>> ingress) {
        const std::size_t n = time_ns.shape(0);
        if (first_rtt.shape(0) != n) throw std::invalid_argument("the columns of the arrivals differ in length");
        same_length("predictions", predictions, n);
        same_length("message_left", message_left, n);
        same_length("ingress", ingress, n);
        known_priorities(priority, n, queueing_.count);
        if (finished_) throw std::invalid_argument("a finished replay takes no more arrivals: begin another");
        RecordedArrivals{time_ns, switch_index, port, size_bytes, data}.check(ports_, last_time_);
        Filled filled(n, labels_, features_);
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
                    if (ingress) {
                        in_range((*ingress)(i), ports_[s], i);
                        arrivals_.back().ingress = (*ingress)(i);
                    }
                    if (predictions) answers_.push_back((*predictions)(i));
                }
                Filled part(rows_.size(), labels_, features_);
                runs_[s]->begin_batch(part.columns());
                feed_between_pauses(s, predictions.has_value());
                runs_[s]->end_batch();
                for (std::size_t k = 0; k < rows_.size(); ++k) {
                    const std::size_t i = rows_[k];
                    filled.outcome[i] = part.outcome[k];
                    if (labels_) filled.lqd_drop[i] = part.lqd_drop[k];
                    filled.asked[i] = part.asked[k];
                    filled.exposed[i] = part.exposed[k];
                    if (labels_) filled.features[i] = part.features[k];
                }
            }
        }
        return filled.to_dict();
    }

    /// Feeds records of a trace, whose labels are the predictions: int32[n, `columns`], the first features of
    /// data, and uint8[n], whether the policy asked. `queue_of` is by FlowClass.
    nb::tuple feed_trace(Column<std::uint8_t> bytes, std::size_t columns, Column<std::uint8_t> queue_of) {
        if (finished_) throw std::invalid_argument("a finished replay takes no more arrivals: begin another");
        if (bytes.shape(0) % sizeof(ArrivalRecord) != 0 || columns > feature_count)
            throw std::invalid_argument("records of a trace are whole, and have no more columns than features");
        const std::size_t n = bytes.shape(0) / sizeof(ArrivalRecord);
        const auto* const records = reinterpret_cast<const ArrivalRecord*>(bytes.data());
        std::vector<std::int32_t> shown(n * columns);
        std::vector<std::uint8_t> asked(n);
        {
            nb::gil_scoped_release release;
            FeatureVector seen{};
            for (std::size_t i = 0; i < n; ++i) {
                const ArrivalRecord& record = records[i];
                const Arrival arrival = arrival_of(record, queue_of, i);
                const auto s = static_cast<std::size_t>(record.switch_index);
                pause_until(s, arrival.time);
                runs_[s]->begin_batch({.asked = &asked[i], .features = arrival.data ? &seen : nullptr});
                runs_[s]->feed(&arrival, 1, &record.lqd_drop);
                if (!arrival.data) continue;
                require_thresholds(record.features, seen);
                std::copy_n(seen.begin(), columns, shown.begin() + static_cast<std::ptrdiff_t>(i * columns));
            }
        }
        return nb::make_tuple(owned(std::move(shown), {n, columns}), owned(std::move(asked), {n}));
    }

    nb::dict finish() {
        finished_ = true;
        Bytes bytes = 0;
        std::int64_t packets = 0, deficits = 0;
        for (std::size_t s = 0; s < runs_.size(); ++s) {
            auto& run = runs_[s];
            pause_until(s, latest);
            run->drain(std::max(last_time_, last_pause_));
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
    struct Pause {
        Tick time;
        Port port;
        int priority;
        bool paused;
    };

    /// A record as an arrival; refuses one that no simulator writes.
    Arrival arrival_of(const ArrivalRecord& record, const Column<std::uint8_t>& queue_of, std::size_t i) {
        between("switch of an arrival", record.switch_index, 0, static_cast<std::int64_t>(ports_.size()) - 1);
        between("class of an arrival", static_cast<int>(record.flow_class), 0,
                static_cast<std::int64_t>(queue_of.shape(0)) - 1);
        between("size of an arrival", record.size_bytes, 1, std::numeric_limits<std::int32_t>::max());
        const Port ports = ports_[static_cast<std::size_t>(record.switch_index)];
        in_range(record.port, ports, i);
        in_range(record.ingress, ports, i);
        in_order("time", record.time_ns, last_time_, i);
        last_time_ = record.time_ns;
        Arrival arrival{record.time_ns,        record.port,
                        record.size_bytes,     record.flow_class != FlowClass::control,
                        record.first_rtt != 0, queue_of(static_cast<std::size_t>(record.flow_class))};
        const auto left = record.features[static_cast<std::size_t>(Feature::message_left)];
        arrival.left = Bytes{static_cast<std::uint8_t>(left)} << cell_shift_;
        arrival.ingress = record.ingress;
        return arrival;
    }
    static void require_thresholds(const FeatureVector& recorded, const FeatureVector& seen) {
        for (const Feature feature : {Feature::threshold, Feature::thresholds_sum, Feature::threshold_max}) {
            const auto k = static_cast<std::size_t>(feature);
            if (recorded[k] != seen[k])
                throw std::invalid_argument(
                    "the replay of a trace does not reproduce its thresholds: simulator and replay disagree");
        }
    }

    /// Feeds the arrivals of a switch, and pauses its queues before the first one that is not earlier.
    void feed_between_pauses(std::size_t s, bool answered) {
        std::size_t from = 0;
        const auto feed_until = [&](std::size_t end) {
            runs_[s]->feed(arrivals_.data() + from, end - from, answered ? answers_.data() + from : nullptr);
            from = end;
        };
        for (std::size_t k = 0; k < arrivals_.size() && !pauses_[s].empty(); ++k) {
            if (pauses_[s].front().time > arrivals_[k].time) continue;
            feed_until(k);
            pause_until(s, arrivals_[k].time);
        }
        feed_until(arrivals_.size());
    }
    void pause_until(std::size_t s, Tick time) {
        for (auto& waiting = pauses_[s]; !waiting.empty() && waiting.front().time <= time; waiting.pop_front()) {
            const Pause& next = waiting.front();
            runs_[s]->set_paused(next.port, next.priority, next.time, next.paused);
        }
    }

    FeatureSet features_;
    bool labels_;
    int cell_shift_ = 0;
    Queueing queueing_;
    std::vector<Port> ports_;
    std::vector<std::unique_ptr<RecordedRun>> runs_;
    std::vector<std::deque<Pause>> pauses_;  // of each switch, those to come
    Tick last_time_ = 0, last_pause_ = 0;
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
        .def(nb::init<const std::string&, const Switches&, Integer, Integer, const std::optional<Voqs>&,
                      const std::optional<Pauses>&, const WantedFeatures&, const std::shared_ptr<Scorer>&,
                      const nb::kwargs&>(),
             "policy"_a, "switches"_a, nb::kw_only(), "wire_overhead_bytes"_a, "cell_bytes"_a = 0,
             "voqs"_a = nb::none(), "pauses"_a = nb::none(), "features"_a = false, "scorer"_a.none() = nb::none(),
             "settings"_a)
        .def("feed", &Replay::feed, "time_ns"_a.noconvert(), "switch_index"_a.noconvert(), "port"_a.noconvert(),
             "size_bytes"_a.noconvert(), "data"_a.noconvert(), "first_rtt"_a.noconvert(),
             "predictions"_a.noconvert() = nb::none(), "priority"_a.noconvert() = nb::none(),
             "message_left"_a.noconvert() = nb::none(), "ingress"_a.noconvert() = nb::none())
        .def("feed_trace", &Replay::feed_trace, "records"_a.noconvert(), "columns"_a, "queue_of"_a.noconvert())
        .def("expect_pauses", &Replay::expect_pauses, "time_ns"_a.noconvert(), "switch_index"_a.noconvert(),
             "port"_a.noconvert(), "priority"_a.noconvert(), "paused"_a.noconvert())
        .def("finish", &Replay::finish);
}

}  // namespace foretail::bindings
