// SPDX-License-Identifier: MIT
#pragma once

#include "native/hosts/frame.h"
#include "packets/traffic.h"

namespace foretail::packets::native {

/// Which ways the packets of connections take. A sender spreads them over subflows in turn; the hash of a subflow, its
/// entropy, chooses the spine (chapter 4 of Pit-Claudel's thesis). Every interval RSS and Sirona draw another entropy
/// for the worst subflow; Flowbender has one subflow, and draws after a round trip with many marks. A copy is the
/// state.
class Balancer {
public:
    struct Choice {
        std::uint32_t subflow = 0, path_hash = 0;
    };

    Balancer(const Balancing& settings, std::uint64_t seed, std::size_t connections)
        : settings_(settings),
          subflows_(settings.rule == Balancing::Rule::flowbender ? 1U : static_cast<std::uint32_t>(settings.subflows)),
          random_(seed, random_index) {
        if (settings_.rule == Balancing::Rule::spray) return;
        senders_.resize(connections);
        entropies_.resize(connections * subflows_);
        for (std::uint32_t& entropy : entropies_) entropy = draw();
        if (settings_.rule != Balancing::Rule::rss) return;
        scores_.resize(entropies_.size());
        answers_.resize(entropies_.size());
    }

    /// The way of the next data packet of a connection.
    Choice next(std::size_t connection, std::int64_t now) {
        if (settings_.rule == Balancing::Rule::spray) return {.path_hash = draw()};
        Sender& sender = senders_[connection];
        if (has_intervals()) advance(connection, now);
        const std::uint32_t subflow = sender.next;
        sender.next = (subflow + 1) % subflows_;
        return {subflow, entropies_[connection * subflows_ + subflow]};
    }
    /// A packet with this stamp has been answered.
    void acknowledged(std::size_t connection, const Stamp& stamp, std::int64_t now) {
        const std::int64_t rtt_ns = now - stamp.sent_ns;
        if (has_intervals()) advance(connection, now);
        if (settings_.rule == Balancing::Rule::flowbender) {
            bend(connection, stamp, now);
        } else if (settings_.rule == Balancing::Rule::sirona) {
            Sender& sender = senders_[connection];
            if (static_cast<double>(sender.interval_end_ns - now) > settings_.last_share * interval_ns()) return;
            if (rtt_ns <= sender.worst_rtt_ns) return;
            sender.worst_rtt_ns = rtt_ns;
            sender.worst = stamp.subflow;
        } else if (settings_.rule == Balancing::Rule::rss) {
            count(connection * subflows_ + stamp.subflow, static_cast<double>(rtt_ns), stamp.marked);
        }
    }
    /// Those of the subflows of a connection.
    [[nodiscard]] std::span<const std::uint32_t> entropies(std::size_t connection) const {
        return std::span(entropies_).subspan(connection * subflows_, subflows_);
    }

private:
    static constexpr std::uint64_t random_index = 0x62616c616e636572;  // no other stream of the run's seed has it

    struct Sender {
        std::uint32_t next = 0;  ///< subflow of the next packet
        std::int64_t interval_end_ns = 0;
        // Sirona: the worst round trip of the interval; 0: none.
        std::int64_t worst_rtt_ns = 0;
        std::uint32_t worst = 0;
        // Flowbender: packets sent before `way_from_ns` took another way; one sent from `round_end_ns` on ends the
        // round, which begins with the first answer of this way.
        std::int64_t way_from_ns = 0, round_end_ns = -1;
        std::uint32_t answered = 0, marked = 0;
    };

    std::uint32_t draw() { return static_cast<std::uint32_t>(random_.uniform() * 0x1p32); }
    [[nodiscard]] double interval_ns() const { return static_cast<double>(settings_.interval_ns); }
    [[nodiscard]] bool has_intervals() const {
        return settings_.rule == Balancing::Rule::rss || settings_.rule == Balancing::Rule::sirona;
    }

