// SPDX-License-Identifier: MIT
#include "buffer/run.hpp"

#include <limits>
#include <stdexcept>
#include <string>

#include "buffer/policies/any_policy.hpp"
#include "buffer/policies/credence.hpp"
#include "buffer/policies/dynamic_thresholds.hpp"
#include "buffer/policies/learned.hpp"
#include "buffer/policies/lqd.hpp"
#include "buffer/policies/policy_of.hpp"
#include "buffer/slotted_switch.hpp"
#include "buffer/switch.hpp"

namespace foretail::buffer {

namespace {

struct RecordedPacket {
    Row row = no_row;
    bool data = false;
};

/// Any switch.
class RecordedSwitch final : public RecordedRun {
public:
    RecordedSwitch(const SwitchSettings& settings, std::unique_ptr<AnyPolicy> policy)
        : switch_(settings, std::move(policy)),
          labels_(settings.labels),
          observes_(settings.labels && !settings.features.empty()) {}

    void feed(const Arrival* arrivals, std::size_t n, const std::uint8_t* predictions) override {
        for (std::size_t k = 0; k < n; ++k) {
            look(arrivals[k]);
            admit(arrivals[k], predictions && predictions[k] != 0);
        }
    }
    bool offer(const Arrival& arrival) override {
        look(arrival);
        offered_ = arrival;
        if (switch_.asks(arrival)) return true;
        admit(arrival, false);
        return false;
    }
    void answer(bool drop) override {
        const auto scorer = std::exchange(scorer_, nullptr);
        admit(offered_, drop);
        scorer_ = scorer;
    }
    void set_paused(Port port, int priority, Tick time, bool paused) override {
        switch_.set_paused(port, priority, time, paused, *this);
    }
    void drain(Tick now) override {
        switch_.end_pauses(now, *this);
        switch_.advance(std::numeric_limits<Tick>::max(), *this);
        switch_.settle_labels(now, *this);
    }
    [[nodiscard]] Row settled() const override { return switch_.oldest_open(next_row_); }
    [[nodiscard]] Bytes transmitted_data() const override { return transmitted_; }
    [[nodiscard]] std::int64_t transmitted_packets() const override { return packets_; }
    [[nodiscard]] std::int64_t threshold_deficits() const override { return switch_.threshold_deficits(); }
    [[nodiscard]] std::unique_ptr<RecordedRun> clone() const override {
        return std::make_unique<RecordedSwitch>(*this);
    }
    [[nodiscard]] bool has_queues_of(const RecordedRun& other) const override {
        return equally_long(switch_.queues(), static_cast<const RecordedSwitch&>(other).switch_.queues());
    }
    [[nodiscard]] bool fits(Bytes size) const override { return switch_.queues().fits(size); }

    // Sink of the switch.
    void departed(Port, const Switch<RecordedPacket>::Packet& packet, Tick) {
        if (!packet.payload.data) return;
        transmitted_ += packet.size;
        ++packets_;
    }
    void pushed_out(Port, const Switch<RecordedPacket>::Packet& packet) {
        const Row i = packet.payload.row - first_row_;
        if (out_.outcome && i >= 0) out_.outcome[i] = static_cast<std::uint8_t>(Outcome::pushed_out);
    }
    void fate(Row row, Tick, bool dropped) {
        if (labels_) label(row, dropped);
    }

private:
    void look(const Arrival& arrival) {
        const Row row = next_row_++;
        const Row i = row - first_row_;
        switch_.observe(arrival, row, *this);
        if (scorer_) seen_ = switch_.features(arrival);
        if (out_.features && observes_) out_.features[i] = switch_.features(arrival);
        if (out_.exposed) out_.exposed[i] = switch_.exposed(arrival);
    }
    /// Decides the arrival that was looked at last.
    void admit(const Arrival& arrival, bool prediction) {
        const Row row = next_row_ - 1;
        const Row i = row - first_row_;
        bool asked = false;
        if (out_.outcome) out_.outcome[i] = static_cast<std::uint8_t>(Outcome::accepted);
        const Outcome outcome = switch_.admit(
            arrival, {row, arrival.data},
            [&] {
                asked = true;
                return drops(prediction);
            },
            *this);
        // Accepted and then pushed out at once, it has its outcome already.
        if (out_.outcome && outcome != Outcome::accepted) out_.outcome[i] = static_cast<std::uint8_t>(outcome);
        if (out_.asked) out_.asked[i] = asked;
    }

    Switch<RecordedPacket> switch_;
    Arrival offered_;
    bool labels_, observes_;
    Bytes transmitted_ = 0;
    std::int64_t packets_ = 0;
};

/// More than this for the sets of SlotQueues, and a slotted run takes the general queues.
constexpr std::size_t slot_queue_limit = std::size_t{1} << 28;

/// A slotted run that is compiled for one of these policies; null for any other.
template <class... Policy>
std::unique_ptr<RecordedRun> compiled_run(const SwitchSettings& settings, AnyPolicy& policy) {
    std::unique_ptr<RecordedRun> found;
    const auto compile = [&]<class One>() {
        if (&policy.about() == &PolicyOf<One>::known)
            found = std::make_unique<SlottedSwitch<PolicyOf<One>>>(settings, static_cast<PolicyOf<One>&>(policy));
    };
    (compile.template operator()<Policy>(), ...);
    return found;
}

}  // namespace

std::unique_ptr<RecordedRun> recorded_run(std::string_view name, const PolicySettings& policy_settings,
                                          const SwitchSettings& settings) {
    const KnownPolicy& about = known_policy(name);
    const Shape& shape = settings.shape;
    auto policy = about.make(policy_settings, shape);
    if (about.sees_ingress && !shape.pause)
        throw std::invalid_argument("policy '" + std::string(about.name) +
                                    "' has to know where packets came in, which these arrivals do not say: simulate a "
                                    "network, or choose another policy");
    if (!about.sees_departures && !about.sees_ingress &&  // which SlotQueues does not show
        shape.preemptive && shape.priorities == 1 && !settings.fluid_slack &&
        SlotQueues<Row>::set_bytes(shape.ports(), shape.capacity) <= slot_queue_limit) {
        if (auto run = compiled_run<PushOut, CompleteSharing, DynamicThresholds, Learned, Credence>(settings, *policy))
            return run;
        return std::make_unique<SlottedSwitch<PolicyValue>>(settings, PolicyValue(std::move(policy)));
    }
    return std::make_unique<RecordedSwitch>(settings, std::move(policy));
}

}  // namespace foretail::buffer
