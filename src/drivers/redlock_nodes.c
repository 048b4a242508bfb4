/* SPDX-License-Identifier: MIT */
#include "drivers/redlock_nodes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "core/door.h"
#include "host/clock.h"
#include "host/memory.h"

enum {
    NODE_LEAST_MS = 50, /* that a node has for its answer: a part of the TTL, within */
    NODE_MOST_MS = 500,
    NODE_PART = 20,
};

extern const char pk_redlock_lua[];

/* ---- opening ---- */

static enum picket_status read_url(struct pk_nodes *n, struct pk_places *places)
{
    enum picket_status s = pk_url_places(&n->url, PK_REDIS_PORT, PK_REDLOCK_FORM, places);
    if (s != PICKET_OK) {
        return s;
    }
    pk_url_show(&n->url, n->where, sizeof n->where);
    for (uint32_t i = 0; i < places->count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(places->list[i].text, places->list[j].text) == 0) {
                return pk_fail(PICKET_BADARG,
                               "%s: %s is named twice, but one server has one vote",
                               n->where, places->list[i].text);
            }
        }
    }
    return pk_redis_settings(&n->url, n->where, n->prefix);
}

enum picket_status pk_nodes_open(struct pk_nodes *n, const char *rest)
{
    struct pk_places places = {.count = 0};
    *n = (struct pk_nodes){.count = 0};
    char *url = pk_memory_print("redlock:%s", rest);
    enum picket_status s = pk_url_read(url, "prefix", PK_REDLOCK_FORM, &n->url);
    free(url);
    if (s == PICKET_OK) {
        s = read_url(n, &places);
    }
    for (uint32_t i = 0; i < places.count && s == PICKET_OK; i++) {
        struct pk_redis_link *l = &n->links[i];
        *l = (struct pk_redis_link){.url = &n->url,
                                    .place = places.list[i],
                                    .script = pk_redlock_lua,
                                    .locks = true};
        (void)snprintf(l->where, sizeof l->where, "redis://%s", places.list[i].text);
        pk_redis_init(l);
        n->count++;
    }
    n->majority = n->count / 2 + 1;
    return s;
}

void pk_nodes_free(struct pk_nodes *n)
{
    for (uint32_t i = 0; i < n->count; i++) {
        pk_redis_free(&n->links[i]);
    }
    pk_url_free(&n->url);
}

/* ---- asking ---- */

uint32_t pk_nodes_all(const struct pk_nodes *n)
{
    return (UINT32_C(1) << n->count) - 1;
}

uint32_t pk_nodes_count(uint32_t mask)
{
    uint32_t count = 0;
    for (; mask != 0; mask &= mask - 1) {
        count++;
    }
    return count;
}

uint64_t pk_nodes_limit(const struct pk_nodes *n, uint64_t until_ms)
{
    uint64_t ms = n->ttl_ms != 0 ? n->ttl_ms / NODE_PART : NODE_MOST_MS;
    ms = ms < NODE_LEAST_MS ? NODE_LEAST_MS : ms > NODE_MOST_MS ? NODE_MOST_MS : ms;
    uint64_t limit = pk_clock_ms() + ms;
    return limit < until_ms ? limit : until_ms;
}

/* What the words about a pair borrow from. */
struct key {
    char text[PK_REDIS_PREFIX_MAX + PK_NAME_MAX + 1];
    char ttl[24];
};

static struct key *make_keys(const struct pk_nodes *n,
                             const struct pk_redlock_question *q)
{
    struct key *keys = pk_door_resize(NULL, (q->n_pairs + 1) * sizeof *keys);
    for (uint32_t i = 0; i < q->n_pairs; i++) {
        const struct pk_redlock_pair *p = &q->pairs[i];
        (void)snprintf(keys[i].text, sizeof keys[i].text, "%s%s", n->prefix, p->name);
        (void)snprintf(keys[i].ttl, sizeof keys[i].ttl, "%" PRIu64,
                       q->ttl_ms + p->lock_delay_ms);
    }
    return keys;
}

static void make_call(const struct pk_redis_link *l, const struct pk_redlock_question *q,
                      struct key *keys, struct pk_redis_words *w)
{
    pk_redis_call(l, w);
    pk_redis_add_text(w, "0");
    pk_redis_add_text(w, q->verb);
    for (uint32_t i = 0; i < q->n_pairs; i++) {
        pk_redis_add_text(w, keys[i].text);
        pk_redis_add(w, q->pairs[i].card);
        pk_redis_add_text(w, keys[i].ttl);
    }
}

/* Whether the node has to be asked once more: its connection was an old one that turned
 * out to be broken, or it has forgotten the script. */
static bool again(const struct pk_redis_link *l, bool fresh, struct pk_redis_words *w)
{
    return (l->status == PICKET_UNREACHABLE && !fresh) || pk_redis_forgot(l, w, l->reply);
}

