/* SPDX-License-Identifier: MIT */
#include "cli/load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/door.h"
#include "proto/proto.h"
#include "server/ask.h"

enum {
    TTL_MS = 600 * 1000,
    CONNECT_MS = 5000,
    INPUT = 64 * 1024,
    EVENTS = 256,
};

#define UNLOCK                                                                           \
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) "     \
    "else return 0 end"

enum step { OPENING, ACQUIRING, HOLDING, RELEASING, RENEWING, DONE };

struct client {
    struct link *link;
    uint32_t number;
    enum step step;
    uint64_t lease, token, request;
    uint64_t asked_ns, began_ns; /* this request, this pair */
    uint64_t held;               /* HOLD: so far */
    struct client *next;         /* of those who wait for an answer on the same link */
};

/* One connection. Answers come in the order of the requests. */
struct link {
    int fd;
    struct client *first, *last; /* unanswered */
    struct pk_resp_out out;      /* requests of this turn */
    size_t in_len;
    char in[INPUT];
};

struct load {
    const struct pk_load_options *o;
    struct pk_load_result *r;
    struct client *clients;
    struct link *links;
    uint32_t n_links;
    int epoll;
    bool over;
    uint64_t released_ns; /* HANDOFF: when the last holder sent its release */
    uint64_t held;
    struct pk_effects effects;
    char unlock[48]; /* Redis: the digest of its script */
};

