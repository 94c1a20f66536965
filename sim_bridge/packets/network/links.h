// SPDX-License-Identifier: MIT
// Events in order of time, a pool of frames, and links.
#pragma once

#include "buffer/queues/port_queues.hpp"

namespace foretail::packets {

/// When something happens: events at the same time are numbered in the order in which they were scheduled.
struct Moment {
    std::int64_t time = std::numeric_limits<std::int64_t>::max();
    std::uint64_t order = std::numeric_limits<std::uint64_t>::max();
    [[nodiscard]] bool operator==(const Moment&) const = default;
    [[nodiscard]] bool operator<(const Moment& other) const {
        return time != other.time ? time < other.time : order < other.order;
    }
};

/// The numbers of events at the same time; one for all queues whose events happen in one order.
class EventOrder {
public:
    std::uint64_t take() { return next_++; }
    /// Of an event that happens before all others at its time but those that were numbered so before.
    std::uint64_t take_early() { return next_early_++; }

private:
    std::uint64_t next_early_ = 0, next_ = std::uint64_t{1} << 63;
};

/// Something that happens.
struct Event {
    Moment moment;
    std::size_t what = 0;
};

/// What happens in a network in virtual time, in order. Whoever reserves enough of it allocates nothing later.
class EventQueue {
public:
    void reserve(std::size_t events) { events_.reserve(events); }
    void push(const Event& event) {
        events_.push_back(event);
        rise(event);
    }
    /// Takes out what happens next. There must be something.
    [[gnu::noinline]] Event pop() {
        const Event event = events_.front(), last = events_.back();
        events_.pop_back();
        if (!events_.empty()) sink(last);
        return event;
    }
    /// What happens next; at the last moment of all when nothing will.
    [[nodiscard]] Event front() const { return events_.empty() ? Event{} : events_.front(); }
    /// When that is.
    [[nodiscard]] Moment next() const { return events_.empty() ? Moment{} : events_.front().moment; }

private:
    static constexpr std::size_t children = 4;  // shallower than a binary heap, so an event moves less often

    /// Moves the last event to where it belongs.
    void rise(const Event& event) {
        std::size_t at = events_.size() - 1;
        while (at > 0) {
            const std::size_t parent = (at - 1) / children;
            if (!(event.moment < events_[parent].moment)) break;
            events_[at] = events_[parent];
            at = parent;
        }
        events_[at] = event;
    }
    /// Puts an event into the hole at the top.
    void sink(const Event& event) {
        const std::size_t size = events_.size();
        std::size_t at = 0;
        for (std::size_t first = 1; first < size; first = at * children + 1) {
            std::size_t least = first;
            const std::size_t end = std::min(first + children, size);
            for (std::size_t child = first + 1; child < end; ++child) {
                if (events_[child].moment < events_[least].moment) least = child;
            }
            if (!(events_[least].moment < event.moment)) break;
            events_[at] = events_[least];
            at = least;
        }
        events_[at] = event;
    }

    std::vector<Event> events_;  // a heap
};

/// The same for links, each of which has at most one event, and that soon. Those are in buckets of equal spans of time,
/// in a bucket in order; events that are further ahead than all buckets, and those of nobody's link, are in a heap.
class LinkEvents {
public:
    /// Events of links are rarely further ahead than `span_ns`.
    explicit LinkEvents(std::size_t links = 0, std::int64_t span_ns = 0)
        : shift_(std::bit_width(static_cast<std::uint64_t>(span_ns) / buckets)), of_links_(links) {
        first_.fill(none);
        far_.reserve(links + 1);
    }

