// SPDX-License-Identifier: MIT
// What runs over known arrivals are told by keyword: one reader for all of them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/whole.hpp"
#include "buffer/names.hpp"
#include "buffer/policies/policy.hpp"
#include "buffer/types.hpp"

namespace foretail::bindings {

namespace nb = nanobind;
using namespace buffer;

/// Keyword arguments, each of which is taken once.
class Keywords {
public:
    explicit Keywords(const nb::kwargs& given) {
        for (const auto& [name, value] : given) given_[name] = value;
    }

    template <class T>
    T take(const char* name, T otherwise) {
        if (!given_.contains(name)) return otherwise;
        if (!nb::try_cast(nb::object(given_[name]), otherwise))
            throw std::invalid_argument(std::string(name) + " has a value of the wrong type");
        nb::del(given_[name]);
        return otherwise;
    }
    template <class Enum>
    Enum choose(const char* name, const std::string& what, std::span<const std::string_view> names) {
        const auto chosen = take(name, std::string(names.front()));
        return static_cast<Enum>(position(chosen, names, "unknown " + what + " '" + chosen + "'"));
    }
    /// What has not been taken.
    [[nodiscard]] const nb::dict& rest() const { return given_; }

private:
    nb::dict given_;
};

/// The queues of a port and how it serves them.
struct Queueing {
    /// Queues of one port.
    static constexpr std::int64_t most = 64;

    int count = 1;
    Scheduler scheduler = Scheduler::round_robin;
    std::vector<Bytes> quanta;

    Queueing() = default;
    /// Without quanta deficit round robin lets every queue send one packet of size 1 in its turn.
    explicit Queueing(Keywords& given)
        : count(checked<int>("number of queues of a port", given.take("queues", Integer{1}), 1, most)),
          scheduler(given.choose<Scheduler>("scheduler", "scheduler", scheduler_names)) {
        const auto of_queues = given.take("quanta", std::vector<Integer>());
        if (scheduler != Scheduler::deficit_round_robin) {
            if (of_queues.empty()) return;
            throw std::invalid_argument("only deficit_round_robin has quanta, not " +
                                        std::string(scheduler_names[static_cast<std::size_t>(scheduler)]));
        }
        for (const auto quantum : of_queues) quanta.push_back(checked("quantum", quantum, 1, Bytes{1} << 30));
        if (quanta.empty()) quanta.assign(static_cast<std::size_t>(count), 1);
        if (quanta.size() != static_cast<std::size_t>(count)) {
            throw std::invalid_argument("there are " + std::to_string(quanta.size()) + " quanta for the " +
                                        std::to_string(count) + " queues of a port: give one for each");
        }
    }
};

/// How Longest Queue Drop chooses victims, and whose decisions are the labels.
struct OracleSettings {
    PushOutRules rules;
    std::optional<double> occamy_alpha;  ///< of Occamy, where it takes LQD's place

    explicit OracleSettings(Keywords& given)
        : rules{given.choose<Counting>("counting", "counting rule", counting_names),
                given.choose<Tie>("tie", "tie rule", tie_names),
                given.choose<Victim>("victim", "victim rule", victim_names), checked(given.take("seed", Seed{0})),
                given.choose<Order>("order", "order rule", order_names)} {
        if (rules.order == Order::any_queue && !goes_by_tags(rules.victim))
            throw std::invalid_argument("order any_queue compares tags: choose victim spare_first_rtt or most_left");
        const auto alpha = given.take("oracle_alpha", 8.0);
        if (given.choose<Oracle>("oracle", "oracle rule", oracle_names) == Oracle::lqd) return;
        if (!std::isfinite(alpha) || alpha <= 0) throw std::invalid_argument("oracle_alpha must be a number above 0");
        occamy_alpha = alpha;
    }

    /// Refuses what only recorded runs of a network have.
    void require_unit_packets() const {
        if (occamy_alpha) throw std::invalid_argument("oracle occamy is known to replays alone: choose lqd");
        if (goes_by_tags(rules.victim)) {
            throw std::invalid_argument("victim " + std::string(victim_names[static_cast<std::size_t>(rules.victim)]) +
                                        " goes by tags of packets, which only traces of ns-3 have");
        }
    }
};

/// Whether times and sizes are slots and packets, or nanoseconds and bytes.
enum class Units { slots, bytes };

/// The parameters of policies that are left, and the defaults of all others, from sim_bridge/policy_settings.py.
inline PolicySettings policy_settings(const Keywords& given, Units units) {
    const auto resolved = nb::module_::import_("foretail.sim_bridge.native_parameters")
                              .attr("native_parameters")(units == Units::slots ? "slots" : "bytes", given.rest());
    PolicySettings out;
    for (const auto& [name, value] : nb::cast<nb::dict>(resolved)) {
        if (nb::isinstance<nb::list>(value)) {
            out.alpha = nb::cast<Alphas>(value);
        } else {
            out.numbers[nb::cast<std::string>(name)] = nb::cast<double>(value);
        }
    }
    return out;
}

/// All that a run under a policy may be told by keyword.
struct RunSettings {
    OracleSettings oracle;
    Queueing queueing;
    int average_shift;
    PolicySettings policy;

    RunSettings(const nb::kwargs& keywords, Units units) : RunSettings(Keywords(keywords), units) {}

private:
    /// 1 ns: within a slot averages are alike, but not the slow rates.
    static constexpr int shortest_in_slots = -10;

    RunSettings(Keywords given, Units units)
        : oracle(given),
          queueing(given),
          average_shift(
              units == Units::slots
                  ? checked<int>("average_shift", given.take("average_shift", Integer{5}), shortest_in_slots, 24)
                  : checked<int>("average_shift", given.take("average_shift", Integer{15}), 0, 24)),
          policy(policy_settings(given, units)) {
        if (units == Units::bytes && !given.rest().contains("rtt_ns"))
            policy.numbers["rtt"] = static_cast<double>(Tick{1} << average_shift);
    }
};

}  // namespace foretail::bindings
