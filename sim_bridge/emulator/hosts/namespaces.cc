// SPDX-License-Identifier: MIT
#include "emulator/hosts/namespaces.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace foretail::packets::emulator {
namespace {

constexpr const char* interface_name = "fabric";
constexpr int queue_packets = 10'000;  // between the kernel and the emulator: a full queue would lose packets

void write_file(const std::string& path, const std::string& text, const std::string& what) {
    const Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (file.get() < 0 || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) fail(what);
}

void set_kernel(const std::string& name, const std::string& value) {
    write_file("/proc/sys/net/" + name, value, "cannot set net/" + name + " of a network namespace of our own");
}

/// Where the kernel keeps a congestion control for sockets that ask for it, its own default stays.
void set_default_control(const std::string& control) {
    const Descriptor file(open("/proc/sys/net/ipv4/tcp_congestion_control", O_WRONLY | O_CLOEXEC));
    if (write(file.get(), control.data(), control.size()) < 0 && errno != EPERM)
        fail("cannot make " + control + " the congestion control of a host");
}

ifreq named() {
    ifreq request{};
    std::strncpy(request.ifr_name, interface_name, IFNAMSIZ - 1);
    return request;
}

/// Segmentation by the kernel would make frames of up to 64 kB, and reassembly would hide what arrived.
void switch_offloads_off(int socket) {
    for (const std::uint32_t what : {ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO}) {
        ethtool_value value{what, 0};
        ifreq request = named();
        request.ifr_data = reinterpret_cast<char*>(&value);
        if (ioctl(socket, SIOCETHTOOL, &request) < 0 && errno != EOPNOTSUPP) fail("cannot switch segmentation off");
    }
    ethtool_value value{ETHTOOL_GGSO, 1};
    ifreq request = named();
    request.ifr_data = reinterpret_cast<char*>(&value);
    if (ioctl(socket, SIOCETHTOOL, &request) < 0 || value.data != 0)
        throw std::runtime_error("this kernel does not switch segmentation of a TUN interface off");
}

/// Runs commands of the program `ip`, one a line, in this namespace.
void run_ip(const std::string& commands) {
    const std::string command = "PATH=$PATH:/usr/sbin:/sbin ip -batch - 2>&1 <<'END'\n" + commands + "END\n";
    std::FILE* const output = popen(command.c_str(), "r");
    if (output == nullptr) fail("cannot start a shell");
    std::string answer;
    for (int byte = std::fgetc(output); byte != EOF; byte = std::fgetc(output)) answer += static_cast<char>(byte);
    const int status = pclose(output);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    const std::string first = answer.substr(0, answer.find('\n'));
    throw std::runtime_error("the program ip cannot set up the interface of a host (" + first + "): install iproute2");
}

/// A route to the 2^16 addresses around one, with what TCP is to do on it.
std::string route(std::uint32_t destination, const HostSettings& host, int window_segments) {
    return "route add " + dotted(destination & 0xFFFF0000U) + "/16 dev " + interface_name + " scope link src " +
           dotted(host.address) + " initcwnd " + std::to_string(window_segments) + " rto_min " +
           std::to_string(host.min_rto_ms) + "ms" + (host.quick_acks ? " quickack 1\n" : "\n");
}

Descriptor open_tun() {
    Descriptor tun(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (tun.get() >= 0) return tun;
    if (errno == EACCES || errno == EPERM)
        fail("/dev/net/tun may not be opened (run as root, or chmod 0666 /dev/net/tun as distributions have it)");
    fail("/dev/net/tun cannot be opened (load the kernel module tun, or give the container the device)");
}

}  // namespace

std::string dotted(std::uint32_t address) {
    std::array<char, INET_ADDRSTRLEN> text{};
    const in_addr bytes{htonl(address)};
    inet_ntop(AF_INET, &bytes, text.data(), text.size());
    return text.data();
}

void die_with_parent(int parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // it was gone before
}

void ask_for_short_slices() {
    // `struct sched_attr`, which this C library does not have.
    struct {
        std::uint32_t size = 48, policy = SCHED_OTHER;
        std::uint64_t flags = 0;
        std::int32_t nice = 0;
        std::uint32_t priority = 0;
        std::uint64_t runtime_ns = 100'000, deadline_ns = 0, period_ns = 0;
    } attributes;
    attributes.nice = getpriority(PRIO_PROCESS, 0);
    // A wish: kernels before 6.12 have slices of their own, and what comes of it is measured as lateness anyway.
    static_cast<void>(!syscall(SYS_sched_setattr, 0, &attributes, 0));
}

void enter_user_namespace() {
    const std::string uid = std::to_string(geteuid()), gid = std::to_string(getegid());
    const std::string forbidden =
        "the kernel forbids user namespaces, which emulated hosts live in (see user.max_user_namespaces, "
        "kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns)";
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0) fail(forbidden);
    write_file("/proc/self/setgroups", "deny", forbidden);
    write_file("/proc/self/uid_map", "0 " + uid + " 1", forbidden);
    write_file("/proc/self/gid_map", "0 " + gid + " 1", forbidden);
}

