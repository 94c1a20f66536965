// SPDX-License-Identifier: MIT
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

Stack::Stack(const Settings& settings, Flows& flows, Frames& frames, EventOrder& order, FrameTelemetry* telemetry)
    : settings_(&settings),
      tcp_{.segment_bytes = static_cast<std::uint32_t>(settings.transport.segment_bytes),
           .min_rto_ns = settings.transport.min_rto_ns,
           .delayed_ack_segments = settings.transport.delayed_ack_segments,
           .slow_start = settings.transport.slow_start,
           .reordering_window_ns = settings.transport.reordering_window_ns,
           .ecn = settings.transport.mark_bytes > 0 && !PacedSender::has(settings.transport.name),
           .window_bytes = settings.transport.rc3_edges.empty() ? ReceiveBuffer::window_bytes : SecondLoop::most_bytes,
           .rc3_edges = settings.transport.rc3_edges},
      flows_(&flows),
      frames_(&frames),
      order_(&order),
      telemetry_(telemetry),
      queue_of_(settings.queues.queue_of),
      as_linux_(settings.transport.recovery == Recovery::as_linux),
      senders_(flows.ledger().connections().size(), -1),
      receivers_(senders_.size(), -1),
      request_flags_(senders_.size()),
      listeners_(static_cast<std::size_t>(settings.topology.servers())) {
    if (settings.balancing.rule != Balancing::Rule::ecmp)
        balancer_.emplace(settings.balancing, settings.seed, senders_.size());
    if (!tcp_.rc3_edges.empty()) idle_links_.emplace(settings);
    if (settings.transport.has_rdma()) rdma_.emplace(settings, *this, senders_.size());
    for (Listener& listener : listeners_) listener.echo = MarkEcho(settings.transport.name == "dctcp");
    events_.reserve(2 * senders_.size());
}

inline void Stack::send(Frame* frame) {
    flows_->classify(*frame);
    frame->queue = queue_of_[static_cast<std::size_t>(frame->flow_class)] + frame->priority;
    if (balancer_) balance(*frame);
    if (telemetry_) {
        Telemetry& telemetry = (*telemetry_)[frame->number];
        telemetry.clear();
        if (echo_ >= 0 && frame->flow_class == buffer::FlowClass::control) telemetry = (*telemetry_)[echo_];
    }
    if (idle_links_) return send_by_priority(frame);
    outgoing_.push_back({frame, order_->take()});
}

void Stack::send_by_priority(Frame* frame) {
    if (frame->priority == 0 || !frame->answer) return put_on_link(frame);
    idle_links_->hold(frame);
    await_idle_link(frame->source);
}

void Stack::put_on_link(Frame* frame) {
    idle_links_->sent(*frame, now_);
    outgoing_.push_back({frame, order_->take()});
}

void Stack::fill_idle_link(std::int32_t connection) {
    const FlowLedger& ledger = flows_->ledger();
    const auto flow = ledger.planned_connection(static_cast<std::size_t>(connection)).flows.front();
    idle_links_->add_tail(ledger.plan(flow).source, connection);
    await_idle_link(ledger.plan(flow).source);
}

void Stack::await_idle_link(std::int32_t server) {
    if (idle_links_->begins_to_wait(server))
        schedule(std::max(now_, idle_links_->free_ns(server)), Kind::idle_link, server);
}

void Stack::use_idle_link(std::int32_t server) {
    idle_links_->end_wait(server);
    if (idle_links_->free_ns(server) > now_) return await_idle_link(server);
    const auto socket = [&](std::int32_t connection) -> Socket* {
        const std::int32_t number = senders_[static_cast<std::size_t>(connection)];
        return number < 0 ? nullptr : &sockets_[static_cast<std::size_t>(number)];
    };
    const auto priority_of = [&](std::int32_t connection) -> std::size_t {
        const auto packet = socket(connection) ? socket(connection)->next_of_tail() : std::nullopt;
        return packet ? packet->priority : 0;
    };
    if (idle_links_->use(
            server, priority_of, [&](Frame* answer) { put_on_link(answer); },
            [&](std::int32_t connection) { socket(connection)->send_tail(); }))
        await_idle_link(server);
}

void Stack::balance(Frame& frame) {
    frame.stamp = {};
    if (frame.answer) {
        if (!answered_) return;
        frame.path_hash = answered_->path_hash;
        frame.stamp = answered_->stamp;
        frame.stamp.marked = answered_->congestion_experienced;
    } else if (frame.payload > 0) {
        const auto [subflow, path_hash] = balancer_->next(static_cast<std::size_t>(frame.connection), now_);
        frame.path_hash = path_hash;
        frame.stamp = {.sent_ns = now_, .subflow = subflow};
    }
}

