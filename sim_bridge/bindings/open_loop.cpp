// SPDX-License-Identifier: MIT
// Known arrivals that a predictor in the process decides about, again and again: what it sends, what it sees, and what
// its decisions are worth.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>

#include "bindings/runs.hpp"

namespace foretail::bindings {

namespace {

std::shared_ptr<Scorer> voting_trees(const std::vector<std::string>& features, Column<std::int32_t> feature,
                                     Column<std::int64_t> cut, Column<std::int32_t> left, Column<std::int32_t> right,
                                     Column<std::int64_t> votes, Column<std::int64_t> roots, std::int64_t tau) {
    const std::size_t n = feature.shape(0);
    if (cut.shape(0) != n || left.shape(0) != n || right.shape(0) != n || votes.shape(0) != n) {
        throw std::invalid_argument("the arrays of the trees differ in length");
    }
    const Tree whole{feature.data(), cut.data(), left.data(), right.data(), n};
    if (!whole.can_be_walked(features.size())) throw std::invalid_argument("the arrays are no trees over the features");
    FeatureSet wanted;
    std::vector<std::int32_t> places;
    for (const auto& name : features) {
        places.push_back(feature_of(name));
        wanted.insert(static_cast<Feature>(places.back()));
    }
    VotingTrees trees;
    trees.tau = tau;
    for (std::size_t i = 0; i < n; ++i) {
        const bool leaf = feature(i) < 0;
        const auto highest = static_cast<std::int64_t>(std::numeric_limits<std::int32_t>::max());
        trees.nodes.push_back({leaf ? -1 : places[static_cast<std::size_t>(feature(i))],
                               static_cast<std::int32_t>(std::min(cut(i), highest)), left(i), right(i), votes(i)});
    }
    for (std::size_t i = 0; i < roots.shape(0); ++i) {
        between("root of a tree", roots(i), 0, static_cast<std::int64_t>(n) - 1);
        trees.roots.push_back(static_cast<std::int32_t>(roots(i)));
    }
    return std::make_shared<Scorer>(std::move(trees), wanted);
}

Scorer adaptive_threshold(const std::vector<double>& numbers) {
    const auto rules = adaptive_thresholds(numbers);
    if (rules.size() != 1) throw std::invalid_argument("there are numbers of several rules, or of none: give one");
    return *rules.front();
}

std::vector<std::pair<std::string, bool>> adaptive_terms() {
    std::vector<std::pair<std::string, bool>> out;
    for (const auto& [feature, logarithm] : AdaptiveThreshold::terms)
        out.emplace_back(feature_names[static_cast<std::size_t>(feature)], logarithm);
    return out;
}

std::vector<std::string> adaptive_tests() {
    std::vector<std::string> out;
    for (const Feature test : AdaptiveThreshold::tests) out.emplace_back(feature_names[static_cast<std::size_t>(test)]);
    return out;
}

std::shared_ptr<Scorer> library_scorer(const std::string& path, Integer tau) {
    const PredictorLibrary library(path);
    const auto bound = checked<std::int64_t>("tau", tau, std::numeric_limits<std::int64_t>::min() / 2,
                                             std::numeric_limits<std::int64_t>::max() / 2);
    return std::make_shared<Scorer>(
        Scorer::Margin([library, bound](const FeatureVector& x) { return library.score(x) - bound; }),
        library.features());
}

std::shared_ptr<Scorer> function_scorer(const std::vector<std::string>& features, nb::callable drops) {
    std::vector<std::size_t> places;
    for (const auto& name : features) places.push_back(static_cast<std::size_t>(feature_of(name)));
    const auto margin = [places, drops = std::move(drops)](const FeatureVector& x) -> std::int64_t {
        const nb::gil_scoped_acquire acquire;
        std::vector<std::int32_t> row;
        for (const std::size_t place : places) row.push_back(x[place]);
        const nb::object answer = drops(owned(std::move(row), {std::size_t{1}, places.size()}));
        const int is_drop = PyObject_IsTrue(answer.ptr());
        if (is_drop < 0) throw nb::python_error();
        return is_drop;
    };
    return std::make_shared<Scorer>(Scorer::Margin(margin), features_of(features));
}

nb::ndarray<nb::numpy, std::int64_t> margins(const Scorer& scorer, Matrix<std::int32_t> features) {
    const std::size_t n = features.shape(0);
    if (features.shape(1) != feature_count) throw std::invalid_argument("a row has every feature of the catalog");
    std::vector<std::int64_t> out(n);
    FeatureVector row;
    for (std::size_t i = 0; i < n; ++i) {
        std::copy_n(features.data() + i * feature_count, feature_count, row.begin());
        out[i] = scorer.margin(row);
    }
    return owned(std::move(out), {n});
}

/// The arrivals of one switch, which stay in memory.
class KnownArrivals {
public:
    static KnownArrivals in_slots(Integer ports, Integer buffer, Column<std::int64_t> slot, Column<std::int32_t> port,
                                  Integer cell_bytes, Integer average_shift) {
        KnownArrivals known;
        known.units_ = Units::slots;
        known.settings_.shape = slotted_shape(ports_of(ports), buffer_of(buffer), Tie::lowest_port, {});
        known.settings_.scale = scale_in_slots(cell_bytes, checked<int>("average_shift", average_shift, 0, 24));
        known.take(slot, port, [](std::size_t) { return Arrival{}; });
        return known;
    }
    static KnownArrivals in_bytes(Integer buffer, const std::vector<Integer>& rates, Integer wire_overhead_bytes,
                                  Column<std::int64_t> time_ns, Column<std::int32_t> port,
                                  Column<std::int32_t> size_bytes, Column<std::uint8_t> data,
                                  Column<std::uint8_t> first_rtt, Integer cell_bytes, Integer average_shift) {
        KnownArrivals known;
        known.units_ = Units::bytes;
        known.settings_.shape = shapes_of({{buffer, rates}}, wire_overhead_bytes, Tie::lowest_port).front();
        known.settings_.scale = scale_in_bytes(cell_bytes, checked<int>("average_shift", average_shift, 0, 24), 1);
        const std::size_t n = time_ns.shape(0);
        if (size_bytes.shape(0) != n || data.shape(0) != n || first_rtt.shape(0) != n) {
            throw std::invalid_argument("the columns of the arrivals differ in length");
        }
        known.take(time_ns, port, [&](std::size_t i) {
            if (size_bytes(i) < 1) throw std::invalid_argument("row " + std::to_string(i) + " has no size");
            return Arrival{.size = size_bytes(i), .data = data(i) != 0, .first_rtt = first_rtt(i) != 0};
        });
        return known;
    }

