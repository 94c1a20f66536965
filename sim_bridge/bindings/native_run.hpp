// SPDX-License-Identifier: MIT
// What all bindings of the native network read and tell.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>

#include "packets/records/flow_ledger.h"

namespace foretail::bindings {

/// The records of all flows, byte by byte.
nanobind::ndarray<nanobind::numpy, std::uint8_t> flow_bytes(const packets::FlowLedger& ledger);

}  // namespace foretail::bindings
