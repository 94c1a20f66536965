// SPDX-License-Identifier: MIT
#include "emulator/control/own_control.hpp"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <random>
#include <sstream>
#include <string_view>

#include "emulator/control/libbpf.hpp"

namespace foretail::packets::emulator {
namespace {

/// A congestion control as C for BPF, in one piece.
struct ControlProgram {
    std::string_view name, source;
};
constexpr ControlProgram control_programs[] = {
#include "control_programs.inc"
};

constexpr const char* types_of_kernel = "/sys/kernel/btf/vmlinux";
constexpr unsigned network_admin = 12, bpf = 39;  // capabilities

std::string_view source_of(const std::string& name) {
    return std::ranges::find(control_programs, name, &ControlProgram::name)->source;
}

/// Whether this process has a capability in the user namespace of the machine itself.
bool has_rights() {
    std::ifstream map("/proc/self/uid_map"), status("/proc/self/status");
    std::uint64_t inside = 0, outside = 0, ids = 0;
    map >> inside >> outside >> ids;
    if (outside != 0 || ids != 0xFFFFFFFFU) return false;  // of another namespace's root the kernel takes no programs
    for (std::string word; status >> word;) {
        if (word != "CapEff:") continue;
        std::uint64_t capabilities = 0;
        status >> std::hex >> capabilities;
        return (capabilities >> network_admin & 1) != 0 && (capabilities >> bpf & 1) != 0;
    }
    return false;
}

/// A file in memory without a name.
Descriptor memory_file() {
    Descriptor file(memfd_create("control", MFD_CLOEXEC));
    if (file.get() < 0) fail("no memory for a congestion control's program");
    return file;
}

std::string text_of(const Descriptor& file) {
    std::string text;
    std::array<char, 4096> part{};
    lseek(file.get(), 0, SEEK_SET);
    for (ssize_t got = 0; (got = read(file.get(), part.data(), part.size())) > 0;)
        text.append(part.data(), static_cast<std::size_t>(got));
    return text;
}

/// Runs clang, which reads the source and writes the object.
std::string compiled(std::string_view source, const std::string& kernel_name) {
    const Descriptor in = memory_file(), out = memory_file(), said = memory_file();
    if (write(in.get(), source.data(), source.size()) != static_cast<ssize_t>(source.size()))
        fail("no memory for a congestion control's program");
    lseek(in.get(), 0, SEEK_SET);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in.get(), 0);
    posix_spawn_file_actions_adddup2(&files, out.get(), 1);
    posix_spawn_file_actions_adddup2(&files, said.get(), 2);
    const std::string named = "-DCONTROL_NAME=\"" + kernel_name + "\"";
    const std::array<const char*, 12> words{"clang", "-target", "bpf", "-O2", "-g",  named.c_str(),
                                            "-x",    "c",       "-c",  "-",   "-o-", nullptr};
    pid_t process = 0;
    const int error = posix_spawnp(&process, "clang", &files, nullptr, const_cast<char* const*>(words.data()), environ);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0) throw std::runtime_error("which clang compiles, and that is not on PATH: install clang");
    int status = 0;
    waitpid(process, &status, 0);
    if (status == 0) return text_of(out);
    std::istringstream lines(text_of(said));
    std::string first;
    std::getline(lines, first);
    throw std::runtime_error("which clang does not compile (" + first +
                             "): put one on PATH that has the target bpf, version 14 or newer");
}

std::string unique_name(const std::string& name) {
    std::array<char, 16> text{};  // which is all that a kernel takes
    std::snprintf(text.data(), text.size(), "%s_%08x", name.c_str(), std::random_device{}());
    return text.data();
}

Descriptor registered(const std::string& name, const std::string& kernel_name) {
    try {
        if (!has_rights())
            throw std::runtime_error(
                "which only root may load: run as root of the machine, with CAP_BPF and CAP_NET_ADMIN");
        if (access(types_of_kernel, R_OK) != 0)
            throw std::runtime_error(std::string("which needs ") + types_of_kernel +
                                     ": take a kernel that was built with CONFIG_DEBUG_INFO_BTF");
        return register_with_kernel(compiled(source_of(name), kernel_name));
    } catch (const std::runtime_error& error) {
        throw std::runtime_error("this kernel does not offer the congestion control " + name +
                                 ", and ours is a BPF program, " + error.what());
    }
}

}  // namespace

std::vector<std::string> own_controls() {
    std::vector<std::string> names;
    for (const ControlProgram& program : control_programs) names.emplace_back(program.name);
    return names;
}

OwnControl::OwnControl(const std::string& name)
    : name_(name), kernel_name_(unique_name(name)), link_(registered(name_, kernel_name_)) {}

}  // namespace foretail::packets::emulator
