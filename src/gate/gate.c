/* SPDX-License-Identifier: MIT */
#include "gate/gate.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/door.h"
#include "core/tree.h"
#include "gate/inside.h"
#include "server/address.h"
#include "server/log.h"

enum {
    SWEEP_MS = 50, /* how exactly time limits are kept */
    RESOURCES_MAX = 16384,
    REMARKS_MAX = 10, /* in a second */
    SPARE_DESCRIPTORS = 100,
};

uint64_t pk_gate_now(const struct pk_gate *g)
{
    return uv_now(&g->loop);
}

/* ---- words ---- */

static const struct {
    const char *name;
    int status;
} outcomes[] = {
#define X(outcome, name, status) [PK_OUTCOME_##outcome] = {name, status},
    PK_OUTCOMES(X)
#undef X
};

const char *pk_outcome_name(enum pk_outcome o)
{
    return outcomes[o].name;
}

int pk_outcome_status(enum pk_outcome o)
{
    return outcomes[o].status;
}

const char *pk_shadow_name(enum pk_shadow s)
{
    static const char *const names[] = {
#define X(shadow, name) [PK_SHADOW_##shadow] = (name),
        PK_SHADOWS(X)
#undef X
    };
    return names[s];
}

void pk_gate_remark(struct pk_gate *g, const char *event, const char *why,
                    const struct pk_exchange *x)
{
    uint64_t now = pk_gate_now(g);
    if (now - g->remarks_since_ms >= 1000) {
        g->remarks_since_ms = now;
        g->remarks = 0;
    }
    if (g->remarks++ < REMARKS_MAX) {
        pk_log(PK_LOG_WARN, event, "why", why, "resource",
               pk_log_bytes(x->ask.resource, x->ask.resource_len), "token",
               pk_log_u64(x->ask.token), "fence", pk_log_u64(x->fence), "client",
               x->client == NULL ? "gone" : x->client->address, NULL);
    }
}

/* ---- the thread pool ---- */

static void run_job(uv_work_t *work)
{
    struct pk_chore *j = work->data;
    j->run(j);
}

static void on_job(uv_work_t *work, int status)
{
    struct pk_chore *j = work->data;
    (void)status; /* nothing is cancelled */
    j->gate->n_jobs--;
    j->done(j);
}

void pk_gate_chore(struct pk_gate *g, struct pk_chore *j)
{
    j->gate = g;
    j->work.data = j;
    g->n_jobs++;
    PK_ASSERT(uv_queue_work(&g->loop, &j->work, run_job, on_job) == 0);
}

void pk_gate_turn(struct pk_gate *g)
{
    struct pk_admit_claim claim;
    struct pk_admit_ticket *t;
    if (g->turning) {
        return; /* whoever is at it goes on */
    }
    g->turning = true;
    while ((t = pk_admit_decided(g->admit)) != NULL) {
        pk_exchange_verdict(PK_OWNER(t, struct pk_exchange, ticket));
    }
    while (pk_admit_claim(g->admit, &claim)) {
        pk_claim_begin(g, &claim);
    }
    g->turning = false;
}

/* Calls `visit` for each exchange, which may end that one. The verdicts that follow are
 * handed out at the end: a verdict can end any exchange, also the next in the list. */
static void visit_exchanges(struct pk_gate *g, void (*visit)(struct pk_exchange *x))
{
    struct pk_list_link *next;
    PK_ASSERT(!g->turning);
    g->turning = true;
    for (struct pk_list_link *l = pk_list_first(&g->exchanges); l != NULL; l = next) {
        next = pk_list_next(&g->exchanges, l);
        visit(PK_OWNER(l, struct pk_exchange, link));
    }
    g->turning = false;
    pk_gate_turn(g);
}

/* ---- standing ---- */

/* What is not wholly sent can still be stopped: another gate may let higher ones in. */
static void stop_sending(struct pk_exchange *x)
{
    if (x->fenced && !x->all_sent) {
        pk_exchange_cut(x, PK_OUTCOME_STANDBY, "this gate stands no more; try again");
    }
}