void Stack::send(const Header& header, std::span<const Range> blocks) {
    Frame* frame = frames_->lend();
    frame->connection = header.connection;
    frame->answer = header.answer;
    frame->flags = header.flags;
    frame->payload = header.payload;
    frame->sequence = header.sequence;
    frame->acknowledged = header.acknowledged;
    frame->ecn_capable = header.ecn_capable;
    frame->priority = header.priority;
    frame->congestion_experienced = false;
    frame->blocks = 0;
    std::int32_t options_bytes = (header.flags & syn) != 0 ? 8 : 0;  // window scale and that SACK is permitted
    if (header.payload == 0 && (header.flags & ack) != 0 && !blocks.empty()) {
        frame->blocks = static_cast<std::uint8_t>(blocks.size());
        std::ranges::copy(blocks, frame->sacked.begin());
        options_bytes += 4 + 8 * static_cast<std::int32_t>(blocks.size());
    }
    frame->size_bytes = (header.flags & cnp) != 0 ? notification_bytes : Settings::header_bytes;
    frame->size_bytes += options_bytes + static_cast<std::int32_t>(header.payload);
    send(frame);
}

void Stack::arm(std::int32_t number, Kind kind, Timer& timer, std::int64_t delay_ns) {
    const Moment moment{now_ + delay_ns, order_->take()};
    if (!timer.arm(moment)) return;
    events_.push({moment, static_cast<std::size_t>(number) << kind_bits | static_cast<std::size_t>(kind)});
}

RdmaHosts* Stack::rdma_of(std::size_t connection) {
    if (!rdma_) return nullptr;
    const FlowLedger& ledger = flows_->ledger();
    return ledger.goes_by_rdma(ledger.planned_connection(connection).flows.front()) ? &*rdma_ : nullptr;
}

bool Stack::fires(Timer& timer, const Event& event) {
    const Timer::Due due = timer.reach(event.moment.order);
    if (due == Timer::Due::later) events_.push({timer.moment(), event.what});
    if (due == Timer::Due::now) now_ = event.moment.time;
    return due == Timer::Due::now;
}

void Stack::step() {
    const Event event = events_.pop();
    const auto what = event.what >> kind_bits;
    const auto number = static_cast<std::int32_t>(what);
    const auto kind = static_cast<Kind>(event.what & ((std::size_t{1} << kind_bits) - 1));
    if (kind <= Kind::pacing) {
        return with_socket(what, [&](auto& socket) {
            if (!fires(socket.timer(static_cast<Socket::Event>(kind)), event)) return;
            socket.fire(static_cast<Socket::Event>(kind));
            release_if_closed(socket);
        });
    }
    if (kind == Kind::rdma_timeout) {
        if (fires(rdma_->timer(number), event)) rdma_->time_out(number);
        return;
    }
    now_ = event.moment.time;
    if (kind == Kind::rdma_paced) return rdma_->want_to_send(number);
    if (kind == Kind::rdma_card) return rdma_->card_is_free(number);
    if (kind == Kind::connect) return flows_->connect(what);
    if (kind == Kind::send) return flows_->send(what);
    if (kind == Kind::idle_link) return use_idle_link(number);
    accept(number);
}

std::int32_t Stack::make_socket() {
    if (free_.empty()) {
        if (as_linux_) {
            linux_sockets_.emplace_back();
            return static_cast<std::int32_t>(linux_sockets_.size() - 1);
        }
        sockets_.emplace_back();
        return static_cast<std::int32_t>(sockets_.size() - 1);
    }
    const std::int32_t number = free_.back();
    free_.pop_back();
    return number;
}

void Stack::open(std::int32_t connection, const std::string& control, std::uint32_t first_window_bytes) {
    if (rdma_of(static_cast<std::size_t>(connection))) return;  // it needs no handshake
    const std::int32_t number = make_socket();
    senders_[static_cast<std::size_t>(connection)] = number;
    if (PacedSender::has(settings_->transport.name)) {
        const PacedSender fresh(*settings_, first_window_bytes);
        paced_.resize(sockets_.size(), fresh);
        paced_[static_cast<std::size_t>(number)] = fresh;
    }
    with_socket(static_cast<std::size_t>(number), [&](auto& socket) {
        socket.reset(*this, tcp_, number, connection, true, control, first_window_bytes);
        socket.connect();
    });
}

std::size_t Stack::sender(std::int32_t connection) const {
    const std::int32_t number = senders_[static_cast<std::size_t>(connection)];
    if (number < 0) throw std::runtime_error("a connection is closed before all its flows have begun");
    return static_cast<std::size_t>(number);
}

