// SPDX-License-Identifier: MIT
// foretail-native SETTINGS.json OUTPUT_FOLDER: one packet-level run with Foretail's own TCP, with the settings and the
// output of foretail-ns3. Progress goes to standard error as JSON lines; the exit code is 0 after a complete run, 2
// with one sentence on standard error otherwise.
#include <chrono>
#include <cstdio>
#include <exception>

#include "native/simulation.h"
#include "packets/records/records.h"

namespace foretail::packets::native {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void run(const std::string& settings_path, const std::string& folder) {
    const auto start = Clock::now();
    const auto simulation = make_simulation(read_document(settings_path), folder);
    const double cpu_before = cpu_seconds();
    const auto simulation_start = Clock::now();
    auto last = simulation_start;
    simulation->advance(std::numeric_limits<std::int64_t>::max(), [&](std::int64_t now, std::int64_t) {
        if (seconds_since(last) < 0.5) return;
        last = Clock::now();
        const json line{{"simulated_ns", now},
                        {"end_ns", simulation->end_ns()},
                        {"flows", simulation->ledger().completed()},
                        {"planned_flows", simulation->ledger().planned()},
                        {"wall_seconds", seconds_since(simulation_start)}};
        std::fprintf(stderr, "%s\n", line.dump().c_str());
    });
    const double simulation_cpu = cpu_seconds() - cpu_before, simulation_wall = seconds_since(simulation_start);
    json summary = simulation->finish();
    summary.update({{"simulation_cpu_seconds", simulation_cpu},
                    {"simulation_wall_seconds", simulation_wall},
                    {"wall_seconds", seconds_since(start)}});
    write_summary(folder, summary);
}

}  // namespace
}  // namespace foretail::packets::native

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: foretail-native SETTINGS.json OUTPUT_FOLDER\n");
        return 2;
    }
    try {
        foretail::packets::native::run(argv[1], argv[2]);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 2;
    }
    return 0;
}
