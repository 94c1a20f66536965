// SPDX-License-Identifier: MIT
// Congestion marks of switches, and congestion controls that set rates, in plain C++ for ns-3 and the native network:
// PowerTCP, HPCC, TIMELY and DCQCN, and the telemetry that they read.
#pragma once

#include <cmath>
#include <variant>

#include "packets/traffic.h"

namespace foretail::packets {

/// Which packets that may be marked get a congestion mark at a switch: all that find a queue of `mark_bytes`, or as RED
/// with the length on arrival instead of an average: some of them, the more the longer the queue, up to
/// `mark_full_bytes`.
class CongestionMarks {
public:
    CongestionMarks(const Transport& transport, std::uint64_t seed, int switch_index)
        : first_bytes_(transport.mark_bytes),
          full_bytes_(transport.mark_full_bytes),
          largest_probability_(transport.mark_probability),
          random_(seed, static_cast<std::uint64_t>(switch_index)) {}

    /// Whether a packet that finds a queue of this length gets one.
    [[gnu::always_inline]] bool marks(std::int64_t queue_bytes) {
        if (first_bytes_ == 0 || queue_bytes < first_bytes_) return false;
        if (queue_bytes >= full_bytes_) return true;
        return random_.uniform() < largest_probability_ * static_cast<double>(queue_bytes - first_bytes_) /
                                       static_cast<double>(full_bytes_ - first_bytes_);
    }

private:
    std::int64_t first_bytes_, full_bytes_;
    double largest_probability_;
    SmallRandom random_;
};

/// What one switch port wrote on a packet when its last bit left: in-band telemetry.
struct Hop {
    std::int64_t time_ns = 0;
    std::int64_t queue_bytes = 0;  ///< behind the packet, in this port
    std::int64_t sent_bytes = 0;   ///< on the wire since the start, the packet among them
    double bytes_per_ns = 0;       ///< rate of the link
};

/// What a sender learns from one acknowledgement that comes with a new round-trip sample.
struct Acknowledgement {
    std::int64_t time_ns = 0;
    std::int64_t rtt_ns = 0;    ///< of the newest segment that it acknowledges
    bool round_over = false;    ///< it acknowledges a segment sent after the acknowledgement that ended the last round
    std::span<const Hop> hops;  ///< of that segment, in the order of its path; empty without telemetry
};

/// What the laws know about the path, in bytes of payload.
struct Path {
    double base_rtt_ns = 0;  ///< of a full segment and its acknowledgement in the idle network
    double segment_bytes = 0;
    double bytes_per_ns = 0;  ///< at which a server's link carries payload
    double initial_window_bytes = 0;

    /// What a server can send in one base round trip, in whole segments, since TCP sends nothing less.
    [[nodiscard]] double largest_window_bytes() const {
        const double bdp = base_rtt_ns * bytes_per_ns;
        const double segments = static_cast<double>(static_cast<std::int64_t>(bdp / segment_bytes));
        return (segments * segment_bytes < bdp ? segments + 1 : segments) * segment_bytes;
    }
    [[nodiscard]] double clamped(double window_bytes) const {
        return std::clamp(window_bytes, segment_bytes, std::max(segment_bytes, largest_window_bytes()));
    }
};

/// What the switches on its path wrote on a data packet; its acknowledgement carries it back. Takes no bytes on the
/// wire.
class Telemetry {
public:
    void append(const Hop& hop) { hops_.at(count_++) = hop; }
    void copy(std::span<const Hop> hops) {
        clear();
        for (const Hop& hop : hops) append(hop);
    }
    void clear() { count_ = 0; }
    [[nodiscard]] std::span<const Hop> hops() const { return {hops_.data(), count_}; }

private:
    std::array<Hop, 5> hops_;  ///< leaf, spine, core, spine, leaf at most
    std::size_t count_ = 0;
};

/// The telemetry of frames that have a number, which stays when a frame is used again.
class FrameTelemetry {
public:
    [[nodiscard]] Telemetry& operator[](std::int32_t frame) {
        const auto place = static_cast<std::size_t>(frame);
        if (place >= of_frame_.size()) of_frame_.resize(2 * place + 1);
        return of_frame_[place];
    }

private:
    std::vector<Telemetry> of_frame_;
};

/// TIMELY (Mittal's thesis, Algorithm 1 in section 3.3): a rate that follows the gradient of round-trip times.
///
/// The rate changes at most once per base round trip, with the newest sample: what scaling every change by the
/// completions per round trip comes to. The window is only the static limit on outstanding data: what a server sends in
/// `high_rtt_ns`.
class Timely {
public:
    static constexpr const char* name = "timely";

