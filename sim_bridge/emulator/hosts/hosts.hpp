// SPDX-License-Identifier: MIT
// Hosts of an emulated run: processes in network namespaces that open flows, and the interfaces to them.
#pragma once

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <sys/types.h>

#include <atomic>

#include "emulator/frame.hpp"
#include "emulator/hosts/namespaces.hpp"
#include "emulator/settings.hpp"

namespace foretail::packets::emulator {

/// Now on the clock that the emulator and its hosts share, in ns.
std::int64_t clock_ns();

/// What became of a flow, written by the processes at its ends. Times are ns of the clock since the run's start.
struct FlowState {
    std::atomic<std::int64_t> started_ns{-1};    ///< when the application handed it over
    std::atomic<std::int64_t> delivered_ns{-1};  ///< when the other application had its last byte
    std::atomic<std::int32_t> timeouts{0};       ///< of the kernel's retransmission timer
};

/// Memory that the emulator and the processes of its hosts share.
class Shared {
public:
    Shared(std::size_t flows, std::size_t hosts);
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    ~Shared();

    [[nodiscard]] FlowState& flow(std::size_t index) { return flows_[index]; }
    [[nodiscard]] std::atomic<std::int64_t>& lost(std::size_t host) { return lost_[host]; }
    [[nodiscard]] std::atomic<std::int64_t>& delivered() { return head_->delivered; }
    [[nodiscard]] std::atomic<std::int64_t>& spurious_timeouts() { return head_->spurious_timeouts; }
    [[nodiscard]] std::atomic<std::int64_t>& undone_reductions() { return head_->undone_reductions; }
    /// How host 0's command ended, as a shell says it; -1 while it runs.
    [[nodiscard]] std::atomic<int>& exit_code() { return head_->exit_code; }
    /// What a host says when it cannot go on; the first one counts.
    void complain(const std::string& what);
    [[nodiscard]] std::string complaint() const;

private:
    struct Head {
        std::atomic<std::int64_t> delivered{0}, spurious_timeouts{0}, undone_reductions{0};
        std::atomic<int> writers{0}, written{0}, exit_code{-1};
        std::array<char, 512> complaint{};
    };

    void* room_;
    std::size_t bytes_;
    Head* head_;
    std::atomic<std::int64_t>* lost_;
    FlowState* flows_;
};

/// The hosts of a network: for each a process in a namespace of its own, which opens, feeds and empties the sockets of
/// its flows when the plan says so. All of them end with this object, and with this process.
class Hosts {
public:
    /// What commands of hosts print goes to files in `folder`.
    Hosts(const EmulatorSettings& settings, const std::vector<PlannedFlow>& plan, const FlowTable& table,
          Shared& shared, const std::string& folder);
    Hosts(const Hosts&) = delete;
    Hosts& operator=(const Hosts&) = delete;
    ~Hosts();

    /// Lets the plan begin at `start_ns` of the clock.
    void begin(std::int64_t start_ns);
    /// Throws std::runtime_error if a host has ended before its time.
    void check();
    /// Waits until every host has said what became of its flows. Throws std::runtime_error if one cannot.
    void finish();
    /// The interface of each host.
    [[nodiscard]] const std::vector<Descriptor>& interfaces() const { return interfaces_; }

private:
    void start(int host, const EmulatorSettings& settings, const std::vector<PlannedFlow>& plan, const FlowTable& table,
               const std::string& folder);
    void end();

    Shared& shared_;
    std::vector<pid_t> processes_;
    std::vector<Descriptor> interfaces_, controls_;
};

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

/// The life of one host's process inside its namespace: says through `control` that it is ready, waits there for the
/// start, plays its flows and runs its command, whose words go to a file in `folder`, and leaves what it knows of them
/// when `control` says stop. Throws std::runtime_error.
void play_flows(int host, const EmulatorSettings& settings, const std::vector<PlannedFlow>& plan,
                const FlowTable& table, Shared& shared, const std::string& folder, int control);

/// The interfaces of the hosts, as the event loop sees them: packets of the plan's flows, and of commands if hosts run
/// any, come in and go out.
class Interfaces {
public:
    /// `tick` is called some times per second; it throws when a host is gone. With commands all ends with that of host
    /// 0, else with the last of the planned flows.
    Interfaces(const std::vector<Descriptor>& hosts, FramePool& pool, FlowTable& table, Shared& shared,
               std::int64_t planned, bool commands, std::function<void()> tick)
        : hosts_(hosts),
          pool_(pool),
          table_(table),
          shared_(shared),
          planned_(planned),
          commands_(commands),
          tick_(std::move(tick)),
          epoll_(epoll_create1(EPOLL_CLOEXEC)),
          timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
        if (epoll_.get() < 0 || timer_.get() < 0) fail("cannot wait for packets");
        for (std::size_t i = 0; i < hosts_.size(); ++i) watch(hosts_[i].get(), static_cast<std::uint32_t>(i));
        watch(timer_.get(), of_timer);
    }

