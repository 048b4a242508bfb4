/* SPDX-License-Identifier: MIT */
#include "drivers/etcd_rpc.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "core/door.h"
#include "host/clock.h"
#include "host/memory.h"

enum {
    ATTEMPT_MIN_MS = 100,
    PROBE_MS = 1000, /* for a first word */
};

/* What gRPC's codes are called there. */
enum {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_UNAVAILABLE = 14,
    GRPC_UNAUTHENTICATED = 16,
};

/* ---- calls ---- */

enum picket_status pk_etcd_caller_init(struct pk_etcd_caller *c,
                                       struct pk_etcd_site *site)
{
    *c = (struct pk_etcd_caller){.site = site};
    enum picket_status s = pk_etcd_line_init(&c->line);
    if (s == PICKET_OK) {
        c->at = (uint32_t)(pk_random() % site->places.count);
    }
    return s;
}

void pk_etcd_caller_free(struct pk_etcd_caller *c)
{
    pk_etcd_line_free(&c->line);
    free(c->token);
    c->token = NULL;
}

bool pk_etcd_refused(const struct pk_etcd_caller *c, const char *text)
{
    return c->line.code > GRPC_OK && strstr(c->line.said, text) != NULL;
}

enum picket_status pk_etcd_fail_garbled(const struct pk_etcd_caller *c)
{
    return pk_fail(PICKET_STORE, "%s: %s does not answer as an etcd does", c->site->shown,
                   c->site->places.list[c->at].text);
}

/* Whether somebody answers there who is no HTTP/2 server. libcurl hides that: for it,
 * the connection just ends. */