    Timely(const TimelySettings& settings, const Path& path)
        : settings_(settings),
          path_(path),
          step_(settings.increase_bps / 8e9),
          rate_(clamped(path.initial_window_bytes / path.base_rtt_ns)) {}

    [[nodiscard]] double window_bytes() const {
        return std::max(path_.segment_bytes, path_.bytes_per_ns * static_cast<double>(settings_.high_rtt_ns));
    }
    [[nodiscard]] double bytes_per_ns() const { return rate_; }

    void acknowledge(const Acknowledgement& ack) {
        if (static_cast<double>(ack.time_ns - last_update_ns_) < path_.base_rtt_ns) return;
        last_update_ns_ = ack.time_ns;
        const auto rtt = static_cast<double>(ack.rtt_ns);
        if (last_rtt_ns_ > 0) difference_ns_ += settings_.gradient_weight * (rtt - last_rtt_ns_ - difference_ns_);
        last_rtt_ns_ = rtt;
        rate_ = clamped(next_rate(rtt, difference_ns_ / path_.base_rtt_ns));
    }

private:
    double next_rate(double rtt_ns, double gradient) {
        falling_ = gradient < 0 ? falling_ + 1 : 0;
        if (rtt_ns < static_cast<double>(settings_.low_rtt_ns)) return rate_ + step_;
        if (rtt_ns > static_cast<double>(settings_.high_rtt_ns))
            return rate_ * (1 - settings_.decrease * (1 - static_cast<double>(settings_.high_rtt_ns) / rtt_ns));
        if (gradient <= 0) return rate_ + (falling_ >= hyperactive ? hyperactive : 1) * step_;
        return rate_ * (1 - settings_.decrease * gradient);
    }
    [[nodiscard]] double clamped(double rate) const {
        return std::clamp(rate, std::min(step_, path_.bytes_per_ns), path_.bytes_per_ns);
    }

    static constexpr int hyperactive =
        5;  ///< N, and the falling gradients in a row after which an increase is N times as large

    TimelySettings settings_;
    Path path_;
    double step_, rate_;
    double last_rtt_ns_ = 0, difference_ns_ = 0;
    std::int64_t last_update_ns_ = 0;
    int falling_ = 0;  ///< gradients below 0 in a row
};

/// What both versions share: the window of equation 2.16, paced over one base round trip, and the smoothed power.
class PowerWindow {
public:
    PowerWindow(const PowerTcpSettings& settings, const Path& path)
        : path_(path),
          gamma_(settings.gamma),
          increase_bytes_(path.base_rtt_ns * path.bytes_per_ns / settings.expected_flows),
          window_bytes_(path.clamped(path.initial_window_bytes)) {}

    [[nodiscard]] double window_bytes() const { return window_bytes_; }
    [[nodiscard]] double bytes_per_ns() const { return window_bytes_ / path_.base_rtt_ns; }

protected:
    /// Power relative to that of a full link without a queue, over the last `interval_ns`.
    void smooth(double power, double interval_ns) {
        const double weight = std::min(interval_ns, path_.base_rtt_ns) / path_.base_rtt_ns;
        power_ += weight * (power - power_);
    }
    void update(double old_window_bytes) {
        const double scaled = old_window_bytes / power_ + increase_bytes_;
        window_bytes_ = path_.clamped(gamma_ * scaled + (1 - gamma_) * window_bytes_);
    }

    /// Of the link's rate. A window cut below what is in flight silences its sender: without a bound, as in the thesis,
    /// the power measured over the silence would open the window wide. The authors' public simulator bounds it so too.
    static constexpr double smallest_current = 0.5;

    Path path_;

private:
    double gamma_, increase_bytes_, window_bytes_;
    double power_ = 1;
};

/// theta-PowerTCP: power from round-trip times alone, one update per round trip (thesis, Algorithm 2, equation 2.27).
class ThetaPowerTcp : public PowerWindow {
public:
    static constexpr const char* name = "theta_powertcp";
    using PowerWindow::PowerWindow;

