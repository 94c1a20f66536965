// SPDX-License-Identifier: MIT
// foretail-native SETTINGS.json OUTPUT_FOLDER: one packet-level run with Foretail's own TCP, with the settings and the
// output of foretail-ns3. Progress goes to standard error as JSON lines; the exit code is 0 after a complete run, 2
// with one sentence on standard error otherwise.
#include "native/simulation.h"
#include "packets/program.h"

namespace foretail::packets::native {
namespace {

void run(const std::string& settings_path, const std::string& folder) {
    RunTimes times;
    const auto simulation = make_simulation(read_document(settings_path), folder);
    ProgressReport progress(simulation->end_ns(), simulation->ledger().planned());
    times.simulate([&] {
        simulation->advance(std::numeric_limits<std::int64_t>::max(), [&](std::int64_t now, std::int64_t) {
            progress.show(now, static_cast<std::int64_t>(simulation->ledger().completed()));
        });
    });
    nlohmann::json summary = simulation->finish();
    summary.update(times.summary());
    write_summary(folder, summary);
}

}  // namespace
}  // namespace foretail::packets::native

int main(int argc, char** argv) {
    return foretail::packets::run_program(argc == 3, "foretail-native SETTINGS.json OUTPUT_FOLDER",
                                          [&] { foretail::packets::native::run(argv[1], argv[2]); });
}