static bool speaks_otherwise(struct pk_etcd_caller *c, uint32_t place, uint64_t until_ms)
{
    static const char greeting[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                                   "\0\0\0\x04\0\0\0\0";
    enum { KIND = 3, SETTINGS = 4 }; /* what an HTTP/2 server begins with */
    char answer[KIND + 1] = {0};
    size_t len = 0, sent = 0;
    uint64_t now = pk_clock_ms();
    struct pollfd fd = {.fd = -1, .events = POLLIN};
    int left = until_ms > now + PROBE_MS ? PROBE_MS
               : until_ms > now          ? (int)(until_ms - now)
                                         : 1;
    CURL *probe =
        pk_etcd_line_probe(&c->line, &c->site->places.list[place], left, &fd.fd);
    if (probe == NULL) {
        return false;
    }
    CURLcode code = curl_easy_send(probe, greeting, sizeof greeting, &sent);
    if (code == CURLE_OK && poll(&fd, 1, left) > 0) {
        code = curl_easy_recv(probe, answer, sizeof answer, &len);
    }
    curl_easy_cleanup(probe);
    return code == CURLE_OK && len > 0 &&
           !(len == sizeof answer && answer[KIND] == SETTINGS);
}

/* What an attempt without a verdict means for the call. */
static enum picket_status judge_silence(struct pk_etcd_caller *c, uint32_t place,
                                        CURLcode code, uint64_t until_ms)
{
    const struct pk_etcd_line *l = &c->line;
    const char *where = c->site->places.list[place].text;
    if (code == CURLE_OK && !l->grpc) {
        return pk_fail(PICKET_STORE, "%s: %s is no etcd: it answers, but not as gRPC",
                       c->site->shown, where);
    }
    if (code != CURLE_OPERATION_TIMEDOUT && code != CURLE_COULDNT_CONNECT &&
        code != CURLE_COULDNT_RESOLVE_HOST && !c->proven &&
        speaks_otherwise(c, place, until_ms)) {
        return pk_fail(PICKET_STORE, "%s: %s is no etcd: it does not speak HTTP/2",
                       c->site->shown, where);
    }
    return pk_fail(l->begun == 0 ? PICKET_UNREACHABLE : PICKET_UNKNOWN, "%s: %s: %s",
                   c->site->shown, where, l->trouble);
}

/* What the server's verdict means for the call. */
static enum picket_status judge(const struct pk_etcd_caller *c, uint32_t place)
{
    const struct pk_etcd_line *l = &c->line;
    const char *shown = c->site->shown;
    const char *where = c->site->places.list[place].text;
    switch (l->code) {
    case GRPC_OK:
        return PICKET_OK;
    case GRPC_UNAVAILABLE:
        if (strstr(l->said, "no leader") != NULL) {
            return pk_fail(PICKET_UNREACHABLE,
                           "%s: %s has no leader: a majority of etcd's members must be "
                           "running and see each other",
                           shown, where);
        }
        return pk_fail(PICKET_UNKNOWN, "%s: %s: %s", shown, where, l->said);
    case GRPC_CANCELLED:
    case GRPC_DEADLINE_EXCEEDED:
        return pk_fail(PICKET_UNKNOWN, "%s: %s: %s", shown, where, l->said);
    case GRPC_PERMISSION_DENIED:
        return pk_fail(PICKET_DENIED,
                       "%s: etcd does not let this user do that (%s): grant its role "
                       "reading and writing below the prefix",
                       shown, l->said);
    case GRPC_RESOURCE_EXHAUSTED:
        if (strstr(l->said, "too many requests") != NULL) {
            return pk_fail(PICKET_UNREACHABLE, "%s: %s: %s", shown, where, l->said);
        }
        break;
    case GRPC_UNIMPLEMENTED:
        return pk_fail(PICKET_STORE,
                       "%s: %s does not know %s: etcd 3.4 or newer is needed", shown,
                       where, l->said);
    case GRPC_INVALID_ARGUMENT:
        if (strstr(l->said, "user name is empty") != NULL) {
            return pk_fail(PICKET_DENIED,
                           "%s: etcd wants a user: etcd://USER:PASSWORD@HOST", shown);
        }
        if (strstr(l->said, "authentication failed") != NULL) {
            return pk_fail(PICKET_DENIED, "%s: wrong user or password", shown);
        }
        break;
    default:
        break;
    }
    return pk_fail(PICKET_STORE, "%s: etcd refuses: %s (code %ld)", shown, l->said,
                   l->code);
}

/* One attempt at one place. */
static enum picket_status attempt(struct pk_etcd_caller *c, uint32_t place,
                                  const char *method, const struct pk_pb_out *request,
                                  uint64_t until_ms)
{
    struct pk_etcd_line *l = &c->line;
    char limit[48];
    uint64_t now = pk_clock_ms();
    long left = now < until_ms ? (long)(until_ms - now) : 1;
    left = left < 3600000 ? left : 3600000;
    pk_etcd_line_address(l, &c->site->places.list[place], c->token, method);
    /* So that a member which was stopped meanwhile does not begin when nobody waits. */
    snprintf(limit, sizeof limit, "grpc-timeout: %ldm", left);
    pk_etcd_line_header(l, limit);
    pk_etcd_line_put(l, request);
    curl_easy_setopt(l->easy, CURLOPT_HTTPHEADER, l->headers);
    curl_easy_setopt(l->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)l->out.len);
    curl_easy_setopt(l->easy, CURLOPT_TIMEOUT_MS, left);
    curl_easy_setopt(l->easy, CURLOPT_CONNECTTIMEOUT_MS, left);
    pk_etcd_line_warm(l, c->connected && c->at == place);
    CURLcode code = curl_easy_perform(l->easy);
    if (l->warm && l->code < 0 && l->begun == 0) { /* it was closed meanwhile */
        l->trouble[0] = l->error[0] = '\0';
        pk_etcd_line_warm(l, false);
        code = curl_easy_perform(l->easy);
    }
    c->connected = l->code >= 0;
    c->at = place;
    enum picket_status s;
    if (l->code >= 0) {
        c->proven = true;
        s = judge(c, place);
    } else {
        pk_etcd_line_trouble(l, code);
        s = judge_silence(c, place, code, until_ms);
        /* What was on the way with it is nothing for the next call to wait behind. */
        pk_etcd_line_disconnect(l);
    }
    c->doubt = c->doubt || s == PICKET_UNKNOWN || l->begun > 1;
    return s;
}

/* Takes the token that another caller of the site has got meanwhile. False: there is no
 * other one than ours. */
static bool share_token(struct pk_etcd_caller *c)
{
    struct pk_etcd_auth *auth = &c->site->auth;
    pthread_mutex_lock(&auth->mutex);
    bool another =
        auth->token != NULL && (c->token == NULL || strcmp(auth->token, c->token) != 0);
    if (another) {
        free(c->token);
        c->token = pk_memory_copy(auth->token);
    }
    pthread_mutex_unlock(&auth->mutex);
    return another;
}

