// SPDX-License-Identifier: MIT
// Whole numbers on their way from Python, where they have any size.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace foretail::bindings {

/// A number that is compared before it is used: what `T` does not hold is refused by its name, not as another type.
template <class T>
struct Whole {
    T value = 0;
    bool fits = true;
};

using Integer = Whole<std::int64_t>;
using Seed = Whole<std::uint64_t>;

inline void between(const char* what, std::int64_t value, std::int64_t low, std::int64_t high) {
    if (value < low || value > high) {
        throw std::invalid_argument(std::string(what) + " is " + std::to_string(value) + ", outside " +
                                    std::to_string(low) + " to " + std::to_string(high));
    }
}

/// The number, if it is from `low` to `high`.
template <class T = std::int64_t>
T checked(const char* what, Integer number, std::int64_t low, std::int64_t high) {
    if (!number.fits) {
        throw std::invalid_argument(std::string(what) + " is not a number of 64 bits: it must be " +
                                    std::to_string(low) + " to " + std::to_string(high));
    }
    between(what, number.value, low, high);
    return static_cast<T>(number.value);
}

inline std::uint64_t checked(Seed seed) {
    if (!seed.fits) throw std::invalid_argument("seed is outside 0 to 2^64 - 1");
    return seed.value;
}

}  // namespace foretail::bindings

namespace nanobind::detail {

template <class T>
struct type_caster<foretail::bindings::Whole<T>> {
    NB_TYPE_CASTER(foretail::bindings::Whole<T>, const_name("int"))

    bool from_python(handle source, std::uint32_t flags, cleanup_list* cleanup) noexcept {
        make_caster<T> exact;
        value.fits = exact.from_python(source, flags, cleanup);
        value.value = value.fits ? exact.value : T{0};
        return value.fits || PyIndex_Check(source.ptr());
    }
};

}  // namespace nanobind::detail
