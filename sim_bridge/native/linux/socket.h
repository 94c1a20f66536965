// SPDX-License-Identifier: MIT
// A socket that repairs losses as Linux does: congestion control, RACK and the socket itself.
#pragma once

#include "native/tcp/socket.h"

namespace foretail::packets::native {

/// Congestion control as Linux has it: Reno, DCTCP (RFC 8257) and Cubic, over a window that is counted in segments.
class LinuxCongestion {
public:
    /// That of a sender that opens its connection `now`.
    explicit LinuxCongestion(const std::string& name = "newreno", std::int64_t now = 0)
        : law_(name == "dctcp"   ? Law::dctcp
               : name == "cubic" ? Law::cubic
                                 : Law::reno),
          cubic_(now, hystart_of_linux) {}

    /// An acknowledgement delivered segments, of which it says that they were marked or not.
    void acknowledged(Window& window, std::uint32_t segments, bool marked, std::int64_t rtt_ns, std::int64_t now) {
        if (law_ == Law::cubic && rtt_ns >= 0) cubic_.acknowledged(window, segments, rtt_ns, now);
        delivered_ += segments;
        if (marked) marked_ += segments;
        if (before(window.last_acknowledged, round_end_)) return;
        if (delivered_ > 0) share_ += gain * (static_cast<double>(marked_) / delivered_ - share_);
        delivered_ = marked_ = 0;
        round_end_ = window.next;
    }
    /// The window may grow for delivered segments.
    void increase(Window& window, std::uint32_t segments, std::int64_t now) {
        if (!window.is_full) return;
        law_ == Law::cubic ? cubic_.increase(window, segments, now) : growth_.increase(window, segments, now);
    }
    /// The threshold after a mark.
    [[nodiscard]] std::uint32_t threshold(const Window& window) {
        if (law_ == Law::cubic) return cubic_.threshold(window, 0);
        if (law_ == Law::reno) return halved(window);
        const auto cut = static_cast<std::uint32_t>(window.bytes * share_ / 2);
        return std::max(window.bytes - cut, least_segments);
    }
    /// That after a loss, where the window was already reduced for a mark or not.
    [[nodiscard]] std::uint32_t threshold_after_loss(const Window& window, bool reduced) {
        if (law_ == Law::dctcp) return halved(window);
        return reduced ? window.slow_start_bytes : threshold(window);
    }
    void timed_out(const Window& window, std::int64_t now) {
        if (law_ == Law::cubic) cubic_.timed_out(window, now);
    }

private:
    enum class Law : std::uint8_t { reno, dctcp, cubic };
    static constexpr std::uint32_t least_segments = 2;
    static constexpr double gain = 0.0625;

    [[nodiscard]] static std::uint32_t halved(const Window& window) {
        return std::max(window.bytes / 2, least_segments);
    }

    Law law_;
    Dctcp growth_;  ///< Linux's Reno
    Cubic cubic_;
    double share_ = 1.0;  ///< of marked segments, the RFC's alpha
    std::uint32_t delivered_ = 0, marked_ = 0;
    Sequence round_end_ = 0;
};

/// The segments that a sender has in flight, and RACK's judgement on them (RFC 8985): one is lost when another that was
/// sent after it is delivered, and a reordering window has passed since. That holds for retransmissions too. Counts are
/// in segments, and a FIN is one.
class Rack {
public:
    struct Segment {
        Sequence begin = 0;
        std::uint32_t bytes = 0;  ///< of data
        bool fin = false;
        bool sacked = false, lost = false;
        bool again = false;        ///< its retransmission is in flight
        bool ever_again = false;   ///< it was sent again
        std::int64_t sent_ns = 0;  ///< the last time
        [[nodiscard]] Sequence end() const { return begin + bytes + (fin ? 1U : 0U); }
    };
    /// What an acknowledgement says first.
    struct Report {
        std::uint32_t delivered = 0;  ///< segments
        bool advances = false, sacks = false;
        std::int64_t rtt_ns = -1;         ///< age of the oldest segment; -1: it may be that of a retransmission
        std::int64_t newest_rtt_ns = -1;  ///< age of the newest one
    };

    Rack() = default;
    /// Forgets all; the memory stays.
    void clear() { *this = Rack(std::move(segments_), std::move(sent_)); }