Descriptor enter_host_namespace(const HostSettings& host) {
    if (unshare(CLONE_NEWNET) < 0) fail("the kernel gives a host no network namespace (see user.max_net_namespaces)");
    Descriptor tun = open_tun();
    ifreq request = named();
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    if (ioctl(tun.get(), TUNSETIFF, &request) < 0) fail("cannot make a TUN interface in a namespace of our own");
    const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket.get() < 0) fail("cannot open a socket in a namespace of our own");

    if (access("/proc/sys/net/ipv6", F_OK) == 0) set_kernel("ipv6/conf/all/disable_ipv6", "1");
    set_kernel("ipv4/tcp_timestamps", "0");       // headers as in ns-3
    set_kernel("ipv4/tcp_no_metrics_save", "1");  // a connection knows nothing of those before it
    set_kernel("ipv4/tcp_rmem", "4096 16777216 33554432");
    set_kernel("ipv4/tcp_wmem", "4096 16777216 33554432");
    set_kernel("ipv4/tcp_early_retrans", host.tail_loss_probes ? "3" : "0");
    set_kernel("ipv4/tcp_ecn", host.ecn ? "1" : "0");
    if (!host.control.empty()) set_default_control(host.control);

    switch_offloads_off(socket.get());
    const std::string interface = interface_name;
    run_ip(
        "link set dev lo up\n"  // for programs that talk to themselves
        "link set dev " +
        interface + " arp off multicast off mtu " + std::to_string(host.mtu_bytes) + " txqueuelen " +
        std::to_string(queue_packets) +
        " up\n"
        "address add " +
        dotted(host.address) + "/32 dev " + interface +
        "\n"
        "address add " +
        dotted(host.incast_address) + "/32 dev " + interface + "\n" +
        route(host.address, host, host.background_window_segments) +
        route(host.incast_address, host, host.incast_window_segments));
    return tun;
}

std::int64_t packets_lost_by_interface() {
    std::ifstream file("/proc/self/net/dev");
    for (std::string line; std::getline(file, line);) {
        const std::size_t colon = line.find(':');
        if (colon == std::string::npos || line.find(interface_name) >= colon) continue;
        std::istringstream numbers(line.substr(colon + 1));
        std::int64_t number = 0;
        for (int column = 0; column <= 11 && numbers >> number; ++column) {  // eight of receiving, then sent and lost
        }
        return number;
    }
    throw std::runtime_error("/proc/self/net/dev does not show a host's interface");
}

TcpCounts tcp_counts() {
    std::ifstream file("/proc/self/net/netstat");
    TcpCounts counts;
    for (std::string names, values; std::getline(file, names) && std::getline(file, values);) {
        if (!names.starts_with("TcpExt:")) continue;
        std::istringstream names_left(names), values_left(values);
        std::string name, value;
        for (names_left >> name, values_left >> value; names_left >> name && values_left >> value;) {
            if (name == "TCPSpuriousRTOs") counts.spurious_timeouts += std::stoll(value);
            if (name == "TCPFullUndo" || name == "TCPPartialUndo" || name == "TCPDSACKUndo" || name == "TCPLossUndo")
                counts.undone_reductions += std::stoll(value);
        }
        return counts;
    }
    throw std::runtime_error("/proc/self/net/netstat does not show what TCP counts");
}

void require_control(const std::string& setting, const std::string& control) {
    std::ifstream file("/proc/sys/net/ipv4/tcp_available_congestion_control");
    std::string names;
    std::getline(file, names);
    std::istringstream names_left(names);
    for (std::string one; names_left >> one;) {
        if (one == control) return;
    }
    throw std::runtime_error("this kernel does not offer the congestion control " + control + ": set " + setting +
                             " to one of " + names + ", or run modprobe tcp_" + control +
                             " as root if your distribution has that module");
}

}  // namespace foretail::packets::emulator
