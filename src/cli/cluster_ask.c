/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cluster.h"
#include "cli/errors.h"
#include "client/url.h"
#include "core/door.h"
#include "host/clock.h"
#include "proto/proto.h"

enum {
    LEADER_MS = 10000, /* for a leader to be found */
    NOBODY_MS = 2000,  /* for any node to be there at all */
    OPEN_MS = 1000,    /* for a connection to a node that has just answered */
    SEND_MS = 2000,    /* for it to take a request */
    WATCH_MS = 1000,   /* of silence, after which we ask whether it still leads */
    LOST_MAX = 3,      /* answers that may be lost before the outcome stays unknown */
    RELAY_TRIES = 2,   /* after so many a follower is asked to pass the request on */
};

#define WHERE "say --on picket://HOST[:PORT],HOST... or set PICKET_URL"

int pk_cluster_find(const struct pk_common *common, struct pk_cluster *c)
{
    static const char scheme[] = "picket:";
    const char *url = common->url != NULL ? common->url : getenv("PICKET_URL");
    *c = (struct pk_cluster){.line = {.fd = -1}};
    if (url == NULL || url[0] == '\0') {
        return pk_errors_fail("cluster: which cluster? " WHERE);
    }
    if (strncmp(url, scheme, strlen(scheme)) != 0) {
        char *shown = pk_url_redact(url);
        int code = pk_errors_fail("cluster: %s is not a cluster; " WHERE, shown);
        free(shown);
        return code;
    }
    c->url = url;
    enum picket_status s = pk_remote_places(url + strlen(scheme), &c->places);
    return s == PICKET_OK ? 0 : pk_errors_status(s);
}

void pk_cluster_close(struct pk_cluster *c)
{
    if (c->open) {
        pk_ask_close(&c->line);
        c->open = false;
    }
}

void pk_cluster_pause(void)
{
    struct timespec t = {.tv_nsec = PK_CLUSTER_PAUSE_MS * 1000000L};
    (void)nanosleep(&t, NULL);
}

static void copy(char *out, size_t size, struct pk_bytes text)
{
    size_t len = text.len < size - 1 ? text.len : size - 1;
    memcpy(out, text.data == NULL ? "" : text.data, len);
    out[len] = '\0';
}

/* ---- the way to the leader ---- */

/* A follower that names a leader; NULL: there is none. */
static const struct pk_cluster_node *find_relay(const struct pk_cluster_view *v)
{
    for (size_t i = 0; i < v->count; i++) {
        const struct pk_cluster_node *n = &v->nodes[i];
        if (n->answered && n->follows[0] != '\0' && strcmp(n->follows, n->name) != 0) {
            return n;
        }
    }
    return NULL;
}

/* Connects to the node that leads. A leader that we can't reach ourselves may be in reach
 * of a follower; that is the second choice, because the follower may not know yet that
 * the leader hangs. */
static bool connect_to_leader(struct pk_cluster *c, struct pk_cluster_view *v, bool relay,
                              struct pk_cluster_answer *a)
{
    const struct pk_cluster_node *n = NULL;
    if (pk_cluster_find_leader(c, v)) {
        n = pk_cluster_node(v, v->leader);
    } else if (relay) {
        n = find_relay(v);
    }
    if (n == NULL) {
        copy(a->why, sizeof a->why, pk_text(v->answered ? "nobody leads" : v->why));
        return false;
    }
    copy(c->leader, sizeof c->leader, pk_text(n->serving ? n->name : n->follows));
    c->open = pk_ask_open(&c->line, n->at, OPEN_MS);
    if (!c->open) {
        copy(a->why, sizeof a->why, pk_text(c->line.why));
    }
    return c->open;
}

/* Whether another node leads by now than the one that was sent the request. */
static bool is_replaced(struct pk_cluster *c, struct pk_cluster_view *v)
{
    return pk_cluster_find_leader(c, v) && strcmp(v->leader, c->leader) != 0;
}

/* ---- one request ---- */

enum outcome { DONE, FINAL, NOT_DONE, MAYBE };

/* What an answer means; an error's text goes into `a`. */
static enum outcome weigh(struct pk_bytes whole, struct pk_cluster_answer *a)
{
    struct pk_resp_cursor cursor = {.rest = whole};
    struct pk_resp_value v = pk_resp_next(&cursor);
    struct pk_bytes detail;
    if (v.type != PK_RESP_ERROR) {
        a->value = whole;
        return DONE;
    }
    enum pk_proto_error e = pk_proto_error_of(v.bytes, &detail);
    uint32_t code = v.bytes.len - detail.len;
    copy(a->code, sizeof a->code, pk_bytes(v.bytes.data, code - (detail.len > 0)));
    copy(a->why, sizeof a->why, detail.len > 0 ? detail : v.bytes);
    switch (e) {
    case PK_PROTO_ERROR_NOTLEADER:
    case PK_PROTO_ERROR_NOLEADER:
    case PK_PROTO_ERROR_OVERLOAD:
        return NOT_DONE;
    case PK_PROTO_ERROR_UNKNOWN:
        return MAYBE;
    default:
        return FINAL;
    }
}

