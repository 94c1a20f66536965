// SPDX-License-Identifier: MIT
// Python's door to the C++ of this room.
#include "bindings/module.hpp"

NB_MODULE(_native, m) {
    using namespace foretail::bindings;
    refuse_by_foretail_error();
    m.doc() = "Buffer policies, labels and features over known arrivals, and the native network (C++).";
    for (const auto add : {add_records, add_slotted, add_replay, add_push_outs, add_trees, add_circuits, add_live,
                           add_counters, add_open_loop, add_native, add_closed_loop, add_balancing})
        add(m);
}
