// SPDX-License-Identifier: MIT
#include "emulator/hosts/hosts.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <exception>
#include <new>

namespace foretail::packets::emulator {

namespace {

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

namespace {

/// Where `struct tcp_info` has tcpi_total_rto, since Linux 6.7; headers may be older than the kernel.
constexpr std::size_t total_rto_offset = 240;

sockaddr_in address_of(std::uint32_t address, std::uint16_t port) {
    sockaddr_in end{};
    end.sin_family = AF_INET;
    end.sin_port = htons(port);
    end.sin_addr.s_addr = htonl(address);
    return end;
}

void set_option(int socket, int level, int name, int value, const char* meaning) {
    if (setsockopt(socket, level, name, &value, sizeof value) < 0) fail(std::string("cannot set ") + meaning);
}

void choose_control(int socket, const std::string& name) {
    if (setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) < 0)
        fail("a host cannot use the congestion control " + name);
}

/// Expirations of a socket's retransmission timer, those of its SYN included.
std::int32_t timeouts_of(int socket) {
    alignas(8) std::array<unsigned char, 512> info{};
    socklen_t bytes = info.size();
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, info.data(), &bytes) < 0) fail("cannot read a socket's counters");
    if (bytes < total_rto_offset + 2)
        throw std::runtime_error("this kernel does not count timeouts of TCP: the emulator needs Linux 6.7 or newer");
    std::uint16_t count = 0;
    std::memcpy(&count, info.data() + total_rto_offset, sizeof count);
    return count;
}

class Player {
public:
    Player(int host, const EmulatorSettings& settings, const std::vector<PlannedFlow>& plan, const FlowTable& table,
           Shared& shared, const std::string& folder, int control)
        : host_(host),
          settings_(settings),
          plan_(plan),
          table_(table),
          shared_(shared),
          folder_(folder),
          control_(control),
          epoll_(epoll_create1(EPOLL_CLOEXEC)),
          timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
          background_listener_(listener(0, settings.emulation.background_control)),
          incast_listener_(listener(incast_offset, settings.emulation.control)),
          senders_(plan.size()),
          receivers_(plan.size()) {
        if (epoll_.get() < 0 || timer_.get() < 0) fail("a host cannot make its sockets");
        rlimit files{};
        getrlimit(RLIMIT_NOFILE, &files);
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
        static_cast<void>(timeouts_of(incast_listener_.get()));  // who does not count is refused before the run
        for (std::size_t i = 0; i < plan.size(); ++i) {
            if (plan[i].source != host) continue;
            todo_.push_back({plan[i].connect_ns, i, true});
            todo_.push_back({plan[i].start_ns, i, false});
        }
        std::ranges::stable_sort(todo_, {}, &Task::time);
        watch(background_listener_.get(), of_background, EPOLLIN);
        watch(incast_listener_.get(), of_incast, EPOLLIN);
        watch(timer_.get(), of_timer, EPOLLIN);
        watch(control_, of_control, EPOLLIN);
    }

    void run(std::int64_t start_ns) {
        start_ns_ = start_ns;
        if (!settings_.emulation.command.empty()) {
            command_.emplace(settings_, host_, folder_, shared_);
            watch(command_->ending(), of_command, EPOLLIN);
        }
        do_tasks();
        std::array<epoll_event, 64> events;
        while (true) {
            const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
            if (count < 0 && errno != EINTR) fail("a host cannot wait for its sockets");
            for (int i = 0; i < count; ++i) {
                const auto& [flags, data] = events[static_cast<std::size_t>(i)];
                if (data.u64 == of_control) return;
                if (data.u64 == of_command) {
                    command_ended();
                    continue;
                }
                if (data.u64 == of_timer) {
                    do_tasks();
                } else if (data.u64 == of_background) {
                    accept_all(background_listener_.get());
                } else if (data.u64 == of_incast) {
                    accept_all(incast_listener_.get());
                } else if (data.u64 % 2 == 0) {
                    sender_ready(static_cast<std::size_t>(data.u64 / 2), flags);
                } else {
                    receive(static_cast<std::size_t>(data.u64 / 2));
                }
            }
        }
    }

