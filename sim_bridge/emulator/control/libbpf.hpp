// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "emulator/hosts/namespaces.hpp"

namespace foretail::packets::emulator {

/// Gives the kernel a compiled BPF program whose one map is a congestion control, and registers that. It stays so until
/// the descriptor is closed, with this process at the latest, however that ends. Throws std::runtime_error with the end
/// of a sentence about the program: what it lacks here.
Descriptor register_with_kernel(const std::string& object);

}  // namespace foretail::packets::emulator
