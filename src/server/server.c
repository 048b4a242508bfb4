/* SPDX-License-Identifier: MIT */
/*
 * The life of a node: start, turns of the loop, draining, end.
 *
 * A turn of the loop reads what has come, runs the connections, ends the turn (one log
 * entry), and sends what there is to send. It happens in a check handle, after the
 * input, and again in a prepare handle, before the loop sleeps, because the consensus
 * library may have applied something in between. Both are started before the library
 * starts its own, so that they run after those.
 */
#include "server/server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/door.h"
#include "host/clock.h"
#include "server/address.h"
#include "server/bootstrap.h"
#include "server/health.h"
#include "server/inside.h"
#include "server/log.h"
#include "server/members.h"
#include "server/pages.h"
#include "server/upgrade.h"

enum {
    EXIT_DISK = 121, /* a write to the log failed */
    EXIT_ERROR = 125,
    SWEEP_MS = 200,
    STALLED_MS = 1000, /* a write takes a fraction of a millisecond */
    DRAIN_MS = 5000,
    LOOKUPS_MS = 1000, /* for lookups of names to end, before the process does */
    CONNECTIONS_DEFAULT = 10000,
    SPARE_DESCRIPTORS = 200, /* for files, other nodes and pages */
};

static int fail(const char *what, const char *why)
{
    pk_bootstrap_fail(what, why);
    return EXIT_ERROR;
}

uint64_t pk_server_now(struct pk_server *s)
{
    (void)s;
    return pk_clock_ms();
}

/* ---- turns ---- */

static void on_deadline(uv_timer_t *timer)
{
    (void)timer; /* the turn that follows does the work */
}

/* Whether there are requests that can be served without waiting for anything. Those that
 * wait for an entry to be proposed go on when an entry before it has been applied. */
static bool is_unfinished(const struct pk_server *s)
{
    return pk_fair_can_go_on(&s->fair) ||
           (pk_fair_has_work(&s->fair) && pk_turn_is_empty(s->turn));
}

static void arm_deadline(struct pk_server *s, uint64_t now)
{
    uint64_t next = pk_turn_next_ms(s->turn);
    if (is_unfinished(s)) {
        (void)uv_timer_start(&s->deadline, on_deadline, 0, 0);
    } else if (next == UINT64_MAX) {
        (void)uv_timer_stop(&s->deadline);
    } else {
        /* libuv's own idea of now is that of the beginning of this turn. */
        uv_update_time(&s->loop);
        (void)uv_timer_start(&s->deadline, on_deadline, next > now ? next - now : 1, 0);
    }
}

/* Counts what this turn has proposed, and how long what is finished took. */
static void measure(struct pk_server *s)
{
    struct pk_turn_counts counts = pk_turn_counts(s->turn);
    uint64_t now_us = uv_hrtime() / 1000;
    uint64_t commands = counts.commands - s->counted.commands;
    if (counts.entries > s->counted.entries) {
        pk_metrics_batch(s->metrics, commands);
        s->load = (s->load * 7 + commands) / 8;
    }
    for (uint64_t i = s->counted.entries; i < counts.entries; i++) {
        s->proposed_us[i % PK_ENTRIES_TIMED] = now_us;
    }
    for (uint64_t i = s->counted.finished; i < counts.finished; i++) {
        uint64_t began = s->proposed_us[i % PK_ENTRIES_TIMED];
        pk_metrics_time(s->metrics, PK_TIME_COMMIT, now_us - began);
    }
    s->counted = counts;
}

static void drain(struct pk_server *s, uint64_t now);