    void acknowledge(const Acknowledgement& ack) {
        if (last_rtt_ns_ == 0) {
            last_time_ns_ = ack.time_ns;
            last_rtt_ns_ = ack.rtt_ns;
        } else if (ack.time_ns > last_time_ns_) {
            const auto interval = static_cast<double>(ack.time_ns - last_time_ns_);
            const double gradient = static_cast<double>(ack.rtt_ns - last_rtt_ns_) / interval;
            const double current = std::max(smallest_current, gradient + 1);
            smooth(current * static_cast<double>(ack.rtt_ns) / path_.base_rtt_ns, interval);
            last_time_ns_ = ack.time_ns;
            last_rtt_ns_ = ack.rtt_ns;
        }
        if (ack.round_over) update(window_bytes());
    }

private:
    std::int64_t last_time_ns_ = 0, last_rtt_ns_ = 0;
};

/// PowerTCP: power from in-band telemetry of every hop, an update at every acknowledgement (thesis, Algorithm 1).
class PowerTcp : public PowerWindow {
public:
    static constexpr const char* name = "powertcp";
    PowerTcp(const PowerTcpSettings& settings, const Path& path)
        : PowerWindow(settings, path), old_window_bytes_(window_bytes()) {}

    void acknowledge(const Acknowledgement& ack) {
        if (ack.hops.empty()) return;
        if (last_.hops().size() == ack.hops.size()) {
            smooth_largest(ack.hops);
            update(old_window_bytes_);
        }
        last_.copy(ack.hops);
        if (ack.round_over) old_window_bytes_ = window_bytes();
    }

private:
    /// Each hop's power is relative to that of its own full link; the largest one counts.
    void smooth_largest(std::span<const Hop> hops) {
        double largest = 0, bounded = 0, interval = 0;
        for (std::size_t i = 0; i < hops.size(); ++i) {
            const Hop &now = hops[i], &last = last_.hops()[i];
            const auto time = static_cast<double>(now.time_ns - last.time_ns);
            if (time <= 0) continue;
            const auto arrived =
                static_cast<double>(now.queue_bytes - last.queue_bytes + now.sent_bytes - last.sent_bytes);
            const double current = arrived / time / now.bytes_per_ns;
            const double voltage = 1 + static_cast<double>(now.queue_bytes) / (now.bytes_per_ns * path_.base_rtt_ns);
            if (current * voltage > largest) {
                largest = current * voltage;
                bounded = std::max(smallest_current, current) * voltage;
                interval = time;
            }
        }
        smooth(bounded, interval);
    }

    Telemetry last_;  ///< of the acknowledgement before
    double old_window_bytes_;
};

/// HPCC (Li et al., SIGCOMM 2019, Algorithm 1): from in-band telemetry of every hop, the window with which the link
/// that is fullest is a little below full.
class Hpcc {
public:
    static constexpr const char* name = "hpcc";
    Hpcc(const HpccSettings& settings, const Path& path)
        : settings_(settings),
          path_(path),
          increase_bytes_(path.base_rtt_ns * path.bytes_per_ns * (1 - settings.utilisation) / settings.expected_flows),
          window_bytes_(path.clamped(path.initial_window_bytes)),
          old_window_bytes_(window_bytes_) {}

    [[nodiscard]] double window_bytes() const { return window_bytes_; }
    [[nodiscard]] double bytes_per_ns() const { return window_bytes_ / path_.base_rtt_ns; }

