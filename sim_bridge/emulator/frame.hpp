// SPDX-License-Identifier: MIT
// Frames of an emulated run, and the headers of Ethernet, IPv4 and TCP in their bytes.
#pragma once

#include "packets/network/links.h"
#include "packets/traffic.h"

namespace foretail::packets::emulator {

/// An IPv4 packet of a host's kernel, with what switches need of its headers read once.
struct Frame {
    std::int32_t size_bytes = 0;
    std::int32_t source = 0, destination = 0;  ///< hosts
    std::int32_t flow = -1;                    ///< index in the plan
    std::uint32_t path_hash = 0;
    buffer::FlowClass flow_class = buffer::FlowClass::control;
    bool first_rtt = false;
    bool ecn_capable = false;
    std::int64_t sent_bytes = 0;  ///< of its message, before it
    std::int64_t left_bytes = 0;  ///< of its message, after it
    std::array<std::uint8_t, Settings::most_packet_bytes> bytes;
};

/// Copies the beginning of the packet, as far as there is room.
inline void copy_beginning(const Frame& frame, std::span<std::uint8_t> room) {
    const auto size = std::min(room.size(), static_cast<std::size_t>(frame.size_bytes));
    std::copy_n(frame.bytes.begin(), size, room.begin());
}

using FramePool = packets::FramePool<Frame>;

/// Responses to queries go to a second address of their receiver, so that a route gives them a window of their own.
inline constexpr std::uint32_t incast_offset = 0x00010000U;
inline constexpr std::uint8_t tcp_protocol = 6;

inline std::uint16_t read16(const std::uint8_t* bytes) { return static_cast<std::uint16_t>(bytes[0] << 8 | bytes[1]); }
inline std::uint32_t read32(const std::uint8_t* bytes) {
    return static_cast<std::uint32_t>(read16(bytes)) << 16 | read16(bytes + 2);
}

/// Sets Congestion Experienced in the IPv4 header of a frame, and the checksum that covers it (RFC 1624, equation 3).
inline void mark_congestion(Frame& frame) {
    std::uint8_t* ip = frame.bytes.data();
    std::uint8_t* checksum = ip + 10;
    const std::uint32_t before = read16(ip);
    ip[1] |= 0x03;
    std::uint32_t sum = (~std::uint32_t{read16(checksum)} & 0xFFFFU) + (~before & 0xFFFFU) + read16(ip);
    sum = (sum & 0xFFFFU) + (sum >> 16);
    sum = ~((sum & 0xFFFFU) + (sum >> 16)) & 0xFFFFU;
    checksum[0] = static_cast<std::uint8_t>(sum >> 8);
    checksum[1] = static_cast<std::uint8_t>(sum);
}

/// Which flow of a plan a packet belongs to, read from its IPv4 and TCP headers. Every flow has a connection of its
/// own, from a port that names it.
class FlowTable {
public:
    FlowTable(const Settings& settings, const std::vector<PlannedFlow>& plan)
        : plan_(plan),
          first_sequence_(plan.size(), 0),
          next_byte_(plan.size(), 0),
          retransmissions_(plan.size(), 0),
          ports_(plan.size()),
          of_host_(static_cast<std::size_t>(settings.topology.servers())),
          hosts_(static_cast<std::uint32_t>(settings.topology.servers())),
          first_rtt_bytes_(settings.first_rtt_bytes()) {
        for (std::size_t i = 0; i < plan.size(); ++i) {
            auto& flows = of_host_[static_cast<std::size_t>(plan[i].source)];
            if (flows.size() + first_source_port > std::numeric_limits<std::uint16_t>::max())
                throw std::runtime_error("server " + std::to_string(plan[i].source) +
                                         " has no ports left for its flows: shorten 'traffic_ns' or lower the load");
            ports_[i] = static_cast<std::uint16_t>(first_source_port + flows.size());
            flows.push_back(i);
        }
    }

