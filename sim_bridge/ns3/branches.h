// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "buffer/records.hpp"
#include "buffer/types.hpp"
#include "ns3/flows.h"
#include "packets/branches.h"
#include "packets/settings/settings.h"

namespace foretail::packets::ns3_driver {

/// Forks the run at chosen arrivals of data packets: a branch is a process of its own, which decides otherwise, runs to
/// the end, leaves its flows in a file and is gone. The run waits for it and goes on as if nothing had been.
class Branches {
public:
    Branches(const BranchChoice& choice, std::string folder);
    Branches(const Branches&) = delete;
    Branches& operator=(const Branches&) = delete;
    ~Branches();

    /// The next arrival, of control packets too.
    void arrived() { points_.arrived(); }
    /// What becomes of that arrival, a data packet, after the policy has decided. Returns in every branch once.
    buffer::Outcome decided(int switch_index, const buffer::Arrival& arrival, buffer::FlowClass flow_class,
                            buffer::Outcome outcome, bool fits);
    /// By how many ns the link of the port that has just decided becomes longer; 0 the next time.
    std::int64_t longer_ns() { return points_.longer_ns(); }
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

    BranchPoints points_;
    bool forks_;
    std::string folder_;
    Told* told_ = nullptr;  ///< shared by both processes
    std::vector<Branch> finished_;
    bool in_branch_ = false;
};

}  // namespace foretail::packets::ns3_driver
