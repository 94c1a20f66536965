// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator/headers.hpp"
#include "emulator/hosts/namespaces.hpp"
#include "emulator/settings.hpp"
#include "packets/traffic.h"

namespace foretail::packets::emulator {

/// Now on the clock that the emulator and its hosts share, in ns.
std::int64_t clock_ns();

/// What became of a flow, written by the processes at its ends. Times are ns of the clock since the run's start.
struct FlowState {
    std::atomic<std::int64_t> started_ns{-1};    ///< when the application handed it over
    std::atomic<std::int64_t> delivered_ns{-1};  ///< when the other application had its last byte
    std::atomic<std::int32_t> timeouts{0};       ///< of the kernel's retransmission timer
};

/// Memory that the emulator and the processes of its hosts share.
class Shared {
public:
    Shared(std::size_t flows, std::size_t hosts);
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    ~Shared();

    [[nodiscard]] FlowState& flow(std::size_t index) { return flows_[index]; }
    [[nodiscard]] std::atomic<std::int64_t>& lost(std::size_t host) { return lost_[host]; }
    [[nodiscard]] std::atomic<std::int64_t>& delivered() { return head_->delivered; }
    [[nodiscard]] std::atomic<std::int64_t>& spurious_timeouts() { return head_->spurious_timeouts; }
    [[nodiscard]] std::atomic<std::int64_t>& undone_reductions() { return head_->undone_reductions; }
    /// How host 0's command ended, as a shell says it; -1 while it runs.
    [[nodiscard]] std::atomic<int>& exit_code() { return head_->exit_code; }
    /// What a host says when it cannot go on; the first one counts.
    void complain(const std::string& what);
    [[nodiscard]] std::string complaint() const;

private:
    struct Head {
        std::atomic<std::int64_t> delivered{0}, spurious_timeouts{0}, undone_reductions{0};
        std::atomic<int> writers{0}, written{0}, exit_code{-1};
        std::array<char, 512> complaint{};
    };

    void* room_;
    std::size_t bytes_;
    Head* head_;
    std::atomic<std::int64_t>* lost_;
    FlowState* flows_;
};

/// The hosts of a network: for each a process in a namespace of its own, which opens, feeds and empties the sockets of
/// its flows when the plan says so. All of them end with this object, and with this process.
class Hosts {
public:
    /// What commands of hosts print goes to files in `folder`.
    Hosts(const EmulatorSettings& settings, const std::vector<PlannedFlow>& plan, const FlowTable& table,
          Shared& shared, const std::string& folder);
    Hosts(const Hosts&) = delete;
    Hosts& operator=(const Hosts&) = delete;
    ~Hosts();

    /// Lets the plan begin at `start_ns` of the clock.
    void begin(std::int64_t start_ns);
    /// Throws std::runtime_error if a host has ended before its time.
    void check();
    /// Waits until every host has said what became of its flows. Throws std::runtime_error if one cannot.
    void finish();
    /// The interface of each host.
    [[nodiscard]] const std::vector<Descriptor>& interfaces() const { return interfaces_; }

private:
    void start(int host, const EmulatorSettings& settings, const std::vector<PlannedFlow>& plan, const FlowTable& table,
               const std::string& folder);
    void end();

    Shared& shared_;
    std::vector<pid_t> processes_;
    std::vector<Descriptor> interfaces_, controls_;
};

}  // namespace foretail::packets::emulator