    [[nodiscard]] std::size_t size() const { return segments_.size(); }
    [[nodiscard]] bool empty() const { return segments_.empty(); }
    [[nodiscard]] const Segment& operator[](std::size_t at) const { return segments_[at]; }
    [[nodiscard]] std::uint32_t lost() const { return lost_; }
    [[nodiscard]] std::uint32_t in_flight() const {
        return static_cast<std::uint32_t>(segments_.size()) - sacked_ - lost_ + again_;
    }
    /// Whether everything in flight was sent once, and nothing is known of it.
    [[nodiscard]] bool is_orderly() const { return sacked_ + lost_ + again_ == 0; }

    void send(Sequence begin, std::uint32_t bytes, bool fin, std::int64_t now) {
        segments_.push_back({.begin = begin, .bytes = bytes, .fin = fin, .sent_ns = now});
        sent_.push_back({begin, now});
    }
    /// The segment at a place is sent again.
    const Segment& send_again(std::size_t at, std::int64_t now) {
        Segment& segment = segments_[at];
        if (!segment.again) ++again_;
        segment.again = segment.ever_again = true;
        segment.sent_ns = now;
        sent_.push_back({segment.begin, now});
        return segment;
    }
    /// The place of the first segment that is lost and was not sent again since.
    [[nodiscard]] std::optional<std::size_t> hole() {
        if (lost_ == 0) return std::nullopt;
        for (; hole_from_ < segments_.size(); ++hole_from_) {
            if (segments_[hole_from_].lost && !segments_[hole_from_].again) return hole_from_;
        }
        return std::nullopt;
    }

    Report acknowledge(Sequence acknowledged, std::span<const Range> blocks, std::int64_t now) {
        Report report;
        for (const Range& block : blocks) take(block, now, report);
        std::ranges::copy(blocks, known_.begin());
        known_blocks_ = blocks.size();
        std::int64_t oldest_ns = -1;
        bool any_again = false;
        while (!segments_.empty() && !before(acknowledged, segments_.front().end())) {
            Segment& segment = segments_.front();
            report.advances = true;
            any_again = any_again || segment.ever_again;
            if (segment.sacked) {
                --sacked_;
            } else {
                if (oldest_ns < 0) oldest_ns = now - segment.sent_ns;
                deliver(segment, now, report);
            }
            segments_.drop_front();
            if (hole_from_ > 0) --hole_from_;
        }
        if (any_again) {
            report.rtt_ns = -1;
        } else if (oldest_ns >= 0) {
            report.rtt_ns = oldest_ns;
        }
        if (report.newest_rtt_ns >= 0) least_rtt_ns_ = std::min(least_rtt_ns_, report.newest_rtt_ns);
        return report;
    }

    struct Detected {
        std::uint32_t lost = 0;    ///< segments
        bool lost_again = false;   ///< a retransmission among them
        std::int64_t wait_ns = 0;  ///< above 0: more may be lost after that time
    };
    /// Marks what is lost by now. `urgent`: losses are being repaired, so nothing is taken for reordering that has not
    /// been seen to happen. `fixed_window_ns`: the reordering window; below 0 it is Linux's.
    Detected detect(std::int64_t now, bool urgent, std::int64_t smoothed_rtt_ns, std::int64_t fixed_window_ns = -1) {
        constexpr std::uint32_t threshold = 3;
        Detected detected;
        const bool at_once = !reordered_ && (urgent || sacked_ >= threshold);
        const std::int64_t own_window_ns = at_once ? 0 : std::min(least_rtt_ns_ / 4, smoothed_rtt_ns);
        const std::int64_t window_ns = fixed_window_ns < 0 ? own_window_ns : fixed_window_ns;
        while (!sent_.empty()) {
            const Sent sent = sent_.front();
            const std::optional<std::size_t> at = place_of(sent);
            if (at) {
                Segment& segment = segments_[*at];
                const bool earlier = sent.time_ns < newest_sent_ns_ ||
                                     (sent.time_ns == newest_sent_ns_ && before(segment.end(), newest_end_));
                if (!earlier) break;
                if (now - sent.time_ns < rtt_ns_ + window_ns) {
                    detected.wait_ns = std::max<std::int64_t>(newest_sent_ns_ + rtt_ns_ + window_ns - now, 1);
                    break;
                }
                detected.lost_again = detected.lost_again || segment.again;
                ++detected.lost;
                lose(*at);
            }
            sent_.drop_front();
        }
        return detected;
    }
    /// After a timeout: all is lost but what was sent within the last round trip.
    void lose_all(std::int64_t now) {
        for (std::size_t at = 0; at < segments_.size(); ++at) {
            if (!segments_[at].sacked && (at == 0 || now - segments_[at].sent_ns >= rtt_ns_)) lose(at);
        }
    }

private:
    struct Sent {
        Sequence begin = 0;
        std::int64_t time_ns = 0;
    };