    /// Leaves what is known of flows that are still open.
    void settle() {
        for (std::size_t i = 0; i < plan_.size(); ++i) {
            if (senders_[i].socket.get() >= 0) shared_.flow(i).timeouts = timeouts_of(senders_[i].socket.get());
        }
        shared_.lost(static_cast<std::size_t>(host_)) = packets_lost_by_interface();
        const TcpCounts counts = tcp_counts();
        shared_.spurious_timeouts() += counts.spurious_timeouts;
        shared_.undone_reductions() += counts.undone_reductions;
    }

private:
    struct Task {
        std::int64_t time;  ///< virtual
        std::size_t flow;
        bool connects;
    };
    struct Sender {
        Descriptor socket;
        std::int64_t unsent = 0;
        bool connected = false, started = false, closed = false;
    };
    struct Receiver {
        Descriptor socket;
        std::int64_t received = 0;
    };
    // Events carry twice the flow, plus one at its receiver; these stand for what is not a flow.
    static constexpr std::uint64_t of_timer = ~std::uint64_t{0}, of_control = of_timer - 1, of_command = of_timer - 2,
                                   of_background = of_timer - 3, of_incast = of_timer - 4;

    /// A socket that takes connections to one of the host's addresses. These inherit its congestion control, whose
    /// receivers answer marks in a way of their own.
    [[nodiscard]] Descriptor listener(std::uint32_t offset, const std::string& control) const {
        Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        if (listener.get() < 0) fail("a host cannot make its sockets");
        choose_control(listener.get(), control);
        const sockaddr_in own = address_of(first_address + static_cast<std::uint32_t>(host_) + offset, listen_port);
        if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) < 0 ||
            listen(listener.get(), 4096) < 0)
            fail("a host cannot listen");
        return listener;
    }

    [[nodiscard]] std::int64_t now() const { return clock_ns() - start_ns_; }
    void control(int operation, int socket, std::uint64_t what, std::uint32_t flags) {
        epoll_event event{};
        event.events = flags;
        event.data.u64 = what;
        if (epoll_ctl(epoll_.get(), operation, socket, &event) < 0) fail("a host cannot watch its sockets");
    }
    void watch(int socket, std::uint64_t what, std::uint32_t flags) { control(EPOLL_CTL_ADD, socket, what, flags); }

    /// The run lasts as long as host 0's command; on another host one may end when it likes.
    void command_ended() {
        control(EPOLL_CTL_DEL, command_->ending(), 0, 0);
        const int code = command_->exit_code();
        if (host_ == 0) shared_.exit_code() = code;
    }

    /// Does what is due, and sets the timer to what comes next.
    void do_tasks() {
        std::uint64_t expirations = 0;
        static_cast<void>(!read(timer_.get(), &expirations, sizeof expirations));
        while (next_ < todo_.size() && todo_[next_].time * settings_.emulation.factor <= now()) {
            const Task task = todo_[next_++];
            task.connects ? connect_flow(task.flow) : start_flow(task.flow);
        }
        if (next_ == todo_.size()) return;
        const std::int64_t due = start_ns_ + todo_[next_].time * settings_.emulation.factor;
        itimerspec when{};
        when.it_value = {.tv_sec = due / 1'000'000'000, .tv_nsec = due % 1'000'000'000};
        timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
    }

    void connect_flow(std::size_t i) {
        const PlannedFlow& flow = plan_[i];
        const bool background = flow.flow_class == buffer::FlowClass::background;
        Sender& sender = senders_[i];
        sender.socket = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        const int fd = sender.socket.get();
        if (fd < 0) fail("a host cannot open a socket for every flow (see ulimit -n)");
        const std::string& name = background ? settings_.emulation.background_control : settings_.emulation.control;
        choose_control(fd, name);
        set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1, "a socket's address");
        set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "a socket's delay");
        const sockaddr_in own = address_of(first_address + static_cast<std::uint32_t>(host_), table_.source_port(i));
        const sockaddr_in other =
            address_of(first_address + static_cast<std::uint32_t>(flow.destination) + (background ? 0 : incast_offset),
                       listen_port);
        if (bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof own) < 0) fail("a host cannot bind a flow's port");
        if (connect(fd, reinterpret_cast<const sockaddr*>(&other), sizeof other) < 0 && errno != EINPROGRESS)
            fail("a host cannot connect");
        sender.unsent = flow.size_bytes;
        watch(fd, 2 * i, EPOLLOUT);
    }

    void start_flow(std::size_t i) {
        Sender& sender = senders_[i];
        sender.started = true;
        shared_.flow(i).started_ns = now();
        if (sender.connected) send(i);
    }

    void sender_ready(std::size_t i, std::uint32_t flags) {
        Sender& sender = senders_[i];
        if ((flags & EPOLLERR) != 0 || (sender.closed && (flags & (EPOLLIN | EPOLLHUP)) != 0)) {
            shared_.flow(i).timeouts = timeouts_of(sender.socket.get());
            sender.socket = Descriptor();
            return;
        }
        if ((flags & EPOLLOUT) == 0) return;
        sender.connected = true;
        if (sender.started) {
            send(i);
        } else {
            control(EPOLL_CTL_MOD, sender.socket.get(), 2 * i, 0);
        }
    }

    void send(std::size_t i) {
        static const std::array<char, 1 << 18> zeros{};
        Sender& sender = senders_[i];
        const int fd = sender.socket.get();
        if (fd < 0) return;
        while (sender.unsent > 0) {
            const auto wanted = std::min<std::int64_t>(sender.unsent, zeros.size());
            const ssize_t sent = ::send(fd, zeros.data(), static_cast<std::size_t>(wanted), MSG_NOSIGNAL);
            if (sent < 0 && errno == EAGAIN) {
                control(EPOLL_CTL_MOD, fd, 2 * i, EPOLLOUT);
                return;
            }
            if (sent < 0) return;  // the error comes as an event of its own
            sender.unsent -= sent;
        }
        shutdown(fd, SHUT_WR);
        sender.closed = true;
        control(EPOLL_CTL_MOD, fd, 2 * i, EPOLLIN | EPOLLRDHUP);
    }

    void accept_all(int listener) {
        while (true) {
            sockaddr_in peer{};
            socklen_t bytes = sizeof peer;
            Descriptor socket(
                accept4(listener, reinterpret_cast<sockaddr*>(&peer), &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
            if (socket.get() < 0 && errno == EAGAIN) return;
            if (socket.get() < 0) fail("a host cannot accept a flow (see ulimit -n)");
            const int source = table_.host_of(ntohl(peer.sin_addr.s_addr));
            const std::size_t i = source < 0 ? plan_.size() : table_.flow_of(source, ntohs(peer.sin_port));
            if (i == plan_.size() || plan_[i].destination != host_) continue;
            receivers_[i].socket = std::move(socket);
            watch(receivers_[i].socket.get(), 2 * i + 1, EPOLLIN);
        }
    }

    void receive(std::size_t i) {
        Receiver& receiver = receivers_[i];
        const int fd = receiver.socket.get();
        while (fd >= 0) {
            // MSG_TRUNC: the kernel throws the bytes away instead of copying them.
            const ssize_t got = recv(fd, nullptr, std::size_t{1} << 30, MSG_TRUNC | MSG_DONTWAIT);
            if (got < 0 && errno == EAGAIN) return;
            if (got > 0) receiver.received += got;
            if (receiver.received == plan_[i].size_bytes && shared_.flow(i).delivered_ns < 0) {
                shared_.flow(i).delivered_ns = now();
                ++shared_.delivered();
            }
            if (got <= 0) receiver.socket = Descriptor();
            if (got <= 0) return;
        }
    }

    int host_;
    const EmulatorSettings& settings_;
    const std::vector<PlannedFlow>& plan_;
    const FlowTable& table_;
    Shared& shared_;
    const std::string& folder_;
    int control_;
    std::optional<Command> command_;
    Descriptor epoll_, timer_, background_listener_, incast_listener_;
    std::vector<Sender> senders_;
    std::vector<Receiver> receivers_;
    std::vector<Task> todo_;
    std::size_t next_ = 0;
    std::int64_t start_ns_ = 0;
};

}  // namespace

void play_flows(int host, const EmulatorSettings& settings, const std::vector<PlannedFlow>& plan,
                const FlowTable& table, Shared& shared, const std::string& folder, int control) {
    Player player(host, settings, plan, table, shared, folder, control);
    const char ready = 1;
    std::int64_t start_ns = 0;
    if (write(control, &ready, 1) != 1 || read(control, &start_ns, sizeof start_ns) != sizeof start_ns) return;
    player.run(start_ns);
    player.settle();
}

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
            .ecn = transport.mark_bytes > 0,
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