    /// Reads what hosts have sent since, a batch of each.
    template <class Arrived>
    void read(Arrived&& arrived) {
        const int count = epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()), 0);
        for (int i = 0; i < count; ++i) {
            const std::uint32_t host = events_[static_cast<std::size_t>(i)].data.u32;
            if (host == of_timer) {
                stop_timer();
                continue;
            }
            for (int packets = 0; packets < batch; ++packets) {
                FramePool::Handle frame = pool_.take();
                const ssize_t got = ::read(hosts_[host].get(), frame->bytes.data(), frame->bytes.size());
                if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
                if (got < 0) tick_now("cannot read from the interface of a host");
                ++read_;
                frame->size_bytes = static_cast<std::int32_t>(got);
                if (table_.classify(*frame, static_cast<int>(host), !commands_)) {
                    arrived(std::move(frame));
                } else {
                    ++foreign_;
                }
            }
        }
    }
    void write(FramePool::Handle frame) {
        const auto size = static_cast<std::size_t>(frame->size_bytes);
        const int fd = hosts_[static_cast<std::size_t>(frame->destination)].get();
        ++written_;
        if (::write(fd, frame->bytes.data(), size) != static_cast<ssize_t>(size))
            tick_now("cannot write to the interface of a host");
    }
    void wait(std::int64_t ns) {
        ns = ns < longest_wait_ns ? ns : longest_wait_ns;  // a host may die meanwhile
        itimerspec when{};
        when.it_value = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
        timerfd_settime(timer_.get(), 0, &when, nullptr);
        epoll_event event{};
        if (epoll_wait(epoll_.get(), &event, 1, -1) > 0 && event.data.u32 == of_timer) stop_timer();
        look();
    }
    [[nodiscard]] bool finished() {
        if (++calls_ % 1024 == 0) look();
        return commands_ ? shared_.exit_code() >= 0 : shared_.delivered() == planned_;
    }

    [[nodiscard]] std::int64_t packets_read() const { return read_; }
    [[nodiscard]] std::int64_t packets_written() const { return written_; }
    /// Packets that were thrown away: to nobody, or without commands of no flow of the plan.
    [[nodiscard]] std::int64_t foreign() const { return foreign_; }

private:
    static constexpr std::uint32_t of_timer = ~std::uint32_t{0};
    static constexpr int batch = 32;
    static constexpr std::int64_t longest_wait_ns = 200'000'000, tick_ns = 100'000'000;

    void watch(int fd, std::uint32_t what) {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u32 = what;
        if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) < 0) fail("cannot wait for packets");
    }
    void stop_timer() {
        std::uint64_t expirations = 0;
        static_cast<void>(!::read(timer_.get(), &expirations, sizeof expirations));
    }
    void look() {
        const std::int64_t now = clock_ns();
        if (now - last_tick_ns_ < tick_ns) return;
        last_tick_ns_ = now;
        tick_();
    }
    /// An interface fails when its host is gone, which `tick` tells better.
    [[noreturn]] void tick_now(const char* what) {
        const int error = errno;
        tick_();
        fail(what, error);
    }

    const std::vector<Descriptor>& hosts_;
    FramePool& pool_;
    FlowTable& table_;
    Shared& shared_;
    std::int64_t planned_;
    bool commands_;
    std::function<void()> tick_;
    Descriptor epoll_, timer_;
    std::array<epoll_event, 64> events_{};
    std::int64_t read_ = 0, written_ = 0, foreign_ = 0, last_tick_ns_ = 0;
    std::uint64_t calls_ = 0;
};

}  // namespace foretail::packets::emulator
