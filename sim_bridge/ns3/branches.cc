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

Branches::Branches(const BranchChoice& choice, std::string folder)
    : points_(choice), forks_(choice.fork), folder_(std::move(folder)) {
    void* shared = mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) throw std::runtime_error(std::string("no memory for branches: ") + std::strerror(errno));
    told_ = static_cast<Told*>(shared);
}

Branches::~Branches() { munmap(told_, sizeof(Told)); }

Outcome Branches::decided(int switch_index, const buffer::Arrival& arrival, buffer::FlowClass flow_class,
                          Outcome outcome, bool fits) {
    if (!points_.begun() && points_.divides(outcome, fits)) {
        for (const Branch& branch : points_.branches_at(points_.row())) {
            if (forks_ && !fork_off(branch)) continue;
            points_.begin(branch, switch_index, arrival, flow_class, outcome);
            break;
        }
    }
    return points_.begun() ? points_.decided(switch_index, arrival, flow_class, outcome, fits) : outcome;
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
    Branch branch = points_.branch();
    if (in_branch_) {
        flows.write(branch.path(folder_));
        told_->decisions = branch.decisions;
        told_->end_ns = end_ns;
        _exit(0);  // nothing of the run's may be flushed twice
    }
    points_.require_all_met();
    if (!points_.begun()) return;
    branch.end_ns = end_ns;
    finished_.push_back(branch);
}

void Branches::give_up(const char* why) {
    if (!in_branch_) return;
    std::strncpy(told_->complaint.data(), why, told_->complaint.size() - 1);
    _exit(2);
}

}  // namespace foretail::packets::ns3_driver
