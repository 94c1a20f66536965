// SPDX-License-Identifier: MIT
#include "emulator/control/own_control.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>
#include <string_view>

namespace foretail::packets::emulator {

namespace {

// Of linux/bpf.h, which may be older than the kernel.
constexpr int create_link = 28;
constexpr std::uint32_t attach_struct_ops = 44, with_link = 1U << 13;

/// The first thing that libbpf complained about.
std::string& complaint() {
    static std::string message;
    return message;
}

int hear(int level, const char* format, va_list arguments) {
    if (level > 0 || !complaint().empty()) return 0;  // above 0 it tells what it does
    std::array<char, 400> text{};
    std::vsnprintf(text.data(), text.size(), format, arguments);
    const std::string_view line(text.data());
    complaint() = line.substr(0, line.find('\n'));
    return 0;
}

/// The functions of libbpf 1 that are needed, by their names there; loaded when asked for, so that nothing else needs
/// the library.
class Libbpf {
public:
    Libbpf() : library_(dlopen("libbpf.so.1", RTLD_NOW), &dlclose) {
        if (library_ == nullptr)
            throw std::runtime_error("which libbpf.so.1 loads, and that is not here: install libbpf1, or libbpf");
        find(open_mem, "bpf_object__open_mem");
        find(load, "bpf_object__load");
        find(next_map, "bpf_object__next_map");
        find(set_map_flags, "bpf_map__set_map_flags");
        find(map_fd, "bpf_map__fd");
        find(attach, "bpf_map__attach_struct_ops");
        find(link_fd, "bpf_link__fd");
        find(close, "bpf_object__close");
        find(major_version, "libbpf_major_version");
        find(minor_version, "libbpf_minor_version");
        void* (*set_print)(int (*hear)(int, const char*, va_list)) = nullptr;
        find(set_print, "libbpf_set_print");
        set_print(hear);
    }

    void* (*open_mem)(const void* object, std::size_t bytes, const void* options) = nullptr;
    int (*load)(void* object) = nullptr;
    void* (*next_map)(const void* object, const void* map) = nullptr;
    int (*set_map_flags)(void* map, std::uint32_t flags) = nullptr;
    int (*map_fd)(const void* map) = nullptr;
    void* (*attach)(const void* map) = nullptr;
    int (*link_fd)(const void* link) = nullptr;
    void (*close)(void* object) = nullptr;
    std::uint32_t (*major_version)() = nullptr;
    std::uint32_t (*minor_version)() = nullptr;

private:
    template <class Function>
    void find(Function& function, const char* name) {
        function = reinterpret_cast<Function>(dlsym(library_.get(), name));
        if (function == nullptr)
            throw std::runtime_error(std::string("which libbpf.so.1 loads, and this one has no ") + name +
                                     ": install a newer one");
    }

    std::unique_ptr<void, int (*)(void*)> library_;
};

[[noreturn]] void refuse_program() {
    const std::string why = complaint().empty() ? std::strerror(errno) : complaint();
    throw std::runtime_error("which this kernel does not take (" + why + "): use Linux 6.10 or newer, with BPF's JIT");
}

}  // namespace

Descriptor register_with_kernel(const std::string& object) {
    const Libbpf bpf;
    // libbpf 1 returns null or less than 0, and says why in errno.
    const std::unique_ptr<void, void (*)(void*)> program(bpf.open_mem(object.data(), object.size(), nullptr),
                                                         bpf.close);
    if (program == nullptr) refuse_program();
    void* map = bpf.next_map(program.get(), nullptr);
    if (map == nullptr || bpf.set_map_flags(map, with_link) < 0 || bpf.load(program.get()) < 0) refuse_program();
    const void* attached = bpf.attach(map);
    if (attached == nullptr) refuse_program();
    // Before 1.2 it only fills the map: what registers it is a link.
    const bool links = bpf.major_version() > 1 || bpf.minor_version() >= 2;
    struct {
        std::uint32_t map_fd, target_fd, attach_type, flags;
    } const wanted{static_cast<std::uint32_t>(bpf.map_fd(map)), 0, attach_struct_ops, 0};
    Descriptor link(links ? fcntl(bpf.link_fd(attached), F_DUPFD_CLOEXEC, 0)
                          : static_cast<int>(syscall(SYS_bpf, create_link, &wanted, sizeof wanted)));
    if (link.get() < 0) refuse_program();
    return link;
}

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

/// Runs clang, which reads the source and writes the object.
std::string compiled(std::string_view source, const std::string& kernel_name) {
    const std::string command = "clang -target bpf -O2 -g '-DCONTROL_NAME=\"" + kernel_name + "\"' -x c -c - -o -";
    const auto [status, object] = run_shell(command + " 2>/dev/null", source);
    if (status == 0) return object;
    if (status == 127) throw std::runtime_error("which clang compiles, and that is not on PATH: install clang");
    const std::string errors = run_shell(command + " 2>&1 >/dev/null", source).second;
    throw std::runtime_error("which clang does not compile (" + errors.substr(0, errors.find('\n')) +
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
