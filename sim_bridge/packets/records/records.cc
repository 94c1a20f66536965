// SPDX-License-Identifier: MIT
#include "packets/records/records.h"

#include <iterator>
#include <unordered_map>

#include "packets/records/flow_ledger.h"

namespace foretail::packets {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_ONLY_SERIALIZE(ClassCount, packets, bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_ONLY_SERIALIZE(LosslessCounts, in, out, drops, pauses, resumes, paused_ns,
                                                  most_headroom_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_ONLY_SERIALIZE(SwitchCounts, data_in, data_out, control_in, control_out, asked,
                                                  marked)

json switch_summary(std::string_view role, std::int64_t buffer_bytes, const std::vector<std::int64_t>& rates_bps,
                    const SwitchCounts& counts, std::int64_t queued_bytes, std::int64_t threshold_deficits) {
    const auto by_outcome = [](const std::array<ClassCount, 5>& drops) {
        return json{
            {"over_threshold", drops[1]}, {"predicted", drops[2]}, {"buffer_full", drops[3]}, {"pushed_out", drops[4]}};
    };
    json summary = counts;
    summary.update({{"role", role},
                    {"buffer_bytes", buffer_bytes},
                    {"port_rates_bps", rates_bps},
                    {"data_drops", by_outcome(counts.data_drops)},
                    {"control_drops", by_outcome(counts.control_drops)},
                    {"queued_bytes", queued_bytes},
                    {"threshold_deficits", threshold_deficits}});
    return summary;
}

json lossless_summary(const LosslessCounts& counts, const buffer::PauseSettings& settings) {
    json summary = counts;
    summary.update({{"headroom_pool_bytes", settings.headroom_pool}, {"xon_offset_bytes", settings.xon_offset}});
    return summary;
}

json switch_summary(const Topology& t, int index, const SwitchCounts& counts, std::int64_t queued_bytes,
                    std::int64_t threshold_deficits) {
    return switch_summary(t.role(index), t.buffer_bytes(index), t.port_rates_bps(index), counts, queued_bytes,
                          threshold_deficits);
}

FlowLedger::FlowLedger(const Settings& settings, std::vector<PlannedFlow> plan)
    : plan_(std::make_shared<const Plan>(planned(settings, std::move(plan)))),
      progress_(plan_->flows.size()),
      connections_(plan_->connections.size()),
      stretches_(plan_->flows.size()) {
    delivered_.reserve(plan_->flows.size());
    for (std::size_t c = 0; c < connections_.size(); ++c)
        connections_[c].unsent = connections_[c].open = plan_->connections[c].flows.size();
    for (std::size_t i = 0; i < progress_.size(); ++i) {
        const PlannedFlow& flow = plan_->flows[i];
        progress_[i].awaited = flow.after.size();
        progress_[i].record = {.start_ns = flow.after.empty() ? flow.start_ns : -1,
                               .ideal_fct_ns = ideal_fct_ns(settings, flow),
                               .size_bytes = flow.size_bytes,
                               .source = flow.source,
                               .destination = flow.destination,
                               .query = flow.query,
                               .flow_class = flow.flow_class,
                               .connected_in_advance = plan_->connections[connection_of(i)].connect_ns < flow.start_ns};
    }
}

FlowLedger::Plan FlowLedger::planned(const Settings& settings, std::vector<PlannedFlow> flows) {
    Plan plan{.flows = std::move(flows),
              .connections = {},
              .connection_of = {},
              .dependants = {},
              .first_rtt_bytes = settings.first_rtt_bytes(),
              .has_background_control = !settings.transport.background_name.empty(),
              .background_by_rdma = Transport::is_rdma(settings.transport.background_name),
              .others_by_rdma = Transport::is_rdma(settings.transport.name)};
    std::unordered_map<std::int64_t, std::size_t> connection_of_number;
    std::vector<std::uint32_t> of_servers(static_cast<std::size_t>(settings.topology.servers()));  // how many leave
    plan.dependants.resize(plan.flows.size());
    for (std::size_t i = 0; i < plan.flows.size(); ++i) {
        const PlannedFlow& flow = plan.flows[i];
        for (const std::size_t other : flow.after) plan.dependants[other].push_back(i);
        std::size_t place = plan.connections.size();
        if (flow.connection >= 0) place = connection_of_number.emplace(flow.connection, place).first->second;
        plan.connection_of.push_back(place);
        if (place == plan.connections.size()) {
            std::uint32_t& of_server = of_servers[static_cast<std::size_t>(flow.source)];
            if (of_server + first_source_port > std::numeric_limits<std::uint16_t>::max()) {
                throw std::runtime_error("server " + std::to_string(flow.source) +
                                         " has no ports left for its flows: shorten 'traffic_ns' or lower the load");
            }
            plan.connections.emplace_back();
            plan.connections[place].connect_ns = flow.connect_ns;
            const auto port = static_cast<std::uint16_t>(first_source_port + of_server++);
            PlannedConnection& ends = plan.connections[place];
            ends.source_port = port;
            ends.source = flow.source;
            ends.destination = flow.destination;
            ends.path_hash = ends.path_hash_back = static_cast<std::uint32_t>(flow.spine);
            if (flow.spine < 0) {
                ends.path_hash = path_hash(flow.source, flow.destination, port, listen_port);
                ends.path_hash_back = path_hash(flow.destination, flow.source, listen_port, port);
            }
        }
        PlannedConnection& connection = plan.connections[place];
        connection.flows.push_back(i);
        connection.connect_ns = std::min(connection.connect_ns, flow.connect_ns);
    }
    std::size_t stretches = 0;
    for (PlannedConnection& connection : plan.connections)
        connection.first_stretch = std::exchange(stretches, stretches + connection.flows.size());
    return plan;
}

void FlowLedger::start(std::size_t flow, std::int64_t now) {
    const std::size_t c = connection_of(flow);
    Connection& connection = connections_[c];
    progress_[flow].record.start_ns = now;
    const std::int64_t begin = connection.sent_bytes, end = begin + plan(flow).size_bytes;
    const bool was_silent = connection.delivered == connection.sent;
    stretches_[plan_->connections[c].first_stretch + connection.sent++] = {
        .begin = begin, .end = end, .first_rtt_end = was_silent ? begin + plan_->first_rtt_bytes : begin, .flow = flow};
    connection.sent_bytes = end;
}

void FlowLedger::count_timeout(std::size_t connection, std::uint32_t oldest) {
    const Connection& of = connections_[connection];
    if (of.next_byte == 0) return;  // before the first data only a SYN expires, which `classify` counts
    ++progress_[flow_at(connection, byte_of(of, oldest))].record.timeouts;
}

void FlowLedger::write(const std::string& path) const {
    RecordFile<buffer::FlowRecord> file(path);
    for (const Progress& progress : progress_) file.write(progress.record);
    file.close();
}

std::vector<buffer::FlowRecord> FlowLedger::records() const {
    std::vector<buffer::FlowRecord> records;
    records.reserve(progress_.size());
    for (const Progress& progress : progress_) records.push_back(progress.record);
    return records;
}

}  // namespace foretail::packets
