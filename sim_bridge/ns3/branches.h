// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "buffer/records.hpp"
#include "buffer/types.hpp"
#include "ns3/flows.h"
#include "packets/settings.h"

namespace foretail::packets::ns3_driver {

/// A branch of a run, as its summary has it.
struct Branch {
    std::int64_t row = 0;        ///< the arrival at which it begins
    bool turned = false;         ///< whether it began with the other decision than the run's
    int repeat = 0;              ///< from then on the link of the port is so many times `repeat_ns` longer
    std::int64_t decisions = 0;  ///< decided otherwise than the policy would have
    std::int64_t end_ns = 0;     ///< when it ended
};

/// Forks the run at chosen arrivals of data packets: a branch is a process of its own, which decides otherwise, runs to
/// the end, leaves its flows as FOLDER/branch_ROW_(kept|turned)_REPEAT.bin and is gone. The run waits for it and goes
/// on as if nothing had been.
///
/// Repeats of both decisions differ by the delay of one link: what the difference between the decisions then varies by
/// is chaos. Without `fork` the run itself is the one branch.
class Branches {
public:
    Branches(BranchChoice choice, std::string folder);
    Branches(const Branches&) = delete;
    Branches& operator=(const Branches&) = delete;
    ~Branches();

    /// The next arrival, of control packets too.
    void arrived() { ++row_; }
    /// What becomes of that arrival, a data packet, after the policy has decided. Returns in every branch once.
    buffer::Outcome decided(int switch_index, const buffer::Arrival& arrival, buffer::FlowClass flow_class,
                            buffer::Outcome outcome, bool fits);
    /// By how many ns the link of the port that has just decided becomes longer; 0 the next time.
    std::int64_t longer_ns() { return std::exchange(longer_ns_, 0); }
    /// Whether this process is a branch, which writes nothing but its flows.
    [[nodiscard]] bool in_branch() const { return in_branch_; }

    /// Ends a branch whose simulation is over; returns in the run, or throws if an arrival to fork at never came.
    void finish(const Flows& flows, std::int64_t end_ns);
    /// Ends a branch that failed, and leaves the reason to the run; returns in the run.
    void give_up(const char* why);
    [[nodiscard]] const std::vector<Branch>& finished() const { return finished_; }

private:
    /// What a branch tells the run.
    struct Told;

    /// Whether this process is the new branch; the run gets false when the branch is over.
    bool fork_off(const Branch& branch);
    void begin(const Branch& branch, int switch_index, const buffer::Arrival& arrival, buffer::FlowClass flow_class,
               bool drops);
    [[nodiscard]] buffer::Outcome forced(buffer::Outcome outcome, bool fits);

    BranchChoice choice_;
    std::string folder_;
    Told* told_ = nullptr;  ///< shared by both processes
    std::int64_t row_ = -1, longer_ns_ = 0;
    std::size_t next_ = 0;  ///< of the rows
    std::vector<Branch> finished_;

    bool in_branch_ = false, begun_ = false;
    Branch branch_;
    bool drops_ = false;  ///< the answer of a turned branch, for arrivals like the first one until then
    std::int64_t until_ns_ = -1;
    int switch_index_ = 0;
    buffer::Port port_ = 0;
    buffer::FlowClass flow_class_ = buffer::FlowClass::control;
};

}  // namespace foretail::packets::ns3_driver