    /// Packets, or bytes of data, that a policy sends.
    std::int64_t sent(const std::string& policy, const std::shared_ptr<Scorer>& scorer, double inverted,
                      std::uint64_t draw, const nb::kwargs& keywords) const {
        if (!(inverted >= 0 && inverted <= 1)) throw std::invalid_argument("the inverted share is outside 0 to 1");
        const auto run = begin(policy, scorer, keywords);
        run->invert(inverted, draw);
        nb::gil_scoped_release release;
        run->feed(arrivals_.data(), arrivals_.size(), nullptr);
        run->drain();
        return run->transmitted_data();
    }

    /// Packets, or bytes of data, that a policy sends while predictors take turns: each answers about the arrivals from
    /// its first one on.
    std::int64_t sent_in_turns(const std::string& policy, const std::vector<std::shared_ptr<Scorer>>& scorers,
                               const std::vector<std::size_t>& firsts, const nb::kwargs& keywords) const {
        const bool is_complete = std::ranges::all_of(scorers, [](const auto& one) { return one != nullptr; });
        if (!is_complete || scorers.empty() || scorers.size() != firsts.size() || firsts.front() != 0 ||
            !std::ranges::is_sorted(firsts)) {
            throw std::invalid_argument("predictors that take turns each have a first arrival, from 0 on and in order");
        }
        FeatureSet read;
        for (const auto& scorer : scorers) read = read | scorer->features();
        const auto run = begin(policy, scorers.front(), keywords, read);
        nb::gil_scoped_release release;
        std::size_t turn = 0;
        for (std::size_t i = 0; i < arrivals_.size(); ++i) {
            while (turn + 1 < firsts.size() && i >= firsts[turn + 1]) ++turn;
            if (run->offer(arrivals_[i])) run->answer(scorers[turn]->drops(run->seen()));
        }
        run->drain();
        return run->transmitted_data();
    }

    /// What a predictor sees of some of the packets about which its policy asks and which fit: their rows, features and
    /// margins. The features are those that the predictor or the teacher reads, and `more`; all others are 0.
    nb::dict visited(const std::string& policy, const std::shared_ptr<Scorer>& scorer, double share, std::uint64_t seed,
                     const std::shared_ptr<Scorer>& teacher, const std::vector<std::string>& more,
                     const nb::kwargs& keywords) const {
        const auto run =
            begin(policy, scorer, keywords, teacher ? features_of(more) | teacher->features() : features_of(more));
        std::vector<std::int64_t> row, value;
        std::vector<FeatureVector> features;
        {
            nb::gil_scoped_release release;
            std::mt19937_64 random(seed);
            std::bernoulli_distribution chosen(share);
            for (std::size_t i = 0; i < arrivals_.size(); ++i) {
                if (!run->offer(arrivals_[i])) continue;
                if (chosen(random) && run->fits(arrivals_[i].size)) {
                    row.push_back(static_cast<std::int64_t>(i));
                    value.push_back((teacher ? teacher : scorer)->margin(run->seen()));
                    features.push_back(run->seen());
                }
                run->answer(scorer->drops(run->seen()));
            }
        }
        const std::size_t n = row.size();
        auto copy = std::make_unique_for_overwrite<FeatureVector[]>(n);
        std::copy(features.begin(), features.end(), copy.get());
        nb::dict out;
        out["row"] = owned(std::move(row), {n});
        out["features"] = owned(std::move(copy), n);
        out["margin"] = owned(std::move(value), {n});
        return out;
    }