    void acknowledge(const Acknowledgement& ack) {
        if (ack.hops.empty()) return;
        if (last_.hops().size() == ack.hops.size()) {
            measure(ack.hops);
            update(ack.round_over);
        }
        last_.copy(ack.hops);
    }

private:
    /// The bytes in flight over a link, relative to those that fill it in a base round trip; the largest counts.
    void measure(std::span<const Hop> hops) {
        double largest = 0, interval = 0;
        for (std::size_t i = 0; i < hops.size(); ++i) {
            const Hop &now = hops[i], &last = last_.hops()[i];
            const auto time = static_cast<double>(now.time_ns - last.time_ns);
            if (time <= 0) continue;
            const auto queue = static_cast<double>(std::min(now.queue_bytes, last.queue_bytes));
            const auto sent = static_cast<double>(now.sent_bytes - last.sent_bytes);
            const double in_flight = (queue / path_.base_rtt_ns + sent / time) / now.bytes_per_ns;
            if (in_flight > largest) {
                largest = in_flight;
                interval = time;
            }
        }
        const double weight = std::min(interval, path_.base_rtt_ns) / path_.base_rtt_ns;
        utilisation_ += weight * (largest - utilisation_);
    }
    void update(bool round_over) {
        const bool scales = utilisation_ >= settings_.utilisation || increases_ >= settings_.most_increases;
        const double factor = scales ? settings_.utilisation / utilisation_ : 1;
        window_bytes_ = path_.clamped(factor * old_window_bytes_ + increase_bytes_);
        if (!round_over) return;
        increases_ = scales ? 0 : increases_ + 1;
        old_window_bytes_ = window_bytes_;
    }

    HpccSettings settings_;
    Path path_;
    double increase_bytes_, window_bytes_;
    double old_window_bytes_;  ///< at the end of the last round
    double utilisation_ = 1;
    std::int64_t increases_ = 0;  ///< rounds in a row that only added
    Telemetry last_;              ///< of the acknowledgement before
};

/// The sender of DCQCN (Zhu et al., SIGCOMM 2015): a rate that falls at notifications of congestion, and rises again
/// by a timer and by a counter of bytes.
///
/// A sender begins at the rate of its link, and neither timer runs before the first notification. Timers are worked
/// out when a packet is sent or a notification comes: only then does the rate matter, so they need no events.
class Dcqcn {
public:
    static constexpr std::string_view name = dcqcn;

    Dcqcn(const DcqcnSettings& settings, const Path& path)
        : settings_(settings),
          line_(path.bytes_per_ns),
          additive_(settings.additive_bps / 8e9),
          hyper_(settings.hyper_bps / 8e9),
          rate_(line_),
          target_(line_) {}

    /// That of now, if `sent` or `notified` was called now.
    [[nodiscard]] double bytes_per_ns() const { return rate_; }

    /// A packet leaves; the rate is that by which the next one has to wait.
    void sent(std::int64_t now, std::int64_t bytes) {
        if (notified_ns_ < 0) return;
        let_timer_run(now);
        for (counted_bytes_ += bytes; counted_bytes_ >= settings_.increase_bytes;
             counted_bytes_ -= settings_.increase_bytes) {
            ++byte_rounds_;
            increase();
        }
    }
    /// A notification of congestion comes.
    void notified(std::int64_t now) {
        if (notified_ns_ >= 0) {
            let_timer_run(now);
            alpha_ *= power(1 - settings_.gain, (now - notified_ns_) / settings_.alpha_interval_ns);
        }
        target_ = rate_;
        rate_ = std::max(rate_ * (1 - alpha_ / 2), std::min(additive_, line_));
        alpha_ = (1 - settings_.gain) * alpha_ + settings_.gain;
        notified_ns_ = now;
        timer_rounds_ = byte_rounds_ = counted_bytes_ = 0;
    }

private:
    void let_timer_run(std::int64_t now) {
        const std::int64_t due = (now - notified_ns_) / settings_.increase_interval_ns;
        while (timer_rounds_ < due) {
            const double before = rate_;
            ++timer_rounds_;
            increase();
            if (rate_ == before && target_ == line_) timer_rounds_ = due;  // nothing changes any more
        }
    }
    void increase() {
        if (std::min(timer_rounds_, byte_rounds_) > settings_.fast_rounds) {
            target_ += hyper_;
        } else if (std::max(timer_rounds_, byte_rounds_) >= settings_.fast_rounds) {
            target_ += additive_;
        }
        target_ = std::min(target_, line_);
        rate_ = (rate_ + target_) / 2;
    }
    /// Without std::pow, which need not round alike everywhere.
    static double power(double base, std::int64_t exponent) {
        double power = 1;
        for (; exponent > 0; exponent /= 2, base *= base) {
            if (exponent % 2 == 1) power *= base;
        }
        return power;
    }

