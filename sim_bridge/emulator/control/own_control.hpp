// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "emulator/hosts/namespaces.hpp"

namespace foretail::packets::emulator {

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