static void turn(struct pk_server *s)
{
    uint64_t now = pk_server_now(s);
    pk_conns_run(s);
    pk_admin_turn(s);
    pk_backup_turn(s);
    pk_turn_end(s->turn, now);
    if (pk_turn_is_empty(s->turn)) {
        if (s->fair.spent > 0) {
            pk_metrics_units(s->metrics, s->fair.spent);
        }
        pk_fair_begin(&s->fair);
        if (pk_fair_has_work(&s->fair)) { /* for whom there was no room in the last */
            pk_conns_run(s);
            pk_turn_end(s->turn, now);
        }
    }
    measure(s);
    pk_conns_flush(s);
    pk_trace_log_flush(s->trace); /* after the answers: nobody waits for it */
    arm_deadline(s, now);
    if (s->draining) {
        drain(s, now);
    }
}

/* The loop has slept, and has run the callbacks of its input. When it woke it noted the
 * time in milliseconds; so of those callbacks less than one is left out. */
static void on_check(uv_check_t *check)
{
    struct pk_server *s = check->data;
    uint64_t now_us = uv_hrtime() / 1000;
    uint64_t woke_us = (uv_now(&s->loop) + 1) * 1000;
    s->woke_us = woke_us < now_us ? woke_us : now_us;
    turn(s);
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct pk_server *s = prepare->data;
    turn(s);
    if (s->woke_us != 0) {
        pk_metrics_time(s->metrics, PK_TIME_LOOP, uv_hrtime() / 1000 - s->woke_us);
    }
}

/* How many other voters have all that was committed, and are heard. */
static size_t healthy_others(struct pk_server *s, size_t *voters)
{
    struct pk_member members[PK_MEMBERS_MAX];
    uint64_t match[PK_MEMBERS_MAX];
    size_t n = pk_replica_members(s->replica, members, match);
    uint64_t committed = pk_replica_standing(s->replica).commit_index;
    size_t healthy = 0;
    *voters = 0;
    for (size_t i = 0; i < n; i++) {
        bool voter = members[i].role == PK_MEMBER_VOTER;
        *voters += voter;
        healthy += voter && members[i].id != s->self.id && match[i] >= committed &&
                   pk_health_heard_ms(s, members[i].id) <= pk_health_silent_after_ms(s);
    }
    return healthy;
}

/* A leader whose disk stalls while a majority's does not hands leadership over. */
static void leave_to_faster_disks(struct pk_server *s)
{
    struct pk_standing st = pk_replica_standing(s->replica);
    size_t voters;
    uint64_t stalled = pk_uvio_stalled_ms(s->uvio);
    if (!st.leader || st.transferring || stalled < STALLED_MS ||
        healthy_others(s, &voters) <= voters / 2) {
        return;
    }
    pk_log(PK_LOG_WARN, "disk-stalls", "node", s->self.name, "ms", pk_log_u64(stalled),
           NULL);
    (void)pk_replica_transfer(s->replica, 0);
}

static void on_sweep(uv_timer_t *timer)
{
    struct pk_server *s = timer->data;
    leave_to_faster_disks(s);
    pk_conns_sweep(s);
    pk_health_sweep(s);
    pk_backup_sweep(s);
    pk_upgrade_sweep(s);
    pk_dash_sample(s->dash);
}

/* ---- hooks of the turn ---- */

static uint64_t cluster_ms(const struct pk_server *s)
{
    return pk_machine_clock(pk_replica_machine(s->replica));
}

static void on_stepped(void *ctx, const struct pk_step *step)
{
    struct pk_server *s = ctx;
    /* Old news too: it knows when they were. */
    pk_dash_step(s->dash, step->command, step->effects);
    bool old = s->replay_until != 0 &&
               pk_replica_standing(s->replica).applied_index < s->replay_until;
    if (!old && s->trace != NULL) {
        /* What ends by a restore ends in the time of the backup, which may be earlier. */
        if (step->entry->kind == PK_ENTRY_ADOPT &&
            step->effects->list[0].status == PK_OK) {
            pk_trace_log_gap(s->trace, cluster_ms(s));
        }
        pk_trace_log_step(s->trace, cluster_ms(s), step->command, step->effects);
    }
}