    /// Schedules the event of a link, which is not before anything that has happened.
    [[gnu::always_inline]] void push(const Event& event) {
        const std::uint64_t bucket = bucket_of(event.moment.time);
        if (bucket - begin_ >= buckets) return push_other(event);
        if (event.moment < front_.moment) front_ = event;
        Place* place = &first_[bucket % buckets];
        while (*place != none && of_links_[*place].moment < event.moment) place = &of_links_[*place].next;
        of_links_[event.what] = {event.moment, *place};
        *place = static_cast<Place>(event.what);
        filled_ |= std::uint64_t{1} << bucket % buckets;
    }
    /// Schedules an event that is not of a link; `what` is not that of one either.
    [[gnu::noinline]] void push_other(const Event& event) {
        if (event.moment < front_.moment) front_ = event;
        far_.push(event);
        next_far_ = far_.next();
    }
    /// Takes out what happens next. There must be something.
    [[gnu::always_inline]] Event pop() {
        const Event event = front_;
        begin_ = bucket_of(event.moment.time);
        const std::uint64_t bucket = begin_ % buckets;
        Place first = first_[bucket];
        if (first != event.what) {  // a link has one event
            far_.pop();
            next_far_ = far_.next();
        } else if (first = first_[bucket] = of_links_[first].next; first == none) {
            filled_ ^= std::uint64_t{1} << bucket;
        }
        if (first == none && filled_ != 0) {
            const auto ahead =
                static_cast<std::uint64_t>(std::countr_zero(std::rotr(filled_, static_cast<int>(bucket))));
            first = first_[(bucket + ahead) % buckets];
        }
        const bool is_of_link = first != none && of_links_[first].moment < next_far_;
        front_ = is_of_link ? Event{of_links_[first].moment, first} : far_.front();
        return event;
    }
    /// What happens next; at the last moment of all when nothing will.
    [[nodiscard]] const Event& front() const { return front_; }

private:
    using Place = std::uint32_t;  // of a link
    static constexpr Place none = std::numeric_limits<Place>::max();
    static constexpr std::uint64_t buckets = 64;
    struct OfLink {
        Moment moment;
        Place next = none;  // in its bucket
    };

    [[nodiscard]] std::uint64_t bucket_of(std::int64_t time) const {
        return static_cast<std::uint64_t>(time) >> shift_;
    }

    int shift_;
    std::vector<OfLink> of_links_;
    std::array<Place, buckets> first_{};  // of each bucket
    std::uint64_t filled_ = 0;            // buckets, one bit each
    std::uint64_t begin_ = 0;             // the bucket of what happened last, of all that ever were
    EventQueue far_;
    Moment next_far_;
    Event front_;
};

/// Frames that are used again and again: memory grows to the most that were in flight, and then stays.
///
/// A handle gives its frame back by itself. Frames that are lent are plain pointers, which can be copied with whatever
/// holds them: `save` and `restore` bring back what was in them, at the same place. Where frames have a `number`, the
/// pool numbers them from 0.
template <class Frame>
class FramePool {
public:
    struct Return {
        FramePool* pool = nullptr;
        void operator()(Frame* frame) const { pool->give_back(frame); }
    };
    using Handle = std::unique_ptr<Frame, Return>;

    /// What the frames of a pool hold, and which of them are in flight.
    struct Saved {
        std::vector<Frame> frames;
        std::vector<Frame*> free;
    };

    FramePool() { grow(); }
    FramePool(const FramePool&) = delete;
    FramePool& operator=(const FramePool&) = delete;

    [[nodiscard]] Handle take() { return {lend(), Return{this}}; }
    /// A frame that somebody has to give back.
    [[nodiscard]] Frame* lend() {
        if (free_.empty()) grow();
        Frame* frame = free_.back();
        free_.pop_back();
        return frame;
    }
    void give_back(Frame* frame) { free_.push_back(frame); }
    [[nodiscard]] std::size_t in_flight() const { return chunks_.size() * chunk_frames - free_.size(); }

