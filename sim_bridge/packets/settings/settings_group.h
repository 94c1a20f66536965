// SPDX-License-Identifier: MIT
#pragma once

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "buffer/types.hpp"

namespace foretail::packets {

/// Throws std::runtime_error with one sentence.
[[noreturn]] inline void refuse(const std::string& what) { throw std::runtime_error(what); }

/// One object of a settings document, which Foretail has resolved and checked (configs/schema/): here only its
/// structure counts, and a sentence that refuses it names the path. Whatever nobody has read is unknown.
class Group {
public:
    Group(const nlohmann::json& node, std::string name) : node_(node), name_(std::move(name)) {
        if (!node_.is_object()) packets::refuse("setting '" + name_ + "' must be an object");
    }
    /// What `read` makes of the object of that name, all of which it has to read.
    template <class Read>
    [[nodiscard]] auto group(const std::string& key, Read&& read) const {
        const Group inner(value(key), path(key));
        auto result = read(inner);
        inner.require_all_read("is unknown: leave it out");
        return result;
    }
    [[nodiscard]] bool has(const std::string& key) const { return node_.contains(key); }
    [[nodiscard]] bool is_list(const std::string& key) const { return value(key).is_array(); }
    [[nodiscard]] bool is_null(const std::string& key) const { return value(key).is_null(); }

    /// A value of exactly this type, or null for an optional one; a number of another kind would be rounded or wrapped.
    template <class T>
    [[nodiscard]] T get(const std::string& key) const {
        if constexpr (std::is_same_v<T, std::optional<std::int64_t>>)
            return is_null(key) ? T() : get<std::int64_t>(key);
        else
            return as<T>(value(key), "setting '" + path(key) + "'");
    }
    /// The same, or `otherwise` where it is null.
    template <class T>
    [[nodiscard]] T get_or(const std::string& key, T otherwise) const {
        return is_null(key) ? otherwise : get<T>(key);
    }
    template <class Enum = std::size_t>
    [[nodiscard]] Enum choice(const std::string& key, std::span<const std::string_view> names) const {
        const auto name = get<std::string>(key);
        return static_cast<Enum>(buffer::position(name, names, "setting '" + path(key) + "' is '" + name + "'"));
    }
    /// The list of that name.
    [[nodiscard]] const nlohmann::json& items(const std::string& key) const {
        if (!value(key).is_array()) refuse(key, "must be a list");
        return value(key);
    }
    /// Entry `i` of the list of that name, a whole number from `low` to `high`.
    [[nodiscard]] std::int64_t entry(const std::string& key, std::size_t i, std::int64_t low, std::int64_t high) const {
        const nlohmann::json& number = items(key)[i];
        if (!is_whole(number) || number.get<std::int64_t>() < low || number.get<std::int64_t>() > high) {
            packets::refuse("entry " + std::to_string(i) + " of setting '" + path(key) +
                            "' must be a whole number from " + std::to_string(low) + " to " + std::to_string(high) +
                            ", not " + number.dump());
        }
        return number.get<std::int64_t>();
    }
    /// Counts an entry as read that is somebody else's, if there is one.
    void leave(const std::string& key) const { read_.insert(key); }
    /// Refuses the first entry that nobody has read; `why` is what the sentence goes on with.
    void require_all_read(const std::string& why) const {
        for (const auto& [key, unused] : node_.items()) {
            if (!read_.contains(key)) packets::refuse("setting '" + path(key) + "' " + why);
        }
    }
    /// Throws std::runtime_error with one sentence.
    [[noreturn]] inline void refuse(const std::string& key, const std::string& why) const {
        packets::refuse("setting '" + path(key) + "' " + why + ", not " + value(key).dump());
    }

private:
    static bool is_whole(const nlohmann::json& value) {
        constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
        return value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= most);
    }
    template <class T>
    [[nodiscard]] static T as(const nlohmann::json& value, const std::string& what) {
        const auto require = [&](bool fits, const std::string& need) {
            if (!fits) packets::refuse(what + " must be " + need + ", not " + value.dump());
        };
        if constexpr (std::is_same_v<T, bool>) {
            require(value.is_boolean(), "true or false");
        } else if constexpr (std::is_same_v<T, std::string>) {
            require(value.is_string(), "a text");
        } else if constexpr (std::is_same_v<T, std::uint64_t>) {
            require(value.is_number_unsigned(), "a whole number from 0 to 2^64 - 1");
        } else if constexpr (std::is_integral_v<T>) {
            using Limits = std::numeric_limits<T>;
            require(is_whole(value) && value.get<std::int64_t>() >= Limits::min() &&
                        value.get<std::int64_t>() <= Limits::max(),
                    "a whole number that " + std::to_string(8 * sizeof(T)) + " bits hold");
        } else if constexpr (std::is_floating_point_v<T>) {
            require(value.is_number(), "a number");
        } else {
            require(value.is_array(), "a list");
            T out;
            for (const auto& item : value) out.push_back(as<typename T::value_type>(item, "an entry of " + what));
            return out;
        }
        return value.get<T>();
    }

    [[nodiscard]] std::string path(const std::string& key) const { return name_.empty() ? key : name_ + "." + key; }
    [[nodiscard]] const nlohmann::json& value(const std::string& key) const {
        const auto entry = node_.find(key);
        if (entry == node_.end()) packets::refuse("setting '" + path(key) + "' is missing");
        read_.insert(key);
        return *entry;
    }

    const nlohmann::json& node_;
    std::string name_;
    mutable std::set<std::string> read_;
};

/// Reads entries of `group` into the fields of `out` that have their names.
#define FORETAIL_READ(...) NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(FORETAIL_READ_ONE, __VA_ARGS__))
#define FORETAIL_READ_ONE(field) out.field = group.get<decltype(out.field)>(#field);

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
