// SPDX-License-Identifier: MIT
#pragma once

#include "buffer/queues/containers.hpp"
#include "buffer/queues/slot_queues.hpp"

namespace foretail::buffer {

/// The offline optimum on unit packets in slots: LateQD, which knows the whole sequence and, when the buffer is full,
/// drops from the queue that, were nothing more dropped, would run empty latest.
///
/// That time needs no simulation. Let a port's k-th arrival come in slot a[k], let it be next, and let its queue run
/// empty at time e as things stand. Every arrival before e moves e by one and k by one, so e - k stays, and the busy
/// period takes all arrivals up to the first with a[k] - k >= e - k. A drop lowers e by one.
/// tests/sim_bridge/slow_models/offline_optimum.py says why this is optimal.
class LateQd {
public:
    /// `slot` never decreases; the arrays must outlive the object.
    LateQd(Port ports, Bytes buffer, const Tick* slot, const Port* port, std::size_t n)
        : slot_(slot),
          port_(port),
          n_(n),
          queues_(ports, buffer, Tie::lowest_port),
          sequences_(static_cast<std::size_t>(ports)),
          busy_until_(ports, Tie::lowest_port, Tournament::lowest) {
        for (std::size_t i = 0; i < n; ++i) {
            auto& lateness = at(port[i]).lateness;
            lateness.push_back(slot[i] - static_cast<Tick>(lateness.size()));
        }
        for (auto& sequence : sequences_) sequence.build();
    }

    /// Returns the number of packets sent; `drop[i]` is set to whether arrival i is one of those that have to go.
    std::int64_t run(std::uint8_t* drop) {
        std::int64_t sent = 0;
        for (std::size_t i = 0; i < n_; ++i) {
            const Port port = port_[i];
            auto& sequence = at(port);
            queues_.advance(slot_[i], [](Tick) {});
            const bool idle = queues_.length(port) == 0;
            queues_.push({slot_[i], port}, static_cast<Row>(i));
            drop[i] = 0;
            ++sent;
            const auto next = ++sequence.next;
            if (idle) foresee(port, slot_[i] + 1 - static_cast<Tick>(next), next, sequence.lateness.size());
            if (!queues_.fits(0)) {
                const Port latest = busy_until_.winner();
                drop[queues_.remove(latest, queues_.removable(latest) - 1).payload] = 1;
                --sent;
                // One packet less ends the busy period at an arrival that it would still have reached, or where it did.
                auto& shorter = at(latest);
                if (queues_.length(latest) > 0) {
                    foresee(latest, shorter.margin - 1, shorter.next, shorter.end);
                } else {
                    busy_until_.set(latest, Tournament::lowest);
                }
            }
        }
        return sent;
    }

private:
    /// The arrivals of a port.
    struct Sequence {
        std::vector<Tick> lateness;             // a[k] - k
        std::vector<std::vector<Tick>> maxima;  // of pairs of it, of pairs of pairs, ...
        std::size_t next = 0, end = 0;          // the arrival to come, and the first after the busy period
        Tick margin = 0;                        // time of running empty minus index of the arrival to come

        void build() {
            const std::vector<Tick>* below = &lateness;
            while (below->size() > 1) {
                std::vector<Tick> above((below->size() + 1) / 2);
                for (std::size_t k = 0; k < above.size(); ++k) {
                    above[k] = (*below)[2 * k];
                    if (2 * k + 1 < below->size()) above[k] = std::max(above[k], (*below)[2 * k + 1]);
                }
                maxima.push_back(std::move(above));
                below = &maxima.back();
            }
        }
        /// The first k >= from with lateness[k] >= wanted, or `end`, which is known to be an upper bound.
        [[nodiscard]] std::size_t first_at_least(std::size_t from, Tick wanted, std::size_t last) const {
            std::size_t level = 0, k = from;
            const auto value = [&] { return level == 0 ? lateness[k] : maxima[level - 1][k]; };
            while ((k << level) < last) {
                if (value() >= wanted) {
                    if (level == 0) return k;
                    --level;
                    k *= 2;
                    if (value() < wanted) ++k;
                } else {
                    ++k;
                    while (level < maxima.size() && k % 2 == 0) {
                        k /= 2;
                        ++level;
                    }
                }
            }
            return last;
        }
    };

    [[nodiscard]] Sequence& at(Port port) { return sequences_[static_cast<std::size_t>(port)]; }
    void foresee(Port port, Tick margin, std::size_t from, std::size_t last) {
        auto& sequence = at(port);
        sequence.margin = margin;
        sequence.end = sequence.first_at_least(from, margin, last);
        busy_until_.set(port, margin + static_cast<Tick>(sequence.end));
    }

    const Tick* slot_;
    const Port* port_;
    std::size_t n_;
    SlotQueues<Row> queues_;
    std::vector<Sequence> sequences_;
    Tournament busy_until_;
};

}  // namespace foretail::buffer
