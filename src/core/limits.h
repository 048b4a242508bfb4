/* SPDX-License-Identifier: MIT */
/*
 * The bounds of P10. The first group is fixed by the protocol; the second is part of the
 * replicated state (set by the CONFIGURE command, kept in snapshots), so that "full" is
 * the same answer on every node whatever its flags say.
 */
#ifndef PICKET_CORE_LIMITS_H
#define PICKET_CORE_LIMITS_H

#include <stdint.h>

enum {
    PK_NAME_MAX = 255,     /* bytes of a lock's or resource's name */
    PK_PRINCIPAL_MAX = 64, /* bytes of who is asking */
    PK_REASON_MAX = 255,   /* bytes of why an operator broke a lock */
    PK_SET_MAX = 16,       /* locks in one set; also the ceiling of set_locks below */
    PK_PAGE_MAX = 1000,    /* rows in one answer to LIST or SHOW */
    PK_PAGE_BYTES = 256 * 1024, /* of its rows, at which no further one follows (Q5) */
    PK_BLOCKER_VALUE = 1024,    /* bytes of a value that BUSY and QUEUED tell (G5) */
    PK_ROW_BYTES = 128,         /* that a row counts beside its name, label and value */
    PK_RENEW_MAX = 4096,        /* leases in one RENEW */
    PK_RENEW_ROWS = 256,        /* rows in the answer to one RENEW, of all its leases */
    PK_TTL_MIN_MS = 50,
    PK_TTL_MAX_MS = 24 * 3600 * 1000,
    PK_DELAY_MAX_MS = 24 * 3600 * 1000, /* lock-delay */
    PK_LABEL_CEILING = 4096, /* what label_bytes and value_bytes can be raised to */
    PK_VALUE_CEILING = 1048576,
};

#define PK_HOLD_MAX_MS (UINT64_C(30) * 24 * 3600 * 1000)  /* max-hold */
#define PK_WAIT_MAX_MS (UINT64_C(366) * 24 * 3600 * 1000) /* a bounded wait */
#define PK_KEEP_MAX_MS (UINT64_C(366) * 24 * 3600 * 1000) /* a fence register (F10) */
#define PK_WAIT_FOREVER UINT64_MAX
#define PK_SLOTS_MAX UINT32_C(1000000)
#define PK_TOKEN_MAX ((UINT64_C(1) << 53) - 1) /* exact as a JSON number */
#define PK_TOKEN_LEAP (UINT64_C(1) << 32)      /* what a restore from backup adds */
#define PK_TIME_MAX (UINT64_C(1) << 62)        /* cluster time, ms: sums never overflow */
#define PK_COUNT_MAX (UINT64_C(1) << 62)       /* lease ids and arrivals, in a snapshot */

/*  X(name, default, ceiling, what it bounds); numbers, since sentences quote them */
#define PK_LIMITS(X)                                                                     \
    X(leases, 1000000, 100000000, "leases alive at once")                                \
    X(locks, 2000000, 100000000, "locks held, waited for or closed at once")             \
    X(claims, 4000000, 100000000, "holds and waits of all leases together")              \
    X(lease_claims, 100000, 10000000, "holds and waits of one lease")                    \
    X(lock_waiters, 10000, 10000000, "waiters in one lock's queue")                      \
    X(set_locks, 16, 16, "locks in one set")                                             \
    X(fences, 1000000, 100000000, "fence registers")                                     \
    X(label_bytes, 512, 4096, "bytes of one owner label")                                \
    X(value_bytes, 65536, 1048576, "bytes of one election or fence value")               \
    X(stored_bytes, 268435456, 4294967295,                                               \
      "bytes of all names, labels and values together")                                  \
    X(replies, 16, 1024, "answers remembered for each lease, so that a retry is safe")   \
    X(ended, 1024, 1000000, "ended leases remembered, with the reason")                  \
    X(step_work, 1024, 1000000, "ends and grants done at once; the rest follows")

struct pk_limits {
#define X(name, initial, ceiling, text) uint32_t name;
    PK_LIMITS(X)
#undef X
};

struct pk_reader;
struct pk_writer;

struct pk_limits pk_limits_default(void);
/* NULL when each limit is between 1 and its ceiling, else a sentence about the first that
 * isn't. */
const char *pk_limits_wrong(const struct pk_limits *l);
/* The same of a change, in which 0 means: as it is. */
const char *pk_limits_change_wrong(const struct pk_limits *change);
void pk_limits_change(struct pk_limits *l, const struct pk_limits *change);
void pk_limits_write(struct pk_writer *w, const struct pk_limits *l);
void pk_limits_read(struct pk_reader *r, struct pk_limits *l);

#endif
