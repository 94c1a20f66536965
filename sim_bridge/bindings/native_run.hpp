// SPDX-License-Identifier: MIT
// What all bindings of the native network read and tell.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <string>

#include "packets/flow_ledger.h"
#include "packets/settings.h"
#include "packets/settings_group.h"

namespace foretail::bindings {

/// The settings in the text of a document; throws std::runtime_error as the program does.
packets::Settings native_settings(const std::string& document);

/// The records of all flows, byte by byte.
nanobind::ndarray<nanobind::numpy, std::uint8_t> flow_bytes(const packets::FlowLedger& ledger);

}  // namespace foretail::bindings
