// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>

#include "native/tcp/congestion/cubic.h"
#include "native/tcp/congestion/window.h"

namespace foretail::packets::native {

/// RFC 5681 and 6582.
class NewReno {
public:
    void acknowledged(Window&, std::uint32_t, std::int64_t, std::int64_t) {}
    void increase(Window& window, std::uint32_t segments, std::int64_t) {
        if (window.bytes < window.slow_start_bytes && segments > 0) {
            window.bytes += window.segment_bytes;
            --segments;
        } else if (window.bytes < window.slow_start_bytes) {
            return;
        }
        if (window.bytes < window.slow_start_bytes || segments == 0) return;
        const double squared = static_cast<double>(window.segment_bytes) * window.segment_bytes;
        window.bytes += static_cast<std::uint32_t>(std::max(1.0, squared / window.bytes));
    }
    [[nodiscard]] std::uint32_t threshold(const Window& window, std::uint32_t in_flight) {
        return std::max(2 * window.segment_bytes, in_flight / 2);
    }
    void timed_out(const Window&, std::int64_t) {}
};

/// RFC 8257 over the window growth of Linux's Reno.
class Dctcp {
public:
    void acknowledged(Window& window, std::uint32_t segments, std::int64_t, std::int64_t) {
        acknowledged_bytes_ += segments * window.segment_bytes;
        if (window.ecn == Ecn::echo_received) marked_bytes_ += segments * window.segment_bytes;
        if (!observes_) {
            observes_ = true;
            end_of_observation_ = window.next;
        }
        if (before(window.last_acknowledged, end_of_observation_)) return;
        const double share = acknowledged_bytes_ > 0 ? static_cast<double>(marked_bytes_) / acknowledged_bytes_ : 0.0;
        alpha_ = (1.0 - gain) * alpha_ + gain * share;
        end_of_observation_ = window.next;
        acknowledged_bytes_ = marked_bytes_ = 0;
    }
    void increase(Window& window, std::uint32_t segments, std::int64_t) {
        if (window.bytes < window.slow_start_bytes) {
            window.bytes = std::min(window.bytes + segments * window.segment_bytes, window.slow_start_bytes);
            return;
        }
        const std::uint32_t width = std::max<std::uint32_t>(1, window.segments());
        if (counted_ >= width) {
            counted_ = 0;
            window.bytes += window.segment_bytes;
        }
        counted_ += segments;
        window.bytes += counted_ / width * window.segment_bytes;
        counted_ %= width;
    }
    [[nodiscard]] std::uint32_t threshold(const Window& window, std::uint32_t) {
        return static_cast<std::uint32_t>((1 - alpha_ / 2.0) * window.bytes);
    }
    void timed_out(const Window&, std::int64_t) {}

private:
    static constexpr double gain = 0.0625;

    double alpha_ = 1.0;
    std::uint32_t acknowledged_bytes_ = 0, marked_bytes_ = 0;
    std::uint32_t counted_ = 0;  ///< segments since the window grew
    bool observes_ = false;
    Sequence end_of_observation_ = 0;
};

/// The congestion control of one sender.
class Congestion {
    template <class Use>
    auto apply(Use&& use) {
        if (auto* law = std::get_if<NewReno>(&law_)) return use(*law);
        if (auto* law = std::get_if<Dctcp>(&law_)) return use(*law);
        return use(*std::get_if<Cubic>(&law_));
    }

public:
    /// That of a sender that opens its connection `now`.
    explicit Congestion(const std::string& name = "newreno", std::int64_t now = 0) {
        if (name == "dctcp") law_.emplace<Dctcp>();
        if (name == "cubic") law_.emplace<Cubic>(now);
    }
    /// Segments were acknowledged.
    void acknowledged(Window& window, std::uint32_t segments, std::int64_t rtt_ns, std::int64_t now) {
        apply([&](auto& law) { law.acknowledged(window, segments, rtt_ns, now); });
    }
    /// The window may grow for them.
    void increase(Window& window, std::uint32_t segments, std::int64_t now) {
        apply([&](auto& law) { law.increase(window, segments, now); });
    }
    /// The threshold after a loss or a mark.
    [[nodiscard]] std::uint32_t threshold(const Window& window, std::uint32_t in_flight) {
        return apply([&](auto& law) { return law.threshold(window, in_flight); });
    }
    void timed_out(const Window& window, std::int64_t now) {
        apply([&](auto& law) { law.timed_out(window, now); });
    }

private:
    std::variant<NewReno, Dctcp, Cubic> law_;
};

}  // namespace foretail::packets::native
