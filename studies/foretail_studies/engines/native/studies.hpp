// SPDX-License-Identifier: MIT
// What each part of the native module of the studies adds to it.
#pragma once

#include <nanobind/nanobind.h>

namespace foretail::bindings {

void add_cells(nanobind::module_& m);
void add_schedulers(nanobind::module_& m);

}  // namespace foretail::bindings