static void on_events(void *ctx, const struct pk_effects *e)
{
    struct pk_server *s = ctx;
    if (s->replay_until != 0) {
        /* Old news, and counted when it was new: the log is run again after a start. */
        struct pk_standing st = pk_replica_standing(s->replica);
        if (st.applied_index < s->replay_until) {
            return;
        }
        s->replay_until = 0;
    }
    pk_metrics_step(s->metrics, e);
    pk_hub_step(&s->hub, e, cluster_ms(s));
}

static void on_gap(void *ctx)
{
    struct pk_server *s = ctx;
    pk_trace_log_gap(s->trace, cluster_ms(s));
    pk_hub_gap(&s->hub);
    pk_dash_gap(s->dash);
}

static void on_standing(void *ctx, bool serving, uint64_t leader_id)
{
    struct pk_server *s = ctx;
    bool another = leader_id != s->leader_id;
    s->leader_id = leader_id;
    s->leaderless_ms = 0; /* counted from now, if it is nobody */
    const struct pk_peer *p = pk_peers_find(&s->peers, leader_id);
    const char *leader = leader_id == s->self.id ? s->self.name
                         : p != NULL             ? p->name
                         : leader_id == 0        ? "none"
                                                 : "unknown";
    if (another) {
        pk_trace_log_leader(s->trace, cluster_ms(s), leader_id == 0 ? "" : leader);
    }
    pk_log(PK_LOG_INFO, serving ? "serving" : "standing", "node", s->self.name, "leader",
           leader, "term", pk_log_u64(pk_replica_standing(s->replica).term), NULL);
    for (uint32_t i = 0; i < s->conn_slots; i++) {
        struct pk_conn *c = s->conns[i];
        if (c == NULL || c->closing) {
            continue;
        }
        if (c->relay != NULL && another) {
            pk_conn_close(c);
        } else if (c->stall == PK_STALL_LEADER) {
            pk_conn_wake(c);
        }
    }
}

static void on_broken(void *ctx, const char *why)
{
    struct pk_server *s = ctx;
    pk_log(PK_LOG_ERROR, "stopped", "node", s->self.name, "why", why, NULL);
    _exit(EXIT_ERROR); /* nothing of this process can be trusted any more */
}

static void on_disk_failed(void *ctx, const char *why)
{
    struct pk_server *s = ctx;
    pk_log(PK_LOG_ERROR, "stopped", "node", s->self.name, "why", why, NULL);
    _exit(EXIT_DISK);
}

/* What libraft finds remarkable; its details are for --verbose. */
static void on_trace(void *ctx, int level, const char *message)
{
    struct pk_server *s = ctx;
    pk_log(level <= 2 ? PK_LOG_WARN : PK_LOG_DEBUG, "consensus", "node", s->self.name,
           "says", message, NULL);
}

/* The digest of our state goes to all other nodes, and theirs come to us. */
static void on_marked(void *ctx, uint64_t index, uint64_t digest)
{
    struct pk_server *s = ctx;
    struct pk_member members[PK_MEMBERS_MAX];
    size_t n = pk_replica_members(s->replica, members, NULL);
    for (size_t i = 0; i < n; i++) {
        if (members[i].id != s->self.id) {
            pk_uvio_tell_mark(s->uvio, members[i].id, index, digest);
        }
    }
}

static void on_peer_marked(void *ctx, uint64_t from, uint64_t index, uint64_t digest)
{
    struct pk_server *s = ctx;
    pk_replica_hear_mark(s->replica, from, index, digest);
}

