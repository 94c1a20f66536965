// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace foretail::buffer {

/// Position of a name; throws std::invalid_argument that says `complaint` and which names there are.
inline std::size_t position(std::string_view name, std::span<const std::string_view> names,
                            const std::string& complaint) {
    std::string choices;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i] == name) return i;
        choices.append(i > 0 ? ", " : "").append(names[i]);
    }
    throw std::invalid_argument(complaint + ": choose one of " + choices);
}

}  // namespace foretail::buffer
