// SPDX-License-Identifier: MIT
// reTCP (Mukerjee et al., NSDI 2020, section 5): Reno, but it doubles its window when the switch says that a circuit is
// there, and halves it when that is gone. The switch says so by ECE in acknowledgements. Linux would take ECE for
// congestion; a control that sets the window itself on every acknowledgement need not heed it.
#include "tcp.bpf.h"

enum { UP_TIMES = 2, DOWN_BY = 2 };  // the paper's alpha of 2 and beta of 1/2

struct retcp {
    u32 window_before;  // the last loss, in segments
    u32 growth;         // acknowledged segments that have not made the window larger yet
    u32 delivered;      // since recovery began: segments that arrived,
    u32 sent_before;    // and the kernel's count of those sent, at its beginning
    u8 state;           // the kernel's, of congestion
    bool has_circuit;   // says the last acknowledgement
    bool is_up;         // the window has been multiplied
};

SECTION("struct_ops/init") int retcp_init(u64* context) {
    struct retcp* s = state_of((struct sock*)context[0]);
    s->window_before = s->growth = s->delivered = s->sent_before = 0;
    s->state = TCP_CA_OPEN;
    s->has_circuit = s->is_up = 0;
    return 0;
}

SECTION("struct_ops/in_ack_event") int retcp_acknowledged(u64* context) {
    struct retcp* s = state_of((struct sock*)context[0]);
    s->has_circuit = (context[1] & CA_ACK_ECE) != 0;
    return 0;
}

// The kernel asks for ECE, which means nothing here, and for losses.
SECTION("struct_ops/ssthresh") u32 retcp_ssthresh(u64* context) {
    struct sock* sk = (struct sock*)context[0];
    struct tcp_sock* tp = tcp_of(sk);
    struct retcp* s = state_of(sk);
    if (s->has_circuit) return tp->snd_ssthresh;
    s->window_before = tp->snd_cwnd;
    return at_least_two(tp->snd_cwnd / 2);
}

static inline void halve_threshold(struct sock* sk) {
    struct retcp* s = state_of(sk);
    struct tcp_sock* tp = tcp_of(sk);
    s->window_before = tp->snd_cwnd;
    tp->snd_ssthresh = at_least_two(tp->snd_cwnd / 2);
}

SECTION("struct_ops/cwnd_event") int retcp_event(u64* context) {
    if ((u32)context[1] == CA_EVENT_LOSS) halve_threshold((struct sock*)context[0]);
    return 0;
}

SECTION("struct_ops/set_state") int retcp_set_state(u64* context) {
    struct sock* sk = (struct sock*)context[0];
    struct tcp_sock* tp = tcp_of(sk);
    struct retcp* s = state_of(sk);
    u8 state = (u8)context[1];
    if (state == TCP_CA_RECOVERY) {
        halve_threshold(sk);
        s->delivered = 0;
        s->sent_before = tp->data_segs_out;
    } else if (s->state == TCP_CA_RECOVERY && state < TCP_CA_RECOVERY) {
        tp->snd_cwnd = tp->snd_ssthresh;
    } else if (state == TCP_CA_CWR && !s->has_circuit) {
        tp->snd_cwnd = tp->snd_ssthresh;  // a probe of the tail repaired a loss
    }
    s->state = state;
    return 0;
}

// Proportional rate reduction (RFC 6937): as segments arrive, so are as many sent as the new window has to the old one.
static inline void recover(struct tcp_sock* tp, struct retcp* s, u32 delivered) {
    u32 in_flight = tp->packets_out - (tp->sacked_out + tp->lost_out) + tp->retrans_out;
    u32 threshold = tp->snd_ssthresh, sent = tp->data_segs_out - s->sent_before;
    s->delivered += delivered;
    long long more;
    if (in_flight > threshold) {
        u32 before = s->window_before > 0 ? s->window_before : 1;
        more = (long long)(((u64)s->delivered * threshold + before - 1) / before) - sent;
    } else {
        long long limit = (long long)s->delivered - sent;
        if (limit < delivered) limit = delivered;
        more = (long long)threshold - in_flight;
        if (more > limit + 1) more = limit + 1;
    }
    if (sent == 0 && more < 1) more = 1;  // what is lost is sent again at once
    tp->snd_cwnd = in_flight + (more > 0 ? (u32)more : 0);
}

SECTION("struct_ops/cong_control") int retcp_control(u64* context) {
    struct sock* sk = (struct sock*)context[0];
    struct tcp_sock* tp = tcp_of(sk);
    struct retcp* s = state_of(sk);
    u32 delivered = ((struct rate_sample*)context[3])->acked_sacked;
    if (s->state == TCP_CA_RECOVERY) {
        recover(tp, s, delivered);
        return 0;
    }
    if (delivered > 0) {
        tp->snd_cwnd_cnt = s->growth;  // which the kernel forgets at each ECE
        tcp_reno_cong_avoid(sk, (u32)context[1], delivered);
        s->growth = tp->snd_cwnd_cnt;
    }
    if (s->has_circuit && !s->is_up) {
        tp->snd_cwnd = tp->snd_cwnd * UP_TIMES;
        s->is_up = 1;
    } else if (!s->has_circuit && s->is_up) {
        tp->snd_cwnd = at_least_two(tp->snd_cwnd / DOWN_BY);
        s->is_up = 0;
    }
    return 0;
}

SECTION("struct_ops/undo_cwnd") u32 retcp_undo(u64* context) {
    struct sock* sk = (struct sock*)context[0];
    struct retcp* s = state_of(sk);
    u32 window = tcp_of(sk)->snd_cwnd;
    return window > s->window_before ? window : s->window_before;
}

SECTION(".struct_ops")
struct tcp_congestion_ops control = {
    .init = (void*)retcp_init,
    .ssthresh = (void*)retcp_ssthresh,
    .set_state = (void*)retcp_set_state,
    .cwnd_event = (void*)retcp_event,
    .in_ack_event = (void*)retcp_acknowledged,
    .cong_control = (void*)retcp_control,
    .undo_cwnd = (void*)retcp_undo,
    .flags = TCP_CONG_NON_RESTRICTED,
    .name = CONTROL_NAME,
};

SECTION("license") char licence[] = "Dual MIT/GPL";
