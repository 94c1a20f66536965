// SPDX-License-Identifier: MIT
#include "packets/branches.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace foretail::packets {

std::string Branch::path(const std::string& folder) const {
    return folder + "/branch_" + std::to_string(row) + (turned ? "_turned_" : "_kept_") + std::to_string(repeat) +
           ".bin";
}

nlohmann::json to_json(const std::vector<Branch>& branches) {
    nlohmann::json found = nlohmann::json::array();
    for (const Branch& one : branches) {
        found.push_back({{"row", one.row},
                         {"turned", one.turned},
                         {"repeat", one.repeat},
                         {"decisions", one.decisions},
                         {"end_ns", one.end_ns}});
    }
    return found;
}

std::vector<Branch> BranchPoints::branches_at(std::int64_t row) const {
    std::vector<Branch> found{{.row = row, .turned = true}};
    for (int repeat = 1; repeat < choice_.repeats; ++repeat) {
        for (const bool turned : {false, true}) found.push_back({.row = row, .turned = turned, .repeat = repeat});
    }
    return found;
}

void BranchPoints::require_all_met() const {
    if (next_ < choice_.rows.size()) {
        throw std::runtime_error("setting 'branches.rows' names arrival " + std::to_string(choice_.rows[next_]) +
                                 ", which is not a data packet of this run");
    }
}

}  // namespace foretail::packets
