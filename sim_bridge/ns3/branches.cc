// SPDX-License-Identifier: MIT
#include "ns3/branches.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace foretail::packets::ns3_driver {

using buffer::Outcome;

struct Branches::Told {
    std::int64_t decisions, end_ns;
    std::array<char, 512> complaint;
};

Branches::Branches(BranchChoice choice, std::string folder) : choice_(std::move(choice)), folder_(std::move(folder)) {
    void* shared = mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) throw std::runtime_error(std::string("no memory for branches: ") + std::strerror(errno));
    told_ = static_cast<Told*>(shared);
}

Branches::~Branches() { munmap(told_, sizeof(Told)); }

Outcome Branches::decided(int switch_index, const buffer::Arrival& arrival, buffer::FlowClass flow_class,
                          Outcome outcome, bool fits) {
    if (begun_) {
        const bool alike = branch_.turned && arrival.time <= until_ns_ && switch_index == switch_index_ &&
                           arrival.port == port_ && flow_class == flow_class_;
        return alike ? forced(outcome, fits) : outcome;
    }
    if (next_ == choice_.rows.size() || row_ != choice_.rows[next_]) return outcome;
    ++next_;
    const bool accepts = outcome == Outcome::accepted;
    if (!accepts && !fits)
        throw std::runtime_error("arrival " + std::to_string(row_) +
                                 " does not fit into the buffer, so no branch can accept it");
    for (int repeat = 0; repeat < choice_.repeats; ++repeat) {
        for (const bool turned : {false, true}) {
            if (!turned && repeat == 0) continue;  // the run itself
            const Branch branch{.row = row_, .turned = turned, .repeat = repeat};
            if (choice_.fork && !fork_off(branch)) continue;
            begin(branch, switch_index, arrival, flow_class, accepts);
            return turned ? forced(outcome, fits) : outcome;
        }
    }
    return outcome;
}

void Branches::begin(const Branch& branch, int switch_index, const buffer::Arrival& arrival,
                     buffer::FlowClass flow_class, bool drops) {
    begun_ = true;
    branch_ = branch;
    drops_ = drops;
    until_ns_ = arrival.time + choice_.hold_ns;
    // Another packet may come at the same instant: without a hold it is not meant.
    if (choice_.hold_ns == 0) until_ns_ = -1;
    switch_index_ = switch_index;
    port_ = arrival.port;
    flow_class_ = flow_class;
    longer_ns_ = branch.repeat * choice_.repeat_ns;
}

Outcome Branches::forced(Outcome outcome, bool fits) {
    const bool accepts = outcome == Outcome::accepted;
    if (accepts != drops_ || (!drops_ && !fits)) return outcome;
    ++branch_.decisions;
    return drops_ ? Outcome::over_threshold : Outcome::accepted;
}

bool Branches::fork_off(const Branch& branch) {
    const std::string name = "the branch at arrival " + std::to_string(branch.row);
    *told_ = {};
    const pid_t run = getpid(), child = fork();
    if (child < 0) throw std::runtime_error(name + " cannot be forked: " + std::strerror(errno));
    if (child == 0) {
        in_branch_ = true;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != run) _exit(2);  // the run ended before that
        const int nowhere = open("/dev/null", O_WRONLY);
        if (nowhere < 0 || dup2(nowhere, STDOUT_FILENO) < 0 || dup2(nowhere, STDERR_FILENO) < 0)
            give_up(std::strerror(errno));
        return true;
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) throw std::runtime_error(name + " is lost: " + std::strerror(errno));
    }
    if (WIFSIGNALED(status))
        throw std::runtime_error(name + " was ended by signal " + std::to_string(WTERMSIG(status)));
    if (WEXITSTATUS(status) != 0) throw std::runtime_error(name + " failed: " + told_->complaint.data());
    finished_.push_back(branch);
    finished_.back().decisions = told_->decisions;
    finished_.back().end_ns = told_->end_ns;
    return false;
}

void Branches::finish(const Flows& flows, std::int64_t end_ns) {
    if (in_branch_) {
        flows.write(folder_ + "/branch_" + std::to_string(branch_.row) + (branch_.turned ? "_turned_" : "_kept_") +
                    std::to_string(branch_.repeat) + ".bin");
        told_->decisions = branch_.decisions;
        told_->end_ns = end_ns;
        _exit(0);  // nothing of the run's may be flushed twice
    }
    if (next_ < choice_.rows.size()) {
        throw std::runtime_error("setting 'branches.rows' names arrival " + std::to_string(choice_.rows[next_]) +
                                 ", which is not a data packet of this run");
    }
    if (!begun_) return;
    branch_.end_ns = end_ns;
    finished_.push_back(branch_);
}

void Branches::give_up(const char* why) {
    if (!in_branch_) return;
    std::strncpy(told_->complaint.data(), why, told_->complaint.size() - 1);
    _exit(2);
}

}  // namespace foretail::packets::ns3_driver
