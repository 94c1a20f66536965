// SPDX-License-Identifier: MIT
// Runs that stop wherever their policy asks, many side by side: what environments and live predictors step through.
#include <nanobind/stl/optional.h>

#include "bindings/runs.hpp"

namespace foretail::bindings {

namespace {

template <class T>
using Given = std::optional<Column<T>>;

/// Arrivals as Python has them; a run borrows their memory.
struct Columns {
    Column<std::int64_t> time;
    Column<std::int32_t> port;
    Given<std::int32_t> size;
    Given<std::uint8_t> data, first_rtt, lqd_drop;
};

/// One run and its arrivals: what a step needs of them, close together.
struct Course {
    std::unique_ptr<RecordedRun> run;
    const std::int64_t* time = nullptr;
    const std::int32_t *port = nullptr, *size = nullptr;  // null where nothing was given, as below
    const std::uint8_t *data = nullptr, *first_rtt = nullptr, *lqd_drop = nullptr;
    std::size_t next = 0;
    Bytes sent = 0;
    std::vector<std::uint8_t> outcome;

    [[nodiscard]] Arrival arrival(std::size_t i) const {
        return {time[i], port[i], size ? size[i] : 1, !data || data[i] != 0, first_rtt && first_rtt[i] != 0, 0};
    }
};

class LiveRuns {
public:
    LiveRuns(const std::string& policy, Integer runs, const std::vector<std::string>& features, bool in_bytes)
        : policy_(policy),
          in_bytes_(in_bytes),
          courses_(checked<std::size_t>("number of runs", runs, 1, 1 << 20)),
          questions_(courses_.size(), features),
          held_(courses_.size()),
          sent_(courses_.size()),
          lost_(courses_.size()),
          arrival_(courses_.size()),
          exposed_(courses_.size()),
          lqd_drop_(courses_.size()),
          ended_(courses_.size(), 1) {}

    LiveRuns(const LiveRuns&) = delete;
    LiveRuns& operator=(const LiveRuns&) = delete;

    void begin_slots(Integer index, Integer ports, Integer buffer, Column<std::int64_t> slot, Column<std::int32_t> port,
                     Given<std::uint8_t> first_rtt, Given<std::uint8_t> lqd_drop, Integer cell_bytes,
                     const nb::kwargs& keywords) {
        const RunSettings given(keywords, Units::slots);
        SwitchSettings settings;
        settings.shape = slotted_shape(ports_of(ports), buffer_of(buffer), given.oracle.rules.tie, given.queueing);
        settings.scale = scale_in_slots(cell_bytes, given.average_shift);
        begin(index, "slot", given, settings, {slot, port, {}, {}, first_rtt, lqd_drop});
    }

    void begin_bytes(Integer index, Integer buffer, const std::vector<Integer>& rates, Integer wire_overhead_bytes,
                     Column<std::int64_t> time_ns, Column<std::int32_t> port, Column<std::int32_t> size_bytes,
                     Column<std::uint8_t> data, Column<std::uint8_t> first_rtt, Given<std::uint8_t> lqd_drop,
                     Integer cell_bytes, const nb::kwargs& keywords) {
        const RunSettings given(keywords, Units::bytes);
        SwitchSettings settings;
        settings.shape =
            shapes_of({{buffer, rates}}, wire_overhead_bytes, given.oracle.rules.tie, given.queueing).front();
        settings.scale = scale_in_bytes(cell_bytes, given.average_shift, 1);
        begin(index, "time", given, settings, {time_ns, port, size_bytes, data, first_rtt, lqd_drop});
    }

    /// Answers every run that has not ended and lets it go on to where it asks next.
    void step(Column<std::uint8_t> drop) {
        questions_.require_one_each(drop);
        nb::gil_scoped_release release;
        for (std::size_t i = 0; i < courses_.size(); ++i) {
            if (ended_[i]) continue;
            Course& course = courses_[i];
            course.run->answer(drop.data()[i] != 0);
            const std::size_t row = course.next++;
            const bool accepted = course.outcome[row] == static_cast<std::uint8_t>(Outcome::accepted);
            lost_[i] = accepted ? 0 : in_bytes_ ? course.arrival(row).size : 1;
            advance(i);
        }
    }

    /// What became of each arrival of a run so far, and in total.
    nb::dict result(Integer index) const {
        const Course& course = courses_[questions_.place(index)];
        nb::dict out;
        out["outcome"] = owned(course.outcome, {course.outcome.size()});
        out["transmitted_packets"] = course.run ? course.run->transmitted_packets() : 0;
        out["transmitted_bytes"] = course.run ? course.run->transmitted_data() : 0;
        return out;
    }

