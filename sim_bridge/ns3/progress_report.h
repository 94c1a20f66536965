// SPDX-License-Identifier: MIT
#pragma once

#include <ns3/nstime.h>
#include <ns3/simulator.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "ns3/flows.h"

namespace foretail::packets::ns3_driver {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Says where the simulation is, at most twice a second of real time.
class ProgressReport {
public:
    ProgressReport(std::int64_t end_ns, const Flows& flows) : end_ns_(end_ns), flows_(flows) { tick(); }

private:
    void tick() {
        if (seconds_since(last_) > 0.5) {
            last_ = Clock::now();
            const nlohmann::json line{{"simulated_ns", ns3::Simulator::Now().GetNanoSeconds()},
                                      {"end_ns", end_ns_},
                                      {"flows", flows_.completed()},
                                      {"planned_flows", flows_.planned()},
                                      {"wall_seconds", seconds_since(start_)}};
            std::fprintf(stderr, "%s\n", line.dump().c_str());
        }
        ns3::Simulator::Schedule(ns3::NanoSeconds(end_ns_ / 1000 + 1), &ProgressReport::tick, this);
    }

    std::int64_t end_ns_;
    const Flows& flows_;
    Clock::time_point start_ = Clock::now(), last_ = start_;
};

}  // namespace foretail::packets::ns3_driver
