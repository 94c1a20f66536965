// SPDX-License-Identifier: MIT
// What each part of the native module adds to it.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <stdexcept>

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

}  // namespace foretail::bindings
