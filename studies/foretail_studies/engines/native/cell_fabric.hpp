// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

namespace foretail::fabric {

using Node = std::int32_t;

enum class Routing { direct, two_hop, valiant };
inline constexpr std::array<std::string_view, 3> routing_names = {"direct", "two_hop", "valiant"};

/// `size` cells from rack `source` to rack `destination`, all there from slot `start` on.
struct CellFlow {
    std::int64_t start, size;
    Node source, destination;
};

/// Cells since slot 0. Backlog is `admitted` less both kinds of delivery.
struct CellCounts {
    std::int64_t admitted = 0;   ///< of flows that have started
    std::int64_t direct = 0;     ///< delivered over one hop
    std::int64_t first_hop = 0;  ///< sent to an intermediate rack
    std::int64_t last_hop = 0;   ///< delivered by an intermediate rack
};

/// Racks joined by circuits that follow a schedule for ever; a circuit carries at most one cell a slot.
///
/// cell_fabric.py, beside this file, says what each routing does. A slot costs time linear in the circuits of
/// the racks that hold cells (and, where relays refuse, in the destinations that are asked for), an idle one nothing.
class CellFabric {
public:
    /// `matchings[slot][uplink][rack]` is the rack that `rack` sends to, or negative. `flows` are in order of start,
    /// each between two different racks. A rack takes a cell to relay while fewer than `relay_cells` wait there for
    /// its destination (two_hop). `seed` draws intermediate racks (valiant).
    CellFabric(Node racks, std::size_t uplinks, const std::vector<Node>& matchings, std::vector<CellFlow> flows,
               Routing routing, std::int64_t relay_cells, std::uint32_t seed)
        : racks_(static_cast<std::size_t>(racks)),
          uplinks_(uplinks),
          period_(matchings.size() / (racks_ * uplinks)),
          reached_(matchings.size()),
          flows_(std::move(flows)),
          routing_(routing),
          relay_cells_(relay_cells),
          random_(seed),
          words_((racks_ + 63) / 64),
          asked_for_(racks_ * words_),
          turn_(racks_),
          own_(racks_),
          relayed_(racks_),
          queue_(racks_ * racks_),
          relay_(racks_ * racks_),
          spray_(routing == Routing::valiant ? racks_ * racks_ : 0),
          waiting_(racks_ * racks_),
          next_flow_(flows_.size()),
          unsent_(flows_.size()),
          undelivered_(flows_.size()),
          completion_(flows_.size(), -1) {
        for (std::size_t slot = 0; slot < period_; ++slot) {
            for (std::size_t uplink = 0; uplink < uplinks; ++uplink) {
                for (std::size_t rack = 0; rack < racks_; ++rack) {
                    reached_[(slot * racks_ + rack) * uplinks + uplink] =
                        matchings[(slot * uplinks + uplink) * racks_ + rack];
                }
            }
        }
        for (std::size_t flow = 0; flow < flows_.size(); ++flow) unsent_[flow] = undelivered_[flow] = flows_[flow].size;
    }

    /// Runs all slots before `until`.
    void advance(std::int64_t until) {
        while (now_ < until) {
            if (backlog() == 0) {  // nothing happens before the next flow
                const bool more = started_ < flows_.size();
                now_ = std::max(now_, more ? std::min(until, flows_[started_].start) : until);
                if (now_ == until) return;
            }
            for (; started_ < flows_.size() && flows_[started_].start <= now_; ++started_) admit(started_);
            slot();
            ++now_;
        }
    }

    [[nodiscard]] std::int64_t now() const { return now_; }
    [[nodiscard]] const CellCounts& counts() const { return counts_; }
    /// Slot at whose end the last cell of each flow was delivered, or -1.
    [[nodiscard]] const std::vector<std::int64_t>& completion() const { return completion_; }

private:
    using Index = std::int32_t;
    static constexpr Index none = -1;

    struct List {
        Index head = none, tail = none;
    };
    /// A cell on its way, in the pool of all that wait outside the queues of their flows.
    struct Cell {
        Index flow, next;
    };