/* What nodes tell each other about reads (read_index.h). */
static void on_note(void *ctx, uint64_t to, const struct pk_read_note *n)
{
    struct pk_server *s = ctx;
    unsigned char bytes[PK_READ_NOTE_BYTES];
    struct pk_member members[PK_MEMBERS_MAX];
    size_t count = to != 0 ? 0 : pk_replica_members(s->replica, members, NULL);
    pk_read_note_encode(n, bytes);
    if (to != 0) {
        pk_uvio_note(s->uvio, to, bytes, sizeof bytes);
    }
    for (size_t i = 0; i < count; i++) {
        if (members[i].id != s->self.id && members[i].role == PK_MEMBER_VOTER) {
            pk_uvio_note(s->uvio, members[i].id, bytes, sizeof bytes);
        }
    }
}

static void on_noted(void *ctx, uint64_t from, const unsigned char *bytes, size_t len)
{
    struct pk_server *s = ctx;
    struct pk_read_note n;
    if (!s->closing && pk_read_note_decode(bytes, len, &n)) {
        pk_turn_hear(s->turn, from, &n);
    }
}

static void on_refused(void *ctx, const char *peer, const char *why)
{
    pk_health_refused(ctx, peer, why);
    pk_log(PK_LOG_WARN, "peer-refused", "peer", peer, "why", why, NULL);
}

static void on_wrote(void *ctx, uint64_t us)
{
    struct pk_server *s = ctx;
    pk_metrics_time(s->metrics, PK_TIME_DISK_WRITE, us);
}

/* ---- the end ---- */

static void on_handle_closed(uv_handle_t *handle)
{
    (void)handle;
}

/* Of the handles that close last. */
static void on_last_handle_closed(uv_handle_t *handle)
{
    struct pk_server *s = handle->data;
    if (--s->last_handles == 0) {
        uv_stop(&s->loop);
    }
}

static void on_replica_closed(void *ctx)
{
    struct pk_server *s = ctx;
    uv_handle_t *const handles[] = {
        (uv_handle_t *)&s->prepare, (uv_handle_t *)&s->check, (uv_handle_t *)&s->deadline,
        (uv_handle_t *)&s->sweep,   (uv_handle_t *)&s->term,  (uv_handle_t *)&s->intr,
    };
    s->last_handles = sizeof handles / sizeof handles[0];
    pk_forming_close(s);
    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++) {
        uv_close(handles[i], on_last_handle_closed);
    }
}

static void on_http_closed(void *ctx)
{
    (void)ctx;
}

static void close_everything(struct pk_server *s)
{
    s->closing = true;
    pk_forming_stop(s);
    for (uint32_t i = 0; i < s->conn_slots; i++) {
        if (s->conns[i] != NULL) {
            pk_conn_close(s->conns[i]);
        }
    }
    if (s->http != NULL) {
        pk_http_close(s->http, on_http_closed, s);
        s->http = NULL;
    }
    pk_dash_close(s->dash);
    pk_backup_close(s);
    pk_replica_close(s->replica, on_replica_closed, s);
}

static bool all_sent(const struct pk_server *s)
{
    for (uint32_t i = 0; i < s->conn_slots; i++) {
        if (s->conns[i] != NULL && pk_conn_unsent(s->conns[i]) > 0) {
            return false;
        }
    }
    return true;
}

/* Goes on with draining until everything is answered and somebody else leads. */
static void drain(struct pk_server *s, uint64_t now)
{
    if (s->closing) {
        return;
    }
    struct pk_standing st = pk_replica_standing(s->replica);
    bool idle = pk_turn_pending(s->turn) == 0 && all_sent(s);
    bool over = now - s->drain_since_ms > DRAIN_MS;
    if (over || (idle && (!st.leader || s->alone))) {
        pk_log(PK_LOG_INFO, "stopping", "node", s->self.name, "drained",
               over ? "no" : "yes", NULL);
        pk_turn_give_up(s->turn);
        pk_conns_flush(s);
        close_everything(s);
    } else if (st.leader && !st.transferring && !s->alone) {
        /* Not yet, or not any more: an attempt that takes too long is given up. */
        s->alone = pk_replica_transfer(s->replica, 0) != NULL;
    }
}