static uint64_t now_ns(void)
{
    struct timespec t;
    PK_ASSERT(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void note(struct pk_load_series *s, uint64_t ns)
{
    if (s->count == s->capacity) {
        s->capacity = s->capacity == 0 ? 65536 : s->capacity * 2;
        s->at = pk_door_resize(s->at, s->capacity * sizeof *s->at);
    }
    s->at[s->count++] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

static void note_error(struct load *l, struct pk_bytes text)
{
    if (l->r->errors++ == 0) {
        (void)snprintf(l->r->first_error, sizeof l->r->first_error, "%.*s",
                       (int)(text.len < 100 ? text.len : 100), text.data);
    }
}

/* ---- requests ---- */

static void lock_name(const struct load *l, const struct client *c, char *out,
                      size_t size)
{
    switch (l->o->kind) {
    case PK_LOAD_HANDOFF:
        (void)snprintf(out, size, "bench/one");
        break;
    case PK_LOAD_HOLD:
        (void)snprintf(out, size, "bench/%u/%llu", c->number,
                       (unsigned long long)c->held);
        break;
    default:
        (void)snprintf(out, size, "bench/%u", c->number);
        break;
    }
}

static void send_out(struct load *l, struct link *k)
{
    size_t sent = 0;
    while (sent < k->out.len) { /* a few kilobytes at most: the socket takes them */
        ssize_t n = send(k->fd, k->out.data + sent, k->out.len - sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR && errno != EAGAIN) {
            note_error(l, pk_text(strerror(errno)));
            break;
        }
        sent += n > 0 ? (size_t)n : 0;
    }
    k->out.len = 0;
}

static void ask_redis(struct load *l, struct client *c)
{
    char name[64], value[32];
    struct pk_resp_out *o = &c->link->out;
    lock_name(l, c, name, sizeof name);
    (void)snprintf(value, sizeof value, "%u", c->number);
    if (c->step == ACQUIRING) {
        pk_resp_array(o, 6);
        pk_resp_text(o, "SET");
        pk_resp_text(o, name);
        pk_resp_text(o, value);
        pk_resp_text(o, "NX");
        pk_resp_text(o, "PX");
        pk_resp_text(o, "30000");
    } else {
        pk_resp_array(o, 5);
        pk_resp_text(o, "EVALSHA");
        pk_resp_text(o, l->unlock);
        pk_resp_text(o, "1");
        pk_resp_text(o, name);
        pk_resp_text(o, value);
    }
}

static void ask_native(struct load *l, struct client *c)
{
    char name[64];
    unsigned char id[8];
    struct pk_command cmd = {.lease = c->lease, .token = c->token};
    lock_name(l, c, name, sizeof name);
    switch (c->step) {
    case OPENING:
        cmd = (struct pk_command){
            .verb = PK_LEASE_OPEN, .ttl_ms = TTL_MS, .label = pk_text("bench")};
        break;
    case ACQUIRING:
        cmd.verb = PK_LOCK_ACQUIRE;
        cmd.token = 0;
        cmd.request = ++c->request;
        cmd.n_parts = 1;
        cmd.parts[0] = (struct pk_part){.name = pk_text(name), .mode = PK_EXCLUSIVE};
        cmd.wait_ms = l->o->kind == PK_LOAD_HANDOFF ? PK_WAIT_FOREVER : 0;
        break;
    case RELEASING:
        cmd.verb = PK_LOCK_RELEASE;
        cmd.request = ++c->request;
        cmd.name = pk_text(name);
        break;
    default:
        cmd = (struct pk_command){.verb = PK_LEASE_RENEW, .leases = id, .n_leases = 1};
        pk_command_put_lease(id, 0, c->lease);
        break;
    }
    pk_proto_write_command(&c->link->out, &cmd);
}

/* Puts the request into its link; it is sent at the end of the turn. */
static void ask(struct load *l, struct client *c, enum step step)
{
    struct link *k = c->link;
    c->step = step;
    c->asked_ns = now_ns();
    c->next = NULL;
    *(k->first == NULL ? &k->first : &k->last->next) = c;
    k->last = c;
    if (l->o->redis) {
        ask_redis(l, c);
    } else {
        ask_native(l, c);
    }
    if (step == RELEASING && l->o->kind == PK_LOAD_HANDOFF) {
        l->released_ns = c->asked_ns;
    }
}

/* ---- answers ---- */

/* The next pair, unless time is up. */
static void again(struct load *l, struct client *c)
{
    bool enough = l->o->kind == PK_LOAD_HOLD && l->held >= l->o->holds;
    if (l->over || enough) {
        c->step = DONE;
        return;
    }
    c->began_ns = now_ns();
    ask(l, c, l->o->kind == PK_LOAD_RENEW ? RENEWING : ACQUIRING);
}

/* One more lock, on a lease of its own. */
static void next_hold(struct load *l, struct client *c)
{
    if (l->held + l->o->clients > l->o->holds) { /* the others are on their way */
        c->step = DONE;
    } else if (l->o->redis) {
        again(l, c);
    } else {
        ask(l, c, OPENING);
    }
}

static void answered(struct load *l, struct client *c, uint64_t now)
{
    struct pk_load_result *r = l->r;
    switch (c->step) {
    case OPENING:
        again(l, c);
        break;
    case ACQUIRING:
        if (l->o->kind == PK_LOAD_HANDOFF && l->released_ns != 0) {
            note(&r->handoff, now - l->released_ns);
        }
        note(&r->acquire, now - c->asked_ns);
        if (l->o->kind == PK_LOAD_HOLD) {
            c->held++;
            l->held++;
            next_hold(l, c);
        } else {
            ask(l, c, RELEASING);
        }
        break;
    case RELEASING:
        note(&r->release, now - c->asked_ns);
        note(&r->pair, now - c->began_ns);
        again(l, c);
        break;
    case RENEWING:
        note(&r->renew, now - c->asked_ns);
        again(l, c);
        break;
    default:
        break;
    }
}

/* What the answer carries, into the client. False: it was an error. */
static bool take_answer(struct load *l, struct client *c, struct pk_bytes whole)
{
    if (whole.data[0] == '-' ||
        (l->o->redis && (whole.data[0] == '$' || whole.data[0] == '_'))) {
        note_error(l, whole);
        return false;
    }
    if (l->o->redis) {
        return true;
    }
    struct pk_bytes error;
    pk_effects_reset(&l->effects);
    if (pk_proto_read_answer(whole, &l->effects, &error) != PK_PROTO_REPLY) {
        note_error(l, whole);
        return false;
    }
    const struct pk_effect *reply = &l->effects.list[0];
    if (c->step == OPENING) {
        c->lease = reply->lease;
    } else if (c->step == ACQUIRING) {
        c->token = reply->token;
    }
    return true;
}

/* The connection is gone, and with it all who use it. */
static void drop(struct load *l, struct link *k)
{
    note_error(l, pk_text("connection closed"));
    (void)epoll_ctl(l->epoll, EPOLL_CTL_DEL, k->fd, NULL);
    for (uint32_t i = 0; i < l->o->clients; i++) {
        if (l->clients[i].link == k) {
            l->clients[i].step = DONE;
        }
    }
}

static void take_one(struct load *l, struct link *k, struct pk_bytes whole, uint64_t now)
{
    struct client *c = k->first;
    if (c == NULL) {
        note_error(l, whole);
        return;
    }
    k->first = c->next;
    if (take_answer(l, c, whole)) {
        answered(l, c, now);
    } else {
        again(l, c);
    }
}

static void receive(struct load *l, struct link *k)
{
    ssize_t n = recv(k->fd, k->in + k->in_len, sizeof k->in - k->in_len, 0);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            drop(l, k);
        }
        return;
    }
    uint64_t now = now_ns();
    k->in_len += (size_t)n;
    size_t used = 0, one;
    while (pk_resp_whole(pk_bytes(k->in + used, k->in_len - used), &one) == PK_RESP_ONE) {
        take_one(l, k, pk_bytes(k->in + used, one), now);
        used += one;
    }
    k->in_len -= used;
    memmove(k->in, k->in + used, k->in_len);
    send_out(l, k);
}

/* ---- the run ---- */

static bool connect_one(struct load *l, struct link *k, char *why, size_t size)
{
    struct pk_ask a;
    if (!pk_ask_open(&a, l->o->address, CONNECT_MS)) {
        (void)snprintf(why, size, "%s", a.why);
        return false;
    }
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = k};
    k->fd = a.fd;
    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, k->fd, &e) != 0) {
        (void)snprintf(why, size, "epoll: %s", strerror(errno));
        return false;
    }
    return true;
}

