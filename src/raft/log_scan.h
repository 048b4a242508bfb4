/* SPDX-License-Identifier: MIT */
/*
 * What a start finds in the segments: the batches, where the log ends, and whether it may
 * end there. Pure: the caller reads the files. README.md has the decisions.
 *
 * First pk_scan_look at every segment, in any order. Then:
 *
 *     pk_scan_begin(...);
 *     while (pk_scan_wants(&s, &segment)) {
 *         pk_scan_take(&s, the bytes of that segment);
 *     }
 *     verdict = pk_scan_end(&s, ...);
 */
#ifndef PICKET_RAFT_LOG_SCAN_H
#define PICKET_RAFT_LOG_SCAN_H

#include "raft/log_format.h"

/* What one segment shows. */
struct pk_segment_look {
    bool bad;                   /* a sector at its beginning does not check */
    bool begins;                /* a whole batch is at its beginning */
    struct pk_batch_head first; /* that one */
    uint64_t highest;           /* number in any stamp that checks */
    uint64_t durable;           /* highest number that any head calls durable */
    uint64_t bad_end;           /* behind the last sector that does not check; 0: none */
};

void pk_scan_look(const struct pk_log_owner *owner, uint32_t segment,
                  const unsigned char *bytes, size_t len, struct pk_segment_look *out);

enum pk_scan_verdict {
    PK_SCAN_SOUND,   /* the log ends where nothing more was acknowledged */
    PK_SCAN_DAMAGED, /* a sector does not check where the log should go on: `at` */
    PK_SCAN_LOST,    /* a durable batch is not there; the log ends at `at` */
};

/* A whole batch that belongs to the log. `in` is its place in the segment. */
typedef void (*pk_scan_batch)(void *ctx, struct pk_log_place at,
                              const struct pk_batch_head *h, const unsigned char *in);

struct pk_scan {
    const struct pk_log_owner *owner;
    const struct pk_segment_look *looks;
    uint32_t segments;
    pk_scan_batch batch;
    void *ctx;
    struct pk_log_place at; /* behind the last batch */
    uint64_t last;          /* number of the last batch; 0: none */
    uint32_t chain;         /* for the one behind it */
    bool wants;             /* the bytes of segment at.segment */
    bool bad;               /* what is at `at` does not check */
    uint64_t highest;       /* number in any stamp */
    uint64_t durable;       /* highest number that anything calls durable */
};

/* `needed`: the first entry that no snapshot covers. */
void pk_scan_begin(struct pk_scan *s, uint64_t needed);
bool pk_scan_wants(const struct pk_scan *s, uint32_t *segment);
void pk_scan_take(struct pk_scan *s, const unsigned char *bytes, size_t len);
/* `mark`: the number of a durable batch, as the file of that name says; 0: none. */
enum pk_scan_verdict pk_scan_end(struct pk_scan *s, uint64_t mark);

#endif