    [[nodiscard]] std::size_t size() const { return arrivals_.size(); }

private:
    template <class Rest>
    void take(const Column<std::int64_t>& time, const Column<std::int32_t>& port, Rest&& rest) {
        const std::size_t n = time.shape(0);
        if (port.shape(0) != n) throw std::invalid_argument("the columns of the arrivals differ in length");
        arrivals_.reserve(n);
        Tick last = 0;
        for (std::size_t i = 0; i < n; ++i) {
            in_range(port(i), settings_.shape.ports(), i);
            in_order(units_ == Units::slots ? "slot" : "time", time(i), last, i);
            last = time(i);
            Arrival arrival = rest(i);
            arrival.time = time(i);
            arrival.port = port(i);
            arrivals_.push_back(arrival);
        }
    }

    std::unique_ptr<RecordedRun> begin(const std::string& policy, const std::shared_ptr<Scorer>& scorer,
                                       const nb::kwargs& keywords, FeatureSet more = {}) const {
        const RunSettings given(keywords, units_);
        SwitchSettings settings = settings_;
        settings.rules = given.oracle.rules;
        if (units_ == Units::slots) given.oracle.require_unit_packets();
        settings.features = more;
        if (scorer) let_ask(settings, *scorer, policy);
        auto run = recorded_run(policy, given.policy, settings);
        if (scorer) run->ask(scorer);
        return run;
    }

    Units units_ = Units::slots;
    SwitchSettings settings_;
    std::vector<Arrival> arrivals_;
};

}  // namespace

void add_open_loop(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<Scorer>(m, "Scorer", "A predictor that a run asks in its own process.")
        .def("margins", &margins, "features"_a.noconvert(),
             "By how much the score of every row of features, int32[rows, features of the catalog], is above the "
             "bound.");
    m.def("voting_trees", &voting_trees, "features"_a, "feature"_a.noconvert(), "cut"_a.noconvert(),
          "left"_a.noconvert(), "right"_a.noconvert(), "votes"_a.noconvert(), "roots"_a.noconvert(), "tau"_a,
          "Trees as parallel arrays, one after the other: drop iff the votes add up to more than tau.");
    m.def("library_scorer", &library_scorer, "path"_a, "tau"_a,
          "A compiled predictor of drops, behind the ABI of predictor.h: drop iff its score is more than tau.");
    m.def("function_scorer", &function_scorer, "features"_a, "drops"_a,
          "A function that gets the named features of one packet, int32[1, features], and says whether to drop it.");
    m.def("adaptive_threshold", &adaptive_threshold, "numbers"_a,
          "A threshold of three sets of weights: of each its bound and its weights in 1/256, then two cuts.");
    m.def("adaptive_terms", &adaptive_terms, "What its weights are for: a feature, and whether its logarithm counts.");
    m.def("adaptive_tests", &adaptive_tests, "The features whose cuts choose the set.");
    nb::class_<KnownArrivals>(m, "KnownArrivals", "The arrivals of one switch, decided about again and again.")
        .def_static("in_slots", &KnownArrivals::in_slots, "ports"_a, "buffer"_a, "slot"_a.noconvert(),
                    "port"_a.noconvert(), nb::kw_only(), "cell_bytes"_a, "average_shift"_a)
        .def_static("in_bytes", &KnownArrivals::in_bytes, "buffer"_a, "rates"_a, "wire_overhead_bytes"_a,
                    "time_ns"_a.noconvert(), "port"_a.noconvert(), "size_bytes"_a.noconvert(), "data"_a.noconvert(),
                    "first_rtt"_a.noconvert(), nb::kw_only(), "cell_bytes"_a, "average_shift"_a)
        .def("__len__", &KnownArrivals::size)
        .def("sent", &KnownArrivals::sent, "policy"_a, "scorer"_a.none() = nb::none(), nb::kw_only(),
             "inverted"_a = 0.0, "draw"_a = 1, "settings"_a,
             "Packets in slots, or bytes of data, that are sent; `inverted`: share of wrong answers.")
        .def("sent_in_turns", &KnownArrivals::sent_in_turns, "policy"_a, "scorers"_a, "firsts"_a, "settings"_a,
             "What is sent while `scorers` take turns, each from its first arrival on.")
        .def("visited", &KnownArrivals::visited, "policy"_a, "scorer"_a, nb::kw_only(), "share"_a, "draw"_a,
             "teacher"_a.none() = nb::none(), "features"_a = std::vector<std::string>(), "settings"_a,
             "Rows, features and margins of some packets; the margins are those of the teacher if there is one. "
             "Features that nobody reads and `features` does not name are 0.");
}

}  // namespace foretail::bindings
