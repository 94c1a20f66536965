// SPDX-License-Identifier: MIT
#include "packets/flow_ledger.h"

#include <iterator>
#include <limits>
#include <stdexcept>
#include <utility>

#include "packets/record_file.h"

namespace foretail::packets {

FlowLedger::FlowLedger(const Settings& settings, std::vector<PlannedFlow> plan)
    : settings_(settings),
      plan_(std::move(plan)),
      progress_(plan_.size()),
      connections_of_server_(static_cast<std::size_t>(settings.topology.servers())),
      first_rtt_bytes_(settings.first_rtt_bytes()) {
    for (std::size_t i = 0; i < plan_.size(); ++i) {
        add_to_connection(i);
        const PlannedFlow& flow = plan_[i];
        progress_[i].awaited = flow.after.size();
        for (const std::size_t other : flow.after) progress_[other].dependants.push_back(i);
    }
    for (std::size_t i = 0; i < plan_.size(); ++i) {
        const PlannedFlow& flow = plan_[i];
        progress_[i].record = {
            .start_ns = flow.after.empty() ? flow.start_ns : -1,
            .ideal_fct_ns = ideal_fct_ns(settings_, flow),
            .size_bytes = flow.size_bytes,
            .source = flow.source,
            .destination = flow.destination,
            .query = flow.query,
            .flow_class = flow.flow_class,
            .connected_in_advance = connections_[progress_[i].connection].connect_ns < flow.start_ns};
    }
}

void FlowLedger::add_to_connection(std::size_t i) {
    const PlannedFlow& flow = plan_[i];
    std::size_t found = connections_.size();
    if (flow.connection >= 0) found = connection_of_number_.emplace(flow.connection, found).first->second;
    progress_[i].connection = found;
    if (found == connections_.size()) {
        std::uint32_t& of_server = connections_of_server_[static_cast<std::size_t>(flow.source)];
        if (of_server + first_source_port > std::numeric_limits<std::uint16_t>::max()) {
            throw std::runtime_error("server " + std::to_string(flow.source) +
                                     " has no ports left for its flows: shorten 'traffic_ns' or lower the load");
        }
        connections_.emplace_back();
        connections_[found].connect_ns = flow.connect_ns;
        connections_[found].source_port = static_cast<std::uint16_t>(first_source_port + of_server++);
    }
    Connection& connection = connections_[found];
    connection.flows.push_back(i);
    connection.unsent = connection.open = connection.flows.size();
    connection.connect_ns = std::min(connection.connect_ns, flow.connect_ns);
}

void FlowLedger::start(std::size_t flow, std::int64_t now) {
    Progress& progress = progress_[flow];
    Connection& connection = connections_[progress.connection];
    progress.record.start_ns = now;
    const std::int64_t begin = connection.sent_bytes, end = begin + plan_[flow].size_bytes;
    const bool was_silent = connection.delivered == connection.sent.size();
    connection.sent.push_back(
        {.begin = begin, .end = end, .first_rtt_end = was_silent ? begin + first_rtt_bytes_ : begin, .flow = flow});
    connection.sent_bytes = end;
}

const FlowLedger::Stretch* FlowLedger::stretch_at(const Connection& connection, std::int64_t byte) {
    const auto& sent = connection.sent;
    if (sent.empty()) return nullptr;
    const auto after = std::ranges::upper_bound(sent, byte, {}, &Stretch::begin);
    return &(after == sent.begin() ? *after : *std::prev(after));
}

void FlowLedger::count_timeout(std::size_t connection, std::uint32_t oldest) {
    const Connection& of = connections_[connection];
    if (of.next_byte == 0) return;  // before the first data only a SYN expires, which `classify` counts
    ++progress_[flow_at(of, byte_of(of, oldest))].record.timeouts;
}

void FlowLedger::write(const std::string& path) const {
    RecordFile<buffer::FlowRecord> file(path);
    for (const Progress& progress : progress_) file.write(progress.record);
    file.close();
}

}  // namespace foretail::packets
