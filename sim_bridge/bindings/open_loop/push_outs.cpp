// SPDX-License-Identifier: MIT
#include "buffer/lqd/push_outs.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <optional>

#include "bindings/module.hpp"
#include "bindings/open_loop/recorded_arrivals.hpp"
#include "bindings/open_loop/runs.hpp"
#include "bindings/run_settings.hpp"

namespace foretail::bindings {

namespace {

/// The push-outs of LQD on the recorded arrivals of all switches of a network, fed in order, chunk by chunk.
class PushOuts {
public:
    PushOuts(const Switches& switches, Integer wire_overhead_bytes, const std::optional<Voqs>& voqs,
             const nb::kwargs& keywords) {
        const auto rules = RunSettings(keywords, Units::bytes).oracle.rules;
        std::vector<Shape> shapes = shapes_of(switches, wire_overhead_bytes, rules.tie);
        if (voqs) serve_voqs(shapes, *voqs);
        for (const auto& shape : shapes) {
            ports_.push_back(shape.ports());
            logs_.emplace_back(shape, rules);
        }
    }

    nb::ndarray<nb::numpy, std::int64_t> feed(Column<std::int64_t> time_ns, Column<std::int16_t> switch_index,
                                              Column<std::int16_t> port, Column<std::int32_t> size_bytes,
                                              Column<std::uint8_t> data, Column<std::uint8_t> first_rtt,
                                              Column<std::uint8_t> message_left) {
        same_length("first_rtt", std::optional(first_rtt), time_ns.shape(0));
        same_length("message_left", std::optional(message_left), time_ns.shape(0));
        RecordedArrivals{time_ns, switch_index, port, size_bytes, data}.check(ports_, last_time_);
        std::vector<std::int64_t> stretches;
        for (std::size_t i = 0; i < time_ns.shape(0); ++i) {
            const auto s = static_cast<std::size_t>(switch_index(i));
            const bool is_data = data(i) != 0;
            Arrival arrival{time_ns(i), port(i), size_bytes(i), is_data, first_rtt(i) != 0};
            arrival.left = message_left(i);  // in cells, as the rules have it here
            const auto stretch = logs_[s].arrive(arrival, is_data ? rows_ : no_row);
            if (!is_data) continue;
            ++rows_;
            stretches.push_back(numbered(stretch, s));
        }
        const std::size_t n = stretches.size();
        return owned(std::move(stretches), {n});
    }

    /// int64[push-outs, 7], switch by switch.
    nb::ndarray<nb::numpy, std::int64_t> table() const {
        std::vector<std::int64_t> out;
        std::int64_t first_line = 0;
        for (std::size_t s = 0; s < logs_.size(); ++s) {
            for (const auto& [victim, queue, stretch] : logs_[s].push_outs()) {
                out.insert(out.end(), {victim, first_line + queue.line, queue.first, queue.last,
                                       numbered(stretch.line, s), stretch.first, stretch.last});
            }
            first_line += ports_[s];
        }
        const std::size_t n = out.size() / 7;
        return owned(std::move(out), {n, 7});
    }

private:
    /// A number of a stretch that no other switch uses.
    [[nodiscard]] std::int64_t numbered(std::int64_t stretch, std::size_t s) const {
        return stretch * static_cast<std::int64_t>(logs_.size()) + static_cast<std::int64_t>(s);
    }

    std::vector<Port> ports_;
    std::vector<PushOutLog> logs_;
    Tick last_time_ = 0;
    Row rows_ = 0;
};

nb::ndarray<nb::numpy, std::uint8_t> assigned(Column<std::int64_t> first, Column<std::int64_t> last,
                                              Column<double> score) {
    const std::size_t n = first.shape(0);
    if (last.shape(0) != n) throw std::invalid_argument("the bounds of the push-outs differ in number");
    const auto places = static_cast<std::int64_t>(score.shape(0));
    for (std::size_t k = 0; k < n; ++k) {
        between("first place of a push-out", first(k), k == 0 ? 0 : first(k - 1), places - 1);
        between("last place of a push-out", last(k), k == 0 ? first(k) : std::max(first(k), last(k - 1)), places - 1);
    }
    for (std::size_t i = 0; i < score.shape(0); ++i) {
        if (std::isnan(score(i))) throw std::invalid_argument("place " + std::to_string(i) + " has no score");
    }
    auto chosen = best_assignment({first.data(), n}, {last.data(), n}, {score.data(), score.shape(0)});
    return owned(std::move(chosen), {score.shape(0)});
}

}  // namespace

void add_push_outs(nb::module_& m) {
    using namespace nb::literals;
    m.def("best_assignment", &assigned, "first"_a.noconvert(), "last"_a.noconvert(), "score"_a.noconvert(),
          "Which places to give to push-outs, one each, for the highest scores: uint8[places].");
    nb::class_<PushOuts>(m, "PushOuts", "Every push-out of LQD on recorded arrivals, and what it could have taken.")
        .def(nb::init<const Switches&, Integer, const std::optional<Voqs>&, const nb::kwargs&>(), "switches"_a,
             nb::kw_only(), "wire_overhead_bytes"_a, "voqs"_a = nb::none(), "settings"_a)
        .def("feed", &PushOuts::feed, "time_ns"_a.noconvert(), "switch_index"_a.noconvert(), "port"_a.noconvert(),
             "size_bytes"_a.noconvert(), "data"_a.noconvert(), "first_rtt"_a.noconvert(), "message_left"_a.noconvert())
        .def("table", &PushOuts::table);
}

}  // namespace foretail::bindings
