/* SPDX-License-Identifier: MIT */
/* The client: opening a store, its one lease, and the thread that keeps the lease alive.
 */
#include "client/client.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/error.h"
#include "core/door.h"
#include "host/clock.h"
#include "host/memory.h"

enum {
    TTL_DEFAULT_MS = 10000,
    PATIENCE_MIN_MS = 5000, /* with a store that does not answer */
    PATIENCE_MAX_MS = 30000,
    /* For one renewal: while it waits for a store that does not answer, so does all else
     * that this client wants. */
    RENEWAL_PATIENCE_MS = 5000,
};

/* ---- fork ---- */

static pthread_mutex_t all_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct pk_opened *all;

static void before_fork(void)
{
    pthread_mutex_lock(&all_mutex);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&all_mutex);
}

/* The child shares our open files; should it keep them, a turn that the parent was in
 * when it died would never end. */
static void after_fork_in_child(void)
{
    for (struct pk_opened *o = all; o != NULL; o = o->next) {
        o->driver->forked(o->store);
    }
    all = NULL;
    pthread_mutex_unlock(&all_mutex);
}

static void install_fork_handlers(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void pk_opened_join(struct pk_opened *o, const struct pk_driver *driver,
                    struct pk_store *store)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install_fork_handlers);
    o->driver = driver;
    o->store = store;
    pthread_mutex_lock(&all_mutex);
    o->next = all;
    all = o;
    pthread_mutex_unlock(&all_mutex);
}

void pk_opened_leave(struct pk_opened *o)
{
    pthread_mutex_lock(&all_mutex);
    for (struct pk_opened **at = &all; *at != NULL; at = &(*at)->next) {
        if (*at == o) {
            *at = o->next;
            break;
        }
    }
    pthread_mutex_unlock(&all_mutex);
}

bool pk_client_inherited(const struct picket *p)
{
    return p->pid != getpid();
}

enum picket_status pk_client_usable(const struct picket *p)
{
    return pk_client_inherited(p) ? pk_fail_plain(PICKET_FORKED) : PICKET_OK;
}

/* ---- open ---- */

static enum picket_status fail_no_driver(const char *url)
{
    char known[256] = "";
    size_t len = 0;
    if (strncmp(url, "etcds:", 6) == 0) {
        return pk_fail(PICKET_UNSUPPORTED,
                       "there is no TLS to etcd yet: say etcd:// and let a tunnel on "
                       "this machine speak it (no grpc-proxy: that answers renewals "
                       "by itself)");
    }
    for (size_t i = 0; pk_driver_at(i) != NULL && len < sizeof known; i++) {
        int n = snprintf(known + len, sizeof known - len, "%s%s:", i == 0 ? "" : ", ",
                         pk_driver_at(i)->scheme);
        len += n > 0 ? (size_t)n : 0;
    }
    return pk_fail(PICKET_BADARG,
                   "no driver for %.*s: this build knows %s (as in local:DIR, "
                   "picket://HOST:PORT)",
                   (int)strcspn(url, ":@"), url, known);
}

static enum picket_status check_options(const struct picket_options *o)
{
    if (o->ttl_ms != 0 && (o->ttl_ms < PK_TTL_MIN_MS || o->ttl_ms > PK_TTL_MAX_MS)) {
        return pk_fail(PICKET_BADARG, "the TTL must be between 50 ms and 24 h");
    }
    if (o->require != NULL && strcmp(o->require, "correctness") != 0 &&
        strcmp(o->require, "efficiency") != 0) {
        return pk_fail(PICKET_BADARG, "require must be correctness or efficiency, not %s",
                       o->require);
    }
    return PICKET_OK;
}

static struct picket *new_client(const struct pk_driver *driver,
                                 const struct picket_options *o, const char *program)
{
    struct picket *p = pk_door_resize(NULL, sizeof *p);
    memset(p, 0, sizeof *p);
    p->driver = driver;
    p->label = pk_view_label(o->note, program);
    pk_view_principal(p->label, p->principal, sizeof p->principal);
    p->ttl_ms = o->ttl_ms != 0 ? o->ttl_ms : TTL_DEFAULT_MS;
    p->keeper.margin_ms = o->margin_ms;
    p->keeper.grace_ms = o->grace_ms;
    p->pid = getpid();
    pthread_mutex_init(&p->opening, NULL);
    pthread_mutex_init(&p->renewing, NULL);
    pthread_mutex_init(&p->absorbing, NULL);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &attr);
    pthread_condattr_destroy(&attr);
    return p;
}

