// SPDX-License-Identifier: MIT
// Congestion controls of our own in the kernel, as BPF programs that libbpf loads.
#pragma once

#include <vector>

#include "emulator/hosts/namespaces.hpp"

namespace foretail::packets::emulator {

/// Gives the kernel a compiled BPF program whose one map is a congestion control, and registers that. It stays so until
/// the descriptor is closed, with this process at the latest, however that ends. Throws std::runtime_error with the end
/// of a sentence about the program: what it lacks here.
Descriptor register_with_kernel(const std::string& object);

/// Congestion controls that Foretail has as BPF programs, for kernels that do not have them.
std::vector<std::string> own_controls();

/// One of them, registered with the kernel while this object lives; a killed process takes it along. Needs root of the
/// machine, clang, libbpf and a kernel that describes its types.
class OwnControl {
public:
    /// Throws std::runtime_error with one sentence that names what is missing, and the fix.
    explicit OwnControl(const std::string& name);

    [[nodiscard]] const std::string& name() const { return name_; }
    /// What sockets choose it by: the name, and 8 digits that no other emulator has.
    [[nodiscard]] const std::string& kernel_name() const { return kernel_name_; }

private:
    std::string name_, kernel_name_;
    Descriptor link_;
};

}  // namespace foretail::packets::emulator