    /// Segments that a flow sent again.
    [[nodiscard]] std::int32_t retransmissions(std::size_t flow) const { return retransmissions_[flow]; }
    [[nodiscard]] std::uint16_t source_port(std::size_t flow) const { return ports_[flow]; }
    /// The flow of a connection by its sender; the number of flows when there is none.
    [[nodiscard]] std::size_t flow_of(int source, std::uint16_t port) const {
        const auto& flows = of_host_[static_cast<std::size_t>(source)];
        const std::size_t index = std::size_t{port} - first_source_port;
        return port >= first_source_port && index < flows.size() ? flows[index] : plan_.size();
    }
    /// The host with an address; -1 when there is none.
    [[nodiscard]] int host_of(std::uint32_t address) const {
        std::uint32_t host = address - first_address;
        if (host >= incast_offset) host -= incast_offset;
        return host < hosts_ ? static_cast<int>(host) : -1;
    }

    /// Fills in a frame that `sender` sent, whose bytes and size are set; false for what goes to no other host, or with
    /// `only_plan` belongs to no flow of the plan. Data of no flow is background, without a place in a message.
    bool classify(Frame& frame, int sender, bool only_plan) {
        const std::uint8_t* ip = frame.bytes.data();
        if (frame.size_bytes < 20 || (ip[0] >> 4) != 4) return false;
        const std::int32_t ip_bytes = (ip[0] & 0x0F) * 4;
        if (ip_bytes < 20 || frame.size_bytes < ip_bytes) return false;
        frame.source = host_of(read32(ip + 12));
        frame.destination = host_of(read32(ip + 16));
        if (frame.source != sender || frame.destination < 0 || frame.destination == sender) return false;
        if (classify_flow(frame, ip, ip_bytes)) return true;
        return !only_plan;
    }

private:
    /// The same for a flow of the plan; what else there is has what a switch has to know of any packet.
    bool classify_flow(Frame& frame, const std::uint8_t* ip, std::int32_t ip_bytes) {
        const std::uint8_t* tcp = ip + ip_bytes;
        frame.flow = -1;
        frame.ecn_capable = (ip[1] & 0x03) != 0;
        frame.flow_class = buffer::FlowClass::background;
        frame.first_rtt = false;
        frame.sent_bytes = frame.left_bytes = 0;
        if (ip[9] != tcp_protocol || frame.size_bytes < ip_bytes + 20) {
            frame.path_hash = path_hash(frame.source, frame.destination, 0, 0);
            return false;
        }
        const std::uint16_t source_port = read16(tcp), destination_port = read16(tcp + 2);
        const std::int64_t payload = frame.size_bytes - ip_bytes - (tcp[12] >> 4) * 4;
        frame.path_hash = path_hash(frame.source, frame.destination, source_port, destination_port);
        if (payload <= 0) frame.flow_class = buffer::FlowClass::control;
        const bool answer = destination_port != listen_port;  // of the receiver
        const std::size_t flow =
            answer ? flow_of(frame.destination, destination_port) : flow_of(frame.source, source_port);
        if (flow == plan_.size()) return false;
        frame.flow = static_cast<std::int32_t>(flow);
        if (answer) {
            frame.flow_class = buffer::FlowClass::control;
            return true;
        }
        const std::uint32_t sequence = read32(tcp + 4);
        if ((tcp[13] & 0x02) != 0) first_sequence_[flow] = sequence + 1;
        if (payload <= 0) return true;
        // Beyond 2^32 bytes a flow's place is counted from the last wrap.
        const std::int64_t byte = sequence - first_sequence_[flow];
        frame.flow_class = plan_[flow].flow_class;
        frame.first_rtt = byte < first_rtt_bytes_;
        frame.sent_bytes = byte;
        const std::int64_t left = plan_[flow].size_bytes - byte - payload;
        frame.left_bytes = left > 0 ? left : 0;
        retransmissions_[flow] += byte < next_byte_[flow];
        next_byte_[flow] = std::max(next_byte_[flow], byte + payload);
        return true;
    }

    const std::vector<PlannedFlow>& plan_;
    std::vector<std::uint32_t> first_sequence_;
    std::vector<std::int64_t> next_byte_;  // one past the highest ever sent
    std::vector<std::int32_t> retransmissions_;
    std::vector<std::uint16_t> ports_;
    std::vector<std::vector<std::size_t>> of_host_;
    std::uint32_t hosts_;
    std::int64_t first_rtt_bytes_;
};

}  // namespace foretail::packets::emulator
