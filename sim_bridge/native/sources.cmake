# The sources of the native network, for its program and for the extension module; first what takes longest to compile.
set(NATIVE_NETWORK
    buffer/policies/policies.cpp
    native/simulation.cc
    native/racks/rack_simulation.cc
    native/hosts/flows.cc
    native/linux/connection.cc
    native/linux/sender.cc
    native/rdma/rdma_hosts.cc
    native/hosts/stack.cc
    native/tcp/acknowledgements.cc
    native/tcp/connection.cc
    native/tcp/low_priority.cc
    native/tcp/send_buffer.cc
    native/tcp/sending.cc
    packets/branches.cc
    packets/records/flow_ledger.cc
    packets/racks/rack_settings.cc
    packets/settings/lossless.cc
    packets/settings/settings.cc
    packets/records/switch_counts.cc
    packets/traffic.cc)
list(TRANSFORM NATIVE_NETWORK PREPEND "${CMAKE_CURRENT_LIST_DIR}/../")