static size_t other_voters(struct pk_server *s)
{
    struct pk_member members[PK_MEMBERS_MAX];
    size_t n = pk_replica_members(s->replica, members, NULL);
    size_t others = 0;
    for (size_t i = 0; i < n; i++) {
        others += members[i].id != s->self.id && members[i].role == PK_MEMBER_VOTER;
    }
    return others;
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct pk_server *s = handle->data;
    if (s->draining) {
        s->drain_since_ms = 0; /* asked twice: don't wait */
        return;
    }
    pk_log(PK_LOG_INFO, "draining", "node", s->self.name, "signal",
           number == SIGTERM ? "TERM" : "INT", NULL);
    s->draining = true;
    s->drain_since_ms = pk_server_now(s);
    s->alone = other_voters(s) == 0;
    uv_close((uv_handle_t *)&s->listener, on_handle_closed);
    pk_turn_drain(s->turn);
}

/* ---- starting ---- */

static void raise_descriptor_limit(struct pk_server *s)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0) {
        return;
    }
    rlim_t want = (rlim_t)s->options.connections * 2 + SPARE_DESCRIPTORS;
    if (l.rlim_cur < want) {
        l.rlim_cur = want < l.rlim_max ? want : l.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &l);
    }
    if (l.rlim_cur < want) {
        s->options.connections = (uint32_t)(l.rlim_cur / 2);
    }
}

/* HOST:PORT as others should use it: a wildcard is of no use to them. */
static void advertise(const struct pk_server_options *o, const char *listen,
                      uint16_t port, const char *raft_host, char *out)
{
    char host[PK_HOST_MAX];
    uint16_t ignored;
    (void)pk_address_split(listen, host, sizeof host, &ignored);
    const char *shown = o->advertise != NULL ? o->advertise
                        : strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0
                            ? raft_host
                            : host;
    bool six = strchr(shown, ':') != NULL;
    (void)snprintf(out, PK_HOST_MAX, six ? "[%s]:%u" : "%s:%u", shown, port);
}

static void on_client(uv_stream_t *listener, int status)
{
    if (status == 0) {
        pk_conn_accept(listener->data, listener);
    }
}

static const char *listen_for_clients(struct pk_server *s, uint16_t *port)
{
    struct sockaddr_storage where;
    const char *wrong = pk_address_resolve(s->options.listen, &where);
    if (wrong != NULL) {
        return wrong;
    }
    PK_ASSERT(uv_tcp_init(&s->loop, &s->listener) == 0);
    s->listener.data = s;
    int failed = pk_address_listen(&s->listener, &where, on_client, port);
    return failed == 0 ? NULL : uv_strerror(failed);
}

static int open_doors(struct pk_server *s)
{
    uint16_t port;
    const char *wrong =
        pk_address_split(s->bootstrap.address, s->raft_host, sizeof s->raft_host, &port);
    if (wrong != NULL) {
        return fail(s->bootstrap.address, wrong);
    }
    wrong = listen_for_clients(s, &port);
    if (wrong != NULL) {
        return fail(s->options.listen, wrong);
    }
    advertise(&s->options, s->options.listen, port, s->raft_host, s->client_address);
    if (strcmp(s->options.http, "off") != 0) {
        (void)pk_address_split(s->options.http, s->http_host, sizeof s->http_host, &port);
        s->http_hosts[0] = s->http_host;
        s->http_hosts[1] = s->raft_host; /* where the others' dashboards link to */
        s->http_hosts[2] = s->options.advertise;
        struct pk_http_options h = {.loop = &s->loop,
                                    .listen = s->options.http,
                                    .hosts = s->http_hosts,
                                    .get = pk_pages_get,
                                    .ctx = s};
        s->http = pk_http_new(&h, &wrong);
        if (s->http == NULL) {
            return fail(s->options.http, wrong);
        }
        advertise(&s->options, s->options.http, pk_http_port(s->http), s->raft_host,
                  s->http_address);
    }
    return 0;
}