static bool load_script(struct load *l, char *why, size_t size)
{
    struct pk_ask a;
    struct pk_bytes answer;
    bool sent;
    const char *const words[] = {"SCRIPT", "LOAD", UNLOCK};
    bool ok = pk_ask_open(&a, l->o->address, CONNECT_MS) &&
              pk_ask_words(&a, words, 3, CONNECT_MS, &answer, &sent);
    if (ok) {
        struct pk_resp_cursor cursor = {.rest = answer};
        struct pk_resp_value v = pk_resp_next(&cursor);
        ok = v.type == PK_RESP_BULK && v.bytes.len == 40;
        (void)snprintf(l->unlock, sizeof l->unlock, "%.*s", (int)v.bytes.len,
                       v.bytes.data == NULL ? "" : v.bytes.data);
    }
    if (!ok) {
        (void)snprintf(why, size, "it does not take Redis' unlock script %s", a.why);
    }
    pk_ask_close(&a);
    return ok;
}

static bool begin(struct load *l, char *why, size_t size)
{
    uint32_t n = l->o->clients;
    l->n_links = l->o->connections == 0 || l->o->connections > n ? n : l->o->connections;
    l->clients = pk_door_resize(NULL, n * sizeof *l->clients);
    memset(l->clients, 0, n * sizeof *l->clients);
    l->links = pk_door_resize(NULL, l->n_links * sizeof *l->links);
    memset(l->links, 0, l->n_links * sizeof *l->links);
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (l->o->redis && !load_script(l, why, size)) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        l->clients[i].number = i;
        l->clients[i].link = &l->links[i % l->n_links];
    }
    for (uint32_t i = 0; i < l->n_links; i++) {
        if (!connect_one(l, &l->links[i], why, size)) {
            return false;
        }
    }
    return true;
}

