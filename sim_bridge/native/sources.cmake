# The sources of the native network, for its program and for the extension module; first what takes longest to compile.
set(NATIVE_NETWORK
    buffer/policies/policies.cpp
    buffer/run.cpp
    native/simulation.cc
    native/rack_simulation.cc
    native/linux/socket.cc
    native/rdma/rdma_hosts.cc
    native/hosts/stack.cc
    native/tcp/send_buffer.cc
    native/tcp/socket.cc
    packets/racks/rack_settings.cc
    packets/records/records.cc
    packets/settings/settings.cc
    packets/traffic.cc)
list(TRANSFORM NATIVE_NETWORK PREPEND "${CMAKE_CURRENT_LIST_DIR}/../")
