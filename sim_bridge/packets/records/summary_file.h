// SPDX-License-Identifier: MIT
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace foretail::packets {

/// Writes summary.json, the last file of a run; throws std::runtime_error when it cannot.
inline void write_summary(const std::string& folder, const nlohmann::json& summary) {
    std::ofstream out(folder + "/summary.json");
    out << summary.dump(1) << '\n';
    out.close();
    if (!out) throw std::runtime_error("cannot write '" + folder + "/summary.json'");
}

}  // namespace foretail::packets
