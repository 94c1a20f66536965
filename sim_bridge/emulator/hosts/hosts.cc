// SPDX-License-Identifier: MIT
#include "emulator/hosts/hosts.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <exception>
#include <new>

#include "emulator/hosts/host_process.hpp"

namespace foretail::packets::emulator {
namespace {

const std::string ended_from_outside = "the process of a host was ended from outside";

/// A message of one byte with room for one open file.
struct DescriptorMessage {
    char byte = 0;
    iovec data{&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
    msghdr header{};

    DescriptorMessage() {
        header.msg_iov = &data;
        header.msg_iovlen = 1;
        header.msg_control = room.data();
        header.msg_controllen = room.size();
    }
};

/// Hands an open file to the other end of a socket.
void send_descriptor(int socket, int fd) {
    DescriptorMessage message;
    cmsghdr* header = CMSG_FIRSTHDR(&message.header);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    if (sendmsg(socket, &message.header, MSG_NOSIGNAL) != 1) fail("a host cannot hand over its interface");
}

/// The file that comes; none when the other end is gone.
Descriptor receive_descriptor(int socket) {
    DescriptorMessage message;
    if (recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC) != 1) return Descriptor();
    const cmsghdr* header = CMSG_FIRSTHDR(&message.header);
    int fd = -1;
    if (header != nullptr) std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return Descriptor(fd);
}

HostSettings host_settings(int host, const EmulatorSettings& settings, const std::vector<PlannedFlow>& plan) {
    const Transport& transport = settings.network.transport;
    const std::uint32_t address = first_address + static_cast<std::uint32_t>(host);
    // An incast response is sent as one window at line rate, as in ns-3; all responses have one size.
    const auto response =
        std::ranges::find(plan, buffer::FlowClass::incast, [](const auto& flow) { return flow.flow_class; });
    const std::int64_t response_bytes = response == plan.end() ? 0 : response->size_bytes;
    return {.address = address,
            .incast_address = address + incast_offset,
            .mtu_bytes = static_cast<int>(settings.network.packet_bytes(transport.segment_bytes)),
            .background_window_segments = transport.initial_window_segments,
            .incast_window_segments = static_cast<int>(response_bytes / transport.segment_bytes + 1),
            .min_rto_ms = transport.min_rto_ns * settings.emulation.factor / 1'000'000,
            .quick_acks = transport.delayed_ack_segments == 1,
            .ecn = transport.mark_bytes > 0 || (settings.racks && settings.racks->announces_circuits),
            .tail_loss_probes = settings.emulation.tail_loss_probes,
            .control = settings.emulation.command.empty() ? "" : settings.emulation.control};
}

}  // namespace

std::int64_t clock_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Shared::Shared(std::size_t flows, std::size_t hosts)
    : bytes_(sizeof(Head) + hosts * sizeof(std::atomic<std::int64_t>) + flows * sizeof(FlowState)) {
    room_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (room_ == MAP_FAILED) fail("no memory for the flows");
    auto* place = static_cast<std::byte*>(room_);
    head_ = new (place) Head;
    lost_ = reinterpret_cast<std::atomic<std::int64_t>*>(place += sizeof(Head));
    for (std::size_t i = 0; i < hosts; ++i) new (lost_ + i) std::atomic<std::int64_t>(0);
    flows_ = reinterpret_cast<FlowState*>(place + hosts * sizeof(std::atomic<std::int64_t>));
    for (std::size_t i = 0; i < flows; ++i) new (flows_ + i) FlowState;
}

Shared::~Shared() { munmap(room_, bytes_); }

void Shared::complain(const std::string& what) {
    if (head_->writers++ > 0) return;
    what.copy(head_->complaint.data(), head_->complaint.size() - 1);
    head_->written = 1;
}

std::string Shared::complaint() const { return head_->written != 0 ? head_->complaint.data() : ""; }

Hosts::Hosts(const EmulatorSettings& settings, const std::vector<PlannedFlow>& plan, const FlowTable& table,
             Shared& shared, const std::string& folder)
    : shared_(shared) {
    try {
        for (int host = 0; host < settings.network.topology.servers(); ++host)
            start(host, settings, plan, table, folder);
    } catch (...) {
        end();
        throw;
    }
}

void Hosts::start(int host, const EmulatorSettings& settings, const std::vector<PlannedFlow>& plan,
                  const FlowTable& table, const std::string& folder) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) < 0) fail("cannot talk to a host");
    Descriptor here(ends[0]), there(ends[1]);
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0) fail("cannot start the process of a host");
    if (child == 0) {
        int code = 0;
        try {
            die_with_parent(parent);
            interfaces_.clear();
            controls_.clear();
            here = Descriptor();
            {
                const Descriptor tun = enter_host_namespace(host_settings(host, settings, plan));
                send_descriptor(there.get(), tun.get());
            }
            play_flows(host, settings, plan, table, shared_, folder, there.get());
        } catch (const std::exception& error) {
            shared_.complain(error.what());
            code = 2;
        }
        _exit(code);
    }
    processes_.push_back(child);
    there = Descriptor();
    Descriptor tun = receive_descriptor(here.get());
    char ready = 0;
    if (tun.get() < 0 || read(here.get(), &ready, 1) != 1) {
        finish();
        throw std::runtime_error("the process of host " + std::to_string(host) + " ended at its start");
    }
    interfaces_.push_back(std::move(tun));
    controls_.push_back(std::move(here));
}

Hosts::~Hosts() { end(); }

void Hosts::end() {
    for (const pid_t process : processes_) kill(process, SIGKILL);
    for (const pid_t process : processes_) waitpid(process, nullptr, 0);
    processes_.clear();
}

void Hosts::begin(std::int64_t start_ns) {
    for (const Descriptor& control : controls_) {
        if (send(control.get(), &start_ns, sizeof start_ns, MSG_NOSIGNAL) == sizeof start_ns) continue;
        check();
        throw std::runtime_error(ended_from_outside);  // its end is seen before its process is over
    }
}

void Hosts::check() {
    const std::string complaint = shared_.complaint();
    if (!complaint.empty()) throw std::runtime_error(complaint);
    for (const pid_t process : processes_) {
        siginfo_t how{};
        if (waitid(P_PID, static_cast<id_t>(process), &how, WEXITED | WNOHANG | WNOWAIT) == 0 && how.si_pid != 0)
            throw std::runtime_error(ended_from_outside);
    }
}

void Hosts::finish() {
    controls_.clear();  // whoever waits there reads the end
    while (!processes_.empty()) {
        int status = 0;
        const pid_t process = processes_.back();
        waitpid(process, &status, 0);
        processes_.pop_back();
        if (status != 0) {
            const std::string complaint = shared_.complaint();
            throw std::runtime_error(complaint.empty() ? ended_from_outside : complaint);
        }
    }
}

}  // namespace foretail::packets::emulator
