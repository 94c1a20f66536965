// SPDX-License-Identifier: MIT
#pragma once

#include <queue>

#include "buffer/lqd/virtual_lqd.hpp"

namespace foretail::buffer {

/// The packets of a line, in order of arrival and counted from 0, that a push-out may take: `first` to `last`.
struct PushOutChoice {
    std::int64_t line = 0, first = 0, last = -1;
};

/// A packet that LQD dropped, and what it could have dropped instead (sim_bridge/open_loop/push_outs.py has the
/// argument).
struct PushOutRecord {
    Row victim = no_row;
    PushOutChoice in_queue;    ///< the line is all data of a queue; empty when the packet could not be kept at all
    PushOutChoice in_stretch;  ///< the line is a stretch of data packets of one size; only of tail victims
};

/// Longest Queue Drop on recorded arrivals, with a record of every push-out.
class PushOutLog {
public:
    PushOutLog(const Shape& shape, PushOutRules rules)
        : queues_(shape),
          lqd_(rules),
          counted_(rules.counting == Counting::counted),
          tail_(rules.victim == Victim::tail),
          lines_(shape.rates.size()) {}

    /// Takes the next arrival; returns the stretch that it joined, 0 for any packet that joins none.
    std::int64_t arrive(const Arrival& arrival, Row row) {
        queues_.advance(arrival.time, [](Port, Tick) {}, [&](Port port, const Packet&, Tick) { depart(port); });
        const bool joins_first = counted_ && arrival.size <= queues_.capacity();
        std::int64_t stretch = joins_first ? join(arrival) : 0;
        PushOutRecord push_out;
        const bool admitted = lqd_.admit(
            queues_, arrival, row, [&](Port port) { push_out = choose(port, queues_.removable(port)); },
            [&](Port port, const Packet& victim) {
                record(push_out, victim.payload);
                if (tail_) shorten(port);
            });
        if (admitted) {
            if (!joins_first) stretch = join(arrival);
        } else if (!arrival.data) {
            if (joins_first) leave(arrival.port, line(arrival.port).stretches.size() - 1);
        } else if (joins_first) {
            record(choose(arrival.port, queues_.removable(arrival.port) + 1), row);
            if (tail_) shorten(arrival.port);
        } else {
            record({}, row);
        }
        return stretch;
    }

    [[nodiscard]] const std::vector<PushOutRecord>& push_outs() const { return push_outs_; }

private:
    using Packet = PortQueues<Row>::Packet;

    /// Neighbours in a queue that are alike in kind, and if data in size.
    struct Stretch {
        bool data = false;
        Bytes size = 0;
        std::int64_t number = 0, joined = 0, queued = 0;
    };
    struct Line {
        Ring<Stretch> stretches;
        std::int64_t joined = 0;  // data packets so far
    };

    [[nodiscard]] Line& line(Port port) { return lines_[static_cast<std::size_t>(port)]; }

    std::int64_t join(const Arrival& arrival) {
        auto& [stretches, joined] = line(arrival.port);
        joined += arrival.data;
        if (!tail_) return 0;
        const bool same = !stretches.empty() && stretches.back().data == arrival.data &&
                          (!arrival.data || stretches.back().size == arrival.size);
        if (!same) {
            stretches.push_back({arrival.data, arrival.size, arrival.data ? ++stretches_ : 0, 0, 0});
        }
        auto& last = stretches[stretches.size() - 1];
        ++last.joined;
        ++last.queued;
        return last.number;
    }
    void depart(Port port) {
        if (!tail_) return;
        auto& stretches = line(port).stretches;
        if (--stretches.front().queued == 0) stretches.drop_front();
    }
    void leave(Port port, std::size_t i) {
        if (!tail_) return;
        auto& stretches = line(port).stretches;
        if (--stretches[i].queued > 0) return;
        stretches.erase(i);
        if (i > 0 && i < stretches.size() && !stretches[i - 1].data && !stretches[i].data) {
            stretches[i - 1].queued += stretches[i].queued;
            stretches.erase(i);
        }
    }
    /// The stretch that holds the last data packet of a queue.
    [[nodiscard]] std::size_t last_data(Port port) {
        const auto& stretches = line(port).stretches;
        std::size_t i = stretches.size() - 1;
        while (!stretches[i].data) --i;
        return i;
    }
    void shorten(Port port) { leave(port, last_data(port)); }

    [[nodiscard]] PushOutRecord choose(Port port, std::size_t removable) {
        const auto joined = line(port).joined;
        PushOutRecord push_out;
        push_out.in_queue = {port, joined - static_cast<std::int64_t>(removable), joined - 1};
        if (tail_) {
            const auto i = last_data(port);
            const auto& stretch = line(port).stretches[i];
            const auto alike = stretch.queued - (i == 0 && queues_.sending(port));
            push_out.in_stretch = {stretch.number, stretch.joined - alike, stretch.joined - 1};
        }
        return push_out;
    }
    void record(PushOutRecord push_out, Row victim) {
        push_out.victim = victim;
        push_outs_.push_back(push_out);
    }

    PortQueues<Row> queues_;
    LongestQueueDrop lqd_;
    bool counted_, tail_;
    std::vector<Line> lines_;
    std::int64_t stretches_ = 0;
    std::vector<PushOutRecord> push_outs_;
};

/// Which packets to give to push-outs, one each, so that their scores are the highest possible; of equal scores the
/// latest packet. Push-out k takes one of `first[k]` to `last[k]`; neither bound ever falls. Returns 1 for the chosen.
///
/// The sets that can be chosen are the bases of a transversal matroid, so one set is best for every monotone score.
/// Push-outs are added one by one; what is chosen stays chosen. With the chosen packets in order given to the
/// push-outs in order, push-out k can have any packet from the first of push-out t on, where t is the last push-out
/// with every chosen packet of the ones before it in front of its own first: from there on packets can be passed
/// along, and no later push-out reaches further back.
inline std::vector<std::uint8_t> best_assignment(std::span<const std::int64_t> first,
                                                 std::span<const std::int64_t> last, std::span<const double> score) {
    std::vector<std::uint8_t> chosen(score.size());
    std::vector<std::int64_t> taken;  // in order
    taken.reserve(first.size());
    std::priority_queue<std::pair<double, std::int64_t>> open;
    std::int64_t next = 0;
    std::size_t start = 0;    // push-out t
    std::size_t changed = 0;  // only push-outs after this one can have become one
    for (std::size_t k = 0; k < first.size(); ++k) {
        std::size_t t = k;
        while (t > std::max(start, changed) && taken[t - 1] >= first[t]) --t;
        start = std::max(start, t > changed ? t : start);
        for (next = std::max(next, first[start]); next <= last[k]; ++next) {
            open.emplace(score[static_cast<std::size_t>(next)], next);
        }
        while (!open.empty() && open.top().second < first[start]) open.pop();
        if (open.empty()) throw std::invalid_argument("push-outs without a packet to take");
        const std::int64_t best = open.top().second;
        open.pop();
        chosen[static_cast<std::size_t>(best)] = 1;
        const auto place = std::upper_bound(taken.begin() + static_cast<std::ptrdiff_t>(start), taken.end(), best);
        changed = static_cast<std::size_t>(place - taken.begin());
        taken.insert(place, best);
    }
    return chosen;
}

}  // namespace foretail::buffer
