// SPDX-License-Identifier: MIT
#include "native/simulation.h"

#include "native/hosts/stack.h"
#include "packets/network/leaf_spine.h"

namespace foretail::packets::native {

namespace {

/// A simulation of leaves and spines, or of a star.
class NetworkSimulation final : public Simulation {
public:
    NetworkSimulation(Settings settings, const std::string& folder, std::optional<buffer::FeatureSet> outside)
        : settings_(std::move(settings)), folder_(folder), parts_(*this, outside) {
        parts_.network.give_lost_to(frames_);
        parts_.network.tell_hosts([this](int host, int queue, bool paused, std::int64_t now) {
            parts_.stack.set_paused(host, queue, paused, now);
        });
        parts_.flows.install(parts_.stack);
        const std::int64_t begin_ns = settings_.incast.connect_ahead_ns,
                           traffic_end_ns = begin_ns + settings_.traffic_ns;
        end_ns_ = traffic_end_ns + settings_.drain_ns;
        if (parts_.occupancy)
            parts_.network.sample(begin_ns, traffic_end_ns, settings_.occupancy_interval_ns,
                                  [this](const buffer::OccupancyRecord& record) { parts_.occupancy->write(record); });
        if (!parts_.branches) return;
        parts_.network.divide(*parts_.branches);
        if (!settings_.branches->fork) parts_.branches->plan({.row = settings_.branches->rows.front(), .turned = true});
    }

    void advance(std::int64_t until_ns, const Tick& tick) override {
        const std::int64_t stop_ns = std::min(until_ns, end_ns_);
        bool hosts_changed = true;
        for (Moment of_hosts; !parts_.network.waiting();) {
            if (hosts_changed) {
                if (parts_.flows.ledger().is_settled()) return end(parts_.now_ns);
                of_hosts = parts_.stack.next();
            }
            const Moment& of_network = parts_.network.next();
            const bool hosts_first = of_hosts < of_network;
            const std::int64_t time = hosts_first ? of_hosts.time : of_network.time;
            if (time >= stop_ns) {
                if (stop_ns == end_ns_) end(end_ns_);
                return;
            }
            if (parts_.branches && !hosts_first) branch_off(tick);
            hosts_changed = step(time, hosts_first);
            constexpr std::int64_t events_between_ticks = 1 << 14;
            if ((++parts_.events & (events_between_ticks - 1)) == 0 && tick) tick(parts_.now_ns, parts_.events);
        }
    }
    [[nodiscard]] bool is_over() const override { return parts_.over; }
    [[nodiscard]] std::int64_t now_ns() const override { return parts_.now_ns; }
    [[nodiscard]] std::int64_t end_ns() const override { return end_ns_; }
    [[nodiscard]] const FlowLedger& ledger() const override { return parts_.flows.ledger(); }

    [[nodiscard]] bool waits() const override { return parts_.network.waiting().has_value(); }
    [[nodiscard]] buffer::FeatureVector features() const override {
        const auto& waiting = *parts_.network.waiting();
        return parts_.network.switches()[static_cast<std::size_t>(waiting.node)].buffer().features(waiting.arrival);
    }
    [[nodiscard]] int switch_index() const override { return parts_.network.waiting()->node; }
    void answer(bool drop) override {
        parts_.predictor.answer(drop);
        parts_.network.resume();
    }

    std::vector<buffer::CounterVector> counters(std::int64_t now_ns) override {
        auto counters = parts_.network.counters(std::max(now_ns, parts_.now_ns));
        if (counters.empty()) return Simulation::counters(now_ns);
        return counters;
    }
    void set_alphas(std::span<const double> alphas) override {
        const std::size_t queues = parts_.network.counted_queues();
        if (queues == 0) return Simulation::set_alphas(alphas);
        if (alphas.size() != queues)
            throw std::invalid_argument("there are " + std::to_string(alphas.size()) + " alphas for " +
                                        std::to_string(queues) + " queues");
        parts_.network.set_alphas(alphas);
    }