static void free_client(struct picket *p)
{
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->mutex);
    pthread_mutex_destroy(&p->absorbing);
    pthread_mutex_destroy(&p->renewing);
    pthread_mutex_destroy(&p->opening);
    free(p->label);
    pk_door_resize(p, 0);
}

enum picket_status picket_open(const char *url, const struct picket_options *o,
                               struct picket **out)
{
    return pk_client_open(url, o, NULL, out);
}

enum picket_status pk_client_open(const char *url, const struct picket_options *o,
                                  const char *program, struct picket **out)
{
    const struct picket_options none = {0};
    o = o != NULL ? o : &none;
    const char *from_env = getenv("PICKET_URL");
    if (url == NULL) {
        url = from_env != NULL && from_env[0] != '\0' ? from_env : "local:";
    }
    enum picket_status s = check_options(o);
    if (s != PICKET_OK) {
        return s;
    }
    const char *rest;
    const struct pk_driver *driver = pk_driver_of(url, &rest);
    if (driver == NULL) {
        return fail_no_driver(url);
    }
    const struct picket_guarantees *g = pk_driver_declares(driver, rest);
    if (o->require != NULL && strcmp(o->require, "correctness") == 0 &&
        strcmp(g->promise, "correctness") != 0) {
        return pk_fail(PICKET_UNSUPPORTED, "%s promises only %s: %s", driver->scheme,
                       g->promise, g->failover);
    }
    struct picket *p = new_client(driver, o, program);
    p->guarantees = g;
    s = driver->open(rest, &p->store);
    if (s != PICKET_OK) {
        free_client(p);
        return s;
    }
    pk_opened_join(&p->opened, driver, p->store);
    *out = p;
    return PICKET_OK;
}

const struct picket_guarantees *picket_guarantees(const struct picket *p)
{
    return p->guarantees;
}

/* ---- calls ---- */

uint64_t pk_client_patience(const struct picket *p)
{
    uint64_t ms = p->ttl_ms < PATIENCE_MIN_MS ? PATIENCE_MIN_MS : p->ttl_ms;
    return pk_clock_ms() + (ms < PATIENCE_MAX_MS ? ms : PATIENCE_MAX_MS);
}

uint64_t pk_client_request(struct picket *p)
{
    pthread_mutex_lock(&p->mutex);
    uint64_t request = ++p->last_request;
    pthread_mutex_unlock(&p->mutex);
    return request;
}

/* Threads that share a client were quicker, by more requests than the store remembers:
 * a first copy that is too old was never run. An acquire is known to the keeper by its
 * number, so that its owner repeats it; what has no lease has other numbers. */
static bool overtaken(const struct pk_command *c, const struct pk_effects *answer)
{
    return c->lease != 0 && c->verb != PK_LOCK_ACQUIRE && answer->count > 0 &&
           answer->list[0].status == PK_TOOOLD;
}

enum picket_status pk_client_call(struct picket *p, struct pk_command *c,
                                  uint64_t until_ms, struct pk_effects *out)
{
    for (uint32_t failures = 1;; failures++) {
        enum picket_status s = p->driver->call(p->store, c, until_ms, out);
        for (int i = 0;
             i < PK_OVERTAKEN_MAX && s == PICKET_OK && failures == 1 && overtaken(c, out);
             i++) {
            pk_effects_reset(out);
            c->request = pk_client_request(p);
            s = p->driver->call(p->store, c, until_ms, out);
        }
        bool again = s == PICKET_UNREACHABLE || s == PICKET_UNKNOWN;
        uint64_t pause = pk_backoff_ms(failures, 5, 1000, pk_random());
        if (!again || pk_clock_ms() + pause >= until_ms) {
            PK_ASSERT(s != PICKET_OK ||
                      (out->count > 0 && out->list[0].kind == PK_REPLY));
            return s;
        }
        nanosleep(&(struct timespec){.tv_sec = (time_t)(pause / 1000),
                                     .tv_nsec = (long)(pause % 1000) * 1000000},
                  NULL);
        if (pk_clock_ms() >= until_ms) {
            return s; /* overslept: what went wrong says more than that time is over */
        }
    }
}