static void publish_token(struct pk_etcd_caller *c)
{
    struct pk_etcd_auth *auth = &c->site->auth;
    pthread_mutex_lock(&auth->mutex);
    free(auth->token);
    auth->token = pk_memory_copy(c->token);
    pthread_mutex_unlock(&auth->mutex);
}

/* Gets a token for our password. */
static enum picket_status authenticate(struct pk_etcd_caller *c, uint32_t place,
                                       uint64_t until_ms)
{
    struct pk_pb_out request = {0};
    struct pk_bytes reply, token;
    if (share_token(c)) {
        return PICKET_OK;
    }
    pk_pb_bytes(&request, 1, pk_text(c->site->url.user));
    pk_pb_bytes(&request, 2, pk_text(c->site->url.password));
    free(c->token);
    c->token = NULL;
    bool doubt = c->doubt;
    enum picket_status s = attempt(c, place, "Auth/Authenticate", &request, until_ms);
    c->doubt = doubt; /* to have asked for a token does no harm */
    s = s == PICKET_UNKNOWN ? PICKET_UNREACHABLE : s;
    if (pk_etcd_refused(c, "authentication is not enabled")) {
        c->open_door = true;
        s = PICKET_OK;
    } else if (s == PICKET_OK && pk_etcd_line_take(&c->line, &reply) &&
               pk_etcd_read_token(reply, &token) && token.len > 0) {
        c->token = pk_memory_copy_n(token.data, token.len);
        publish_token(c);
    } else if (s == PICKET_OK) {
        s = pk_etcd_fail_garbled(c);
    }
    pk_pb_free(&request);
    return s;
}

static bool token_is_stale(const struct pk_etcd_caller *c)
{
    return c->line.code == GRPC_UNAUTHENTICATED ||
           pk_etcd_refused(c, "revision of auth store is old") ||
           pk_etcd_refused(c, "auth revision in the header is old") ||
           (c->open_door && pk_etcd_refused(c, "user name is empty"));
}

enum picket_status pk_etcd_call_at(struct pk_etcd_caller *c, uint32_t place,
                                   const char *method, const struct pk_pb_out *request,
                                   uint64_t until_ms, struct pk_bytes *reply)
{
    enum picket_status s = PICKET_OK;
    bool known = c->site->url.user[0] != '\0';
    if (known && c->token == NULL && !c->open_door) {
        s = authenticate(c, place, until_ms);
    }
    /* A token that is shared may be as old as our own: then there is one more try. */
    for (int tries = 0; s == PICKET_OK && tries < 3; tries++) {
        s = attempt(c, place, method, request, until_ms);
        if (s == PICKET_OK) {
            return pk_etcd_line_take(&c->line, reply) ? PICKET_OK
                                                      : pk_etcd_fail_garbled(c);
        }
        if (known && tries < 2 && token_is_stale(c)) {
            c->open_door = false;
            s = authenticate(c, place, until_ms);
        }
    }
    return s;
}

enum picket_status pk_etcd_call(struct pk_etcd_caller *c, const char *method,
                                const struct pk_pb_out *request, uint64_t until_ms,
                                struct pk_bytes *reply)
{
    enum picket_status s = PICKET_UNREACHABLE;
    uint32_t n = c->site->places.count;
    uint32_t first = c->at;
    char why[PK_SENTENCE_MAX] = "";
    PK_ASSERT(n > 0);
    c->doubt = false;
    *reply = pk_bytes(NULL, 0);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t now = pk_clock_ms();
        if (i > 0 && now >= until_ms) {
            break;
        }
        uint64_t slice = now < until_ms ? (until_ms - now) / (n - i) : 0;
        slice = slice > ATTEMPT_MIN_MS ? slice : ATTEMPT_MIN_MS;
        uint64_t end = until_ms < now + slice ? until_ms : now + slice;
        s = pk_etcd_call_at(c, (first + i) % n, method, request, end, reply);
        if (s != PICKET_UNREACHABLE && s != PICKET_UNKNOWN) {
            return s;
        }
        if (c->line.code > GRPC_OK) {
            pk_sentence_save(why); /* says more than that others are away */
        }
    }
    if (why[0] != '\0') {
        pk_sentence_restore(why);
    }
    c->at = (first + 1) % n;
    return s == PICKET_UNREACHABLE && c->doubt ? PICKET_UNKNOWN : s;
}