    [[nodiscard]] std::unique_ptr<Snapshot> save() const override {
        auto saved = std::make_unique<Saved>(*this, parts_);
        frames_.save(saved->frames);
        return saved;
    }
    void save(Snapshot& older) const override {
        Saved& saved = own(older);
        saved.parts = parts_;
        frames_.save(saved.frames);
    }
    void restore(const Snapshot& snapshot) override {
        const Saved& saved = own(snapshot);
        parts_ = saved.parts;
        frames_.restore(saved.frames);
    }

    nlohmann::json finish() override {
        parts_.network.finish(parts_.now_ns, parts_.trace.has_value());
        nlohmann::json summary = finish_switches(settings_, parts_.predictor, parts_.trace ? &*parts_.trace : nullptr,
                                                 parts_.network.switches());
        for (const auto& node : parts_.network.switches()) {
            if (node.buffer().ingress())
                summary["switches"][static_cast<std::size_t>(node.index())]["lossless"] =
                    lossless_summary(node.lossless(parts_.now_ns), node.buffer().ingress()->settings());
        }
        if (parts_.branches) summary["branches"] = branches();
        if (!folder_.empty()) ledger().write(folder_ + "/flows.bin");
        if (parts_.occupancy) parts_.occupancy->close();
        parts_.alphas.close();
        summary.update({{"flows", ledger().planned()},
                        {"completed_flows", ledger().completed()},
                        {"end_ns", parts_.now_ns},
                        {"events", parts_.events}});
        if (settings_.topology.erasure_probability > 0) summary["erased_packets"] = parts_.network.erased();
        return summary;
    }

private:
    /// All that changes during a run but the content of frames. Its parts point to each other, so a copy is nothing but
    /// what can be assigned to the original again.
    struct Parts {
        Parts(NetworkSimulation& run, std::optional<buffer::FeatureSet> outside)
            : predictor(run.settings_, outside),
              alphas(run.settings_, run.folder_),
              flows(run.settings_, plan_traffic(run.settings_)),
              trace(file<ArrivalTrace>(run, run.settings_.trace, "arrivals.bin")),
              occupancy(file<RecordFile<buffer::OccupancyRecord>>(run, true, "occupancy.bin")),
              branches(run.settings_.branches),
              telemetry(PacedSender::reads_telemetry(run.settings_.transport.law()) ? std::optional(FrameTelemetry())
                                                                                    : std::nullopt),
              network(run.settings_, predictor, trace ? &*trace : nullptr, order, &alphas),
              stack(run.settings_, flows, run.frames_, order, telemetry ? &*telemetry : nullptr) {
            if (telemetry) network.measure(*telemetry);
            if (trace && run.settings_.queues.lossless != 0) trace->write_pauses(run.folder_ + "/pauses.bin");
            if (trace && !run.settings_.transport.rc3_edges.empty())
                trace->write_priorities(run.folder_ + "/priorities.bin");
        }

        template <class File>
        static std::optional<File> file(const NetworkSimulation& run, bool wanted, const char* name) {
            if (!wanted || run.folder_.empty()) return {};
            return File(run.folder_ + "/" + name);
        }

        EventOrder order;
        Predictor predictor;
        AlphaPredictor alphas;
        Flows flows;
        std::optional<ArrivalTrace> trace;
        std::optional<RecordFile<buffer::OccupancyRecord>> occupancy;
        std::optional<BranchPoints> branches;
        std::optional<FrameTelemetry> telemetry;
        LeafSpine<Frame*> network;
        Stack stack;
        std::int64_t now_ns = 0, events = 0;
        bool over = false;
    };
    struct Saved final : Snapshot {
        Saved(const NetworkSimulation& run, const Parts& now) : of(run.identity_), parts(now) {}

        std::shared_ptr<const int> of;
        Parts parts;
        Frames::Saved frames;
    };