/* The codes of the machine, in our words; both tables are stable. */
static enum picket_status translate(enum pk_status s)
{
    static const unsigned char table[PK_STATUS_COUNT] = {
        [PK_OK] = PICKET_OK,
        [PK_QUEUED] = PICKET_OK,
        [PK_BUSY] = PICKET_BUSY,
        [PK_TIMEOUT] = PICKET_TIMEOUT,
        [PK_CANCELLED] = PICKET_CANCELLED,
        [PK_LOST] = PICKET_LOST,
        [PK_NOTHELD] = PICKET_NOTHELD,
        [PK_STALE] = PICKET_STALE,
        [PK_UNCLAIMED] = PICKET_UNCLAIMED,
        [PK_MISMATCH] = PICKET_MISMATCH,
        [PK_TOOOLD] = PICKET_TOOOLD,
        [PK_NOTFOUND] = PICKET_NOTFOUND,
        [PK_LIMIT] = PICKET_LIMIT,
        [PK_DENIED] = PICKET_DENIED,
        [PK_BADARG] = PICKET_BADARG,
    };
    return (enum picket_status)table[s];
}

enum picket_status pk_client_verdict(const struct pk_effects *answer)
{
    const struct pk_effect *r = &answer->list[0];
    enum picket_status s = translate(r->status);
    char holder[PK_DESCRIPTION_MAX];
    switch (r->status) {
    case PK_OK:
    case PK_QUEUED:
        return PICKET_OK;
    case PK_BUSY:
        pk_view_describe(answer, holder, sizeof holder);
        return pk_fail(s, "%.*s is %s", (int)r->name.len, r->name.data, holder);
    case PK_LOST:
        return pk_fail(s, "lease %llu has ended: %s", (unsigned long long)r->lease,
                       pk_end_text(r->end));
    case PK_MISMATCH:
        return r->slots == 0 ? pk_fail(s, "%.*s is in use as an exclusive or shared lock",
                                       (int)r->name.len, r->name.data)
                             : pk_fail(s, "%.*s is in use as a semaphore of %u slots",
                                       (int)r->name.len, r->name.data, r->slots);
    case PK_LIMIT:
        return pk_fail(s, "the limit of %.*s is reached", (int)r->why.len, r->why.data);
    case PK_BADARG:
        return pk_fail(s, "%.*s", (int)r->why.len, r->why.data);
    case PK_STALE:
    case PK_UNCLAIMED:
        return pk_fail(s, "%s (the fence is at token %llu)", picket_status_text(s),
                       (unsigned long long)r->token);
    default:
        return pk_fail_plain(s);
    }
}

enum picket_status pk_client_ask(struct picket *p, struct pk_command *c,
                                 struct pk_effects *answer)
{
    enum picket_status s = pk_client_usable(p);
    if (s == PICKET_OK) {
        s = pk_client_call(p, c, pk_client_patience(p), answer);
        pk_client_absorb(p);
    }
    return s == PICKET_OK ? pk_client_verdict(answer) : s;
}

/* ---- the lease ---- */

void pk_client_lost(struct picket *p, const char *reason)
{
    p->lease = 0;
    for (struct picket_lock *l = p->locks; l != NULL; l = l->next) {
        if (l->phase == PK_PHASE_HELD) {
            pk_lock_lost(l, reason);
        } else if (l->phase == PK_PHASE_WAITING) {
            pk_lock_refused(l, PICKET_LOST);
        }
    }
    pthread_cond_broadcast(&p->changed);
}

static void *keep(void *arg);

static enum picket_status start_keeper(struct picket *p)
{
    if (p->running) {
        p->driver->wake(p->store);
        return PICKET_OK;
    }
    /* Signals are for the program's own threads. */
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_BLOCK, &every, &before);
    int failed = pthread_create(&p->thread, NULL, keep, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        return pk_fail(PICKET_LIMIT, "can't start a thread: %s", strerror(failed));
    }
    p->running = 1;
    return PICKET_OK;
}

/* *lease is the new lease, also on failure if it was opened: p->lease may be over before
 * the caller can look at it. */
static enum picket_status open_lease(struct picket *p, uint64_t until_ms, uint64_t *lease)
{
    struct pk_command c = {.verb = PK_LEASE_OPEN,
                           .request = pk_random(),
                           .ttl_ms = p->ttl_ms,
                           .label = pk_text(p->label)};
    struct pk_effects answer = {0};
    uint64_t sent = pk_clock_ms(); /* P5: counted from before it goes out */
    enum picket_status s = pk_client_call(p, &c, until_ms, &answer);
    if (s == PICKET_OK) {
        s = pk_client_verdict(&answer);
    }
    if (s == PICKET_OK) {
        *lease = answer.list[0].lease;
        p->driver->attend(p->store, *lease);
        pthread_mutex_lock(&p->mutex);
        p->lease = *lease;
        p->doubt = PK_DOUBT_NONE;
        p->heard = (struct pk_heard){0};
        p->heard_ms = sent;
        pk_keeper_acked(&p->keeper, sent, answer.list[0].left_ms,
                        answer.list[0].renew_after_ms);
        pthread_mutex_unlock(&p->mutex);
        s = start_keeper(p);
    }
    pk_effects_free(&answer);
    return s;
}