    [[nodiscard]] std::int64_t backlog() const { return counts_.admitted - counts_.direct - counts_.last_hop; }
    [[nodiscard]] std::size_t pair(std::size_t from, std::size_t to) const { return from * racks_ + to; }
    [[nodiscard]] std::size_t destination(Index flow) const {
        return static_cast<std::size_t>(flows_[static_cast<std::size_t>(flow)].destination);
    }

    void admit(std::size_t flow) {
        const auto from = static_cast<std::size_t>(flows_[flow].source);
        const auto to = static_cast<std::size_t>(flows_[flow].destination);
        append(queue_[pair(from, to)], static_cast<Index>(flow));
        asked_for_[from * words_ + to / 64] |= std::uint64_t{1} << (to % 64);
        waiting_[pair(from, to)] += flows_[flow].size;
        own_[from] += flows_[flow].size;
        counts_.admitted += flows_[flow].size;
    }

    void slot() {
        const Node* const reached =
            &reached_[static_cast<std::size_t>(now_ % static_cast<std::int64_t>(period_)) * racks_ * uplinks_];
        if (routing_ == Routing::valiant) {
            for (std::size_t rack = 0; rack < racks_; ++rack) spray(rack);
        }
        const auto first = static_cast<std::size_t>(now_ % static_cast<std::int64_t>(racks_));
        for (std::size_t i = 0; i < racks_; ++i) {
            const std::size_t rack = first + i < racks_ ? first + i : first + i - racks_;
            for (std::size_t uplink = 0; uplink < uplinks_ && own_[rack] + relayed_[rack] > 0; ++uplink) {
                const Node to = reached[rack * uplinks_ + uplink];
                if (to >= 0) send(rack, static_cast<std::size_t>(to));
            }
        }
        // a cell that was taken to be relayed goes on in the next slot at the earliest
        for (const auto& [rack, flow] : arrived_) {
            push(relay_[pair(rack, destination(flow))], flow);
            ++relayed_[rack];
        }
        arrived_.clear();
    }

    /// What the circuit from `rack` to `to` carries in this slot.
    void send(std::size_t rack, std::size_t to) {
        List& relay = relay_[pair(rack, to)];
        if (relay.head != none) {
            --relayed_[rack];
            --waiting_[pair(rack, to)];
            ++counts_.last_hop;
            deliver(pop(relay));
        } else if (routing_ == Routing::valiant) {
            List& spray = spray_[pair(rack, to)];
            if (spray.head != none) send_own(rack, to, pop(spray));
        } else if (queue_[pair(rack, to)].head != none) {
            send_own(rack, to, take(rack, to));
        } else if (routing_ == Routing::two_hop) {
            const std::size_t other = relayable(rack, to);
            if (other != racks_) send_own(rack, to, take(rack, other));
        }
    }

    /// Sends an own cell of `rack` to `to`, which relays it or is its destination.
    void send_own(std::size_t rack, std::size_t to, Index flow) {
        --own_[rack];
        --waiting_[pair(rack, destination(flow))];
        if (destination(flow) == to) {
            ++counts_.direct;
            deliver(flow);
        } else {
            ++counts_.first_hop;
            ++waiting_[pair(to, destination(flow))];
            arrived_.emplace_back(to, flow);
        }
    }

    void deliver(Index flow) {
        if (--undelivered_[static_cast<std::size_t>(flow)] == 0) completion_[static_cast<std::size_t>(flow)] = now_;
    }

    /// Lets `rack` draw an intermediate rack for as many of its cells as it has uplinks.
    void spray(std::size_t rack) {
        for (std::size_t i = 0; i < uplinks_; ++i) {
            const std::size_t to = asked_from(rack, turn_[rack]);
            if (to == racks_) return;
            turn_[rack] = to + 1;
            const auto drawn = static_cast<std::size_t>((std::uint64_t{random_()} * (racks_ - 1)) >> 32);
            push(spray_[pair(rack, drawn + (drawn >= rack))], take(rack, to));
        }
    }