    Rack(buffer::Ring<Segment> segments, buffer::Ring<Sent> sent)
        : segments_(std::move(segments)), sent_(std::move(sent)) {
        segments_.clear();
        sent_.clear();
    }

    /// The place of the segment that ends behind a number, or the end.
    [[nodiscard]] std::size_t place_of(Sequence sequence) const {
        return first_place(segments_.size(), [&](std::size_t at) { return before(sequence, segments_[at].end()); });
    }
    /// The segment that was sent then, if it is in flight since.
    [[nodiscard]] std::optional<std::size_t> place_of(const Sent& sent) const {
        if (segments_.empty() || before(sent.begin, segments_.front().begin)) return std::nullopt;
        const std::size_t at = place_of(sent.begin);
        const Segment& segment = segments_[at];
        if (segment.sacked || segment.sent_ns != sent.time_ns || (segment.lost && !segment.again)) return std::nullopt;
        return at;
    }
    void take(const Range& block, std::int64_t now, Report& report) {
        std::size_t at = place_of(block.begin);
        if (at < segments_.size() && before(segments_[at].begin, block.begin)) ++at;
        while (at < segments_.size() && !before(block.end, segments_[at].end())) {
            Segment& segment = segments_[at];
            if (segment.sacked) {
                at = after_known(at);
                continue;
            }
            if (!segment.ever_again && report.rtt_ns < 0) report.rtt_ns = now - segment.sent_ns;
            deliver(segment, now, report);
            segment.sacked = report.sacks = true;
            ++sacked_;
            ++at;
        }
    }
    /// Passes over a segment that is sacked, and those beside it that the acknowledgement before named too.
    [[nodiscard]] std::size_t after_known(std::size_t at) const {
        for (std::size_t i = 0; i < known_blocks_; ++i) {
            if (!before(segments_[at].begin, known_[i].begin) && before(segments_[at].begin, known_[i].end))
                return std::max(place_of(known_[i].end), at + 1);
        }
        return at + 1;
    }
    void deliver(Segment& segment, std::int64_t now, Report& report) {
        ++report.delivered;
        if (segment.lost) --lost_;
        if (segment.again) --again_;
        segment.lost = segment.again = false;
        const std::int64_t age_ns = now - segment.sent_ns;
        if (!segment.ever_again) {
            report.newest_rtt_ns = age_ns;
            reordered_ = reordered_ || (any_delivered_ && before(segment.end(), highest_));
        }
        highest_ = any_delivered_ ? later(highest_, segment.end()) : segment.end();
        any_delivered_ = true;
        if (segment.ever_again && age_ns < least_rtt_ns_) return;  // of the transmission before
        rtt_ns_ = age_ns;
        if (segment.sent_ns < newest_sent_ns_ ||
            (segment.sent_ns == newest_sent_ns_ && before(segment.end(), newest_end_)))
            return;
        newest_sent_ns_ = segment.sent_ns;
        newest_end_ = segment.end();
    }
    void lose(std::size_t at) {
        Segment& segment = segments_[at];
        if (!segment.lost) ++lost_;
        if (segment.again) --again_;
        segment.lost = true;
        segment.again = false;
        hole_from_ = std::min(hole_from_, at);
    }

    buffer::Ring<Segment> segments_;
    buffer::Ring<Sent> sent_;  ///< in the order of time; old entries of what was sent again or delivered stay a while
    std::uint32_t sacked_ = 0, lost_ = 0, again_ = 0;
    std::size_t hole_from_ = 0;                    ///< no segment before it is a hole
    std::array<Range, Frame::most_blocks> known_;  ///< of the last acknowledgement
    std::size_t known_blocks_ = 0;

    std::int64_t newest_sent_ns_ = -1;  ///< of all that was delivered, what was sent last,
    Sequence newest_end_ = 0;           ///< and where it ends
    std::int64_t rtt_ns_ = 0;           ///< of what was delivered last
    std::int64_t least_rtt_ns_ = std::numeric_limits<std::int64_t>::max() / 4;
    bool any_delivered_ = false, reordered_ = false;
    Sequence highest_ = 0;  ///< one past the highest byte that was delivered
};

class Stack;

/// One end of a TCP connection that repairs losses as Linux does: RACK and its probes of the tail (RFC 8985), timeouts
/// of RFC 6298, proportional rate reduction (RFC 6937). docs/reference/native.md has what is left out.
class LinuxSocket {
public:
    using Event = Socket::Event;

    /// Makes the socket that of a connection, at its sending or its receiving end.
    void reset(Stack& stack, const TcpSettings& settings, std::int32_t number, std::int32_t connection, bool sends,
               const std::string& control, std::uint32_t first_window_bytes);