/* Tells the service that we are done with a lease; if that fails, its TTL will. */
static void close_lease(struct picket *p, uint64_t lease)
{
    struct pk_command c = {.verb = PK_LEASE_CLOSE, .lease = lease};
    struct pk_effects answer = {0};
    enum picket_status s = pk_client_call(p, &c, pk_clock_ms() + 1000, &answer);
    (void)s;
    pk_effects_free(&answer);
}

/* Says that the lease is lost when our own clock says so. Mutex held. Returns the lease
 * that was given up, for the service to be told; 0: none. */
static uint64_t give_up_if_overdue(struct picket *p)
{
    uint64_t lease = p->lease;
    if (lease == 0 || pk_keeper_trust(&p->keeper, pk_clock_ms()) != PK_TRUST_LOST) {
        return 0;
    }
    char reason[160];
    snprintf(reason, sizeof reason,
             "expired: not renewed for %llu ms, with a TTL of %llu ms",
             (unsigned long long)(pk_clock_ms() - p->keeper.sent_ms),
             (unsigned long long)p->keeper.ttl_ms);
    pk_client_lost(p, reason);
    return lease;
}

enum picket_status pk_client_lease(struct picket *p, uint64_t until_ms, uint64_t *lease)
{
    enum picket_status s = PICKET_OK;
    pthread_mutex_lock(&p->opening);
    pthread_mutex_lock(&p->mutex);
    uint64_t stale = give_up_if_overdue(p);
    *lease = p->lease;
    pthread_mutex_unlock(&p->mutex);
    if (stale != 0) {
        close_lease(p, stale);
    }
    if (*lease == 0) {
        s = open_lease(p, until_ms, lease);
    }
    if (s != PICKET_OK && *lease != 0) { /* it has no keeper */
        pthread_mutex_lock(&p->mutex);
        pk_client_lost(p, "never kept");
        pthread_mutex_unlock(&p->mutex);
        close_lease(p, *lease);
    }
    pthread_mutex_unlock(&p->opening);
    return s;
}

uint64_t picket_lease(const struct picket *p)
{
    struct picket *q = (struct picket *)p; /* the mutex is no part of what is seen */
    if (pk_client_usable(p) != PICKET_OK) {
        return 0;
    }
    pthread_mutex_lock(&q->mutex);
    uint64_t lease = q->lease;
    pthread_mutex_unlock(&q->mutex);
    return lease;
}

/* The renewal was acknowledged: everything on the lease is good for longer. Mutex held.
 */
static void renewed(struct picket *p, uint64_t sent, const struct pk_effect *reply)
{
    pk_keeper_acked(&p->keeper, sent, reply->left_ms, reply->renew_after_ms);
    for (struct picket_lock *l = p->locks; l != NULL; l = l->next) {
        pk_lock_rearm(l);
    }
    pk_callbacks_due(p);
}

static enum picket_status renew(struct picket *p, uint64_t lease, uint64_t ttl_ms,
                                uint64_t until_ms)
{
    unsigned char id[8], heard[4];
    pk_command_put_lease(id, 0, lease);
    struct pk_command c = {
        .verb = PK_LEASE_RENEW, .leases = id, .n_leases = 1, .ttl_ms = ttl_ms};
    struct pk_effects answer = {0};
    pthread_mutex_lock(&p->renewing);
    uint64_t round = pk_client_begin_renewal(p, heard);
    c.heard = p->driver->tells_missed ? heard : NULL;
    uint64_t sent = pk_clock_ms();
    enum picket_status s = p->driver->call(p->store, &c, until_ms, &answer);
    s = s == PICKET_OK ? pk_client_verdict(&answer) : s;
    bool ended = answer.count > 0 && (s == PICKET_LOST || s == PICKET_NOTFOUND);
    pthread_mutex_lock(&p->mutex);
    uint64_t stale = give_up_if_overdue(p); /* lost is final, even if now renewed (P5) */
    if (p->lease != lease) {
        s = pk_fail_plain(PICKET_LOST);
    } else if (s == PICKET_OK) {
        if (p->driver->tells_missed && p->rounds == round) {
            pk_client_absorb_state(p, &c, &answer, sent);
        }
        renewed(p, sent, &answer.list[0]);
        if (p->doubt == PK_DOUBT_ALL) { /* since it was sent */
            pk_keeper_hurry(&p->keeper, pk_clock_ms());
        }
    } else if (ended) {
        pk_client_lost(p, pk_end_name(answer.list[0].end));
    } else {
        pk_keeper_failed(&p->keeper, pk_clock_ms(), pk_random());
    }
    pthread_mutex_unlock(&p->mutex);
    pthread_mutex_unlock(&p->renewing);
    pk_effects_free(&answer);
    if (stale != 0) {
        close_lease(p, stale);
    }
    pk_callbacks_run(p);
    return s;
}

