// SPDX-License-Identifier: MIT
// Runs a switch over arrivals that are all known beforehand: unit packets in slots, or recorded bytes and nanoseconds.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "policies.hpp"
#include "switch.hpp"
#include "types.hpp"

namespace foretail::buffer {

/// What Foretail calls its policies, and their settings.
struct PolicySettings {
    double alpha = 0.5;             ///< DT, ABM
    double first_rtt_alpha = 64.0;  ///< ABM, for packets sent before any feedback
    Tick interval = 32768;          ///< ABM, between two counts of the congested queues
};

/// Calls `make(policy)` with the policy of that name; throws std::invalid_argument naming the known ones.
template <class Make>
auto with_policy(std::string_view name, const PolicySettings& settings, Make&& make) {
    if (name == "cs") return make(CompleteSharing{});
    if (name == "dt") return make(DynamicThresholds{settings.alpha});
    if (name == "abm") return make(Abm{settings.alpha, settings.first_rtt_alpha, settings.interval});
    if (name == "lqd") return make(PushOut{});
    if (name == "followlqd") return make(FollowLqd{});
    if (name == "credence") return make(Credence{});
    throw std::invalid_argument("unknown policy '" + std::string(name) +
                                "': choose one of cs, dt, abm, lqd, followlqd, credence");
}

/// Where a run over known arrivals writes what it finds, a batch at a time; any pointer may be null. A fate that
/// becomes known after its batch is gone is not reported.
struct RunColumns {
    std::uint8_t* outcome = nullptr;   ///< Outcome, pushed_out included
    std::uint8_t* lqd_drop = nullptr;  ///< what the virtual LQD did
    std::uint8_t* asked = nullptr;     ///< whether Credence used a prediction
    std::uint8_t* exposed = nullptr;   ///< whether the safeguard did not apply
    FeatureVector* features = nullptr;
};

/// A switch with its policy chosen at run time, fed in batches: one virtual call per batch, none per packet.
class RecordedRun {
public:
    virtual ~RecordedRun() = default;
    /// Takes `n` arrivals in order of time; `predictions[i]` nonzero = drop, null = always accept.
    virtual void feed(const Arrival* arrivals, std::size_t n, const std::uint8_t* predictions,
                      const RunColumns& out) = 0;
    /// Sends what is still queued; `out` receives the open fates of the last batch.
    virtual void drain(const RunColumns& out) = 0;
    /// Lets go of the columns of the last `feed`.
    virtual void forget() = 0;
    [[nodiscard]] virtual Bytes transmitted_data() const = 0;
    [[nodiscard]] virtual std::int64_t transmitted_packets() const = 0;
    [[nodiscard]] virtual std::int64_t threshold_deficits() const = 0;
};

namespace detail {

struct RecordedPacket {
    Row row = no_row;
    bool data = false;
};

template <class Policy>
class RecordedSwitch final : public RecordedRun {
public:
    RecordedSwitch(const SwitchSettings& settings, Policy policy)
        : switch_(settings, std::move(policy)), observes_(settings.labels && settings.averages) {}

    void feed(const Arrival* arrivals, std::size_t n, const std::uint8_t* predictions, const RunColumns& out) override {
        out_ = out;
        first_row_ = next_row_;
        next_row_ += static_cast<Row>(n);
        for (std::size_t i = 0; i < n; ++i) {
            const Arrival& arrival = arrivals[i];
            const Row row = first_row_ + static_cast<Row>(i);
            switch_.observe(arrival, row, *this);
            if (out.features && observes_) out.features[i] = switch_.features(arrival);
            if (out.exposed) out.exposed[i] = switch_.exposed(arrival);
            bool asked = false;
            const Outcome outcome = switch_.admit(
                arrival, {row, arrival.data},
                [&] {
                    asked = true;
                    return predictions && predictions[i] != 0;
                },
                *this);
            if (out.outcome) out.outcome[i] = static_cast<std::uint8_t>(outcome);
            if (out.asked) out.asked[i] = asked;
        }
    }
    void drain(const RunColumns& out) override {
        out_ = out;
        switch_.advance(std::numeric_limits<Tick>::max(), *this);
        switch_.settle_labels(*this);
    }
    void forget() override { out_ = {}; }
    [[nodiscard]] Bytes transmitted_data() const override { return transmitted_; }
    [[nodiscard]] std::int64_t transmitted_packets() const override { return packets_; }
    [[nodiscard]] std::int64_t threshold_deficits() const override { return switch_.threshold_deficits(); }

    // Sink of the switch.
    void departed(Port, const typename Switch<Policy, RecordedPacket>::Packet& packet, Tick) {
        if (!packet.payload.data) return;
        transmitted_ += packet.size;
        ++packets_;
    }
    void pushed_out(Port, const typename Switch<Policy, RecordedPacket>::Packet& packet) {
        const Row i = packet.payload.row - first_row_;
        if (out_.outcome && i >= 0) out_.outcome[i] = static_cast<std::uint8_t>(Outcome::pushed_out);
    }
    void fate(Row row, Tick, bool dropped) {
        const Row i = row - first_row_;
        if (out_.lqd_drop && i >= 0) out_.lqd_drop[i] = dropped;
    }

private:
    Switch<Policy, RecordedPacket> switch_;
    bool observes_;
    RunColumns out_;
    Row first_row_ = 0, next_row_ = 0;
    Bytes transmitted_ = 0;
    std::int64_t packets_ = 0;
};

}  // namespace detail

inline std::unique_ptr<RecordedRun> recorded_run(std::string_view policy, const PolicySettings& policy_settings,
                                                 const SwitchSettings& settings) {
    return with_policy(policy, policy_settings, [&](auto chosen) -> std::unique_ptr<RecordedRun> {
        return std::make_unique<detail::RecordedSwitch<decltype(chosen)>>(settings, std::move(chosen));
    });
}

}  // namespace foretail::buffer
