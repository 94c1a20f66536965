// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "buffer/queues/line_rate.hpp"
#include "buffer/queues/ring.hpp"
#include "native/hosts/frame.h"
#include "packets/settings/settings.h"

namespace foretail::packets::native {

/// What servers send while TCP leaves their links idle: with RC3 answers to packets of low priorities, and the tails of
/// flows. The lowest priority number goes first; of the same, answers before tails, and tails by their age.
class IdleLinks {
public:
    explicit IdleLinks(const Settings& settings)
        : rate_(buffer::LineRate::from_bps(settings.topology.server_link_bps, settings.topology.wire_overhead_bytes)),
          links_(static_cast<std::size_t>(settings.topology.servers())) {}

    /// A server puts a packet on its link.
    void sent(const Frame& frame, std::int64_t now) {
        std::int64_t& free_ns = link(frame.source).free_ns;
        free_ns = std::max(free_ns, now) + rate_.duration(frame.size_bytes);
    }
    [[nodiscard]] std::int64_t free_ns(std::int32_t server) { return link(server).free_ns; }
    void hold(Frame* answer) { link(answer->source).answers[answer->priority].push_back(answer); }
    void add_tail(std::int32_t server, std::int32_t connection) { link(server).tails.push_back(connection); }
    /// Whether nobody waits yet for the link to be idle; from then on somebody does.
    bool begins_to_wait(std::int32_t server) { return !std::exchange(link(server).awaited, true); }
    void end_wait(std::int32_t server) { link(server).awaited = false; }

    /// A link is idle. `priority_of(connection)` is what the next packet of a tail has, 0 when the tail has ended; one
    /// of `send(answer)` and `send_tail(connection)` is called if anything waits. Returns whether it did.
    template <class PriorityOf, class Send, class SendTail>
    bool use(std::int32_t server, PriorityOf&& priority_of, Send&& send, SendTail&& send_tail) {
        Link& idle = link(server);
        std::size_t best = most_queues;
        std::int32_t tail = -1;
        std::erase_if(idle.tails, [&](std::int32_t connection) {
            const std::size_t priority = priority_of(connection);
            if (priority > 0 && priority < best) {
                best = priority;
                tail = connection;
            }
            return priority == 0;
        });
        for (std::size_t priority = 1; priority <= best && priority < most_queues; ++priority) {
            if (idle.answers[priority].empty()) continue;
            send(idle.answers[priority].pop_front());
            return true;
        }
        if (tail >= 0) send_tail(tail);
        return tail >= 0;
    }

private:
    static constexpr std::size_t most_queues = 8;
    struct Link {
        std::int64_t free_ns = 0;
        bool awaited = false;
        std::array<buffer::Ring<Frame*>, most_queues> answers;  ///< by priority
        std::vector<std::int32_t> tails;                        ///< connections
    };
    [[nodiscard]] Link& link(std::int32_t server) { return links_[static_cast<std::size_t>(server)]; }

    buffer::LineRate rate_;
    std::vector<Link> links_;  ///< of servers
};

}  // namespace foretail::packets::native