    /// The arrays that the runs write, a row for each run.
    static nb::dict columns(LiveRuns& self) {
        const nb::object owner = nb::find(self);
        nb::dict out;
        out["features"] = self.questions_.array(owner);
        out["sent"] = view(self.sent_, owner);
        out["lost"] = view(self.lost_, owner);
        out["arrival"] = view(self.arrival_, owner);
        out["exposed"] = view(self.exposed_, owner);
        out["lqd_drop"] = view(self.lqd_drop_, owner);
        out["ended"] = view(self.ended_, owner);
        return out;
    }

private:
    void begin(Integer index, const char* what, const RunSettings& run, SwitchSettings& settings,
               const Columns& given) {
        run.oracle.require_unit_packets();
        settings.rules = run.oracle.rules;
        const std::size_t i = questions_.place(index);
        const std::size_t n = given.time.shape(0);
        if (given.port.shape(0) != n) throw std::invalid_argument(std::string(what) + " and port differ in length");
        same_length("size_bytes", given.size, n);
        same_length("data", given.data, n);
        same_length("first_rtt", given.first_rtt, n);
        same_length("lqd_drop", given.lqd_drop, n);
        const auto memory = [](const auto& column) { return column ? column->data() : nullptr; };
        Course course{nullptr,
                      given.time.data(),
                      given.port.data(),
                      memory(given.size),
                      memory(given.data),
                      memory(given.first_rtt),
                      memory(given.lqd_drop),
                      0,
                      0,
                      std::vector<std::uint8_t>(n)};
        Tick last = 0;
        for (std::size_t row = 0; row < n; ++row) {
            const Arrival arrival = course.arrival(row);
            in_range(arrival.port, settings.shape.ports(), row);
            in_order(what, arrival.time, last, row);
            if (arrival.size < 1) throw std::invalid_argument("row " + std::to_string(row) + " has no size");
            last = arrival.time;
        }
        settings.labels = !questions_.wanted.empty();
        settings.features = questions_.wanted;
        course.run = recorded_run(policy_, run.policy, settings);
        courses_[i] = std::move(course);
        held_[i] = given;
        lost_[i] = ended_[i] = 0;
        nb::gil_scoped_release release;
        advance(i);
    }

    /// Goes on until the policy asks or the arrivals end, and writes what there is to see.
    void advance(std::size_t i) {
        Course& course = courses_[i];
        FeatureVector seen{};  // written while an arrival is offered, never later
        std::uint8_t exposed = 0;
        for (;; ++course.next) {
            if (course.next == course.outcome.size()) {
                course.run->drain();
                ended_[i] = 1;
                seen = {};
                exposed = 0;
                break;
            }
            RunColumns out;
            out.outcome = &course.outcome[course.next];
            out.exposed = &exposed;
            out.features = &seen;
            course.run->begin_batch(out);
            const bool asks = course.run->offer(course.arrival(course.next));
            if (asks) break;
        }
        questions_.write(i, seen);
        const Bytes sent = in_bytes_ ? course.run->transmitted_data() : course.run->transmitted_packets();
        sent_[i] = sent - std::exchange(course.sent, sent);
        arrival_[i] = static_cast<Row>(course.next);
        exposed_[i] = exposed;
        lqd_drop_[i] = course.lqd_drop && !ended_[i] ? course.lqd_drop[course.next] : 0;
    }

    std::string policy_;
    bool in_bytes_;
    std::vector<Course> courses_;
    Questions questions_;
    std::vector<std::optional<Columns>> held_;
    std::vector<Bytes> sent_, lost_;
    std::vector<Row> arrival_;
    std::vector<std::uint8_t> exposed_, lqd_drop_, ended_;
};

}  // namespace

void add_live(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<LiveRuns>(m, "LiveRuns", "Runs that stop where their policy asks; 'learned' asks for every data packet.")
        .def(nb::init<const std::string&, Integer, const std::vector<std::string>&, bool>(), "policy"_a, "runs"_a,
             "features"_a, nb::kw_only(), "in_bytes"_a = false)
        .def("begin_slots", &LiveRuns::begin_slots, "index"_a, "ports"_a, "buffer"_a, "slot"_a.noconvert(),
             "port"_a.noconvert(), nb::kw_only(), "first_rtt"_a.noconvert() = nb::none(),
             "lqd_drop"_a.noconvert() = nb::none(), "cell_bytes"_a, "settings"_a)
        .def("begin_bytes", &LiveRuns::begin_bytes, "index"_a, "buffer"_a, "rates"_a, "wire_overhead_bytes"_a,
             "time_ns"_a.noconvert(), "port"_a.noconvert(), "size_bytes"_a.noconvert(), "data"_a.noconvert(),
             "first_rtt"_a.noconvert(), nb::kw_only(), "lqd_drop"_a.noconvert() = nb::none(), "cell_bytes"_a,
             "settings"_a)
        .def("step", &LiveRuns::step, "drop"_a.noconvert())
        .def("result", &LiveRuns::result, "index"_a)
        .def("columns", &LiveRuns::columns);
}

}  // namespace foretail::bindings
