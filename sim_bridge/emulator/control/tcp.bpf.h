// SPDX-License-Identifier: MIT
// What our congestion controls need of the kernel. Of its types only the fields that they touch: where these are, the
// loader learns from the kernel itself. Compiled for BPF alone, with CONTROL_NAME as the name that sockets choose.
#pragma once

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef _Bool bool;

#define SECTION(name) __attribute__((section(name), used))
#define KERNEL_TYPE __attribute__((preserve_access_index))

struct sock {
    int unused;  // of it we only pass pointers on
};

struct tcp_sock {
    u32 snd_una, snd_nxt, rcv_nxt;
    u32 snd_cwnd, snd_cwnd_cnt, snd_ssthresh;            // cnt: acknowledged since the window grew
    u32 packets_out, sacked_out, lost_out, retrans_out;  // segments: sent, and of these what is known
    u32 data_segs_out;                                   // ever sent, again included
    u32 delivered;                                       // segments, acknowledged selectively included
    u32 delivered_ce;                                    // of them, acknowledged with ECE
    u8 ecn_flags;
} KERNEL_TYPE;

struct inet_connection_sock {
    struct {
        u8 pending;
    } icsk_ack;
    u64 icsk_ca_priv[13];  // room of the congestion control
} KERNEL_TYPE;

struct rate_sample {
    u32 acked_sacked;  // segments that this acknowledgement is the first to tell of
} KERNEL_TYPE;

// Named as in the kernel: the loader finds fields by their names, and leaves those out that stay 0.
struct tcp_congestion_ops {
    void (*init)(struct sock* sk);
    u32 (*ssthresh)(struct sock* sk);
    void (*cong_avoid)(struct sock* sk, u32 ack, u32 acked);
    void (*set_state)(struct sock* sk, u8 state);
    void (*cwnd_event)(struct sock* sk, u32 event);
    void (*in_ack_event)(struct sock* sk, u32 flags);
    void (*cong_control)(struct sock* sk, u32 ack, int flag, const struct rate_sample* sample);
    u32 (*undo_cwnd)(struct sock* sk);
    u32 flags;
    char name[16];
};

enum { TCP_CONG_NON_RESTRICTED = 1, TCP_CONG_NEEDS_ECN = 2 };
enum { CA_EVENT_LOSS = 3, CA_EVENT_ECN_NO_CE = 4, CA_EVENT_ECN_IS_CE = 5 };
enum { CA_ACK_ECE = 4 };
enum { TCP_CA_OPEN = 0, TCP_CA_CWR = 2, TCP_CA_RECOVERY = 3 };
enum { TCP_ECN_DEMAND_CWR = 4 };                 // bit of ecn_flags: acknowledgements carry ECE
enum { ICSK_ACK_TIMER = 2, ICSK_ACK_NOW = 16 };  // bits of pending: an acknowledgement is held back; one is due

extern void tcp_reno_cong_avoid(struct sock* sk, u32 ack, u32 acked) SECTION(".ksyms");
static long (*send_ack)(struct tcp_sock* tp, u32 rcv_nxt) = (void*)116;

static inline struct tcp_sock* tcp_of(struct sock* sk) { return (struct tcp_sock*)sk; }
static inline struct inet_connection_sock* connection_of(struct sock* sk) { return (struct inet_connection_sock*)sk; }
static inline void* state_of(struct sock* sk) { return (void*)connection_of(sk)->icsk_ca_priv; }
static inline bool is_before(u32 one, u32 other) { return (int)(one - other) < 0; }
static inline u32 at_least_two(u32 segments) { return segments < 2 ? 2 : segments; }
