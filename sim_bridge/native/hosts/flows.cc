// SPDX-License-Identifier: MIT
#include "native/hosts/flows.h"

#include <algorithm>
#include <string>

#include "native/hosts/stack.h"

namespace foretail::packets::native {

void Flows::install(Stack& stack) {
    stack_ = &stack;
    for (std::size_t i = 0; i < ledger_.connections().size(); ++i)
        stack.connect_at(ledger_.planned_connection(i).connect_ns, static_cast<std::int32_t>(i));
}

void Flows::connect(std::size_t c) {
    const FlowLedger::PlannedConnection& connection = ledger_.planned_connection(c);
    const std::size_t first = connection.flows.front();
    const PlannedFlow& flow = ledger_.plan(first);
    const Transport& transport = settings_->transport;
    const std::int64_t segments = first_window_segments(transport, flow);
    const std::string& control = ledger_.has_background_control(first) ? transport.background_name : transport.name;
    stack_->open(static_cast<std::int32_t>(c), control, static_cast<std::uint32_t>(segments * transport.segment_bytes));
    for (const std::size_t i : connection.flows) {
        const PlannedFlow& planned = ledger_.plan(i);
        if (!planned.after.empty()) continue;
        if (planned.start_ns == connection.connect_ns) {
            send(i);
        } else {
            stack_->send_at(planned.start_ns, static_cast<std::int32_t>(i));
        }
    }
}

void Flows::send(std::size_t i) {
    const std::size_t c = ledger_.connection_of(i);
    const std::int64_t size_bytes = ledger_.plan(i).size_bytes;
    ledger_.start(i, stack_->now());
    if (size_bytes > most_at_once) {
        unwritten_bytes_.resize(ledger_.connections().size());
        unwritten_bytes_[c] = size_bytes;
        return write_more(c);
    }
    stack_->write(static_cast<std::int32_t>(c), static_cast<std::uint32_t>(size_bytes));
    --ledger_.connections()[c].unsent;
    close_if_all_sent(c);
}

void Flows::write_more(std::size_t c) {
    const std::int64_t piece = piece_segments * settings_->transport.segment_bytes;
    std::int64_t& unwritten = unwritten_bytes_[c];
    while (unwritten > 0) {
        const auto connection = static_cast<std::int32_t>(c);
        const std::int64_t size = std::min(unwritten, piece);
        if (stack_->buffered_bytes(connection) + size > pieces_in_buffer * piece) return;
        unwritten -= size;
        stack_->write(connection, static_cast<std::uint32_t>(size));
        if (unwritten > 0) continue;
        --ledger_.connections()[c].unsent;
        close_if_all_sent(c);
    }
}

void Flows::close_if_all_sent(std::size_t c) {
    if (ledger_.connections()[c].unsent == 0) stack_->close(static_cast<std::int32_t>(c));
}

template <class End>
void Flows::receive(End& end, std::int64_t bytes) {
    struct Use {
        Flows& flows;
        End& end;
        void close() { end.close(); }
        void start(std::size_t flow, std::int64_t time) {
            flows.stack_->send_at(time, static_cast<std::int32_t>(flow));
        }
        void close_sender(std::size_t c) { flows.close_if_all_sent(c); }
    };
    ledger_.receive(static_cast<std::size_t>(end.connection()), bytes, stack_->now(), Use{*this, end});
}

template void Flows::receive(Socket& end, std::int64_t bytes);
template void Flows::receive(LinuxSocket& end, std::int64_t bytes);
template void Flows::receive(RdmaHosts::ReceivingEnd& end, std::int64_t bytes);

}  // namespace foretail::packets::native