    /// Ends an interval that is over. One that nobody sent or answered in ends with the next packet.
    void advance(std::size_t connection, std::int64_t now) {
        Sender& sender = senders_[connection];
        if (now < sender.interval_end_ns) return;
        if (sender.interval_end_ns > 0) reroute(connection);
        sender.interval_end_ns =
            now + static_cast<std::int64_t>(interval_ns() * (1 + settings_.jitter * random_.uniform()));
    }
    void reroute(std::size_t connection) {
        const std::size_t first = connection * subflows_;
        Sender& sender = senders_[connection];
        if (settings_.rule == Balancing::Rule::sirona) {
            if (sender.worst_rtt_ns > 0) entropies_[first + sender.worst] = draw();
            sender.worst_rtt_ns = 0;
            return;
        }
        const std::uint32_t worst = worst_of(connection);
        const bool keeps = settings_.metric == Balancing::Metric::ewma;
        if (worst < subflows_) {
            entropies_[first + worst] = draw();
            scores_[first + worst] = 0;
        }
        for (std::uint32_t i = 0; i < subflows_; ++i) {
            if (!keeps) scores_[first + i] = 0;
            answers_[first + i] = 0;
        }
    }
    /// The subflow that RSS gives another way: one without an answer before all others, unless only answers count, and
    /// of several such the one whose turn is next. The number of subflows where no answer came that counts.
    [[nodiscard]] std::uint32_t worst_of(std::size_t connection) const {
        std::uint32_t worst = subflows_;
        double worst_score = -1;
        for (std::uint32_t i = 0; i < subflows_; ++i) {
            const std::uint32_t subflow = (senders_[connection].next + i) % subflows_;
            const std::size_t at = connection * subflows_ + subflow;
            if (answers_[at] == 0) {
                if (settings_.metric == Balancing::Metric::fed_back) continue;
                return subflow;
            }
            const bool is_sum =
                settings_.metric != Balancing::Metric::max && settings_.metric != Balancing::Metric::ewma;
            const double score = is_sum ? scores_[at] / answers_[at] : scores_[at];
            if (score <= worst_score) continue;
            worst_score = score;
            worst = subflow;
        }
        return worst;
    }
    void count(std::size_t at, double rtt_ns, bool marked) {
        double& score = scores_[at];
        ++answers_[at];
        switch (settings_.metric) {
            case Balancing::Metric::max: score = rtt_ns > score ? rtt_ns : score; break;
            case Balancing::Metric::ewma:
                score = score == 0 ? rtt_ns : settings_.ewma_weight * rtt_ns + (1 - settings_.ewma_weight) * score;
                break;
            case Balancing::Metric::marks: score += marked ? 1 : 0; break;
            default: score += rtt_ns;
        }
    }
    void bend(std::size_t connection, const Stamp& stamp, std::int64_t now) {
        Sender& sender = senders_[connection];
        if (stamp.sent_ns < sender.way_from_ns) return;
        if (sender.round_end_ns < 0) sender.round_end_ns = now;
        if (stamp.sent_ns >= sender.round_end_ns) {
            const bool leaves = sender.marked > settings_.mark_share * sender.answered;
            sender.answered = sender.marked = 0;
            sender.round_end_ns = leaves ? -1 : now;
            if (leaves) {
                entropies_[connection] = draw();
                sender.way_from_ns = now + 1;  // what is sent in this instant may have been hashed before
                return;
            }
        }
        ++sender.answered;
        sender.marked += stamp.marked ? 1 : 0;
    }

    Balancing settings_;
    std::uint32_t subflows_;
    SmallRandom random_;
    std::vector<Sender> senders_;           // of connections
    std::vector<std::uint32_t> entropies_;  // of subflows, connection by connection
    std::vector<double> scores_;            // of subflows: sums, largest or average values, as the metric says
    std::vector<std::uint32_t> answers_;    // of subflows, in this interval
};

}  // namespace foretail::packets::native