static void on_standing(void *ctx, bool stands)
{
    struct pk_gate *g = ctx;
    if (g->admit != NULL && !stands) {
        pk_admit_forget(g->admit);
        visit_exchanges(g, stop_sending);
    }
}

/* ---- time ---- */

static void sweep_clients(struct pk_gate *g, uint64_t now)
{
    struct pk_list_link *next;
    for (struct pk_list_link *l = pk_list_first(&g->clients); l != NULL; l = next) {
        struct pk_client *c = PK_OWNER(l, struct pk_client, link);
        next = pk_list_next(&g->clients, l);
        bool idle = c->exchange == NULL && !c->answering && !c->begun;
        if (c->wire.late_ms != 0 && (now >= c->wire.late_ms || (g->draining && idle))) {
            pk_client_late(c);
        }
    }
}

static void tick(struct pk_exchange *x)
{
    pk_exchange_tick(x, pk_gate_now(x->gate));
}

static void drain(struct pk_gate *g, uint64_t now);

static void on_sweep(uv_timer_t *timer)
{
    struct pk_gate *g = timer->data;
    uint64_t now = pk_gate_now(g);
    sweep_clients(g, now);
    visit_exchanges(g, tick);
    pk_upstream_late(g, now);
    pk_admit_tick(g->admit, now);
    pk_gate_turn(g);
    pk_claim_sweep(g);
    pk_stand_tick(&g->stand, now);
    if (g->draining) {
        drain(g, now);
    }
}

static void on_prepare(uv_prepare_t *prepare)
{
    pk_exchange_reuse_ended(prepare->data);
}

/* ---- the end ---- */

static void on_handle_closed(uv_handle_t *handle)
{
    (void)handle;
}

static void on_admin_closed(void *ctx)
{
    (void)ctx;
}

static void stop_listening(struct pk_gate *g)
{
    if (g->listening) {
        g->listening = false;
        uv_close((uv_handle_t *)&g->listener, on_handle_closed);
    }
}

static void abandon(struct pk_exchange *x)
{
    pk_exchange_cut(x, PK_OUTCOME_STANDBY, "this gate is being stopped; try again");
}

/* What is left after the time allowed: nobody waits for it any more. */
static void abandon_rest(struct pk_gate *g)
{
    struct pk_list_link *next;
    visit_exchanges(g, abandon);
    for (struct pk_list_link *l = pk_list_first(&g->clients); l != NULL; l = next) {
        struct pk_client *c = PK_OWNER(l, struct pk_client, link);
        next = pk_list_next(&g->clients, l);
        if (c->exchange == NULL) {
            pk_client_close(c);
        }
    }
}

static void close_everything(struct pk_gate *g)
{
    uv_handle_t *const handles[] = {(uv_handle_t *)&g->sweep, (uv_handle_t *)&g->prepare,
                                    (uv_handle_t *)&g->term, (uv_handle_t *)&g->intr};
    g->closing = true;
    pk_upstream_late(g, UINT64_MAX);
    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++) {
        uv_close(handles[i], on_handle_closed);
    }
    if (g->admin != NULL) {
        pk_http_close(g->admin, on_admin_closed, NULL);
    }
    pk_stand_close(&g->stand);
}

/* Until all that is in flight has ended: only then may another gate stand (A4). */
static void drain(struct pk_gate *g, uint64_t now)
{
    bool over = now >= g->drain_until_ms;
    if (g->closing) {
        return;
    }
    if (over) {
        abandon_rest(g);
    }
    if (g->n_exchanges == 0 && g->n_jobs == 0 && (over || g->n_clients == 0)) {
        pk_log(PK_LOG_INFO, "stopping", "gate", g->options.name, "drained",
               over ? "no" : "yes", NULL);
        close_everything(g);
    }
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct pk_gate *g = handle->data;
    uint64_t now = pk_gate_now(g);
    if (g->draining) {
        g->drain_until_ms = now; /* asked twice: don't wait */
        return;
    }
    pk_log(PK_LOG_INFO, "draining", "gate", g->options.name, "signal",
           number == SIGTERM ? "TERM" : "INT", NULL);
    g->draining = true;
    g->drain_until_ms = now + g->options.drain_ms;
    stop_listening(g);
}

