/* SPDX-License-Identifier: MIT */
/* Looking: what a scan has seen, as the rows of the machine. */
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "core/door.h"
#include "core/utf8.h"
#include "drivers/bridge_inside.h"
#include "drivers/card.h"

struct seen {
    char *name;
    char *card;
    char *room; /* of the card's value */
    struct pk_card read;
    bool held;
    uint64_t token, order, left_ms;
};

struct pk_scan {
    struct seen *list;
    size_t count, capacity;
    uint64_t closed_ms;
};

void pk_bridge_see_closed(struct pk_scan *scan, uint64_t closed_ms)
{
    scan->closed_ms = closed_ms;
}

void pk_bridge_see(struct pk_scan *scan, const struct pk_sight *seen)
{
    if (scan->count == scan->capacity) {
        scan->capacity = scan->capacity == 0 ? 16 : 2 * scan->capacity;
        scan->list = pk_door_resize(scan->list, scan->capacity * sizeof scan->list[0]);
    }
    struct seen *s = &scan->list[scan->count++];
    *s = (struct seen){.name = pk_bridge_text(seen->name),
                       .card = pk_bridge_text(seen->card),
                       .room = pk_door_resize(NULL, (size_t)seen->card.len + 1),
                       .held = seen->held,
                       .token = seen->held ? seen->token : 0,
                       .order = seen->order,
                       .left_ms = seen->left_ms};
    struct pk_bytes text = pk_bytes(s->card, seen->card.len);
    if (!pk_card_read(text, s->room, &s->read) && pk_utf8_printable(text, false)) {
        s->read.label = text; /* some other client's: at least it says something */
    }
    s->left_ms = s->left_ms != 0 ? s->left_ms : s->read.ttl_ms;
}

static void free_scan(struct pk_scan *scan)
{
    for (size_t i = 0; i < scan->count; i++) {
        (void)pk_door_resize(scan->list[i].name, 0);
        (void)pk_door_resize(scan->list[i].card, 0);
        (void)pk_door_resize(scan->list[i].room, 0);
    }
    (void)pk_door_resize(scan->list, 0);
}

/* By name, holds before waits, the older first. */
static int order_seen(const void *left, const void *right)
{
    const struct seen *a = left;
    const struct seen *b = right;
    int by_name = strcmp(a->name, b->name);
    if (by_name != 0) {
        return by_name;
    }
    if (a->held != b->held) {
        return a->held ? -1 : 1;
    }
    return (a->order > b->order) - (a->order < b->order);
}

/* Holds by token, then waits. */
static int order_of_lease(const void *left, const void *right)
{
    const struct seen *a = left;
    const struct seen *b = right;
    if (a->held != b->held) {
        return a->held ? -1 : 1;
    }
    return (a->token > b->token) - (a->token < b->token);
}

static enum picket_status scan_store(struct pk_store *b, struct pk_bytes name, bool whole,
                                     uint64_t until_ms, struct pk_scan *scan)
{
    *scan = (struct pk_scan){0};
    char *text = pk_bridge_text(name);
    enum picket_status s = b->ops->scan(b->own, text, whole, scan, until_ms);
    if (s == PICKET_OK && scan->count > 0) {
        qsort(scan->list, scan->count, sizeof scan->list[0], order_seen);
    }
    (void)pk_door_resize(text, 0);
    return s;
}

/* ---- rows ---- */

static struct pk_effect row_of(const struct seen *s, uint32_t place)
{
    return (struct pk_effect){.kind = s->held ? PK_ROW_HOLD : PK_ROW_WAIT,
                              .name = pk_text(s->name),
                              .mode = s->read.mode,
                              .parts = 1,
                              .lease = s->read.lease,
                              .request = s->read.request,
                              .token = s->token,
                              .place = s->held ? 0 : place,
                              .since_ms = s->read.since_ms,
                              .left_ms = s->left_ms,
                              .label = s->read.label,
                              .value = s->read.value};
}

static uint32_t count_held(const struct seen *s, size_t n)
{
    uint32_t held = 0;
    for (size_t i = 0; i < n; i++) {
        held += s[i].held;
    }
    return held;
}

static struct pk_effect reply_to(const struct pk_command *c)
{
    return (struct pk_effect){.kind = PK_REPLY,
                              .verb = c->verb,
                              .lease = c->lease,
                              .request = c->request,
                              .since_ms = pk_card_now()};
}

/* One lock: the reply, then a row for each claim, as many as are wanted. */
static void add_lock(struct pk_effect reply, const struct pk_scan *scan, uint64_t count,
                     struct pk_effects *out)
{
    reply.holders = count_held(scan->list, scan->count);
    reply.waiters = (uint32_t)scan->count - reply.holders;
    reply.closed_ms = scan->closed_ms;
    pk_effects_add(out, &reply);
    for (size_t i = 0; i < scan->count && i < count; i++) {
        struct pk_effect row = row_of(&scan->list[i], (uint32_t)i + 1 - reply.holders);
        pk_effects_add(out, &row);
    }
}

