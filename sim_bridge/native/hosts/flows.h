// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "native/hosts/frame.h"
#include "packets/records/flow_ledger.h"
#include "packets/settings/settings.h"
#include "packets/traffic.h"

namespace foretail::packets::native {

class Stack;

/// Sends the planned flows over the native hosts. A copy is their state, which can be assigned to the original.
class Flows {
public:
    Flows(const Settings& settings, std::vector<PlannedFlow> plan)
        : settings_(&settings), ledger_(settings, std::move(plan)) {}

    /// Schedules all connections.
    void install(Stack& stack);
    /// It is time to open a connection.
    void connect(std::size_t connection);
    /// It is time to send a flow.
    void send(std::size_t flow);

    /// A sender has room for more bytes: gives it those of a flow that is longer than what TCP takes at once.
    void has_room(std::int32_t connection) {
        if (!unwritten_bytes_.empty()) write_more(static_cast<std::size_t>(connection));
    }
    /// A receiving end has bytes for its application, which may close it.
    template <class End>
    void receive(End& end, std::int64_t bytes);
    void classify(Frame& frame) {
        ledger_.classify(frame, static_cast<std::size_t>(frame.connection),
                         {.answer = frame.answer,
                          .syn = frame.has(syn),
                          .low = frame.priority > 0,
                          .sequence = frame.sequence,
                          .acknowledged = frame.acknowledged,
                          .payload = frame.payload});
    }
    void count_timeout(std::int32_t connection, Sequence oldest) {
        ledger_.count_timeout(static_cast<std::size_t>(connection), oldest);
    }
    [[nodiscard]] FlowLedger& ledger() { return ledger_; }
    [[nodiscard]] const FlowLedger& ledger() const { return ledger_; }

private:
    void write_more(std::size_t connection);
    void close_if_all_sent(std::size_t connection);

    const Settings* settings_;
    FlowLedger ledger_;
    std::vector<std::int64_t> unwritten_bytes_;  ///< of connections; none where no flow is so long
    Stack* stack_ = nullptr;
};

}  // namespace foretail::packets::native