    // The application of a sender.
    void connect();
    void write(std::uint32_t bytes);
    /// No more bytes will come. A receiving end closes when its sender has, so this means nothing to it.
    void close();

    /// Answers a SYN, at the receiving end.
    void accept(const Listener& listener, bool asks_for_ecn);
    void receive(const Frame& frame);
    void fire(Event event);

    [[nodiscard]] bool is_open() const { return is_open_; }
    [[nodiscard]] std::int32_t number() const { return number_; }
    [[nodiscard]] std::int32_t connection() const { return connection_; }
    [[nodiscard]] bool sends() const { return sends_; }
    /// Bytes of its application that are not acknowledged.
    [[nodiscard]] std::int64_t buffered_bytes() const { return written_ - unacknowledged_; }
    /// The only one.
    [[nodiscard]] Timer& timer(Event) { return timer_; }

private:
    enum class State : std::uint8_t { syn_sent, syn_received, established };
    enum class Congested : std::uint8_t { open, disorder, reduced, recovery, loss };
    enum class Due : std::uint8_t { request, timeout, probe, reordering };

    // The connection and its receiving half.
    void request();
    void establish(bool ecn);
    void end_if_done();
    void receive_data(const Frame& frame);
    void read_mark(const Frame& frame);
    void acknowledge();
    void emit(std::uint8_t flags, Sequence sequence, std::uint32_t payload, bool first_time);

    // The sending half.
    void receive_acknowledgement(const Frame& frame);
    void end_probe(const Frame& frame, const Rack::Report& report);
    Rack::Detected detect();
    void change_state(bool marked, const Rack::Detected& detected);
    void enter_recovery();
    void reduce(Congested kind, std::uint32_t threshold);
    void end_reduction();
    void reduce_further(std::uint32_t delivered, bool advances, bool lost);
    void time_out();
    void probe();
    void reordering_ends();
    void send_holes();
    void send_again(std::size_t at);
    void send_pending();
    /// Sends a segment that was not sent yet; there must be one.
    void send_next();
    void restart_if_idle();
    void note_window_use();
    void restart_timer();
    bool schedule_probe(std::int64_t timeout_ns);
    void set_timer(Due due, std::int64_t delay_ns);
    /// Time until the oldest segment has waited for a timeout.
    [[nodiscard]] std::int64_t left_of_timeout_ns() const;
    [[nodiscard]] bool has_unsent() const { return !fin_sent_ && (closes_ || next_ != written_); }
    [[nodiscard]] bool is_reducing() const {
        return congested_ == Congested::reduced || congested_ == Congested::recovery;
    }

    Stack* stack_ = nullptr;
    const TcpSettings* settings_ = nullptr;
    std::int32_t number_ = 0, connection_ = 0;
    bool sends_ = false;    ///< the end that opened the connection
    bool is_open_ = false;  ///< packets still reach it
    State state_ = State::syn_sent;
    bool is_dctcp_ = false;
    bool ecn_ = false;  ///< both ends agreed on it

    // Sending: numbers from `unacknowledged_` to `next_` are in flight.
    Congested congested_ = Congested::open;
    Due due_ = Due::request;
    Window window_;  ///< in segments, but for its sequence numbers
    LinuxCongestion congestion_;
    Rack rack_;
    RoundTripTime rtt_;
    std::int64_t rto_ns_ = 0, request_ns_ = 0;
    std::int64_t last_sent_ns_ = 0;
    Sequence unacknowledged_ = 0, next_ = 0, written_ = 0;
    std::uint32_t peer_window_bytes_ = 0, first_window_ = 0;
    bool closes_ = false, fin_sent_ = false;
    int tries_ = 0;                                               ///< of the SYN, or timeouts without progress
    Sequence recovery_point_ = 0;                                 ///< what was not sent when the window was reduced
    std::uint32_t window_before_ = 0, delivered_ = 0, sent_ = 0;  ///< of a reduction, in segments
    bool tells_of_reduction_ = false;
    Sequence probed_ = 0;  ///< what was not sent when the tail was
    bool probes_ = false, probe_is_new_ = false;
    std::uint32_t most_in_flight_ = 0;  ///< of the window whose use is noted
    Sequence use_noted_to_ = 0;
    bool was_limited_ = false;

    // Receiving.
    ReceiveBuffer received_;
    bool peer_closes_ = false;
    Sequence peer_end_ = 0;  ///< behind its FIN
    bool echoes_ = false;
    Timer timer_;
};

}  // namespace foretail::packets::native
