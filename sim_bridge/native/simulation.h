// SPDX-License-Identifier: MIT
// A run of the native network, whatever its policy: what the program and the extension module are made of.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "packets/racks/rack_settings.h"
#include "packets/records/flow_ledger.h"

namespace foretail::packets::native {

/// The state of a simulation at a moment, in memory: of its events, links, switches, policies, hosts, flows, random
/// streams and files. Only the simulation that it is of can go back to it.
class Snapshot {
public:
    virtual ~Snapshot() = default;
};

/// One run. Virtual calls are per run or per decision from outside, never per packet.
class Simulation {
public:
    /// Called now and then with the simulated time and the events so far.
    using Tick = std::function<void(std::int64_t now_ns, std::int64_t events)>;

    virtual ~Simulation() = default;

    /// Runs until all flows are settled, to the end of the run, to before `until_ns`, or to an arrival that waits for
    /// an answer. Throws std::runtime_error where the run fails.
    virtual void advance(std::int64_t until_ns, const Tick& tick) = 0;
    /// Whether the run is at its end.
    [[nodiscard]] virtual bool is_over() const = 0;
    /// The time of what happened last; when it is over, that of its end.
    [[nodiscard]] virtual std::int64_t now_ns() const = 0;
    /// When it is over at the latest.
    [[nodiscard]] virtual std::int64_t end_ns() const = 0;
    [[nodiscard]] virtual const FlowLedger& ledger() const = 0;

    /// Whether an arrival waits for an answer; never in racks with circuits.
    [[nodiscard]] virtual bool waits() const { return false; }
    /// The features of that arrival; the switch keeps those that were asked for.
    [[nodiscard]] virtual buffer::FeatureVector features() const { return {}; }
    /// The number of its switch.
    [[nodiscard]] virtual int switch_index() const { return 0; }
    /// Decides it.
    virtual void answer(bool) {}

    /// Closes the intervals of alphas that have ended by `now_ns`, which is not before `now_ns()`, and returns what
    /// each queue counted, switch by switch; throws std::invalid_argument where nothing is counted.
    virtual std::vector<buffer::CounterVector> counters(std::int64_t now_ns);
    /// Sets the alpha of each queue, in that order; throws std::invalid_argument on another number of them.
    virtual void set_alphas(std::span<const double> alphas);

    /// Keeps the state; throws std::invalid_argument when the run cannot be copied.
    [[nodiscard]] virtual std::unique_ptr<Snapshot> save() const = 0;
    /// The same in the memory of an older snapshot, which takes less time; throws std::invalid_argument when that is of
    /// another simulation.
    virtual void save(Snapshot& older) const = 0;
    /// Goes back to a state; throws std::invalid_argument when it is that of another simulation.
    virtual void restore(const Snapshot& snapshot) = 0;

    /// Ends the run where it is, writes its files if it has a folder, and returns what a summary says of it. Nothing
    /// may follow.
    virtual nlohmann::json finish() = 0;
};

/// The run of racks with circuits.
std::unique_ptr<Simulation> make_rack_simulation(RackRun run, const std::string& folder);

/// The run of a settings document; files go to `folder`, or nowhere where it is empty. With `outside`, switches keep
/// these features, and every arrival about which the policy asks waits for an answer.
///
/// Throws std::runtime_error with one sentence on settings that are wrong, and on files it cannot write.
std::unique_ptr<Simulation> make_simulation(const nlohmann::json& document, const std::string& folder,
                                            std::optional<buffer::FeatureSet> outside = {});

}  // namespace foretail::packets::native
