/* SPDX-License-Identifier: MIT */
/*
 * The guardian's side of cli/guard.h, and what passes between the two processes: messages
 * over a SOCK_SEQPACKET pair, one struct each, and one page of shared memory. Both ends
 * are the same program, so structs travel as they are.
 */
#ifndef PICKET_CLI_GUARDIAN_H
#define PICKET_CLI_GUARDIAN_H

#include <stdatomic.h>
#include <stdint.h>

#include "cli/guard.h"
#include "cli/job.h"

/* The keeper writes safe_until_ms and then reads `wake`; the guardian writes `wake` and
 * then reads safe_until_ms. Sequentially consistent, so that one of them sees the
 * other's. */
struct pk_guard_shared {
    _Atomic uint64_t safe_until_ms; /* 0: not set yet */
    _Atomic uint32_t wake;          /* tell me of every move: I don't sleep until then */
};

enum pk_guard_order {
    PK_GUARD_ORDER_GO,     /* env */
    PK_GUARD_ORDER_SIGNAL, /* value: signo */
    PK_GUARD_ORDER_LOST,
    PK_GUARD_ORDER_LOOK, /* safe_until_ms moved in a way that you would not notice */
    PK_GUARD_ORDER_QUIT,
};

struct pk_guard_message {
    enum pk_guard_order order;
    int value;
    uint32_t env_size;
    char env[PK_GUARD_ENV_MAX];
};

struct pk_guardian_options {
    struct pk_guard_options guard;
    struct pk_guard_shared *shared;
    int fd;        /* our end of the socket pair */
    int keeper_fd; /* pidfd of the keeper; -1 where the kernel has none */
    struct pk_job_signals signals;
};

/* The guardian's life, in a process just forked. Takes the descriptors. */
_Noreturn void pk_guardian_run(const struct pk_guardian_options *o);

#endif
