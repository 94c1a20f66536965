// SPDX-License-Identifier: MIT
// Python's door to the C++ of this room.
#include "bindings/module.hpp"

#include <exception>
#include <stdexcept>

NB_MODULE(_native, m) {
    using namespace foretail::bindings;
    // Whatever a caller gets wrong is the one exception for that; its module is not there yet while stubs are made.
    nanobind::register_exception_translator([](const std::exception_ptr& raised, void*) {
        try {
            std::rethrow_exception(raised);
        } catch (const std::invalid_argument& refused) {
            const nanobind::object error = nanobind::module_::import_("foretail.core.errors").attr("ForetailError");
            PyErr_SetString(error.ptr(), refused.what());
        }
    });
    m.doc() = "Buffer policies, labels and features over known arrivals, and the native network (C++).";
    for (const auto add : {add_records, add_slotted, add_replay, add_push_outs, add_trees, add_circuits, add_live,
                           add_counters, add_open_loop, add_native, add_closed_loop, add_schedulers, add_balancing})
        add(m);
}
