// SPDX-License-Identifier: MIT
// Runs a switch over arrivals that are all known beforehand: unit packets in slots, or recorded bytes and nanoseconds.
#pragma once

#include <random>

#include "buffer/predictor/predictor.hpp"
#include "buffer/switch.hpp"

namespace foretail::buffer {

/// Where a run over known arrivals writes what it finds, a batch at a time; any pointer may be null.
struct RunColumns {
    std::uint8_t* outcome = nullptr;   ///< Outcome, pushed_out included
    std::uint8_t* lqd_drop = nullptr;  ///< what the virtual LQD did; zero beforehand
    std::uint8_t* asked = nullptr;     ///< whether Credence used a prediction
    std::uint8_t* exposed = nullptr;   ///< whether the safeguard did not apply
    FeatureVector* features = nullptr;
};

/// A switch with its policy chosen at run time, fed in batches: no virtual call per packet.
///
/// A packet of an earlier batch that is dropped late leaves the columns of that batch as they are; with labels, its row
/// is among `late_drops`.
class RecordedRun {
public:
    virtual ~RecordedRun() = default;
    /// Begins a batch whose rows fill `out` from its start.
    void begin_batch(const RunColumns& out) {
        out_ = out;
        first_row_ = next_row_;
        late_drops_.clear();
    }
    /// Takes the next `n` arrivals of the batch in order of time; `predictions[i]` nonzero = drop, null = always
    /// accept.
    virtual void feed(const Arrival* arrivals, std::size_t n, const std::uint8_t* predictions) = 0;
    /// Takes the next arrival of the batch alone. True: the policy asks for a prediction, and `answer` must follow.
    virtual bool offer(const Arrival& arrival) = 0;
    /// Decides the arrival at which `offer` has asked, also where there is a scorer.
    virtual void answer(bool drop) = 0;
    /// The other end of a port's link pauses a queue of the port, or lets it go on, before the next arrival.
    virtual void set_paused(Port port, int priority, Tick time, bool paused) = 0;
    /// Lets go of the columns.
    void end_batch() { begin_batch({}); }
    /// Lets `scorer` answer in the place of predictions; the switch has its features. Call before the first arrival.
    void ask(std::shared_ptr<const Scorer> scorer) { scorer_ = std::move(scorer); }
    /// Inverts this share of the scorer's answers, as `seed` draws them.
    void invert(double share, std::uint64_t seed) {
        inverted_ = std::bernoulli_distribution(share);
        random_.seed(seed);
    }
    /// What the policy may know of the arrival that was taken last, which a scorer answers from.
    [[nodiscard]] const FeatureVector& seen() const { return seen_; }
    /// Whether the buffer has room for so much more.
    [[nodiscard]] virtual bool fits(Bytes size) const = 0;
    /// Sends what is still queued at the end of a run at `now`, as part of the batch.
    virtual void drain(Tick now) = 0;
    /// The same where nobody pauses ports.
    void drain() { drain(0); }

    /// Rows of earlier batches that the virtual LQD dropped in this one.
    [[nodiscard]] const std::vector<Row>& late_drops() const { return late_drops_; }
    /// Every row before this one has its label.
    [[nodiscard]] virtual Row settled() const = 0;
    [[nodiscard]] Row rows() const { return next_row_; }
    [[nodiscard]] virtual Bytes transmitted_data() const = 0;
    [[nodiscard]] virtual std::int64_t transmitted_packets() const = 0;
    [[nodiscard]] virtual std::int64_t threshold_deficits() const = 0;
    /// The rules of the policy that were in force.
    [[nodiscard]] virtual std::span<const Turn> turns() const = 0;

protected:
    void label(Row row, bool dropped) {
        if (row >= first_row_) {
            if (out_.lqd_drop) out_.lqd_drop[row - first_row_] = dropped;
        } else if (dropped) {
            late_drops_.push_back(row);
        }
    }

    RecordedRun() = default;
    RecordedRun(const RecordedRun&) = default;
    RecordedRun& operator=(const RecordedRun&) = default;

    /// Whether the arrival that was taken last is dropped, as the scorer or else the prediction says.
    [[nodiscard]] bool drops(bool prediction) {
        if (!scorer_) return prediction;
        const bool inverted = inverted_.p() > 0 && inverted_(random_);
        return scorer_->drops(seen_) != inverted;
    }

    RunColumns out_;
    Row first_row_ = 0, next_row_ = 0;
    std::vector<Row> late_drops_;
    std::shared_ptr<const Scorer> scorer_;
    FeatureVector seen_{};

private:
    std::bernoulli_distribution inverted_{0.0};
    std::minstd_rand random_;
};

/// A run under the policy of that name, or of the library at that path (known_policy), on a switch; throws
/// std::invalid_argument when there is none, or when it cannot decide these arrivals.
std::unique_ptr<RecordedRun> recorded_run(std::string_view policy, const PolicySettings& policy_settings,
                                          const SwitchSettings& settings);

}  // namespace foretail::buffer
