// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <string>

#include "emulator/hosts/hosts.hpp"
#include "emulator/hosts/namespaces.hpp"
#include "emulator/settings.hpp"

namespace foretail::packets::emulator {

/// The program that a host runs beside its flows, from construction on. It, and all that it has started, ends with this
/// object, and with this process.
class Command {
public:
    /// What the program prints goes to `folder`/host_N.log. A program that cannot be started complains to `shared`.
    Command(const EmulatorSettings& settings, int host, const std::string& folder, Shared& shared);
    Command(const Command&) = delete;
    Command& operator=(const Command&) = delete;
    ~Command();

    /// A file that can be read when the program has ended.
    [[nodiscard]] int ending() const { return ending_.get(); }
    /// How it ended, as a shell says it: its exit code, or 128 and the signal. Call once, when it has.
    int exit_code();

private:
    pid_t process_ = -1;
    Descriptor ending_;
};

}  // namespace foretail::packets::emulator
