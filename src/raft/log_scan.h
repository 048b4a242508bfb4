/* SPDX-License-Identifier: MIT */
/*
 * What a start finds in the segments: the entries, where the log ends, and whether it may
 * end there. Pure: the caller reads the files. README.md has the table of decisions that
 * this code makes.
 */
#ifndef PICKET_RAFT_LOG_SCAN_H
#define PICKET_RAFT_LOG_SCAN_H

#include "raft/log_format.h"

enum pk_scan_verdict {
    PK_SCAN_SOUND,   /* the log ends where nothing more was acknowledged */
    PK_SCAN_DOUBT,   /* the last batch may have been acknowledged; see `floor` */
    PK_SCAN_DAMAGED, /* a durable batch does not check: `segment` and `offset` */
    PK_SCAN_MISSING, /* segment `segment` is not there */
};

/* The last entry of the log with the batch in doubt; index 0: not known. */
struct pk_floor {
    uint64_t term, index;
};

struct pk_scan_found {
    enum pk_scan_verdict verdict;
    uint64_t segment, offset; /* of the first batch that does not check, or of the end */
    struct pk_floor floor;
    uint64_t last_batch; /* the last good one; 0: none */
    uint32_t chain;      /* of it */
};

struct pk_scan_hooks {
    void *ctx;
    /* An entry at `index`, which is the one behind the last. */
    void (*entry)(void *ctx, uint64_t index, const struct pk_record *r);
    /* Entries from `index` on are void. */
    void (*truncate)(void *ctx, uint64_t index);
};

struct pk_scan {
    struct pk_scan_hooks hooks;
    struct pk_durable mark; /* batch 0: there is none */
    bool same_boot;         /* the mark is of this boot, and so it is exact */
    /* Where we are. */
    uint64_t next_batch, next_index;
    uint64_t segment, offset;
    uint32_t chain;
    uint64_t first_index;      /* of the first segment */
    uint64_t last_segment;     /* number of the last one seen; 0: none yet */
    uint64_t missing;          /* number of the first one that is not there; 0: none */
    enum pk_batch_state state; /* of what is at segment and offset */
    struct pk_floor floor;
    uint64_t evidence; /* the highest batch that anything calls durable */
};

void pk_scan_begin(struct pk_scan *s, const struct pk_scan_hooks *hooks,
                   const struct pk_durable *mark, bool same_boot);
/* The segments in the order of their numbers, the first that is needed first. `bytes` is
 * the whole file. */
void pk_scan_segment(struct pk_scan *s, const struct pk_segment_head *head,
                     const unsigned char *bytes, size_t len);
/* `newest`: the number of the newest segment that has a batch, as meta says. `needed`:
 * the first entry that the log must have, because no snapshot covers it. */
struct pk_scan_found pk_scan_end(struct pk_scan *s, uint64_t newest, uint64_t needed);

#endif
