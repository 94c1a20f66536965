// SPDX-License-Identifier: MIT
#include "emulator/hosts/command.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <cstdint>
#include <vector>

#include "emulator/headers.hpp"

namespace foretail::packets::emulator {
namespace {

std::string dotted(std::uint32_t address) {
    std::array<char, INET_ADDRSTRLEN> text{};
    const in_addr bytes{htonl(address)};
    inet_ntop(AF_INET, &bytes, text.data(), text.size());
    return text.data();
}

/// Tells the program which host it is on, and where the others are.
void set_environment(const EmulatorSettings& settings, int host) {
    const int hosts = settings.network.topology.servers();
    std::string addresses;
    for (int i = 0; i < hosts; ++i)
        addresses += (i > 0 ? " " : "") + dotted(first_address + static_cast<std::uint32_t>(i));
    setenv("FORETAIL_HOST", std::to_string(host).c_str(), 1);
    setenv("FORETAIL_ADDRESSES", addresses.c_str(), 1);
    setenv("FORETAIL_CONTROL", settings.emulation.control.c_str(), 1);
    setenv("FORETAIL_FACTOR", std::to_string(settings.emulation.factor).c_str(), 1);
}

}  // namespace

Command::Command(const EmulatorSettings& settings, int host, const std::string& folder, Shared& shared) {
    // The program is the first of a process namespace, with whose end the kernel ends all others in it.
    if (unshare(CLONE_NEWPID) < 0)
        fail("the kernel gives a command no process namespace (see user.max_pid_namespaces)");
    const pid_t process = fork();
    if (process < 0) fail("cannot start the command of a host");
    if (process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const std::string log = folder + "/host_" + std::to_string(host) + ".log";
        const int nothing = open("/dev/null", O_RDONLY), out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (nothing < 0 || out < 0 || dup2(nothing, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) {
            shared.complain("cannot write " + log + ": " + std::strerror(errno));
            _exit(126);
        }
        set_environment(settings, host);
        std::vector<char*> words;
        for (const std::string& word : settings.emulation.command) words.push_back(const_cast<char*>(word.c_str()));
        words.push_back(nullptr);
        execvp(words.front(), words.data());
        shared.complain("the command " + settings.emulation.command.front() +
                        " cannot be run: " + std::strerror(errno));
        _exit(127);
    }
    process_ = process;
    ending_ = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
    if (ending_.get() < 0) fail("cannot wait for the command of a host");
}

Command::~Command() {
    if (process_ < 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
}

int Command::exit_code() {
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace foretail::packets::emulator
