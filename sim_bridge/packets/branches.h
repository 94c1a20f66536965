// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>

#include "buffer/records.hpp"
#include "packets/settings/settings.h"

namespace foretail::packets {

/// A branch of a run, as its summary has it.
struct Branch {
    std::int64_t row = 0;        ///< the arrival at which it begins
    bool turned = false;         ///< whether it began with the other decision than the run's
    int repeat = 0;              ///< from then on the link of the port is so many times `repeat_ns` longer
    std::int64_t decisions = 0;  ///< decided otherwise than the policy would have
    std::int64_t end_ns = 0;     ///< when it ended

    /// Where its flows are written.
    [[nodiscard]] std::string path(const std::string& folder) const {
        return folder + "/branch_" + std::to_string(row) + (turned ? "_turned_" : "_kept_") + std::to_string(repeat) +
               ".bin";
    }
};

inline nlohmann::json to_json(const std::vector<Branch>& branches) {
    nlohmann::json out = nlohmann::json::array();
    for (const Branch& one : branches) {
        out.push_back({{"row", one.row},
                       {"turned", one.turned},
                       {"repeat", one.repeat},
                       {"decisions", one.decisions},
                       {"end_ns", one.end_ns}});
    }
    return out;
}

/// Where a run divides at chosen arrivals of data packets, and what a branch decides otherwise.
///
/// Repeats of both decisions differ by the delay of one link: what the difference between the decisions then varies by
/// is chaos. Without `fork` the run itself is the one branch.
class BranchPoints {
public:
    explicit BranchPoints(BranchChoice choice) : choice_(std::move(choice)) {}

    /// The next arrival, of control packets too.
    void arrived() { ++row_; }
    [[nodiscard]] std::int64_t row() const { return row_; }
    /// Whether a branch has begun.
    [[nodiscard]] bool begun() const { return begun_; }
    [[nodiscard]] const Branch& branch() const { return branch_; }
    /// Whether the run may divide at the arrival after the last one.
    [[nodiscard]] bool may_come_next() const {
        return !begun_ && next_ < choice_.rows.size() && row_ + 1 == choice_.rows[next_];
    }
    /// The branches at an arrival, without the run itself.
    [[nodiscard]] std::vector<Branch> branches_at(std::int64_t row) const {
        std::vector<Branch> out{{.row = row, .turned = true}};
        for (int repeat = 1; repeat < choice_.repeats; ++repeat) {
            for (const bool turned : {false, true}) out.push_back({.row = row, .turned = turned, .repeat = repeat});
        }
        return out;
    }
    /// Whether the run divides at the last arrival, a data packet that the policy has decided; says so once. Throws
    /// std::runtime_error when no branch can accept it.
    bool divides(buffer::Outcome outcome, bool fits) {
        if (next_ == choice_.rows.size() || row_ != choice_.rows[next_]) return false;
        ++next_;
        if (outcome != buffer::Outcome::accepted && !fits)
            throw std::runtime_error("arrival " + std::to_string(row_) +
                                     " does not fit into the buffer, so no branch can accept it");
        return true;
    }
    /// The next time that the run divides it becomes this branch.
    void plan(const Branch& branch) { planned_ = branch; }
    [[nodiscard]] const std::optional<Branch>& planned() const { return planned_; }
    /// From the last arrival on this is a branch.
    void begin(const Branch& branch, int switch_index, const buffer::Arrival& arrival, buffer::FlowClass flow_class,
               buffer::Outcome outcome) {
        begun_ = true;
        branch_ = branch;
        drops_ = outcome == buffer::Outcome::accepted;
        // Another packet may come at the same instant: without a hold it is not meant.
        until_ns_ = choice_.hold_ns == 0 ? -1 : arrival.time + choice_.hold_ns;
        switch_index_ = switch_index;
        port_ = arrival.port;
        flow_class_ = flow_class;
        longer_ns_ = branch.repeat * choice_.repeat_ns;
    }
    /// What becomes of an arrival in a branch.
    buffer::Outcome decided(int switch_index, const buffer::Arrival& arrival, buffer::FlowClass flow_class,
                            buffer::Outcome outcome, bool fits) {
        const bool first = row_ == branch_.row;
        const bool alike = arrival.time <= until_ns_ && switch_index == switch_index_ && arrival.port == port_ &&
                           flow_class == flow_class_;
        return branch_.turned && (first || alike) ? forced(outcome, fits) : outcome;
    }
    /// By how many ns the link of the port that has just decided becomes longer; 0 the next time.
    std::int64_t longer_ns() { return std::exchange(longer_ns_, 0); }
    /// Throws std::runtime_error if an arrival to divide at never came.
    void require_all_met() const {
        if (next_ == choice_.rows.size()) return;
        throw std::runtime_error("setting 'branches.rows' names arrival " + std::to_string(choice_.rows[next_]) +
                                 ", which is not a data packet of this run");
    }

private:
    [[nodiscard]] buffer::Outcome forced(buffer::Outcome outcome, bool fits) {
        const bool accepts = outcome == buffer::Outcome::accepted;
        if (accepts != drops_ || (!drops_ && !fits)) return outcome;
        ++branch_.decisions;
        return drops_ ? buffer::Outcome::over_threshold : buffer::Outcome::accepted;
    }

    BranchChoice choice_;
    std::int64_t row_ = -1, longer_ns_ = 0;
    std::size_t next_ = 0;  ///< of the rows
    bool begun_ = false;
    std::optional<Branch> planned_;
    Branch branch_;
    bool drops_ = false;  ///< the answer of a turned branch, for arrivals like the first one until then
    std::int64_t until_ns_ = -1;
    int switch_index_ = 0;
    buffer::Port port_ = 0;
    buffer::FlowClass flow_class_ = buffer::FlowClass::control;
};

}  // namespace foretail::packets
