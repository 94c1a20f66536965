// SPDX-License-Identifier: MIT
#pragma once

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "emulator/frame.hpp"
#include "emulator/headers.hpp"
#include "emulator/hosts/hosts.hpp"
#include "emulator/hosts/namespaces.hpp"

namespace foretail::packets::emulator {

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
