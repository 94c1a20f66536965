// SPDX-License-Identifier: MIT
// Runs a law of congestion control over one bottleneck, packet by packet: windows and pacing as in the driver, a
// first-in-first-out queue without limit, acknowledgements after the rest of the base round trip. Prints, 20 times per
// base round trip, the time in base round trips, the queue and each sender's window in bandwidth-delay products:
//   congestion_check LAW RATE_BPS BASE_RTT_NS ROUNDS QUEUE WINDOW...      (QUEUE and WINDOW: what there is at the
//   start)
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <queue>
#include <string>
#include <tuple>
#include <vector>

#include "packets/congestion_control.h"

namespace {

using namespace foretail::packets;

constexpr std::int64_t segment_bytes = 1400;

struct Bottleneck {
    double bytes_per_ns = 0, base_rtt_ns = 0;
    [[nodiscard]] double bdp() const { return bytes_per_ns * base_rtt_ns; }
};

template <class Law>
class Simulation {
public:
    Simulation(const Bottleneck& link, std::vector<Law> laws, double queue_bytes) : link_(link) {
        for (auto& law : laws) senders_.push_back({.law = law});
        for (std::size_t i = 0; i < senders_.size(); ++i) schedule(static_cast<double>(i), Kind::send, i);
        for (double waiting = queue_bytes; waiting > 0; waiting -= segment_bytes) enqueue({nobody, 0});
    }
    void run(double rounds) {
        const double sample_ns = link_.base_rtt_ns / 20;
        for (double next_sample = 0; next_sample <= rounds * link_.base_rtt_ns;) {
            const Event event = events_.top();
            for (; next_sample <= event.time_ns; next_sample += sample_ns) print(next_sample);
            events_.pop();
            now_ns_ = event.time_ns;
            if (event.kind == Kind::depart) depart();
            if (event.kind == Kind::acknowledge) acknowledge(event);
            if (event.kind == Kind::send) {
                senders_[event.sender].timer = false;
                send(event.sender);
            }
        }
    }

private:
    static constexpr std::size_t nobody = ~std::size_t{0};
    enum class Kind { depart, acknowledge, send };
    struct Packet {
        std::size_t sender;
        double sent_ns;
        std::int64_t number = 0;
    };
    struct Event {
        double time_ns;
        std::int64_t order;
        Kind kind;
        std::size_t sender;
        Packet packet;
        Hop hop;
        bool operator<(const Event& other) const {
            return std::tie(other.time_ns, other.order) < std::tie(time_ns, order);
        }
    };
    struct Sender {
        Law law;
        double next_send_ns = 0;
        bool timer = true;
        std::int64_t in_flight = 0, sent = 0, round_end = -1;
    };

    void schedule(double time_ns, Kind kind, std::size_t sender, const Packet& packet = {}, const Hop& hop = {}) {
        events_.push({time_ns, order_++, kind, sender, packet, hop});
    }
    void enqueue(const Packet& packet) {
        if (queue_.empty()) schedule(now_ns_ + segment_bytes / link_.bytes_per_ns, Kind::depart, 0);
        queue_.push(packet);
    }
    [[nodiscard]] std::int64_t waiting() const {
        return queue_.empty() ? 0 : static_cast<std::int64_t>(queue_.size() - 1) * segment_bytes;
    }
    void depart() {
        const Packet packet = queue_.front();
        queue_.pop();
        sent_bytes_ += segment_bytes;
        if (!queue_.empty()) schedule(now_ns_ + segment_bytes / link_.bytes_per_ns, Kind::depart, 0);
        const auto behind = static_cast<std::int64_t>(queue_.size()) * segment_bytes;
        const Hop hop{std::llround(now_ns_), behind, sent_bytes_, link_.bytes_per_ns};
        const double rest_ns = link_.base_rtt_ns - segment_bytes / link_.bytes_per_ns;
        if (packet.sender != nobody) schedule(now_ns_ + rest_ns, Kind::acknowledge, packet.sender, packet, hop);
    }
    void acknowledge(const Event& event) {
        Sender& sender = senders_[event.sender];
        sender.in_flight -= segment_bytes;
        const bool round_over = event.packet.number > sender.round_end;
        if (round_over) sender.round_end = sender.sent;
        const std::array<Hop, 1> hops{event.hop};
        sender.law.acknowledge({std::llround(now_ns_), std::llround(now_ns_ - event.packet.sent_ns), round_over, hops});
        send(event.sender);
    }
    void send(std::size_t i) {
        Sender& sender = senders_[i];
        if (sender.timer || static_cast<double>(sender.in_flight + segment_bytes) > sender.law.window_bytes()) return;
        if (now_ns_ >= sender.next_send_ns) {
            enqueue({i, now_ns_, ++sender.sent});
            sender.in_flight += segment_bytes;
            sender.next_send_ns = now_ns_ + segment_bytes / sender.law.bytes_per_ns();
        }
        sender.timer = true;
        schedule(sender.next_send_ns, Kind::send, i);
    }
    void print(double time_ns) const {
        std::printf("%.2f %.6f", time_ns / link_.base_rtt_ns, static_cast<double>(waiting()) / link_.bdp());
        for (const auto& sender : senders_) std::printf(" %.6f", sender.law.window_bytes() / link_.bdp());
        std::printf("\n");
    }

    Bottleneck link_;
    std::vector<Sender> senders_;
    std::queue<Packet> queue_;
    std::priority_queue<Event> events_;
    std::int64_t order_ = 0, sent_bytes_ = 0;
    double now_ns_ = 0;
};

template <class Law, class LawSettings>
void run(const LawSettings& settings, const Bottleneck& link, double rounds, double queue,
         const std::vector<double>& windows) {
    std::vector<Law> laws;
    for (const double window : windows) {
        // A server's link is four times as fast, so that the initial state does not have to fit it.
        laws.emplace_back(settings, Path{link.base_rtt_ns, segment_bytes, 4 * link.bytes_per_ns, window * link.bdp()});
    }
    Simulation<Law>(link, std::move(laws), queue * link.bdp()).run(rounds);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 7) return 2;
    const std::string law = argv[1];
    const Bottleneck link{std::atof(argv[2]) / 8e9, std::atof(argv[3])};
    const double rounds = std::atof(argv[4]), queue = std::atof(argv[5]);
    std::vector<double> windows;
    for (int i = 6; i < argc; ++i) windows.push_back(std::atof(argv[i]));
    // beta = 0.01 bandwidth-delay products of the bottleneck in all.
    const PowerTcpSettings power{.gamma = 0.9, .expected_flows = 400.0 * static_cast<double>(windows.size())};
    if (law == Timely::name) run<Timely>(TimelySettings(), link, rounds, queue, windows);
    if (law == ThetaPowerTcp::name) run<ThetaPowerTcp>(power, link, rounds, queue, windows);
    if (law == PowerTcp::name) run<PowerTcp>(power, link, rounds, queue, windows);
    if (law == Hpcc::name) run<Hpcc>(HpccSettings(), link, rounds, queue, windows);
    return 0;
}
