// SPDX-License-Identifier: MIT
#pragma once

#include <unistd.h>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace foretail::packets::emulator {

/// A file descriptor that is closed with its owner.
class Descriptor {
public:
    explicit Descriptor(int fd = -1) : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Descriptor() {
        if (fd_ >= 0) close(fd_);
    }
    [[nodiscard]] int get() const { return fd_; }

private:
    int fd_;
};

/// Throws std::runtime_error with what could not be done, and why by errno.
[[noreturn]] inline void fail(const std::string& what, int error = errno) {
    throw std::runtime_error(what + ": " + std::strerror(error));
}

/// How the TCP of a host is set, beyond what each socket says.
struct HostSettings {
    std::uint32_t address = 0;         ///< of the host
    std::uint32_t incast_address = 0;  ///< the second one, by which responses to queries come
    int mtu_bytes = 0;
    int background_window_segments = 0, incast_window_segments = 0;  ///< initial windows, by destination
    std::int64_t min_rto_ms = 0;
    bool quick_acks = false;  ///< an acknowledgement for every segment
    bool ecn = false;
    bool tail_loss_probes = true;
    std::string control = {};  ///< congestion control of sockets that choose none; empty: the kernel's
};

/// An address as four numbers with dots between them.
std::string dotted(std::uint32_t address);

/// Ends this process when its parent does, whichever way that ends.
void die_with_parent(int parent);

/// Asks the scheduler for short turns, which come sooner: for this process and those that it starts.
void ask_for_short_slices();

/// Moves this process into a user namespace of its own, in which it may make networks, without being root outside.
/// Throws std::runtime_error with one sentence where the kernel forbids it.
void enter_user_namespace();

/// Moves this process into a network namespace of its own with one TUN interface, which the program `ip` sets up as a
/// host. Both are gone with the last process that holds them. Throws std::runtime_error with one sentence.
Descriptor enter_host_namespace(const HostSettings& host);

/// Packets of this namespace's interface that its queue had no room for.
std::int64_t packets_lost_by_interface();

/// What TCP has counted in a namespace.
struct TcpCounts {
    std::int64_t spurious_timeouts = 0;  ///< timeouts that F-RTO (RFC 5682) found to be needless
    std::int64_t undone_reductions = 0;  ///< of windows, whatever told that nothing was lost
};
/// That of this namespace.
TcpCounts tcp_counts();

/// Throws std::runtime_error with one sentence where this kernel does not offer the congestion control of a setting.
void require_control(const std::string& setting, const std::string& control);

}  // namespace foretail::packets::emulator