    void save(Saved& saved) const {
        saved.frames.resize(chunks_.size() * chunk_frames);
        for (std::size_t i = 0; i < chunks_.size(); ++i)
            std::copy_n(chunks_[i].get(), chunk_frames, saved.frames.data() + i * chunk_frames);
        saved.free = free_;
    }
    /// Frames that came later are free again.
    void restore(const Saved& saved) {
        const std::size_t then = saved.frames.size() / chunk_frames;
        free_.clear();
        for (std::size_t i = then; i < chunks_.size(); ++i) add_free(chunks_[i].get());
        free_.insert(free_.end(), saved.free.begin(), saved.free.end());
        for (std::size_t i = 0; i < then; ++i)
            std::copy_n(saved.frames.data() + i * chunk_frames, chunk_frames, chunks_[i].get());
    }

private:
    static constexpr std::size_t chunk_frames = 1024;

    void grow() {
        // Not make_unique, which would clear all bytes of the frames, perhaps megabytes in the midst of a run.
        Frame* frames = chunks_.emplace_back(new Frame[chunk_frames]).get();
        if constexpr (requires { frames->number; }) {
            for (std::size_t i = 0; i < chunk_frames; ++i)
                frames[i].number = static_cast<std::int32_t>((chunks_.size() - 1) * chunk_frames + i);
        }
        free_.reserve(chunks_.size() * chunk_frames);
        add_free(frames);
    }
    void add_free(Frame* frames) {
        for (std::size_t i = 0; i < chunk_frames; ++i) free_.push_back(frames + i);
    }

    std::vector<std::unique_ptr<Frame[]>> chunks_;
    std::vector<Frame*> free_;
};

/// A link and the packets on it, which arrive at its other end in the order in which they left.
template <class Packet>
class Link {
public:
    Link(buffer::LineRate rate, std::int64_t delay_ns) : rate_(rate), delay_ns_(delay_ns) {}

    /// Sends a packet after all that it was given before, as an unbounded queue does; `order` is the number of its
    /// arrival among events at the same time.
    void send(Packet packet, buffer::Bytes size, std::int64_t now, std::uint64_t order = 0) {
        free_at_ = std::max(now, free_at_) + duration(size);
        packets_.push_back({std::move(packet), free_at_ + delay_ns_, order});
    }
    /// Carries a packet whose last bit has left at `left_ns`.
    void carry(Packet packet, std::int64_t left_ns) { packets_.push_back({std::move(packet), left_ns + delay_ns_, 0}); }
    /// Hands over the packet that arrives first. There must be one.
    Packet take() { return std::move(packets_.pop_front().packet); }

    [[nodiscard]] bool empty() const { return packets_.empty(); }
    /// When the first packet arrives. There must be one.
    [[nodiscard]] std::int64_t next_ns() const { return packets_.front().time_ns; }
    /// The number of that arrival. There must be a packet, and it must have been given one.
    [[nodiscard]] std::uint64_t next_order() const { return packets_.front().order; }
    /// When the link has sent all that it was given.
    [[nodiscard]] std::int64_t free_at_ns() const { return free_at_; }
    [[nodiscard]] std::int64_t delay_ns() const { return delay_ns_; }
    [[nodiscard]] const buffer::LineRate& rate() const { return rate_; }
    /// For what is sent from now on.
    void lengthen(std::int64_t ns) { delay_ns_ += ns; }

private:
    struct Travelling {
        Packet packet;
        std::int64_t time_ns = 0;  ///< of its arrival at the end of the link
        std::uint64_t order = 0;   ///< of that event
    };

    /// Packets come in few sizes, and a division costs more than this comparison.
    [[nodiscard]] std::int64_t duration(buffer::Bytes size) {
        if (size != last_size_) {
            last_size_ = size;
            last_duration_ = rate_.duration(size);
        }
        return last_duration_;
    }

    buffer::LineRate rate_;
    std::int64_t delay_ns_, free_at_ = 0;
    buffer::Bytes last_size_ = 0;
    std::int64_t last_duration_ = 0;
    buffer::Ring<Travelling> packets_;
};

}  // namespace foretail::packets
