/* SPDX-License-Identifier: MIT */
/* Who holds what, by the word of a majority. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "core/door.h"
#include "drivers/bridge.h"
#include "drivers/card.h"
#include "drivers/redlock_nodes.h"
#include "host/memory.h"

enum { PAGE = 500 };

/* ---- one lock ---- */

static struct pk_bytes part_of(const struct pk_nodes *n, uint32_t node, size_t part)
{
    const redisReply *r = n->links[node].reply;
    const redisReply *row = r != NULL && r->elements == 1 ? r->element[0] : NULL;
    const redisReply *e = row != NULL && part < row->elements ? row->element[part] : NULL;
    return e != NULL && e->str != NULL ? pk_bytes(e->str, (size_t)e->len)
                                       : pk_bytes("", 0);
}

static uint64_t left_on(const struct pk_nodes *n, uint32_t node)
{
    struct pk_bytes text = part_of(n, node, 1);
    long long left = text.len > 0 ? strtoll(text.data, NULL, 10) : 0;
    return left > 0 ? (uint64_t)left : 0;
}

/* Keys outlive their lease by the lock-delay, but no lease its TTL. */
static uint64_t no_more_than_ttl(struct pk_bytes card, uint64_t left_ms)
{
    struct pk_card read;
    char *room = pk_door_resize(NULL, (size_t)card.len + 1);
    bool ours = pk_card_read(card, room, &read);
    (void)pk_door_resize(room, 0);
    return ours && read.ttl_ms < left_ms ? read.ttl_ms : left_ms;
}

/* The card that a majority has is the holder's. */
static void see_holder(const struct pk_nodes *n, const char *name, struct pk_scan *scan)
{
    for (uint32_t i = 0; i < n->count; i++) {
        uint32_t same = 0;
        struct pk_bytes card = part_of(n, i, 0);
        struct pk_sight seen = {
            .name = pk_text(name), .card = card, .held = true, .left_ms = left_on(n, i)};
        for (uint32_t j = 0; j < n->count && card.len > 0; j++) {
            if (pk_bytes_equal(card, part_of(n, j, 0))) {
                uint64_t left = left_on(n, j);
                same++;
                seen.left_ms = left < seen.left_ms ? left : seen.left_ms;
            }
        }
        if (same >= n->majority) {
            seen.left_ms = no_more_than_ttl(card, seen.left_ms);
            pk_bridge_see(scan, &seen);
            return;
        }
    }
}

static enum picket_status scan_one(struct pk_nodes *n, const char *name,
                                   struct pk_scan *scan, uint64_t until_ms)
{
    const struct pk_redlock_pair pair = {.name = name};
    struct pk_redlock_question q = {
        .verb = "see", .pairs = &pair, .n_pairs = 1, .mask = pk_nodes_all(n)};
    uint32_t answered = pk_nodes_ask(n, &q, pk_nodes_limit(n, until_ms));
    if (pk_nodes_count(answered) < n->majority) {
        return pk_nodes_fail(n, answered, false);
    }
    see_holder(n, name, scan);
    return PICKET_OK;
}

/* ---- all that begin so ---- */

struct names {
    char **list;
    size_t count;
};

static void add_name(struct names *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++) {
        if (strcmp(names->list[i], name) == 0) {
            return;
        }
    }
    names->list = pk_door_resize(names->list, (names->count + 1) * sizeof names->list[0]);
    names->list[names->count++] = pk_memory_copy(name);
}

static void free_names(struct names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        free(names->list[i]);
    }
    (void)pk_door_resize(names->list, 0);
}

/* What SCAN takes for exactly this beginning. */
static void write_pattern(const struct pk_nodes *n, const char *beginning, char *out)
{
    for (const char *text = n->prefix;; text = beginning) {
        for (const char *at = text; *at != '\0'; at++) {
            if (strchr("*?[]\\^-", *at) != NULL) {
                *out++ = '\\';
            }
            *out++ = *at;
        }
        if (text == beginning) {
            break;
        }
    }
    (void)memcpy(out, "*", 2);
}

/* The names that one node knows. */
static enum picket_status list_node(struct pk_nodes *n, uint32_t node,
                                    const char *pattern, struct names *names,
                                    uint64_t until_ms)
{
    char cursor[24] = "0";
    enum picket_status s = PICKET_OK;
    do {
        struct pk_redis_words w = {.count = 0};
        redisReply *reply = NULL;
        pk_redis_add_text(&w, "SCAN");
        pk_redis_add_text(&w, cursor);
        pk_redis_add_text(&w, "MATCH");
        pk_redis_add_text(&w, pattern);
        pk_redis_add_text(&w, "COUNT");
        pk_redis_add_number(&w, PAGE);
        s = pk_redis_command(&n->links[node], &w, false, pk_nodes_limit(n, until_ms),
                             &reply);
        if (s != PICKET_OK || reply->elements != 2 || reply->element[0]->str == NULL) {
            freeReplyObject(reply);
            break;
        }
        (void)snprintf(cursor, sizeof cursor, "%s", reply->element[0]->str);
        for (size_t i = 0; i < reply->element[1]->elements; i++) {
            const char *key = reply->element[1]->element[i]->str;
            struct pk_bytes name = pk_text(key != NULL ? key + strlen(n->prefix) : "");
            if (pk_name_wrong(name) == NULL) {
                add_name(names, name.data);
            }
        }
        freeReplyObject(reply);
    } while (strcmp(cursor, "0") != 0);
    return s;
}

static enum picket_status scan_all(struct pk_nodes *n, const char *beginning,
                                   struct pk_scan *scan, uint64_t until_ms)
{
    char pattern[2 * (PK_REDIS_PREFIX_MAX + PK_NAME_MAX) + 2];
    struct names names = {0};
    uint32_t answered = 0;
    write_pattern(n, beginning, pattern);
    for (uint32_t i = 0; i < n->count; i++) {
        if (list_node(n, i, pattern, &names, until_ms) == PICKET_OK) {
            answered |= UINT32_C(1) << i;
        }
    }
    enum picket_status s = pk_nodes_count(answered) >= n->majority
                               ? PICKET_OK
                               : pk_nodes_fail(n, answered, false);
    for (size_t i = 0; i < names.count && s == PICKET_OK; i++) {
        s = scan_one(n, names.list[i], scan, until_ms);
    }
    free_names(&names);
    return s;
}

enum picket_status pk_redlock_scan(struct pk_nodes *n, const char *name, bool whole_name,
                                   struct pk_scan *scan, uint64_t until_ms)
{
    return whole_name ? scan_one(n, name, scan, until_ms)
                      : scan_all(n, name, scan, until_ms);
}