static enum outcome lose(struct pk_cluster *c, struct pk_cluster_answer *a,
                         const char *why)
{
    copy(a->why, sizeof a->why, pk_text(why));
    pk_cluster_close(c);
    return MAYBE;
}

/* Waits until `until_ms` for the answer to what was sent, unless another node leads. */
static enum outcome await_answer(struct pk_cluster *c, struct pk_cluster_view *v,
                                 uint64_t until_ms, struct pk_cluster_answer *a)
{
    struct pk_bytes whole;
    for (;;) {
        switch (pk_ask_receive(&c->line, WATCH_MS, &whole)) {
        case PK_ASK_ANSWERED:
            return weigh(whole, a);
        case PK_ASK_ENDED:
            return lose(c, a, c->line.why);
        case PK_ASK_LATE:
            break;
        }
        if (pk_clock_ms() >= until_ms) {
            return lose(c, a, "no answer in time");
        }
        if (is_replaced(c, v)) {
            return lose(c, a, "the leader was replaced before it answered");
        }
    }
}

/* Over the connection there is. */
static enum outcome ask_now(struct pk_cluster *c, struct pk_cluster_view *v,
                            const struct pk_resp_out *request, uint64_t until_ms,
                            struct pk_cluster_answer *a)
{
    if (!pk_ask_send(&c->line, request, SEND_MS)) {
        copy(a->why, sizeof a->why, pk_text(c->line.why));
        pk_cluster_close(c);
        return NOT_DONE;
    }
    enum outcome o = await_answer(c, v, until_ms, a);
    if (o == NOT_DONE || o == MAYBE) {
        pk_cluster_close(c); /* another node may lead by now */
    }
    return o;
}

/* ---- until there is an answer ---- */

/* A change that may have been made already can be in the way of itself, until it is
 * committed or dropped: then a refusal is not the last word. */
static bool is_final(enum outcome o, const struct pk_cluster_answer *a)
{
    return o == DONE || (o == FINAL && !(a->repeated && strcmp(a->code, "ERR") == 0));
}

static enum pk_cluster_got ask_until(struct pk_cluster *c, struct pk_cluster_view *v,
                                     const struct pk_resp_out *request,
                                     uint32_t answer_ms, bool once,
                                     struct pk_cluster_answer *a)
{
    uint64_t began = pk_clock_ms();
    uint64_t until = began + answer_ms;
    bool met = c->open;
    int lost = 0;
    for (uint32_t tries = 1;; tries++) {
        enum outcome o = NOT_DONE;
        if (c->open || connect_to_leader(c, v, tries > RELAY_TRIES, a)) {
            o = ask_now(c, v, request, until, a);
        }
        if (is_final(o, a)) {
            return o == DONE ? PK_CLUSTER_OK : PK_CLUSTER_REFUSED;
        }
        met = met || v->answered;
        if (o == MAYBE) {
            a->repeated = true;
            if (once || ++lost == LOST_MAX || pk_clock_ms() >= until) {
                return PK_CLUSTER_UNKNOWN;
            }
            began = pk_clock_ms(); /* there was a leader until now */
        }
        if (pk_clock_ms() - began > (met ? LEADER_MS : NOBODY_MS)) {
            return o == FINAL    ? PK_CLUSTER_REFUSED
                   : a->repeated ? PK_CLUSTER_UNKNOWN
                                 : PK_CLUSTER_AWAY;
        }
        pk_cluster_pause();
    }
}

enum pk_cluster_got pk_cluster_ask(struct pk_cluster *c,
                                   const struct pk_resp_out *request, uint32_t answer_ms,
                                   bool once, struct pk_cluster_answer *a)
{
    struct pk_cluster_view *v = pk_door_resize(NULL, sizeof *v);
    *v = (struct pk_cluster_view){0};
    *a = (struct pk_cluster_answer){0};
    enum pk_cluster_got got = ask_until(c, v, request, answer_ms, once, a);
    pk_door_resize(v, 0);
    return got;
}

enum pk_cluster_got pk_cluster_ask_words(struct pk_cluster *c, const char *const *words,
                                         size_t n, uint32_t answer_ms,
                                         struct pk_cluster_answer *a)
{
    struct pk_resp_out request = {0};
    pk_resp_array(&request, n);
    for (size_t i = 0; i < n; i++) {
        pk_resp_text(&request, words[i]);
    }
    enum pk_cluster_got got = pk_cluster_ask(c, &request, answer_ms, false, a);
    pk_resp_free(&request);
    return got;
}

int pk_cluster_fail(const struct pk_cluster *c, const char *word, enum pk_cluster_got got,
                    const struct pk_cluster_answer *a)
{
    switch (got) {
    case PK_CLUSTER_AWAY:
        return pk_errors_fail("cluster: %s: not done, since %s has no leader that "
                              "answers (%s); see 'picket cluster status'",
                              word, c->url, a->why);
    case PK_CLUSTER_UNKNOWN:
        return pk_errors_fail("cluster: %s: it may or may not have been done (%s); see "
                              "'picket cluster status', and repeat it if it was not",
                              word, a->why);
    default:
        return pk_errors_fail("cluster: %s: %s", word, a->why);
    }
}