    /// The next destination in turn that `rack` has cells for and `via` takes them to; racks_ when there is none.
    std::size_t relayable(std::size_t rack, std::size_t via) {
        const std::size_t first = asked_from(rack, turn_[rack]);
        for (std::size_t to = first; to != racks_;) {
            if (waiting_[pair(via, to)] < relay_cells_) {
                turn_[rack] = to + 1;
                return to;
            }
            to = asked_from(rack, to + 1);
            if (to == first) break;
        }
        return racks_;
    }

    /// The first destination from `begin` on, around, whose queue at `rack` is not empty; racks_ when all are.
    [[nodiscard]] std::size_t asked_from(std::size_t rack, std::size_t begin) const {
        const std::uint64_t* const bits = &asked_for_[rack * words_];
        const std::size_t start = begin >= racks_ ? 0 : begin;
        std::uint64_t word = bits[start / 64] & (~std::uint64_t{0} << (start % 64));
        for (std::size_t i = 0, at = start / 64; i <= words_; ++i) {
            if (word != 0) return at * 64 + static_cast<std::size_t>(std::countr_zero(word));
            at = at + 1 == words_ ? 0 : at + 1;
            word = bits[at];
        }
        return racks_;
    }

    /// Takes a cell of the flow whose turn it is from the queue of `rack` for `to`, which is not empty.
    Index take(std::size_t rack, std::size_t to) {
        List& queue = queue_[pair(rack, to)];
        const Index flow = queue.head;
        const auto f = static_cast<std::size_t>(flow);
        const bool last = --unsent_[f] == 0;
        if (last || next_flow_[f] != none) {  // one that is alone keeps its turn
            queue.head = next_flow_[f];
            if (!last) append(queue, flow);
        }
        if (queue.head == none) asked_for_[rack * words_ + to / 64] &= ~(std::uint64_t{1} << (to % 64));
        return flow;
    }

    void append(List& queue, Index flow) {
        next_flow_[static_cast<std::size_t>(flow)] = none;
        (queue.head == none ? queue.head : next_flow_[static_cast<std::size_t>(queue.tail)]) = flow;
        queue.tail = flow;
    }

    void push(List& cells, Index flow) {
        Index cell = free_;
        if (cell == none) {
            cell = static_cast<Index>(cells_.size());
            cells_.emplace_back();
        } else {
            free_ = cells_[static_cast<std::size_t>(cell)].next;
        }
        cells_[static_cast<std::size_t>(cell)] = {flow, none};
        (cells.head == none ? cells.head : cells_[static_cast<std::size_t>(cells.tail)].next) = cell;
        cells.tail = cell;
    }

    Index pop(List& cells) {
        const Index cell = cells.head;
        Cell& popped = cells_[static_cast<std::size_t>(cell)];
        cells.head = popped.next;
        popped.next = free_;
        free_ = cell;
        return popped.flow;
    }

    std::size_t racks_, uplinks_, period_;
    std::vector<Node> reached_;  ///< [slot][rack][uplink]
    std::vector<CellFlow> flows_;
    Routing routing_;
    std::int64_t relay_cells_;
    std::mt19937 random_;
    std::size_t words_;
    std::vector<std::uint64_t> asked_for_;     ///< per rack, a bit for every destination with flows in its queue
    std::vector<std::size_t> turn_;            ///< per rack, the destination to look at first
    std::vector<std::int64_t> own_, relayed_;  ///< cells at a rack
    std::vector<List> queue_;                  ///< flows from a rack to a rack
    std::vector<List> relay_;                  ///< cells at a rack that come from others, by destination
    std::vector<List> spray_;                  ///< own cells at a rack, by the intermediate that was drawn
    std::vector<std::int64_t> waiting_;        ///< cells at, or accepted by, a rack for a rack
    std::vector<Index> next_flow_;             ///< in the queue that the flow is in
    std::vector<std::int64_t> unsent_, undelivered_, completion_;
    std::vector<Cell> cells_;
    Index free_ = none;
    std::vector<std::pair<std::size_t, Index>> arrived_;
    std::size_t started_ = 0;
    std::int64_t now_ = 0;
    CellCounts counts_;
};

}  // namespace foretail::fabric
