// SPDX-License-Identifier: MIT
// Arrays on their way from and to Python, and their checks.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/whole.hpp"
#include "buffer/types.hpp"

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
