// SPDX-License-Identifier: MIT
// Parts of the native module, and the conversion of whole numbers and arrays from and to Python, with their checks.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "buffer/types.hpp"

namespace foretail::bindings {

void add_slotted(nanobind::module_& m);
void add_replay(nanobind::module_& m);
void add_circuits(nanobind::module_& m);
void add_live(nanobind::module_& m);
void add_open_loop(nanobind::module_& m);
void add_native(nanobind::module_& m);

/// Whatever a caller gets wrong is the one exception for that; its module is not there yet while stubs are made.
inline void refuse_by_foretail_error() {
    nanobind::register_exception_translator([](const std::exception_ptr& raised, void*) {
        try {
            std::rethrow_exception(raised);
        } catch (const std::invalid_argument& refused) {
            const nanobind::object error = nanobind::module_::import_("foretail.core.errors").attr("ForetailError");
            PyErr_SetString(error.ptr(), refused.what());
        }
    });
}

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

namespace foretail::bindings {

namespace nb = nanobind;
using namespace buffer;

template <class T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

/// Arrivals after this time could make a departure overflow.
inline constexpr Tick latest = Tick{1} << 62;
/// Records hold ports and switches in 16 bits.
inline constexpr std::int64_t max_ports = 1 << 15;
/// Intervals, in slots or nanoseconds: `latest` and one of these do not overflow either.
inline constexpr Tick longest = Tick{1} << 40;
/// Of a switch in slots, in packets.
inline constexpr Bytes max_packets = Bytes{1} << 40;

template <class T>
nb::ndarray<nb::numpy, T> owned(std::vector<T> values, std::vector<std::size_t> shape) {
    auto* held = new std::vector<T>(std::move(values));
    nb::capsule owner(held, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return {held->data(), shape.size(), shape.data(), owner};
}

template <class T>
void same_length(const char* name, const std::optional<Column<T>>& column, std::size_t n) {
    if (column && column->shape(0) != n) {
        throw std::invalid_argument(std::string(name) + " has " + std::to_string(column->shape(0)) +
                                    " rows, but there are " + std::to_string(n) + " arrivals");
    }
}

inline void in_range(Port port, Port ports, std::size_t row) {
    if (port < 0 || port >= ports) {
        throw std::invalid_argument("row " + std::to_string(row) + " has port " + std::to_string(port) +
                                    ", outside 0 to " + std::to_string(ports - 1));
    }
}

/// `what` is time or slot, `last` that of the row before.
inline void in_order(const std::string& what, Tick time, Tick last, std::size_t row) {
    if (time < last || time > latest) {
        throw std::invalid_argument("row " + std::to_string(row) + " has " + what + " " + std::to_string(time) + ": " +
                                    what + "s start at 0, never decrease and end at 2^62");
    }
}

inline void known_priorities(const std::optional<Column<std::uint8_t>>& priority, std::size_t n, int priorities) {
    same_length("priority", priority, n);
    for (std::size_t i = 0; priority && i < n; ++i) {
        if ((*priority)(i) >= priorities) {
            throw std::invalid_argument("row " + std::to_string(i) + " has priority " + std::to_string((*priority)(i)) +
                                        ", but a port has " + std::to_string(priorities) +
                                        (priorities == 1 ? " queue" : " queues"));
        }
    }
}

}  // namespace foretail::bindings
