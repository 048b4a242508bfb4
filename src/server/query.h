/* SPDX-License-Identifier: MIT */
/*
 * What a dashboard asks for, out of the query of its URL, and the best of all locks that
 * fit it. Pure.
 *
 *     q=TEXT       in the lock's name, or its holder's label; a '*' at the end: the name
 *                  begins so
 *     sort=waiters|age|left|name
 *     show=all|held|waiting|expiring|closed
 *     lock=NAME    all about one lock, too
 *
 * What is not understood is left out.
 */
#ifndef PICKET_SERVER_QUERY_H
#define PICKET_SERVER_QUERY_H

#include "core/look.h"

enum {
    PK_QUERY_ROWS = 200,
    PK_QUERY_EXPIRING_MS = 1000, /* what show=expiring means */
};

enum pk_query_sort { PK_SORT_WAITERS, PK_SORT_AGE, PK_SORT_LEFT, PK_SORT_NAME };
enum pk_query_show {
    PK_SHOW_ALL,
    PK_SHOW_HELD,
    PK_SHOW_WAITING,
    PK_SHOW_EXPIRING,
    PK_SHOW_CLOSED,
};

struct pk_query {
    enum pk_query_sort sort;
    enum pk_query_show show;
    bool prefix; /* `text` is how the name begins */
    uint8_t text_len, lock_len;
    char text[PK_NAME_MAX], lock[PK_NAME_MAX];
};

void pk_query_read(struct pk_query *w, struct pk_bytes query);
/* Whether the lock is one of those asked for, at cluster time `now_ms`. */
bool pk_query_fits(const struct pk_query *w, const struct pk_look_lock *l,
                   uint64_t now_ms);

/* The first PK_QUERY_ROWS locks in the order asked for, of all that were offered. */
struct pk_best_row {
    uint64_t key; /* less is earlier; then by name */
    uint8_t name_len;
    char name[PK_NAME_MAX];
};

struct pk_best {
    enum pk_query_sort sort;
    uint32_t n;
    uint64_t offered;
    struct pk_best_row rows[PK_QUERY_ROWS]; /* a heap, the last in order first */
};

void pk_best_begin(struct pk_best *b, enum pk_query_sort sort);
void pk_best_offer(struct pk_best *b, const struct pk_look_lock *l);
/* Puts the rows in order; no more offers after this. */
void pk_best_finish(struct pk_best *b);

#endif
