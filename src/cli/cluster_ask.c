/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cluster.h"
#include "cli/errors.h"
#include "host/clock.h"
#include "proto/proto.h"

enum {
    LEADER_MS = 10000, /* for a leader to be found */
    NOBODY_MS = 2000,  /* for any node to be there at all */
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
        return pk_errors_fail("cluster: %s is not a cluster; " WHERE, url);
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

static bool connect_next(struct pk_cluster *c, struct pk_cluster_answer *a)
{
    const struct pk_place *p = &c->places.list[c->next++ % c->places.count];
    c->open = pk_ask_open(&c->line, p->text, PK_CLUSTER_OPEN_MS);
    if (!c->open) {
        copy(a->why, sizeof a->why, pk_text(c->line.why));
    }
    return c->open;
}

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

/* Over the connection there is. */
static enum outcome ask_now(struct pk_cluster *c, const struct pk_resp_out *request,
                            uint32_t ms, struct pk_cluster_answer *a)
{
    struct pk_bytes whole;
    bool sent;
    if (!pk_ask(&c->line, request, ms, &whole, &sent)) {
        copy(a->why, sizeof a->why, pk_text(c->line.why));
        c->open = false;
        return sent ? MAYBE : NOT_DONE;
    }
    enum outcome o = weigh(whole, a);
    if (o == NOT_DONE || o == MAYBE) {
        pk_cluster_close(c); /* perhaps another node knows more */
    }
    return o;
}

enum pk_cluster_got pk_cluster_ask(struct pk_cluster *c,
                                   const struct pk_resp_out *request, uint32_t answer_ms,
                                   bool once, struct pk_cluster_answer *a)
{
    uint64_t began = pk_clock_ms();
    bool met = c->open;
    *a = (struct pk_cluster_answer){0};
    for (uint32_t tries = 1;; tries++) {
        if (c->open || connect_next(c, a)) {
            met = true;
            enum outcome o = ask_now(c, request, answer_ms, a);
            if (o == DONE || o == FINAL) {
                return o == DONE ? PK_CLUSTER_OK : PK_CLUSTER_REFUSED;
            }
            a->repeated = a->repeated || o == MAYBE;
            if (o == MAYBE && once) {
                return PK_CLUSTER_UNKNOWN;
            }
        }
        if (pk_clock_ms() - began > (met ? LEADER_MS : NOBODY_MS)) {
            return a->repeated ? PK_CLUSTER_UNKNOWN : PK_CLUSTER_AWAY;
        }
        if (tries % c->places.count == 0) {
            pk_cluster_pause();
        }
    }
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
                              "'picket cluster status', and say it again if it was not",
                              word, a->why);
    default:
        return pk_errors_fail("cluster: %s: %s", word, a->why);
    }
}
