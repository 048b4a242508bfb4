/* SPDX-License-Identifier: MIT */
/*
 * The checkers over a trace of a real cluster, lock by lock.
 *
 * What a service writes down can't say everything: whether two clients trusted their
 * leases at once (two-valid) only clients know, whether an update was lost or a stale
 * write accepted only the resource. two-holders, token-order, queue-order and, for fences
 * that the service keeps, fence-back are judged; tokens also across locks (P2).
 *
 * A fence and a lock of the same name are told of together, as they mostly belong
 * together.
 */
#ifndef PICKET_SIM_REPLAY_H
#define PICKET_SIM_REPLAY_H

#include "core/tree.h"
#include "sim/check.h"
#include "sim/tracefile.h"

enum { PK_REPLAY_LOCKS_MAX = 65536 };

struct pk_replay_hold {
    uint64_t lease, request, token;
    uint32_t who;
    enum pk_mode mode;
};

struct pk_replay_lock {
    struct pk_node node;
    struct pk_checker checker;
    struct pk_replay_hold *holds;
    uint32_t n_holds, holds_capacity;
    struct pk_record *records; /* who is not set: */
    uint32_t *whos;            /* these are, one for each record; 0: nobody known */
    uint32_t n_records, records_capacity;
    uint32_t name_len;
    char name[PK_NAME_MAX + 1];
};

struct pk_replay_lease {
    struct pk_node node;
    uint64_t id;
    uint32_t who; /* its number, from 1 */
    char label[PK_TRACE_TEXT_MAX + 1];
};

struct pk_replay {
    struct pk_bytes only; /* the one lock that is wanted; empty: all */
    struct pk_tree locks, leases;
    struct pk_replay_lease **by_who;
    uint32_t n_locks, n_leases, leases_capacity;
    uint64_t lines, grants, renewals, refused, leaders, gaps;
    uint64_t first_ms, last_ms;
    uint64_t since_ms; /* what began before is not known */
    bool begun;        /* since_ms is known */
    uint64_t cluster;
    struct pk_replay_hold newest; /* grant of all locks */
    bool cut;                     /* the last line was unfinished */
};

/* `only` must outlive it. */
struct pk_replay *pk_replay_new(struct pk_bytes only);
void pk_replay_free(struct pk_replay *r);
/* Reads a whole trace; NULL, or what is wrong, with the number of the line. */
const char *pk_replay_read(struct pk_replay *r, const char *text, size_t len,
                           uint32_t *line);

/* The locks in the order of their names; NULL after the last. */
const struct pk_replay_lock *pk_replay_first(const struct pk_replay *r);
const struct pk_replay_lock *pk_replay_next(const struct pk_replay_lock *l);

/* How often each check was hit, of all locks. */
uint64_t pk_replay_hits(const struct pk_replay *r, enum pk_check c);
/* Who that is: host/pid if its label says so, else the label, else its lease. */
void pk_replay_name(const struct pk_replay *r, uint32_t who, struct pk_prose *out);
/* What broke and why, in plain words. */
void pk_replay_explain(const struct pk_replay *r, const struct pk_hit *h,
                       struct pk_prose *out);

/* A part of the cluster's time; zeroed: all of it. */
struct pk_replay_part {
    uint64_t from_us;
    uint64_t to_us; /* 0: to the end */
};

/* A lock's last 2000 records before the end of the part, with a lane for each of the last
 * eight clients in them; `styled` as in picture.h. */
void pk_replay_picture(const struct pk_replay *r, const struct pk_replay_lock *l,
                       struct pk_replay_part part, uint32_t width, bool styled,
                       struct pk_prose *out);
/* One lock of pk_replay_json, with at most so many of the part's last records. */
void pk_replay_lock_json(const struct pk_replay *r, const struct pk_replay_lock *l,
                         struct pk_replay_part part, uint32_t most, struct pk_prose *out);
void pk_replay_json(const struct pk_replay *r, struct pk_prose *out);

#endif