/* ---- starting ---- */

static void on_connection(uv_stream_t *listener, int status)
{
    if (status == 0) {
        pk_client_accept(listener->data);
    }
}

static const char *start_listening(struct pk_gate *g, uint16_t *port)
{
    struct sockaddr_storage where;
    const char *wrong = pk_address_resolve(g->options.listen, &where);
    if (wrong != NULL) {
        return wrong;
    }
    PK_ASSERT(uv_tcp_init(&g->loop, &g->listener) == 0);
    g->listener.data = g;
    g->listening = true;
    int failed = pk_address_listen(&g->listener, &where, on_connection, port);
    return failed == 0 ? NULL : uv_strerror(failed);
}

/* "http://HOST[:PORT][/base]" into its parts. NULL, or a sentence. */
static const char *read_upstream(struct pk_gate *g)
{
    static const char scheme[] = "http://";
    const char *url = g->options.upstream;
    if (strncmp(url, scheme, strlen(scheme)) != 0) {
        return "the upstream is http://HOST:PORT, with a base path if need be";
    }
    const char *host = url + strlen(scheme);
    size_t len = strcspn(host, "/?#");
    const char *base = host + len;
    size_t base_len = strlen(base);
    bool port = memchr(host, ']', len) != NULL ? memchr(host, ']', len) != host + len - 1
                                               : memchr(host, ':', len) != NULL;
    int n = snprintf(g->upstream_host, sizeof g->upstream_host, "%.*s%s", (int)len, host,
                     port ? "" : ":80");
    while (base_len > 0 && base[base_len - 1] == '/') {
        base_len--;
    }
    if (len == 0 || n >= (int)sizeof g->upstream_host || base_len >= sizeof g->base) {
        return "the upstream's host is missing, or its parts are too long";
    }
    for (size_t i = 0; i < base_len; i++) {
        if (base[i] <= ' ' || base[i] > '~' || base[i] == '?' || base[i] == '#') {
            return "the upstream's base path is a path: no blanks, ? and #";
        }
    }
    memcpy(g->base, base, base_len);
    return pk_address_resolve(g->upstream_host, &g->upstream);
}

static void host_and_port(const char *text, uint16_t port, char *out, size_t size)
{
    char host[256];
    uint16_t ignored;
    (void)pk_address_split(text, host, sizeof host, &ignored);
    (void)snprintf(out, size, strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u", host,
                   port);
}

static bool fail(char *why, size_t size, const char *what, const char *reason)
{
    (void)snprintf(why, size, "%s: %s", what, reason);
    return false;
}

static bool open_doors(struct pk_gate *g, char *why, size_t size)
{
    char listen[280], admin[280] = "off";
    uint16_t port;
    const char *wrong = start_listening(g, &port);
    if (wrong != NULL) {
        return fail(why, size, g->options.listen, wrong);
    }
    host_and_port(g->options.listen, port, listen, sizeof listen);
    if (g->options.admin != NULL) {
        (void)pk_address_split(g->options.admin, g->admin_host, sizeof g->admin_host,
                               &port);
        g->admin_hosts[0] = g->admin_host;
        struct pk_http_options h = {.loop = &g->loop,
                                    .hosts = g->admin_hosts,
                                    .listen = g->options.admin,
                                    .get = pk_gate_page,
                                    .ctx = g};
        g->admin = pk_http_new(&h, &wrong);
        if (g->admin == NULL) {
            return fail(why, size, g->options.admin, wrong);
        }
        host_and_port(g->options.admin, pk_http_port(g->admin), admin, sizeof admin);
    }
    pk_log(PK_LOG_INFO, "started", "gate", g->options.name, "listen", listen, "upstream",
           g->options.upstream, "admin", admin, "store", g->options.url, "mode",
           g->options.shared            ? "shared"
           : pk_stand_stands(&g->stand) ? "alone"
                                        : "standby",
           "version", PICKET_VERSION, NULL);
    return true;
}

