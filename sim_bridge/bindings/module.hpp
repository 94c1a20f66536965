// SPDX-License-Identifier: MIT
// What each part of the native module adds to it.
#pragma once

#include <nanobind/nanobind.h>

namespace foretail::bindings {

void add_records(nanobind::module_& m);
void add_slotted(nanobind::module_& m);
void add_replay(nanobind::module_& m);
void add_push_outs(nanobind::module_& m);
void add_trees(nanobind::module_& m);
void add_balancing(nanobind::module_& m);
void add_circuits(nanobind::module_& m);
void add_live(nanobind::module_& m);
void add_counters(nanobind::module_& m);
void add_open_loop(nanobind::module_& m);
void add_native(nanobind::module_& m);
void add_closed_loop(nanobind::module_& m);
void add_schedulers(nanobind::module_& m);

}  // namespace foretail::bindings