static bool has_answered(const struct pk_redis_link *l)
{
    return l->reply != NULL && l->reply->type == REDIS_REPLY_ARRAY;
}

/* Puts the question to those in `mask`; the links that have it, and their number. */
static size_t put_all(struct pk_nodes *n, const struct pk_redlock_question *q,
                      struct key *keys, struct pk_redis_link **asked)
{
    size_t count = 0;
    struct pk_redis_words w;
    for (uint32_t i = 0; i < n->count; i++) {
        if ((q->mask >> i & 1) != 0) {
            make_call(&n->links[i], q, keys, &w);
            pk_redis_put(&n->links[i], &w);
            asked[count++] = &n->links[i];
        }
    }
    return count;
}

uint32_t pk_nodes_ask(struct pk_nodes *n, const struct pk_redlock_question *q,
                      uint64_t until_ms)
{
    struct pk_redis_link *asked[PK_PLACES_MAX];
    struct pk_redis_words w;
    bool fresh[PK_PLACES_MAX] = {false};
    uint32_t mask = 0;
    size_t count = 0;
    PK_ASSERT(q->n_pairs <= PK_REDLOCK_PAIRS_MAX);
    for (uint32_t i = 0; i < n->count; i++) {
        fresh[i] = n->links[i].fd < 0;
    }
    struct key *keys = make_keys(n, q);
    pk_redis_gather(asked, put_all(n, q, keys, asked), until_ms);
    for (uint32_t i = 0; i < n->count; i++) {
        struct pk_redis_link *l = &n->links[i];
        make_call(l, q, keys, &w);
        if ((q->mask >> i & 1) != 0 && pk_clock_ms() < until_ms &&
            again(l, fresh[i], &w)) {
            bool maybe = l->maybe;
            pk_redis_put(l, &w);
            l->maybe = l->maybe || maybe;
            asked[count++] = l;
        }
    }
    pk_redis_gather(asked, count, until_ms);
    (void)pk_door_resize(keys, 0);
    for (uint32_t i = 0; i < n->count; i++) {
        if ((q->mask >> i & 1) != 0 && has_answered(&n->links[i])) {
            mask |= UINT32_C(1) << i;
        }
    }
    return mask;
}

struct pk_bytes pk_nodes_word(const struct pk_nodes *n, uint32_t i, uint32_t pair)
{
    const redisReply *r = n->links[i].reply;
    const redisReply *e = r != NULL && pair < r->elements ? r->element[pair] : NULL;
    return e != NULL && e->str != NULL ? pk_bytes(e->str, (size_t)e->len)
                                       : pk_bytes("", 0);
}

uint32_t pk_nodes_saying(const struct pk_nodes *n, uint32_t answered, uint32_t pair,
                         const char *word)
{
    uint32_t saying = 0;
    for (uint32_t i = 0; i < n->count; i++) {
        bool asked = (answered >> i & 1) != 0;
        if (asked && pk_bytes_equal(pk_nodes_word(n, i, pair), pk_text(word))) {
            saying |= UINT32_C(1) << i;
        }
    }
    return saying;
}

/* ---- failing ---- */

uint32_t pk_nodes_maybe(const struct pk_nodes *n, uint32_t answered)
{
    uint32_t maybe = 0;
    for (uint32_t i = 0; i < n->count; i++) {
        if ((answered >> i & 1) == 0 && n->links[i].maybe && n->links[i].reply == NULL) {
            maybe |= UINT32_C(1) << i;
        }
    }
    return maybe;
}

enum picket_status pk_nodes_fail(const struct pk_nodes *n, uint32_t answered, bool maybe)
{
    enum picket_status s = PICKET_UNREACHABLE;
    const struct pk_redis_link *silent = NULL;
    /* What one of them says of us, like a wrong password, is more than silence. */
    for (uint32_t i = 0; i < n->count; i++) {
        const struct pk_redis_link *l = &n->links[i];
        if ((answered >> i & 1) == 0 && l->reply != NULL &&
            l->reply->type == REDIS_REPLY_ERROR) {
            return pk_redis_refused(l->where, l->reply->str);
        }
        if ((answered >> i & 1) == 0 && (silent == NULL || s == PICKET_UNREACHABLE)) {
            silent = l;
            s = l->status != PICKET_OK ? l->status : s;
        }
    }
    s = s == PICKET_UNREACHABLE && maybe ? PICKET_UNKNOWN : s;
    return pk_fail(s, "%u of %u nodes of %s answer, and %u are needed: %s",
                   pk_nodes_count(answered), n->count, n->where, n->majority,
                   silent != NULL && silent->why[0] != '\0' ? silent->why
                                                            : "the others are silent");
}