enum picket_status picket_extend(struct picket *p, uint32_t ttl_ms)
{
    uint64_t lease;
    enum picket_status s = pk_client_usable(p);
    if (s == PICKET_OK) {
        lease = picket_lease(p);
        s = lease == 0 ? pk_fail(PICKET_LOST, "there is no lease to extend") : PICKET_OK;
    }
    if (s == PICKET_OK) {
        s = renew(p, lease, ttl_ms, pk_client_patience(p));
        p->driver->wake(p->store); /* a shorter TTL wants the next renewal sooner */
    }
    return s;
}

/* ---- the keeper thread ---- */

static bool anybody_waiting(const struct picket *p)
{
    const struct picket_lock *l = p->locks;
    while (l != NULL && l->phase != PK_PHASE_WAITING) {
        l = l->next;
    }
    return l != NULL;
}

static void *keep(void *arg)
{
    struct picket *p = arg;
    pthread_mutex_lock(&p->mutex);
    while (!p->stopping) {
        uint64_t stale = give_up_if_overdue(p);
        uint64_t lease = p->lease;
        uint64_t at = lease == 0 ? UINT64_MAX : p->keeper.next_ms;
        uint64_t lost_at = pk_keeper_lost_at(&p->keeper);
        bool waiting = lease != 0 && anybody_waiting(p);
        pthread_mutex_unlock(&p->mutex);
        if (stale != 0) {
            close_lease(p, stale);
        }
        if (lease != 0 && at <= pk_clock_ms()) {
            uint64_t until = pk_clock_ms() + RENEWAL_PATIENCE_MS;
            if (renew(p, lease, 0, until < lost_at ? until : lost_at) == PICKET_OK) {
                pk_locks_sweep(p);
            } /* what a failure means has been noted in the locks' states */
        } else {
            p->driver->wait(p->store, at, waiting);
        }
        pk_client_absorb(p);
        pk_client_catch_up(p);
        pthread_mutex_lock(&p->mutex);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

static void stop_keeper(struct picket *p)
{
    if (p->running) {
        pthread_mutex_lock(&p->mutex);
        p->stopping = 1;
        pthread_mutex_unlock(&p->mutex);
        p->driver->wake(p->store);
        pthread_join(p->thread, NULL);
    }
}

/* ---- close ---- */

void picket_detach(struct picket *p)
{
    if (pk_client_usable(p) != PICKET_OK) {
        return;
    }
    /* Not while a lease is being opened: that one is to be attended to. The keeper stays,
     * without a lease to renew. */
    pthread_mutex_lock(&p->opening);
    pthread_mutex_lock(&p->mutex);
    pk_client_lost(p, "detached");
    pthread_mutex_unlock(&p->mutex);
    p->driver->attend(p->store, 0);
    pthread_mutex_unlock(&p->opening);
    pk_callbacks_end(p);
}

static void close_client(struct picket *p)
{
    stop_keeper(p);
    pk_opened_leave(&p->opened);
    uint64_t lease = picket_lease(p);
    pthread_mutex_lock(&p->mutex);
    pk_client_lost(p, "closed");
    pthread_mutex_unlock(&p->mutex);
    if (lease != 0) {
        close_lease(p, lease);
    }
    while (p->locks != NULL) {
        picket_lock_close(p->locks);
    }
    p->driver->close(p->store);
    free_client(p);
}

void picket_close(struct picket *p)
{
    char why[PK_SENTENCE_MAX];
    /* A forked child leaves the memory as it is: a thread of the parent may have held its
     * mutexes, or those of the allocator, at the fork. */
    if (p != NULL && !pk_client_inherited(p) &&
        pk_callbacks_refuse(p, "picket_close()", "close it when that has returned") ==
            PICKET_OK) {
        pk_sentence_save(why);
        close_client(p);
        pk_sentence_restore(why);
    }
}