static void start_handles(struct pk_gate *g)
{
    PK_ASSERT(uv_timer_init(&g->loop, &g->sweep) == 0 &&
              uv_prepare_init(&g->loop, &g->prepare) == 0 &&
              uv_signal_init(&g->loop, &g->term) == 0 &&
              uv_signal_init(&g->loop, &g->intr) == 0);
    g->sweep.data = g->prepare.data = g->term.data = g->intr.data = g;
    (void)uv_timer_start(&g->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    (void)uv_prepare_start(&g->prepare, on_prepare);
    (void)uv_signal_start(&g->term, on_signal, SIGTERM);
    (void)uv_signal_start(&g->intr, on_signal, SIGINT);
}

/* Each request may have two connections, here and there. */
static void raise_descriptor_limit(struct pk_gate *g)
{
    struct rlimit l;
    rlim_t want = (rlim_t)g->options.connections * 4 + SPARE_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < want) {
        l.rlim_cur = want < l.rlim_max ? want : l.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &l);
    }
}

static enum pk_gate_end start(struct pk_gate *g, char *why, size_t size)
{
    const struct pk_gate_options *o = &g->options;
    struct pk_admit_options a = {.shared = o->shared,
                                 .shadow = o->shadow,
                                 .drain_ms = o->drain_ms,
                                 .cut_off_ms = o->cut_off_ms,
                                 .resources_max = RESOURCES_MAX};
    const char *wrong = read_upstream(g);
    if (wrong != NULL) {
        (void)fail(why, size, o->upstream, wrong);
        return PK_GATE_FAILED;
    }
    g->rules = (struct pk_wish_rules){.from_field = o->from_field,
                                      .depth = o->depth,
                                      .resource_max = PK_NAME_MAX - strlen(o->name) -
                                                      strlen("/" PK_WISH_RESERVED "/") -
                                                      2 * (size_t)PK_ONCE_HASH,
                                      .based = g->base[0] != '\0'};
    g->admit = pk_admit_new(&a);
    g->stand = (struct pk_stand){.loop = &g->loop,
                                 .store = o->store,
                                 .name = o->name,
                                 .shared = o->shared,
                                 .changed = on_standing,
                                 .ctx = g};
    enum picket_status s = pk_stand_start(&g->stand, o->standby);
    if (s != PICKET_OK) {
        (void)snprintf(why, size, "%s", picket_last_error());
        return s == PICKET_BUSY ? PK_GATE_BUSY : PK_GATE_FAILED;
    }
    start_handles(g);
    return open_doors(g, why, size) ? PK_GATE_STOPPED : PK_GATE_FAILED;
}

static void free_gate(struct pk_gate *g)
{
    pk_exchange_reuse_ended(g);
    struct pk_list_link *link;
    while ((link = pk_list_first(&g->spare)) != NULL) {
        struct pk_exchange *x = PK_OWNER(link, struct pk_exchange, link);
        pk_list_remove(link);
        pk_resp_free(&x->head);
        pk_door_resize(x, 0);
    }
    pk_flights_free(&g->flights);
    pk_admit_free(g->admit);
    (void)uv_loop_close(&g->loop);
    pk_door_resize(g, 0);
}

enum pk_gate_end pk_gate_run(const struct pk_gate_options *o, char *why, size_t size)
{
    static struct pk_gate *g; /* static: what a failed start leaves is no leak */
    g = pk_door_resize(NULL, sizeof *g);
    memset(g, 0, sizeof *g);
    g->options = *o;
    pk_list_init(&g->clients);
    pk_list_init(&g->exchanges);
    pk_list_init(&g->ended);
    pk_list_init(&g->spare);
    pk_list_init(&g->idle);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)setenv("UV_THREADPOOL_SIZE", "32", 0); /* calls of the store wait, mostly */
    raise_descriptor_limit(g);
    PK_ASSERT(uv_loop_init(&g->loop) == 0);
    enum pk_gate_end end = start(g, why, size);
    if (end != PK_GATE_STOPPED) {
        picket_close(o->store);
        return end; /* the process ends; so does all that it has open */
    }
    (void)uv_run(&g->loop, UV_RUN_DEFAULT);
    picket_close(o->store);
    pk_log(PK_LOG_INFO, "stopped", "gate", o->name, NULL);
    free_gate(g);
    return PK_GATE_STOPPED;
}