static bool all_done(const struct load *l)
{
    for (uint32_t i = 0; i < l->o->clients; i++) {
        if (l->clients[i].step != DONE) {
            return false;
        }
    }
    return true;
}

static void show_progress(struct load *l, uint64_t now, uint64_t *shown)
{
    if (l->o->progress && now - *shown > 500000000) {
        *shown = now;
        size_t n = l->r->pair.count + l->r->renew.count + (size_t)l->held;
        (void)fprintf(stderr, "\r%zu done ", n);
    }
}

static void run(struct load *l)
{
    struct epoll_event events[EVENTS];
    uint64_t start = now_ns(), shown = start;
    for (uint32_t i = 0; i < l->o->clients; i++) {
        if (l->o->redis) {
            again(l, &l->clients[i]);
        } else {
            ask(l, &l->clients[i], OPENING);
        }
    }
    for (uint32_t i = 0; i < l->n_links; i++) {
        send_out(l, &l->links[i]);
    }
    uint64_t end = start + l->o->ms * 1000000;
    uint64_t give_up = end + 5000000000;
    while (!all_done(l)) {
        int n = epoll_wait(l->epoll, events, EVENTS, 100);
        for (int i = 0; i < n; i++) {
            receive(l, events[i].data.ptr);
        }
        uint64_t now = now_ns();
        l->over = l->o->kind != PK_LOAD_HOLD && now >= end;
        show_progress(l, now, &shown);
        if (l->over && (l->o->kind == PK_LOAD_HANDOFF || now > give_up)) {
            break; /* those who still wait would have to be granted first */
        }
    }
    l->r->elapsed_ns = now_ns() - start;
    if (l->o->progress) {
        (void)fprintf(stderr, "\r\033[K");
    }
}

/* Nothing is left behind, except what was asked to be held. */
static void tidy_up(struct load *l)
{
    struct pk_ask a;
    if (l->o->redis || l->o->kind == PK_LOAD_HOLD ||
        !pk_ask_open(&a, l->o->address, CONNECT_MS)) {
        return;
    }
    bool ok = true;
    struct pk_resp_out request = {0};
    for (uint32_t i = 0; i < l->o->clients && ok; i++) {
        struct pk_command close_it = {.verb = PK_LEASE_CLOSE,
                                      .lease = l->clients[i].lease};
        struct pk_bytes answer;
        bool sent;
        request.len = 0;
        pk_proto_write_command(&request, &close_it);
        ok = l->clients[i].lease == 0 || pk_ask(&a, &request, CONNECT_MS, &answer, &sent);
    }
    pk_resp_free(&request);
    pk_ask_close(&a);
}

bool pk_load_run(const struct pk_load_options *o, struct pk_load_result *out, char *why,
                 size_t size)
{
    struct load l = {.o = o, .r = out};
    memset(out, 0, sizeof *out);
    bool ok = begin(&l, why, size);
    if (ok) {
        run(&l);
        tidy_up(&l);
    }
    for (uint32_t i = 0; i < l.n_links; i++) {
        pk_resp_free(&l.links[i].out);
        if (l.links[i].fd > 0) {
            (void)close(l.links[i].fd);
        }
    }
    pk_door_resize(l.links, 0);
    pk_door_resize(l.clients, 0);
    pk_effects_free(&l.effects);
    (void)close(l.epoll);
    return ok;
}

void pk_load_free(struct pk_load_result *r)
{
    pk_door_resize(r->acquire.at, 0);
    pk_door_resize(r->release.at, 0);
    pk_door_resize(r->pair.at, 0);
    pk_door_resize(r->handoff.at, 0);
    pk_door_resize(r->renew.at, 0);
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void pk_load_sort(struct pk_load_series *s)
{
    if (s->count > 0) {
        qsort(s->at, s->count, sizeof *s->at, by_value);
    }
}

uint32_t pk_load_at(const struct pk_load_series *s, uint32_t permille)
{
    size_t i = s->count * permille / 1000;
    return s->count == 0 ? 0 : s->at[i < s->count ? i : s->count - 1];
}
