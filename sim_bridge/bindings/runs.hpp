// SPDX-License-Identifier: MIT
// What every run over known arrivals is built from, and what it fills.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/columns.hpp"
#include "buffer/names.hpp"
#include "buffer/policies/guest_library.hpp"
#include "buffer/run.hpp"

namespace foretail::bindings {

/// What runs take where nobody says otherwise.
inline const PolicySettings policy_defaults;
inline constexpr Tick slots_per_rtt = 25;
inline constexpr Bytes budget_in_packets = 1 << 30;

/// Queues of one port.
inline constexpr std::size_t max_priorities = 64;

template <class Enum>
Enum rule(const std::string& what, const std::string& name, std::span<const std::string_view> names) {
    return static_cast<Enum>(position(name, names, "unknown " + what + " rule '" + name + "'"));
}

inline PushOutRules push_out_rules(const std::string& counting, const std::string& tie, const std::string& victim,
                                   Seed seed, const std::string& order = std::string(order_names.front())) {
    const PushOutRules rules{rule<Counting>("counting", counting, counting_names), rule<Tie>("tie", tie, tie_names),
                             rule<Victim>("victim", victim, victim_names), checked(seed),
                             rule<Order>("order", order, order_names)};
    if (rules.order == Order::any_queue && !goes_by_tags(rules.victim)) {
        throw std::invalid_argument("order any_queue compares tags: choose victim spare_first_rtt or most_left");
    }
    return rules;
}

/// The same where packets carry no tags.
inline PushOutRules untagged_rules(const std::string& counting, const std::string& tie, const std::string& victim,
                                   Seed seed, const std::string& order = std::string(order_names.front())) {
    const PushOutRules rules = push_out_rules(counting, tie, victim, seed, order);
    if (goes_by_tags(rules.victim)) {
        throw std::invalid_argument("victim " + victim + " goes by tags of packets, which only traces of ns-3 have");
    }
    return rules;
}

/// Settings of the oracle, if it is not LQD; `alpha` is Occamy's, and each of `queues` of a port has it.
inline std::optional<PolicySettings> oracle_settings(const std::string& name, double alpha, int queues) {
    if (rule<Oracle>("oracle", name, oracle_names) == Oracle::lqd) return std::nullopt;
    if (!std::isfinite(alpha) || alpha <= 0) throw std::invalid_argument("oracle_alpha must be a number above 0");
    PolicySettings settings;
    settings.alpha.assign(static_cast<std::size_t>(queues), alpha);
    return settings;
}

/// The queues of a port and how it serves them.
struct Queueing {
    int count = 1;
    Scheduler scheduler = Scheduler::round_robin;
    std::vector<Bytes> quanta;
};

/// Without quanta deficit round robin lets every queue send one packet of size 1 in its turn.
inline Queueing queueing(Integer count_given, const std::string& scheduler, const std::vector<Integer>& quanta) {
    Queueing out;
    out.count = checked<int>("number of queues of a port", count_given, 1, static_cast<std::int64_t>(max_priorities));
    const auto count = static_cast<std::size_t>(out.count);
    out.scheduler =
        static_cast<Scheduler>(position(scheduler, scheduler_names, "unknown scheduler '" + scheduler + "'"));
    if (out.scheduler != Scheduler::deficit_round_robin) {
        if (!quanta.empty()) throw std::invalid_argument("only deficit_round_robin has quanta, not " + scheduler);
        return out;
    }
    for (const auto quantum : quanta) out.quanta.push_back(checked("quantum", quantum, 1, Bytes{1} << 30));
    if (quanta.empty()) out.quanta.assign(count, 1);
    if (out.quanta.size() != count) {
        throw std::invalid_argument("there are " + std::to_string(out.quanta.size()) + " quanta for the " +
                                    std::to_string(count) + " queues of a port: give one for each");
    }
    return out;
}

/// What is between a predicted drop and the drop.
struct Guards {
    bool spares_first_rtt;
    Bytes drop_budget;
    int answers_needed;
};

/// `budget` is the name of the setting.
inline Guards guards_of(Integer spares_first_rtt, const char* budget, Integer drop_budget, Integer answers_needed) {
    return {checked<int>("spares_first_rtt", spares_first_rtt, 0, 1) == 1, checked(budget, drop_budget, 0, max_packets),
            checked<int>("answers_needed", answers_needed, 1, 8)};
}

inline PolicySettings policy_settings(const std::vector<double>& alpha, double first_rtt_alpha, Tick interval,
                                      Tick low_pass, Bytes artifact_cut, double spare_bandwidth, Bytes bucket,
                                      const Guards& guards) {
    if (alpha.empty() || alpha.size() > max_priorities) {
        throw std::invalid_argument("alpha must hold one number per queue of a port, 1 to " +
                                    std::to_string(max_priorities));
    }
    std::vector<std::pair<const char*, double>> values{{"first_rtt_alpha", first_rtt_alpha},
                                                       {"spare_bandwidth", spare_bandwidth}};
    for (const double value : alpha) values.emplace_back("alpha", value);
    for (const auto& [name, value] : values) {
        if (!std::isfinite(value) || value < 0) {
            throw std::invalid_argument(std::string(name) + " must be a number of at least 0");
        }
    }
    return {alpha,
            first_rtt_alpha,
            interval,
            low_pass,
            artifact_cut,
            spare_bandwidth,
            bucket,
            guards.spares_first_rtt,
            guards.drop_budget,
            guards.answers_needed};
}

/// A run under the policy of that name, or under the one in a library, whose path has a slash.
inline std::unique_ptr<RecordedRun> run_under(const std::string& policy, const PolicySettings& policy_settings,
                                              const SwitchSettings& settings) {
    return policy.find('/') == std::string::npos ? recorded_run(policy, policy_settings, settings)
                                                 : guest_run(policy, policy_settings, settings);
}

static_assert(sizeof(FeatureVector) == feature_count * sizeof(std::int32_t));

/// The vectors as rows of an array.
inline nb::ndarray<nb::numpy, std::int32_t> owned(std::unique_ptr<FeatureVector[]> values, std::size_t n) {
    void* const held = values.release();  // the address of a vector is that of its first value
    nb::capsule owner(held, [](void* p) noexcept { delete[] static_cast<FeatureVector*>(p); });
    return {held, {n, feature_count}, owner};
}

/// Columns that a run fills for n rows, and their way to Python.
struct Filled {
    Filled(std::size_t n, bool with_labels, bool with_features)
        : outcome(n),
          lqd_drop(with_labels ? n : 0),
          asked(n),
          exposed(n),
          // Every row is written, so zeros first would only cost time.
          features(std::make_unique_for_overwrite<FeatureVector[]>(with_features ? n : 0)),
          with_labels_(with_labels),
          with_features_(with_features) {}

    RunColumns columns() {
        return {outcome.data(), with_labels_ ? lqd_drop.data() : nullptr, asked.data(), exposed.data(),
                with_features_ ? features.get() : nullptr};
    }
    nb::dict to_dict() {
        const std::size_t n = outcome.size();
        nb::dict out;
        if (with_features_) out["features"] = owned(std::move(features), n);
        out["outcome"] = owned(std::move(outcome), {n});
        if (with_labels_) out["lqd_drop"] = owned(std::move(lqd_drop), {n});
        out["asked"] = owned(std::move(asked), {n});
        out["exposed"] = owned(std::move(exposed), {n});
        return out;
    }

    std::vector<std::uint8_t> outcome, lqd_drop, asked, exposed;
    std::unique_ptr<FeatureVector[]> features;

private:
    bool with_labels_, with_features_;
};

}  // namespace foretail::bindings
