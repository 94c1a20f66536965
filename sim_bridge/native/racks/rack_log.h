// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "native/hosts/frame.h"
#include "packets/racks/etalon_log.h"
#include "packets/records/flow_ledger.h"
#include "packets/records/record_file.h"
#include "packets/traffic.h"

namespace foretail::packets::native {

/// A frame with the port of its connection's sender, which is what the beginning of its packet is made of.
struct LoggedFrame {
    std::int32_t source = 0, destination = 0;
    const Frame& frame;
    std::uint16_t sender_port = 0;
};

/// Writes the headers of IPv4 and TCP as they would be on a link into zeros, as far as there is room. Addresses and
/// checksums stay zero, and so does the payload.
inline void copy_beginning(const LoggedFrame& logged, std::span<std::uint8_t> room) {
    constexpr std::uint32_t version_and_words = 0x45, time_to_live = 64, tcp = 6, ip_header_bytes = 20;
    constexpr std::uint32_t window_scale = 9, unscaled_window = 0xffff, scaled_window = 1 << 15;
    const Frame& frame = logged.frame;
    const auto size = static_cast<std::uint32_t>(frame.size_bytes);
    std::size_t at = 0;
    const auto put = [&](std::uint32_t value, int bytes) {
        for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8, ++at) {
            if (at < room.size()) room[at] = static_cast<std::uint8_t>(value >> shift);
        }
    };
    put(version_and_words << 8, 2);
    put(size, 2);
    put(0, 4);
    put(time_to_live << 8 | tcp, 2);
    at = ip_header_bytes;
    put(frame.answer ? listen_port : logged.sender_port, 2);
    put(frame.answer ? logged.sender_port : listen_port, 2);
    put(frame.sequence, 4);
    put(frame.has(ack) ? frame.acknowledged : 0, 4);
    put((size - frame.payload - ip_header_bytes) / 4 << 4, 1);
    put(frame.flags, 1);
    put(frame.has(syn) ? unscaled_window : scaled_window, 2);
    put(0, 4);
    if (frame.has(syn)) {
        put(0x030300 | window_scale, 3);
        put(0x0402, 2);  // selective acknowledgements are permitted
    }
    if (frame.blocks == 0) return;
    put(0x0500 | (2 + 8U * frame.blocks), 2);
    for (const Range& block : std::span(frame.sacked).first(frame.blocks)) {
        put(block.begin, 4);
        put(block.end, 4);
    }
}

/// The log of a fabric of racks, in a file or nowhere.
class RackLog {
public:
    RackLog(const FlowLedger& ledger, int hosts_per_rack, const std::string& path)
        : ledger_(ledger), log_(file_, hosts_per_rack) {
        if (!path.empty()) file_.records.emplace(path);
    }

    void departed(const Frame& frame, std::int64_t entered, std::int64_t left, bool by_circuit, int source,
                  int destination, std::int64_t waiting) {
        if (!file_.records) return;
        const auto c = static_cast<std::size_t>(frame.connection);
        const LoggedFrame logged{frame.source, frame.destination, frame, ledger_.planned_connection(c).source_port};
        log_.departed(logged, entered, left, by_circuit, source, destination, waiting);
    }
    void circuit(bool up, std::int64_t time, int source, int destination) {
        if (file_.records) log_.circuit(up, time, source, destination);
    }
    void close() {
        if (file_.records) file_.records->close();
    }

private:
    struct File {
        std::optional<RecordFile<EtalonRecord>> records;
        void write(const EtalonRecord& record) { records->write(record); }
    };

    const FlowLedger& ledger_;
    File file_;
    EtalonLog<File> log_;
};

}  // namespace foretail::packets::native
