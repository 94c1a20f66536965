// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "native/tcp/congestion/congestion.h"
#include "native/tcp/congestion/cubic.h"
#include "native/tcp/congestion/window.h"

namespace foretail::packets::native {

/// Congestion control as Linux has it: Reno, DCTCP (RFC 8257) and Cubic, over a window that is counted in segments.
class LinuxCongestion {
public:
    /// That of a sender that opens its connection `now`.
    explicit LinuxCongestion(const std::string& name = "newreno", std::int64_t now = 0)
        : law_(name == "dctcp"   ? Law::dctcp
               : name == "cubic" ? Law::cubic
                                 : Law::reno),
          cubic_(now, hystart_of_linux) {}

    /// An acknowledgement delivered segments, of which it says that they were marked or not.
    void acknowledged(Window& window, std::uint32_t segments, bool marked, std::int64_t rtt_ns, std::int64_t now) {
        if (law_ == Law::cubic && rtt_ns >= 0) cubic_.acknowledged(window, segments, rtt_ns, now);
        delivered_ += segments;
        if (marked) marked_ += segments;
        if (before(window.last_acknowledged, round_end_)) return;
        if (delivered_ > 0) share_ += gain * (static_cast<double>(marked_) / delivered_ - share_);
        delivered_ = marked_ = 0;
        round_end_ = window.next;
    }
    /// The window may grow for delivered segments.
    void increase(Window& window, std::uint32_t segments, std::int64_t now) {
        if (!window.is_full) return;
        law_ == Law::cubic ? cubic_.increase(window, segments, now) : growth_.increase(window, segments, now);
    }
    /// The threshold after a mark.
    [[nodiscard]] std::uint32_t threshold(const Window& window) {
        if (law_ == Law::cubic) return cubic_.threshold(window, 0);
        if (law_ == Law::reno) return halved(window);
        const auto cut = static_cast<std::uint32_t>(window.bytes * share_ / 2);
        return std::max(window.bytes - cut, least_segments);
    }
    /// That after a loss, where the window was already reduced for a mark or not.
    [[nodiscard]] std::uint32_t threshold_after_loss(const Window& window, bool reduced) {
        if (law_ == Law::dctcp) return halved(window);
        return reduced ? window.slow_start_bytes : threshold(window);
    }
    void timed_out(const Window& window, std::int64_t now) {
        if (law_ == Law::cubic) cubic_.timed_out(window, now);
    }

private:
    enum class Law : std::uint8_t { reno, dctcp, cubic };
    static constexpr std::uint32_t least_segments = 2;
    static constexpr double gain = 0.0625;

    [[nodiscard]] static std::uint32_t halved(const Window& window) {
        return std::max(window.bytes / 2, least_segments);
    }

    Law law_;
    Dctcp growth_;  ///< Linux's Reno
    Cubic cubic_;
    double share_ = 1.0;  ///< of marked segments, the RFC's alpha
    std::uint32_t delivered_ = 0, marked_ = 0;
    Sequence round_end_ = 0;
};

}  // namespace foretail::packets::native
