// SPDX-License-Identifier: MIT
// Python's door to the C++ of the studies.
#include "bindings/module.hpp"
#include "studies.hpp"

NB_MODULE(_native, m) {
    foretail::bindings::refuse_by_foretail_error();
    m.doc() = "Networks of schedulers, and cells over circuits (C++).";
    foretail::bindings::add_cells(m);
    foretail::bindings::add_schedulers(m);
}