void Stack::write(std::int32_t connection, std::uint32_t bytes) {
    if (RdmaHosts* rdma = rdma_of(static_cast<std::size_t>(connection))) return rdma->write(connection, bytes);
    with_socket(sender(connection), [&](auto& socket) { socket.write(bytes); });
}

std::int64_t Stack::buffered_bytes(std::int32_t connection) {
    if (rdma_of(static_cast<std::size_t>(connection))) return 0;
    return with_socket(sender(connection), [](const auto& socket) { return socket.buffered_bytes(); });
}

void Stack::close(std::int32_t connection) {
    if (rdma_of(static_cast<std::size_t>(connection))) return;
    with_socket(sender(connection), [](auto& socket) { socket.close(); });
}

void Stack::accept(std::int32_t connection) {
    const auto c = static_cast<std::size_t>(connection);
    const std::int32_t number = make_socket();
    receivers_[c] = number;
    const PlannedFlow& flow = flows_->ledger().plan(flows_->ledger().planned_connection(c).flows.front());
    with_socket(static_cast<std::size_t>(number), [&](auto& socket) {
        socket.reset(*this, tcp_, number, connection, false, settings_->transport.name, 0);
        socket.accept(listeners_[static_cast<std::size_t>(flow.destination)], (request_flags_[c] & ece) != 0);
    });
}

template <class Any>
void Stack::release_if_closed(Any& socket) {
    const auto c = static_cast<std::size_t>(socket.connection());
    if (socket.is_open() || (socket.sends() && flows_->ledger().connections()[c].unsent > 0)) return;
    std::int32_t& number = (socket.sends() ? senders_ : receivers_)[c];
    if (number != socket.number()) return;
    free_.push_back(std::exchange(number, -1));
}

void Stack::receive(const Frame& frame, std::int64_t now) {
    now_ = now;
    const auto c = static_cast<std::size_t>(frame.connection);
    const std::int32_t number = (frame.answer ? senders_ : receivers_)[c];
    if (telemetry_) {
        if (frame.flow_class != buffer::FlowClass::control) {
            echo_ = frame.number;
        } else if (const Telemetry& echo = (*telemetry_)[frame.number];
                   number >= 0 && !paced_.empty() && !echo.hops().empty()) {
            paced_[static_cast<std::size_t>(number)].echoed(echo);
        }
    }
    if (balancer_) {
        if (!frame.answer && frame.payload > 0) {
            answered_ = &frame;
        } else if (frame.answer && frame.stamp.sent_ns >= 0) {
            balancer_->acknowledged(c, frame.stamp, now);
        }
    }
    receive(frame, c, number);
    echo_ = -1;
    answered_ = nullptr;
}

inline void Stack::receive(const Frame& frame, std::size_t c, std::int32_t number) {
    if (RdmaHosts* rdma = rdma_of(c)) {
        return rdma->receive(frame, telemetry_ ? &(*telemetry_)[frame.number] : nullptr);
    }
    const auto receives = [&](auto& socket) {
        if (!socket.is_open()) return false;
        socket.receive(frame);
        release_if_closed(socket);
        return true;
    };
    if (number >= 0 && with_socket(static_cast<std::size_t>(number), receives)) return;
    if (frame.answer) {
        if (frame.priority == 0) refuse(frame);
    } else {
        receive_at_listener(frame);
    }
}

void Stack::receive_at_listener(const Frame& frame) {
    Listener& listener = listeners_[static_cast<std::size_t>(frame.destination)];
    listener.echo.read(frame, 0, listener.ecn, [](bool, Sequence) {});
    if ((frame.flags & (fin | syn | rst | ack)) != syn) return;
    request_flags_[static_cast<std::size_t>(frame.connection)] = frame.flags;
    schedule(now_, Kind::accept, frame.connection);
}

void Stack::refuse(const Frame& frame) {
    if (frame.has(rst)) return;
    Frame* answer = frames_->lend();
    answer->connection = frame.connection;
    answer->answer = !frame.answer;
    answer->flags = frame.has(ack) ? rst : rst | ack;
    answer->payload = 0;
    answer->priority = 0;
    answer->sequence = frame.has(ack) ? frame.acknowledged : 0;
    answer->acknowledged = frame.has(ack) ? 0 : frame.sequence + 1;
    answer->blocks = 0;
    answer->ecn_capable = answer->congestion_experienced = false;
    answer->size_bytes = Settings::header_bytes;
    send(answer);
}

}  // namespace foretail::packets::native
