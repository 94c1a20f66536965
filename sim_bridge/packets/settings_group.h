// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "buffer/names.hpp"

namespace foretail::packets {

/// Throws std::runtime_error with one sentence.
[[noreturn]] inline void refuse(const std::string& what) { throw std::runtime_error(what); }

/// One group of the settings, which knows its name for error messages.
class Group {
public:
    Group(const nlohmann::json& node, std::string name) : node_(node), name_(std::move(name)) {
        if (!node_.is_object()) packets::refuse("setting '" + name_ + "' must be an object");
    }
    [[nodiscard]] Group group(const std::string& key) const { return {value(key), path(key)}; }
    [[nodiscard]] bool has(const std::string& key) const { return node_.contains(key); }
    [[nodiscard]] bool is_null(const std::string& key) const { return value(key).is_null(); }

    template <class T>
    [[nodiscard]] T get(const std::string& key) const {
        try {
            const nlohmann::json& found = value(key);
            // A number of another kind would be rounded or wrapped, and integers beyond 64 bits come as fractions.
            if constexpr (std::is_same_v<T, std::uint64_t>) {
                if (!found.is_number_unsigned()) refuse(key, "must be a whole number from 0 to 2^64 - 1");
            } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
                if (!found.is_number_integer() || (found.is_number_unsigned() && found.get<std::uint64_t>() > most))
                    refuse(key, "must be a whole number that 64 bits hold");
            }
            return found.get<T>();
        } catch (const nlohmann::json::exception&) {
            packets::refuse("setting '" + path(key) + "' has the wrong type: " + value(key).dump());
        }
    }
    /// From `low` to `high`; an integer is compared before it is narrowed.
    template <class T>
    [[nodiscard]] T between(const std::string& key, T low, T high = std::numeric_limits<T>::max()) const {
        const auto found = get<std::conditional_t<std::is_integral_v<T>, std::int64_t, double>>(key);
        if (!(found >= low)) refuse(key, "must be at least " + nlohmann::json(low).dump());
        if (!(found <= high)) refuse(key, "must be at most " + nlohmann::json(high).dump());
        return static_cast<T>(found);
    }
    [[nodiscard]] double positive(const std::string& key, double high = std::numeric_limits<double>::infinity()) const {
        if (!(get<double>(key) > 0)) refuse(key, "must be above 0");
        return between(key, 0.0, high);
    }
    template <class Enum = std::size_t>
    [[nodiscard]] Enum choice(const std::string& key, std::span<const std::string_view> names) const {
        const auto found = get<std::string>(key);
        return static_cast<Enum>(buffer::position(found, names, "setting '" + path(key) + "' is '" + found + "'"));
    }
    /// Refuses any setting but these; `why` is what the sentence goes on with.
    void require_only(std::span<const std::string_view> names, const std::string& why) const {
        for (const auto& [key, found] : node_.items()) {
            if (std::ranges::find(names, std::string_view(key)) == names.end())
                packets::refuse("setting '" + path(key) + "' " + why);
        }
    }
    /// The list of that name.
    [[nodiscard]] const nlohmann::json& items(const std::string& key) const {
        if (!value(key).is_array()) refuse(key, "must be a list");
        return value(key);
    }
    /// Entry `i` of the list of that name, a whole number from `low` to `high`.
    [[nodiscard]] std::int64_t entry(const std::string& key, std::size_t i, std::int64_t low, std::int64_t high) const {
        const nlohmann::json& found = items(key)[i];
        const bool fits =
            found.is_number_integer() && (!found.is_number_unsigned() || found.get<std::uint64_t>() <= most);
        if (!fits || found.get<std::int64_t>() < low || found.get<std::int64_t>() > high) {
            packets::refuse("entry " + std::to_string(i) + " of setting '" + path(key) +
                            "' must be a whole number from " + std::to_string(low) + " to " + std::to_string(high) +
                            ", not " + found.dump());
        }
        return found.get<std::int64_t>();
    }
    /// Throws std::runtime_error with one sentence.
    [[noreturn]] inline void refuse(const std::string& key, const std::string& why) const {
        packets::refuse("setting '" + path(key) + "' " + why + ", not " + value(key).dump());
    }

private:
    static constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();

    [[nodiscard]] std::string path(const std::string& key) const { return name_.empty() ? key : name_ + "." + key; }
    [[nodiscard]] const nlohmann::json& value(const std::string& key) const {
        const auto found = node_.find(key);
        if (found == node_.end()) packets::refuse("setting '" + path(key) + "' is missing");
        return *found;
    }

    const nlohmann::json& node_;
    std::string name_;
};

/// The JSON document in a file; throws std::runtime_error with one sentence when there is none.
inline nlohmann::json read_document(const std::string& path) {
    std::ifstream file(path);
    if (!file) refuse("cannot read the settings file '" + path + "'");
    try {
        return nlohmann::json::parse(file);
    } catch (const nlohmann::json::exception& error) {
        refuse("the settings file '" + path + "' is not JSON: " + error.what());
    }
}

}  // namespace foretail::packets
