// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "packets/settings/settings.h"
#include "packets/transport/congestion_law.h"
#include "packets/transport/powertcp.h"
#include "packets/transport/telemetry.h"
#include "packets/transport/timely.h"

namespace foretail::packets {

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
        return transport == ThetaPowerTcp::name || transport == Timely::name || transport == PowerTcp::name;
    }
    /// Whether its law reads telemetry.
    static bool reads_telemetry(std::string_view transport) { return transport == PowerTcp::name; }
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
    using Law = std::variant<ThetaPowerTcp, Timely, PowerTcp>;

    static Law law_of(const Transport& transport, const Path& path) {
        if (transport.law() == Timely::name) return Timely(transport.timely, path);
        if (transport.law() == PowerTcp::name) return PowerTcp(transport.powertcp, path);
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