/* NULL, or why not: signals need descriptors. */
static const char *start_handles(struct pk_server *s)
{
    PK_ASSERT(uv_prepare_init(&s->loop, &s->prepare) == 0 &&
              uv_check_init(&s->loop, &s->check) == 0 &&
              uv_timer_init(&s->loop, &s->deadline) == 0 &&
              uv_timer_init(&s->loop, &s->sweep) == 0);
    int error = uv_signal_init(&s->loop, &s->term);
    error = error == 0 ? uv_signal_init(&s->loop, &s->intr) : error;
    if (error != 0) {
        return uv_strerror(error);
    }
    s->prepare.data = s->check.data = s->deadline.data = s->sweep.data = s->term.data =
        s->intr.data = s;
    (void)uv_prepare_start(&s->prepare, on_prepare);
    (void)uv_check_start(&s->check, on_check);
    (void)uv_timer_start(&s->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    (void)uv_signal_start(&s->term, on_signal, SIGTERM);
    (void)uv_signal_start(&s->intr, on_signal, SIGINT);
    return NULL;
}

/* A follower may not have run the entry yet that changed the version. */
static uint32_t cluster_version(void *ctx)
{
    struct pk_server *s = ctx;
    bool serves = s->turn != NULL && s->replica != NULL && pk_turn_serving(s->turn);
    return serves ? pk_machine_version(pk_replica_machine(s->replica)) : 0;
}

/* Before the replica is made nobody is known to be a member. */
static size_t list_members(void *ctx, struct pk_member *out)
{
    struct pk_server *s = ctx;
    return s->replica == NULL ? 0 : pk_replica_members(s->replica, out, NULL);
}

static int start_replica(struct pk_server *s)
{
    const struct pk_server_options *o = &s->options;
    char why[512];
    char address[PK_ADDRESS_MAX];
    uint64_t origin = pk_random();
    const char *wrong = pk_members_address(s->self.name, s->bootstrap.address, address);
    if (wrong != NULL) {
        return fail("--raft", wrong);
    }
    struct pk_uvio_options io = {.loop = &s->loop,
                                 .dir = o->data,
                                 .listen = s->bootstrap.listen,
                                 .self = &s->self,
                                 .client = s->client_address,
                                 .http = s->http_address,
                                 .peers = &s->peers,
                                 .election_ms = o->election_ms,
                                 .refused = on_refused,
                                 .members = list_members,
                                 .version = cluster_version,
                                 .wrote = on_wrote,
                                 .failed = on_disk_failed,
                                 .marked = on_peer_marked,
                                 .noted = on_noted,
                                 .log_bytes = o->log_bytes,
                                 .ctx = s};
    s->uvio = pk_uvio_new(&io, why, sizeof why);
    if (s->uvio == NULL) {
        return fail(s->bootstrap.listen, why);
    }
    struct pk_turn_options to = {.origin = origin, .election_ms = o->election_ms};
    struct pk_turn_hooks hooks = {.ctx = s,
                                  .answer = pk_dispatch_answer,
                                  .refuse = pk_dispatch_refuse,
                                  .events = on_events,
                                  .stepped = on_stepped,
                                  .gap = on_gap,
                                  .standing = on_standing,
                                  .note = on_note,
                                  .marked = on_marked,
                                  .trace = on_trace,
                                  .broken = on_broken};
    s->turn = pk_turn_new(&to, &hooks);
    struct pk_replica_options ro = {.id = s->self.id,
                                    .address = address,
                                    .origin = origin,
                                    .election_ms = o->election_ms,
                                    .use = pk_uvio_use,
                                    .use_ctx = s->uvio,
                                    .reserve = pk_uvio_reserve()};
    struct pk_replica_hooks rh = pk_turn_replica_hooks(s->turn);
    s->replica = pk_replica_new(pk_uvio_io(s->uvio), &ro, &rh, why, sizeof why);
    if (s->replica == NULL) {
        return fail(o->data, why);
    }
    pk_turn_attach(s->turn, s->replica);
    wrong = start_handles(s);
    wrong = wrong == NULL ? pk_forming_begin(s) : wrong;
    return wrong == NULL ? 0 : fail(o->data, wrong);
}

void pk_server_say_started(struct pk_server *s)
{
    pk_log(PK_LOG_INFO, "started", "node", s->self.name, "clients", s->client_address,
           "http", s->http == NULL ? "off" : s->http_address, "raft",
           s->bootstrap.address, "data", s->options.data, "version", PICKET_VERSION,
           NULL);
}

static int start(struct pk_server *s)
{
    if (!pk_bootstrap(&s->options, &s->bootstrap)) {
        return EXIT_ERROR;
    }
    s->self = s->bootstrap.self;
    s->metrics = pk_metrics_new(s->options.prefixes, s->options.n_prefixes);
    s->dash = pk_dash_new(s);
    if (s->options.trace != NULL) {
        struct pk_trace_log_options t = {.path = s->options.trace,
                                         .node = s->self.name,
                                         .cluster = s->self.cluster,
                                         .bytes_max = s->options.trace_bytes};
        const char *why = pk_trace_log_open(&t, &s->trace);
        if (why != NULL) {
            return fail(s->options.trace, why);
        }
    }
    const char *wrong = pk_peers_load(&s->peers, s->options.data);
    if (wrong != NULL) {
        pk_log(PK_LOG_WARN, "peers-forgotten", "node", s->self.name, "why", wrong, NULL);
    }
    int code = open_doors(s);
    if (code == 0) {
        code = start_replica(s);
    }
    if (code == 0 && s->forming.state != PK_STARTING) {
        pk_server_say_started(s);
    }
    return code;
}

static void free_server(struct pk_server *s)
{
    pk_replica_free(s->replica);
    pk_turn_free(s->turn);
    pk_uvio_free(s->uvio);
    pk_metrics_free(s->metrics);
    pk_dash_free(s->dash);
    pk_trace_log_free(s->trace);
    pk_effects_free(&s->annotated);
    pk_hub_free(&s->hub);
    pk_door_resize(s->conns, 0);
    (void)close(s->bootstrap.lock_fd);
}

/* Runs the loop until nothing is left on it, or nothing but lookups of names that the
 * resolver does not answer: those can't be called off. False: there are such lookups. */
static bool run_loop(uv_loop_t *loop)
{
    (void)uv_run(loop, UV_RUN_DEFAULT); /* until on_last_handle_closed */
    uint64_t began = pk_clock_ms();
    bool left = true;
    while (left && pk_clock_ms() - began < LOOKUPS_MS) {
        left = uv_run(loop, UV_RUN_NOWAIT) != 0;
        if (left) {
            uv_sleep(1);
        }
    }
    return !left;
}

int pk_server_run(const struct pk_server_options *o)
{
    static struct pk_server *s; /* static: what a failed start leaves is no leak */
    s = pk_door_resize(NULL, sizeof *s);
    memset(s, 0, sizeof *s);
    s->options = *o;
    if (s->options.connections == 0) {
        s->options.connections = CONNECTIONS_DEFAULT;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    raise_descriptor_limit(s);
    int error = uv_loop_init(&s->loop);
    int code = error == 0 ? start(s) : fail("can't start", uv_strerror(error));
    if (code != 0) {
        return code; /* the process ends; so does all that it has open */
    }
    bool idle = run_loop(&s->loop);
    pk_log(PK_LOG_INFO, "stopped", "node", s->self.name, NULL);
    free_server(s);
    if (!idle) {
        _exit(0); /* exit would join libuv's threads, and so wait for the resolver */
    }
    (void)uv_loop_close(&s->loop);
    pk_door_resize(s, 0);
    return 0;
}
