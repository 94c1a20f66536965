// SPDX-License-Identifier: MIT
// Predictors of drops, of last packets of messages and of alphas in a switch of a network.
#pragma once

#include "buffer/predictor/predictor.hpp"
#include "packets/records/records.h"
#include "packets/traffic.h"

namespace foretail::packets {

/// What a switch running Credence asks: a compiled predictor, or none (always accept), with optional flips (Figure 10);
/// or somebody outside, who reads some features and has given the answer before.
class Predictor {
public:
    struct Answer {
        bool drop = false;
        std::int64_t score = 0;
    };

    explicit Predictor(const Settings& settings, std::optional<buffer::FeatureSet> outside = {})
        : outside_(outside),
          flips_(settings.seed, RandomStream::Purpose::flips, 0),
          flip_probability_(settings.policy.flip_probability) {
        if (!settings.policy.message_end.empty()) {
            ends_.emplace(settings.policy.message_end, settings.scale);
            if (!ends_->features().within(buffer::of_flows))
                throw std::runtime_error("predictor library '" + settings.policy.message_end +
                                         "' tells the last packets of a message, and reads more than what a switch "
                                         "counts of flows; train it on those features");
        }
        if (outside_ || settings.policy.library.empty() || settings.policy.known->takes_alpha) return;
        library_.emplace(settings.policy.library, settings.scale);
        tau_ = settings.policy.tau.value_or(library_->default_tau());
    }

    /// What `ask`, or somebody outside, reads.
    [[nodiscard]] buffer::FeatureSet features() const {
        return library_ ? library_->features() : outside_.value_or(buffer::FeatureSet{});
    }
    /// Whether `ask` reads any.
    [[nodiscard]] bool reads_features() const { return library_ && !library_->features().empty(); }
    /// Whether somebody outside answers.
    [[nodiscard]] bool waits() const { return outside_.has_value(); }
    /// The answer of the next `ask`, from outside.
    void answer(bool drop) { drops_ = drop; }
    [[nodiscard]] std::int64_t tau() const { return tau_; }
    [[nodiscard]] std::int64_t flipped() const { return flipped_; }

    /// Whether it also tells the last packets of a message, in the place of their senders.
    [[nodiscard]] bool tells_ends() const { return ends_.has_value(); }
    /// Whether a packet is among them, by what is counted of its flow.
    [[nodiscard]] bool ends_message(const buffer::FeatureVector& features) {
        return ends_->score(features) > ends_->default_tau();
    }

    Answer ask(const buffer::FeatureVector& features) {
        Answer answer{.drop = drops_};
        if (library_) {
            answer.score = library_->score(features);
            answer.drop = answer.score > tau_;
        }
        if (flip_probability_ > 0 && flips_.uniform() < flip_probability_) {
            answer.drop = !answer.drop;
            ++flipped_;
        }
        return answer;
    }

private:
    std::optional<buffer::FeatureSet> outside_;
    bool drops_ = false;
    std::optional<buffer::PredictorLibrary> library_, ends_;
    std::int64_t tau_ = 0;
    RandomStream flips_;
    double flip_probability_;
    std::int64_t flipped_ = 0;
};

/// What sets alphas once per interval: a compiled predictor, or none (they stay); and what was counted, on request.
class AlphaPredictor {
public:
    AlphaPredictor(const Settings& settings, const std::string& folder) : path_(settings.policy.library) {
        if (!settings.policy.known->takes_alpha) return;
        if (!path_.empty()) library_.emplace(path_, settings.policy.alpha_interval_ns);
        if (settings.counters && !folder.empty()) log_.emplace(folder + "/counters.bin");
        if (library_ || settings.counters) interval_ns_ = settings.policy.alpha_interval_ns;
    }

    /// Between two predictions; none where nobody asks what was counted.
    [[nodiscard]] std::optional<std::int64_t> interval_ns() const { return interval_ns_; }
    [[nodiscard]] bool predicts() const { return library_.has_value(); }

    /// Two to the predicted exponent. A score counts halves of octaves, for votes have at least one bit of fraction.
    [[nodiscard]] double alpha(const buffer::CounterVector& counters) {
        const std::int64_t score = library_->score(counters);
        if (score % 2 != 0 || score / 2 < least_exponent || score / 2 > most_exponent) {
            throw std::runtime_error("predictor library '" + path_ + "' gives the score " + std::to_string(score) +
                                     ", which is not an alpha: a score is twice log2(alpha), with log2(alpha) from " +
                                     std::to_string(least_exponent) + " to " + std::to_string(most_exponent));
        }
        return std::ldexp(1.0, static_cast<int>(score / 2));
    }
    void record(const buffer::CounterRecord& record) {
        if (log_) log_->write(record);
    }
    void close() {
        if (log_) log_->close();
    }

private:
    static constexpr int least_exponent = -7, most_exponent = 6;  // what switches know: SAI's dynamic threshold

    std::string path_;
    std::optional<buffer::PredictorLibrary> library_;
    std::optional<RecordFile<buffer::CounterRecord>> log_;
    std::optional<std::int64_t> interval_ns_;
};

/// The counters of one switch, and its alphas that follow from them.
class AlphaSetter {
public:
    AlphaSetter(AlphaPredictor& predictor, const buffer::Shape& shape, int switch_index)
        : predictor_(&predictor),
          counters_(shape, *predictor.interval_ns()),
          queues_(shape.queues()),
          switch_index_(switch_index) {}

    /// Brings the alphas of a policy up to now.
    void advance(buffer::Tick now, buffer::AnyPolicy& policy) {
        counters_.advance(
            now,
            [&](buffer::Tick end) {
                for (buffer::QueueIndex queue = 0; queue < queues_; ++queue) {
                    if (counters_.arrived(queue) == 0) continue;
                    predictor_->record({.time_ns = end,
                                        .arrived_bytes = counters_.arrived(queue),
                                        .counters = counters_.of(queue),
                                        .switch_index = switch_index_,
                                        .queue = queue});
                }
            },
            [&] {
                if (!predictor_->predicts()) return;
                for (buffer::QueueIndex queue = 0; queue < queues_; ++queue)
                    policy.set_alpha(queue, predictor_->alpha(counters_.of(queue)));
            });
    }
    /// The counters of every queue, as they were when the open interval began.
    [[nodiscard]] const buffer::IntervalCounters& counters() const { return counters_; }
    /// Counts an arrival that has been decided; the hash is that of its path.
    template <class Queues>
    void count(const buffer::Arrival& arrival, std::uint32_t path_hash, bool dropped, bool marked,
               const Queues& queues) {
        if (!arrival.data) return;
        const buffer::QueueIndex at = queues.queue_of(arrival);
        counters_.count({.queue = at,
                         .size = arrival.size,
                         .dropped = dropped,
                         .marked = marked,
                         .first_rtt = arrival.first_rtt,
                         .flow_hash = path_hash,
                         .length = queues.length(at),
                         .occupancy = queues.occupancy()});
    }

private:
    AlphaPredictor* predictor_;
    buffer::IntervalCounters counters_;
    buffer::QueueIndex queues_;
    int switch_index_;
};

}  // namespace foretail::packets
