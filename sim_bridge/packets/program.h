// SPDX-License-Identifier: MIT
// The frame of a program that runs a network: how it ends, its progress, and the times in its summary.
#pragma once

#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>

#include "packets/records/records.h"

namespace foretail::packets {

/// The exit code of a program: 0 after a complete run, else 2, with its usage or one sentence on standard error.
inline int run_program(bool arguments_fit, const char* usage, const std::function<void()>& run) {
    if (!arguments_fit) {
        std::fprintf(stderr, "usage: %s\n", usage);
        return 2;
    }
    try {
        run();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 2;
    }
    return 0;
}

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Says where a run is, at most twice a second of real time, as a line of JSON on standard error.
class ProgressReport {
public:
    ProgressReport(std::int64_t end_ns, std::size_t planned_flows) : end_ns_(end_ns), planned_flows_(planned_flows) {}

    void show(std::int64_t simulated_ns, std::int64_t flows) {
        if (seconds_since(last_) < 0.5) return;
        last_ = Clock::now();
        const nlohmann::json line{{"simulated_ns", simulated_ns},
                                  {"end_ns", end_ns_},
                                  {"flows", flows},
                                  {"planned_flows", planned_flows_},
                                  {"wall_seconds", seconds_since(start_)}};
        std::fprintf(stderr, "%s\n", line.dump().c_str());
    }

private:
    std::int64_t end_ns_;
    std::size_t planned_flows_;
    Clock::time_point start_ = Clock::now(), last_ = start_;
};

/// Times of a run, which begins when this is made.
class RunTimes {
public:
    void simulate(const std::function<void()>& simulation) {
        const double cpu_before = cpu_seconds();
        const auto before = Clock::now();
        simulation();
        cpu_seconds_ = cpu_seconds() - cpu_before;
        wall_seconds_ = seconds_since(before);
    }
    /// What a summary says of them at the end of the run.
    [[nodiscard]] nlohmann::json summary() const {
        return {{"simulation_cpu_seconds", cpu_seconds_},
                {"simulation_wall_seconds", wall_seconds_},
                {"wall_seconds", seconds_since(start_)}};
    }

private:
    Clock::time_point start_ = Clock::now();
    double cpu_seconds_ = 0, wall_seconds_ = 0;
};

}  // namespace foretail::packets
