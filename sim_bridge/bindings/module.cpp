// SPDX-License-Identifier: MIT
// Python's door to the C++ of this room.
#include "bindings/module.hpp"

NB_MODULE(_native, m) {
    using namespace foretail::bindings;
    m.doc() = "Buffer policies, labels and features over known arrivals (C++).";
    for (const auto add : {add_records, add_slotted, add_replay, add_push_outs, add_trees, add_circuits}) add(m);
}