    /// The snapshot as what this simulation has kept.
    template <class Given, class Own = std::conditional_t<std::is_const_v<Given>, const Saved, Saved>>
    Own& own(Given& snapshot) const {
        auto* saved = dynamic_cast<Own*>(&snapshot);
        if (!saved || saved->of != identity_)
            throw std::invalid_argument(
                "the snapshot is of another network: restore it in the one that it was taken of");
        return *saved;
    }
    /// Lets the next thing happen, and returns whether anything has changed for hosts.
    [[gnu::always_inline]] bool step(std::int64_t time, bool of_hosts) {
        parts_.now_ns = time;
        if (of_hosts) {
            parts_.stack.step();
        } else if (!parts_.network.step([this](Frame* frame, std::int64_t at) {
                       parts_.stack.receive(*frame, at);
                       frames_.give_back(frame);
                   })) {
            return false;
        }
        for (const Stack::Outgoing& sent : parts_.stack.outgoing()) parts_.network.send(sent.frame, time, sent.order);
        parts_.stack.outgoing().clear();
        return true;
    }
    void end(std::int64_t now_ns) {
        parts_.now_ns = now_ns;
        parts_.over = true;
    }

    /// Runs all branches at the arrival that comes next, if the run divides there, and comes back.
    [[gnu::noinline]] void branch_off(const Tick& tick) {
        const std::int64_t row = parts_.branches->row() + 1;
        if (!parts_.branches->may_come_next() || row == divided_at_ || !settings_.branches->fork ||
            !parts_.network.next_reaches_switch())
            return;
        divided_at_ = row;
        if (start_of_branches_) {
            save(*start_of_branches_);
        } else {
            start_of_branches_ = save();
        }
        for (const Branch& planned : parts_.branches->branches_at(row)) {
            parts_.branches->plan(planned);
            step(parts_.network.next().time, false);
            const bool divides = parts_.branches->begun();  // a control packet does not
            if (divides) finish_branch(tick);
            restore(*start_of_branches_);
            if (!divides) return;
        }
    }
    void finish_branch(const Tick& tick) {
        try {
            advance(end_ns_, tick);
            parts_.network.finish(parts_.now_ns, false);
            finished_.push_back(parts_.branches->branch());
            finished_.back().end_ns = parts_.now_ns;
            ledger().write(finished_.back().path(folder_));
        } catch (const std::exception& error) {
            throw std::runtime_error("the branch at arrival " + std::to_string(divided_at_) +
                                     " failed: " + error.what());
        }
    }
    /// Those of the summary; throws if an arrival to divide at never came.
    [[nodiscard]] nlohmann::json branches() {
        parts_.branches->require_all_met();
        if (parts_.branches->begun()) {
            finished_.push_back(parts_.branches->branch());
            finished_.back().end_ns = parts_.now_ns;
        }
        return to_json(finished_);
    }

    const Settings settings_;
    const std::string folder_;
    const std::shared_ptr<const int> identity_ = std::make_shared<int>();  ///< its address is that of no other
    std::int64_t end_ns_ = 0;
    Frames frames_;
    Parts parts_;
    std::int64_t divided_at_ = -1;  ///< the arrival whose branches are simulated
    std::unique_ptr<Snapshot> start_of_branches_;
    std::vector<Branch> finished_;
};

}  // namespace

std::vector<buffer::CounterVector> Simulation::counters(std::int64_t) {
    throw std::invalid_argument(
        "nothing is counted: choose a policy whose alpha is set per interval, and setting 'counters' = true");
}

void Simulation::set_alphas(std::span<const double>) { static_cast<void>(Simulation::counters(now_ns())); }

std::unique_ptr<Simulation> make_simulation(const nlohmann::json& document, const std::string& folder,
                                            std::optional<buffer::FeatureSet> outside) {
    const Group root(document, "");
    if (auto racks = read_rack_run(root)) return make_rack_simulation(std::move(*racks), folder);
    Settings settings = resolved(read_settings(root));
    if (outside && !settings.policy.known->asks)
        refuse("policy '" + std::string(settings.policy.known->name) +
               "' asks nobody: choose one that asks a predictor");
    return std::make_unique<NetworkSimulation>(std::move(settings), folder, outside);
}

}  // namespace foretail::packets::native
