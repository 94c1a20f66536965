// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "buffer/features/features.hpp"
#include "buffer/policies/any_policy.hpp"
#include "buffer/predictor/predictor_library.hpp"
#include "packets/random.h"
#include "packets/settings/settings.h"

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

}  // namespace foretail::packets