    DcqcnSettings settings_;
    double line_, additive_, hyper_;
    double rate_, target_;
    double alpha_ = 1;                ///< as of the last notification
    std::int64_t notified_ns_ = -1;   ///< of the last notification; -1: there was none
    std::int64_t timer_rounds_ = 0;   ///< of the timer since then
    std::int64_t byte_rounds_ = 0;    ///< of the counter of bytes since then
    std::int64_t counted_bytes_ = 0;  ///< in its round that has begun
};

/// What a paced sender knows of the network.
inline Path path_of(const Settings& s, std::int64_t initial_window_bytes) {
    const auto segment = static_cast<double>(s.transport.segment_bytes);
    const auto on_the_wire =
        static_cast<double>(s.packet_bytes(s.transport.segment_bytes) + s.topology.wire_overhead_bytes);
    return {.base_rtt_ns = static_cast<double>(s.base_rtt_ns()),
            .segment_bytes = segment,
            .bytes_per_ns = static_cast<double>(s.topology.server_link_bps) / 8e9 * segment / on_the_wire,
            .initial_window_bytes = static_cast<double>(initial_window_bytes)};
}

/// A sender whose law sets its window and its pacing rate at every acknowledgement. TCP repairs its losses, which
/// change neither.
class PacedSender {
public:
    /// Whether a transport has such senders.
    static bool has(std::string_view transport) {
        return transport == ThetaPowerTcp::name || transport == Timely::name || reads_telemetry(transport);
    }
    /// Whether its law reads telemetry.
    static bool reads_telemetry(std::string_view transport) {
        return transport == PowerTcp::name || transport == Hpcc::name;
    }
    static std::uint64_t largest_pacing_bps(const Settings& s) { return bits_per_second(path_of(s, 0).bytes_per_ns); }

    /// That of a flow, with a law.
    PacedSender(const Settings& s, std::int64_t initial_window_bytes)
        : law_(law_of(s.transport, path_of(s, initial_window_bytes))), largest_bps_(largest_pacing_bps(s)) {}

    /// TCP has a new round-trip sample, taken from the acknowledgement that it handles next.
    void sampled(std::int64_t rtt_ns) { rtt_ns_ = rtt_ns; }
    /// What that acknowledgement brought back.
    void echoed(const Telemetry& telemetry) { telemetry_ = telemetry; }
    /// TCP has handled it. `highest` is one past the highest number ever sent.
    void acknowledged(std::int64_t now, std::uint32_t acknowledged, std::uint32_t highest) {
        if (rtt_ns_) {
            const bool round_over = static_cast<std::int32_t>(acknowledged - round_end_) > 0;
            if (round_over) round_end_ = highest;
            const Acknowledgement ack{
                .time_ns = now, .rtt_ns = *rtt_ns_, .round_over = round_over, .hops = telemetry_.hops()};
            std::visit([&](auto& law) { law.acknowledge(ack); }, law_);
            rtt_ns_.reset();
        }
        telemetry_.clear();
    }

    [[nodiscard]] std::uint32_t window_bytes() const {
        return static_cast<std::uint32_t>(std::visit([](const auto& law) { return law.window_bytes(); }, law_));
    }
    [[nodiscard]] std::uint64_t pacing_bps() const {
        const double rate = std::visit([](const auto& law) { return law.bytes_per_ns(); }, law_);
        return std::min(bits_per_second(rate), largest_bps_);
    }

private:
    using Law = std::variant<ThetaPowerTcp, Timely, PowerTcp, Hpcc>;

    static Law law_of(const Transport& transport, const Path& path) {
        if (transport.law() == Timely::name) return Timely(transport.timely, path);
        if (transport.law() == PowerTcp::name) return PowerTcp(transport.powertcp, path);
        if (transport.law() == Hpcc::name) return Hpcc(transport.hpcc, path);
        return ThetaPowerTcp(transport.powertcp, path);
    }
    static std::uint64_t bits_per_second(double bytes_per_ns) { return static_cast<std::uint64_t>(bytes_per_ns * 8e9); }

    Law law_;
    std::uint64_t largest_bps_;
    std::optional<std::int64_t> rtt_ns_;  ///< not yet used
    Telemetry telemetry_;                 ///< likewise
    std::uint32_t round_end_ = 0;
};

}  // namespace foretail::packets
