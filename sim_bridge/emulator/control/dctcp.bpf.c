// SPDX-License-Identifier: MIT
// DCTCP as RFC 8257 and the paper (Alizadeh et al., SIGCOMM 2010) have it. The receiver says of every segment whether
// it was marked; the sender averages the share of marked ones, and gives up half that share of its window, once a round
// trip. All else is Reno's.
#include "tcp.bpf.h"

enum { ONE = 1 << 16, GAIN_SHIFT = 4 };  // 1 as a share; the average takes in 1/16 of each round trip

struct dctcp {
    u32 marked_share;             // the RFC's alpha, in 1/65536
    u32 round_end;                // sequence number whose acknowledgement ends this round trip
    u32 delivered, delivered_ce;  // the kernel's counters at its beginning
    u32 window_before;            // the last reduction, in segments
    u32 received;                 // receiver: rcv_nxt after the segment before this one
    bool last_was_marked;         // receiver: the RFC's DCTCP.CE
};

static inline void begin_round(struct dctcp* s, struct tcp_sock* tp) {
    s->round_end = tp->snd_nxt;
    s->delivered = tp->delivered;
    s->delivered_ce = tp->delivered_ce;
}

SECTION("struct_ops/init") int dctcp_init(u64* context) {
    struct sock* sk = (struct sock*)context[0];
    struct dctcp* s = state_of(sk);
    s->marked_share = ONE;
    s->window_before = 0;
    s->received = tcp_of(sk)->rcv_nxt;
    s->last_was_marked = 0;
    begin_round(s, tcp_of(sk));
    return 0;
}

SECTION("struct_ops/in_ack_event") int dctcp_acknowledged(u64* context) {
    struct sock* sk = (struct sock*)context[0];
    struct tcp_sock* tp = tcp_of(sk);
    struct dctcp* s = state_of(sk);
    if (is_before(tp->snd_una, s->round_end)) return 0;
    u32 delivered = tp->delivered - s->delivered, marked = tp->delivered_ce - s->delivered_ce;
    if (delivered > 0) {
        u32 now = (u32)(((u64)marked << 16) / delivered);
        if (now > ONE) now = ONE;
        // Rounded away from the old share on the way down, so that it reaches 0.
        if (now >= s->marked_share) {
            s->marked_share += (now - s->marked_share) >> GAIN_SHIFT;
        } else {
            s->marked_share -= (s->marked_share - now + (1 << GAIN_SHIFT) - 1) >> GAIN_SHIFT;
        }
    }
    begin_round(s, tp);
    return 0;
}

// The window after a mark; the kernel asks once a round trip.
SECTION("struct_ops/ssthresh") u32 dctcp_ssthresh(u64* context) {
    struct sock* sk = (struct sock*)context[0];
    struct dctcp* s = state_of(sk);
    u32 window = tcp_of(sk)->snd_cwnd;
    s->window_before = window;
    return at_least_two(window - (u32)(((u64)window * s->marked_share) >> 17));
}

// A loss counts as in any TCP, whatever the marks say (section 3.4).
static inline void halve(struct sock* sk) {
    struct dctcp* s = state_of(sk);
    struct tcp_sock* tp = tcp_of(sk);
    s->window_before = tp->snd_cwnd;
    tp->snd_ssthresh = at_least_two(tp->snd_cwnd / 2);
}

SECTION("struct_ops/set_state") int dctcp_set_state(u64* context) {
    if ((u8)context[1] == TCP_CA_RECOVERY) halve((struct sock*)context[0]);
    return 0;
}

// How the receiver answers a segment; `marked` is what its acknowledgements say from now on.
static inline void received(struct sock* sk, bool marked) {
    struct tcp_sock* tp = tcp_of(sk);
    struct inet_connection_sock* connection = connection_of(sk);
    struct dctcp* s = state_of(sk);
    if (marked != s->last_was_marked) {
        // What was held back says how the segments before this one came (section 3.2).
        if (connection->icsk_ack.pending & ICSK_ACK_TIMER) {
            tp->ecn_flags =
                s->last_was_marked ? tp->ecn_flags | TCP_ECN_DEMAND_CWR : tp->ecn_flags & ~TCP_ECN_DEMAND_CWR;
            send_ack(tp, s->received);
        }
        connection->icsk_ack.pending = connection->icsk_ack.pending | ICSK_ACK_NOW;
    }
    s->received = tp->rcv_nxt;
    s->last_was_marked = marked;
    tp->ecn_flags = marked ? tp->ecn_flags | TCP_ECN_DEMAND_CWR : tp->ecn_flags & ~TCP_ECN_DEMAND_CWR;
}

SECTION("struct_ops/cwnd_event") int dctcp_event(u64* context) {
    struct sock* sk = (struct sock*)context[0];
    switch ((u32)context[1]) {
        case CA_EVENT_LOSS: halve(sk); break;
        case CA_EVENT_ECN_IS_CE: received(sk, 1); break;
        case CA_EVENT_ECN_NO_CE: received(sk, 0); break;
    }
    return 0;
}

SECTION("struct_ops/cong_avoid") int dctcp_grow(u64* context) {
    tcp_reno_cong_avoid((struct sock*)context[0], (u32)context[1], (u32)context[2]);
    return 0;
}

SECTION("struct_ops/undo_cwnd") u32 dctcp_undo(u64* context) {
    struct sock* sk = (struct sock*)context[0];
    struct dctcp* s = state_of(sk);
    u32 window = tcp_of(sk)->snd_cwnd;
    return window > s->window_before ? window : s->window_before;
}

SECTION(".struct_ops")
struct tcp_congestion_ops control = {
    .init = (void*)dctcp_init,
    .ssthresh = (void*)dctcp_ssthresh,
    .cong_avoid = (void*)dctcp_grow,
    .set_state = (void*)dctcp_set_state,
    .cwnd_event = (void*)dctcp_event,
    .in_ack_event = (void*)dctcp_acknowledged,
    .undo_cwnd = (void*)dctcp_undo,
    .flags = TCP_CONG_NON_RESTRICTED | TCP_CONG_NEEDS_ECN,
    .name = CONTROL_NAME,
};

SECTION("license") char licence[] = "Dual MIT/GPL";