static void add_list(const struct pk_command *c, const struct pk_scan *scan,
                     struct pk_effects *out)
{
    struct pk_effect reply = reply_to(c);
    uint32_t at = out->count;
    pk_effects_add(out, &reply);
    uint64_t rows = 0;
    size_t next;
    for (size_t i = 0; i < scan->count; i = next) {
        const struct seen *first = &scan->list[i];
        next = i + 1;
        while (next < scan->count && strcmp(scan->list[next].name, first->name) == 0) {
            next++;
        }
        if (c->cursor.len > 0 && pk_bytes_compare(pk_text(first->name), c->cursor) <= 0) {
            continue;
        }
        if (rows == c->count) {
            out->list[at].more = 1;
            return;
        }
        struct pk_effect row = {.name = pk_text(first->name)};
        if (first->held) {
            row = row_of(first, 0);
        }
        row.kind = PK_ROW_LOCK;
        row.holders = count_held(first, next - i);
        row.waiters = (uint32_t)(next - i) - row.holders;
        pk_effects_add(out, &row);
        rows++;
    }
}

static void add_lease(const struct pk_command *c, struct pk_scan *scan, uint64_t left_ms,
                      struct pk_effects *out)
{
    struct pk_effect reply = reply_to(c);
    reply.left_ms = left_ms;
    if (scan->count > 0) {
        qsort(scan->list, scan->count, sizeof scan->list[0], order_of_lease);
    }
    for (size_t i = 0; i < scan->count; i++) {
        bool its = scan->list[i].read.lease == c->lease;
        reply.holders += its && scan->list[i].held;
        reply.waiters += its && !scan->list[i].held;
    }
    reply.more = c->target == 0 && (uint64_t)reply.holders + reply.waiters > c->count;
    pk_effects_add(out, &reply);
    uint64_t rows = 0;
    for (size_t i = 0; i < scan->count && rows < c->count; i++) {
        const struct pk_card *card = &scan->list[i].read;
        if (card->lease == c->lease && (c->target == 0 || card->request == c->target)) {
            struct pk_effect row = row_of(&scan->list[i], 0);
            pk_effects_add(out, &row);
            rows++;
        }
    }
}

/* ---- commands ---- */

static enum picket_status look_at_lease(struct pk_store *b, const struct pk_command *c,
                                        uint64_t *left_ms, uint64_t until_ms)
{
    if (b->ops->lease_look != NULL) {
        return b->ops->lease_look(b->own, c->lease, left_ms, until_ms);
    }
    *left_ms = b->ttl_ms; /* of our own, which we have */
    return c->lease == b->opened ? PICKET_OK : PICKET_LOST;
}

enum picket_status pk_bridge_look(struct pk_store *b, const struct pk_command *c,
                                  uint64_t until_ms, struct pk_effects *out)
{
    struct pk_scan scan = {0};
    uint64_t left_ms = 0;
    enum picket_status s = PICKET_OK;
    if (c->verb == PK_LEASE_SHOW) {
        s = look_at_lease(b, c, &left_ms, until_ms);
    }
    if (s == PICKET_LOST) {
        struct pk_effect lost = reply_to(c);
        lost.status = PK_LOST;
        lost.end = PK_END_EXPIRED;
        pk_effects_add(out, &lost);
        return PICKET_OK;
    }
    if (s == PICKET_OK) {
        s = scan_store(b, c->name, c->verb == PK_LOCK_SHOW, until_ms, &scan);
    }
    if (s == PICKET_OK && c->verb == PK_LOCK_SHOW) {
        struct pk_effect reply = reply_to(c);
        reply.name = c->name;
        reply.more = scan.count > c->count;
        add_lock(reply, &scan, c->count, out);
    } else if (s == PICKET_OK && c->verb == PK_LOCK_LIST) {
        add_list(c, &scan, out);
    } else if (s == PICKET_OK) {
        add_lease(c, &scan, left_ms, out);
    }
    free_scan(&scan);
    return s;
}

void pk_bridge_busy(struct pk_store *b, const struct pk_command *acquire,
                    uint64_t until_ms, struct pk_effects *out)
{
    struct pk_scan scan = {0};
    struct pk_effect reply = reply_to(acquire);
    reply.status = PK_BUSY;
    reply.name = acquire->parts[0].name;
    enum picket_status s = scan_store(b, reply.name, true, until_ms, &scan);
    if (s != PICKET_OK) {
        free_scan(&scan);
        scan = (struct pk_scan){0}; /* that it is busy is known all the same */
    }
    add_lock(reply, &scan, 1, out);
    free_scan(&scan);
}
