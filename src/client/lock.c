/* SPDX-License-Identifier: MIT */
/* Lock handles: getting one, what it says of itself, giving it back. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/client.h"
#include "client/error.h"
#include "core/door.h"
#include "host/clock.h"
#include "host/fd.h"
#include "host/memory.h"

enum {
    /* What a bounded wait is given beyond its own limit before we stop relying on the
     * service to end it. */
    WAIT_SLACK_MS = 500,
    TRY_REACH_MS = 3000, /* for a store to be reached by who does not wait */
};

/* ---- what the clock says; all with the mutex held ---- */

uint64_t pk_lock_safe_until(const struct picket_lock *l)
{
    uint64_t lease = pk_keeper_safe_until(&l->client->keeper);
    return l->hold_until_ms < lease ? l->hold_until_ms : lease;
}

/* Max-hold ends for good: grace is for leases that may come back. */
static uint64_t lost_at(const struct picket_lock *l)
{
    uint64_t lease = pk_keeper_lost_at(&l->client->keeper);
    return l->hold_until_ms < lease ? l->hold_until_ms : lease;
}

void pk_lock_rearm(struct picket_lock *l)
{
    if (l->loss_fd >= 0) {
        bool lost = l->phase == PK_PHASE_LOST;
        uint64_t at = l->phase == PK_PHASE_HELD ? lost_at(l) : 0;
        pk_timer_set(l->loss_fd, lost ? 1 : at); /* 1 ms after boot: long ago */
    }
    if (l->ready_fd >= 0 && l->phase != PK_PHASE_WAITING) {
        pk_fd_poke(l->ready_fd);
    }
}

static void set_phase(struct picket_lock *l, enum pk_phase phase)
{
    l->phase = phase;
    pk_lock_rearm(l);
    pthread_cond_broadcast(&l->client->changed);
}

void pk_lock_granted(struct picket_lock *l, uint64_t token, uint64_t since_ms)
{
    PK_ASSERT(l->phase == PK_PHASE_WAITING);
    l->token = token;
    if (l->max_hold_ms != 0) {
        uint64_t margin = pk_keeper_margin(l->max_hold_ms, 0);
        l->hold_until_ms = since_ms + l->max_hold_ms - margin;
    }
    set_phase(l, PK_PHASE_HELD);
}

void pk_lock_released(struct picket_lock *l)
{
    set_phase(l, PK_PHASE_RELEASED);
}

void pk_lock_lost(struct picket_lock *l, const char *reason)
{
    size_t len = strlen(reason);
    len = len < sizeof l->reason ? len : sizeof l->reason - 1;
    memcpy(l->reason, reason, len);
    l->reason[len] = '\0';
    set_phase(l, PK_PHASE_LOST);
}

void pk_lock_refused(struct picket_lock *l, enum picket_status verdict)
{
    l->verdict = verdict;
    set_phase(l, PK_PHASE_REFUSED);
}

/* P5: what our own clock says is enough, and it is final. */
static void look_at_clock(struct picket_lock *l)
{
    if (l->phase == PK_PHASE_HELD && pk_clock_ms() >= lost_at(l)) {
        bool overheld = l->hold_until_ms < pk_keeper_lost_at(&l->client->keeper);
        pk_lock_lost(l, overheld ? "overheld: held for as long as its max-hold allows"
                                 : "expired: the lease was not renewed in time");
    }
}

/* ---- acquiring ---- */

static struct picket_lock *new_lock(struct picket *p, const char *name,
                                    const struct pk_command *acquire)
{
    struct picket_lock *l = pk_door_resize(NULL, sizeof *l);
    memset(l, 0, sizeof *l);
    l->client = p;
    l->name = pk_memory_copy(name);
    l->lease = acquire->lease;
    l->max_hold_ms = acquire->max_hold_ms;
    l->bounded = acquire->wait_ms != PK_WAIT_FOREVER;
    l->hold_until_ms = UINT64_MAX;
    l->loss_fd = -1;
    l->ready_fd = -1;
    /* In the list before the request goes out: its grant may be seen by the keeper first.
     */
    pthread_mutex_lock(&p->mutex);
    l->request = ++p->last_request;
    l->next = p->locks;
    p->locks = l;
    pthread_mutex_unlock(&p->mutex);
    return l;
}

void pk_lock_discard(struct picket_lock *l)
{
    struct picket *p = l->client;
    pthread_mutex_lock(&p->mutex);
    for (struct picket_lock **at = &p->locks; *at != NULL; at = &(*at)->next) {
        if (*at == l) {
            *at = l->next;
            break;
        }
    }
    pthread_mutex_unlock(&p->mutex);
    pk_fd_close(&l->loss_fd);
    pk_fd_close(&l->ready_fd);
    free(l->name);
    pk_door_resize(l, 0);
}

static enum picket_status make_command(const struct picket_want *wants, size_t n,
                                       const struct picket_acquire_options *o,
                                       struct pk_command *c)
{
    static const unsigned char modes[] = {[PICKET_EXCLUSIVE] = PK_EXCLUSIVE,
                                          [PICKET_SHARED] = PK_SHARED,
                                          [PICKET_SLOT] = PK_SLOT};
    memset(c, 0, sizeof *c);
    c->verb = PK_LOCK_ACQUIRE;
    if (n == 0 || n > PK_SET_MAX) {
        return pk_fail(PICKET_BADARG, "a set must name 1 to %d locks", PK_SET_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        bool known = (unsigned)wants[i].mode <= PICKET_SLOT;
        c->parts[i].name = pk_text(wants[i].name);
        c->parts[i].mode = known ? (enum pk_mode)modes[wants[i].mode] : PK_MODE_NONE;
        c->parts[i].slots = wants[i].slots;
    }
    c->n_parts = (uint32_t)n;
    c->wait_ms = o->wait_ms < 0 ? PK_WAIT_FOREVER : (uint64_t)o->wait_ms;
    c->max_hold_ms = o->max_hold_ms;
    c->lock_delay_ms = o->lock_delay_ms;
    c->value = pk_bytes(o->value, o->value_len);
    const char *wrong = pk_command_wrong(c);
    return wrong == NULL ? PICKET_OK : pk_fail(PICKET_BADARG, "%s", wrong);
}

static uint64_t gaps_of(struct picket *p)
{
    pthread_mutex_lock(&p->mutex);
    uint64_t gaps = p->gaps;
    pthread_mutex_unlock(&p->mutex);
    return gaps;
}

static enum picket_status give_back(struct picket_lock *l, enum pk_verb verb,
                                    uint64_t until_ms);

/* Nobody would be there to use the grant. Should this fail too, the store's own memory of
 * the claim, or the lease's end, has to do. */
static void take_back(struct picket_lock *l, uint64_t until_ms)
{
    char why[PK_SENTENCE_MAX];
    pk_sentence_save(why);
    enum picket_status unimportant = give_back(l, PK_LOCK_CANCEL, until_ms);
    (void)unimportant;
    pk_sentence_restore(why);
}

/* How long the asking may take: no longer than the wait, where that has a limit. */
static uint64_t patience_of(const struct picket *p, const struct pk_command *c)
{
    uint64_t patience = pk_client_patience(p);
    bool bounded = c->wait_ms != 0 && c->wait_ms != PK_WAIT_FOREVER;
    uint64_t limit = pk_clock_ms() + c->wait_ms + WAIT_SLACK_MS;
    return bounded && limit < patience ? limit : patience;
}

/* When to stop trying to reach the store. Whoever does not want to wait for a lock does
 * not want to wait for a store that can't be reached either; one that may have got the
 * question (UNKNOWN) is waited for until `until_ms`. */
static uint64_t reach_until(const struct pk_command *c, uint64_t until_ms)
{
    uint64_t limit = pk_clock_ms() + TRY_REACH_MS;
    return c->wait_ms == 0 && limit < until_ms ? limit : until_ms;
}

static bool may_have_got_it(enum picket_status s, uint64_t until_ms)
{
    return s == PICKET_UNKNOWN && pk_clock_ms() < until_ms;
}

static enum picket_status lease_of(struct picket *p, struct pk_command *c,
                                   uint64_t until_ms)
{
    enum picket_status s = pk_client_lease(p, reach_until(c, until_ms), &c->lease);
    return may_have_got_it(s, until_ms) ? pk_client_lease(p, until_ms, &c->lease) : s;
}

static enum picket_status ask_for(struct picket *p, struct pk_command *c,
                                  uint64_t until_ms, struct pk_effects *answer)
{
    enum picket_status s = pk_client_call(p, c, reach_until(c, until_ms), answer);
    return may_have_got_it(s, until_ms) ? pk_client_call(p, c, until_ms, answer) : s;
}

/* One attempt to enqueue; LOST: the lease was over before we knew. */
static enum picket_status enqueue(struct picket *p, struct pk_command *c,
                                  const char *name, struct picket_lock **out)
{
    uint64_t until_ms = patience_of(p, c);
    enum picket_status s = lease_of(p, c, until_ms);
    if (s != PICKET_OK) {
        return s;
    }
    struct picket_lock *l = new_lock(p, name, c);
    struct pk_effects answer = {0};
    c->request = l->request;
    uint64_t gaps = gaps_of(p);
    uint64_t sent = pk_clock_ms();
    s = ask_for(p, c, until_ms, &answer);
    if (s == PICKET_OK) {
        s = pk_client_verdict(&answer);
    }
    pthread_mutex_lock(&p->mutex);
    if (s == PICKET_OK && p->lease != c->lease) {
        s = pk_fail_plain(PICKET_LOST); /* given up meanwhile: no other lease covers it */
    } else if (s == PICKET_OK && l->phase == PK_PHASE_WAITING &&
               answer.list[0].status == PK_OK) {
        pk_lock_granted(l, answer.list[0].token, sent);
    } else if (s == PICKET_OK) {
        l->queued = true;
    } else if (s == PICKET_LOST && p->lease == c->lease) {
        pk_client_lost(p, pk_end_name(answer.list[0].end));
    }
    if (p->gaps != gaps) {
        pk_client_doubt(p, sent); /* a repeat is told of a grant, even if it has ended */
    }
    /* The keeper must know that somebody waits now; a grant is no news to it. */
    bool news = l->phase == PK_PHASE_WAITING || p->doubt != PK_DOUBT_NONE;
    pthread_mutex_unlock(&p->mutex);
    pk_effects_free(&answer);
    pk_client_absorb(p);
    if (s != PICKET_OK) {
        if (picket_outcome(s) == PICKET_OUTCOME_UNKNOWN) {
            take_back(l,
                      l->bounded ? pk_clock_ms() + WAIT_SLACK_MS : pk_client_patience(p));
        }
        pk_lock_discard(l);
        return s;
    }
    if (news) {
        p->driver->wake(p->store);
    }
    *out = l;
    return PICKET_OK;
}

enum picket_status picket_enqueue(struct picket *p, const struct picket_want *wants,
                                  size_t n, const struct picket_acquire_options *o,
                                  struct picket_lock **out)
{
    const struct picket_acquire_options forever = {.wait_ms = PICKET_FOREVER};
    struct pk_command c;
    enum picket_status s = pk_client_usable(p);
    if (s == PICKET_OK) {
        s = make_command(wants, n, o != NULL ? o : &forever, &c);
    }
    if (s == PICKET_OK) {
        s = enqueue(p, &c, wants[0].name, out);
    }
    if (s == PICKET_LOST) {
        s = enqueue(p, &c, wants[0].name, out); /* on a new lease */
    }
    for (int i = 0; s == PICKET_TOOOLD && i < PK_OVERTAKEN_MAX; i++) {
        s = enqueue(p, &c, wants[0].name, out); /* overtaken by threads of ours */
    }
    return s;
}

/* Puts who is in the way into the sentence of a TIMEOUT. */
static enum picket_status fail_timeout(struct picket *p, const char *name)
{
    struct pk_command c = {.verb = PK_LOCK_SHOW, .name = pk_text(name), .count = 1};
    struct pk_effects answer = {0};
    char holder[PK_DESCRIPTION_MAX] = "the store does not say why";
    if (p->driver->call(p->store, &c, pk_clock_ms() + WAIT_SLACK_MS, &answer) ==
        PICKET_OK) {
        pk_view_describe(&answer, holder, sizeof holder);
    }
    pk_effects_free(&answer);
    return pk_fail(PICKET_TIMEOUT, "%s was not granted in time: %s", name, holder);
}

enum picket_status picket_acquire_set(struct picket *p, const struct picket_want *wants,
                                      size_t n, const struct picket_acquire_options *o,
                                      struct picket_lock **out)
{
    struct picket_lock *l;
    bool bounded = o != NULL && o->wait_ms >= 0;
    enum picket_status s = pk_client_usable(p);
    if (s == PICKET_OK && (!bounded || o->wait_ms > 0)) {
        s = pk_callbacks_refuse(p, "an acquire that may wait",
                                "use picket_try() or picket_enqueue()");
    }
    if (s == PICKET_OK) {
        s = picket_enqueue(p, wants, n, o, &l);
    }
    if (s != PICKET_OK) {
        return s;
    }
    s = picket_wait(l, bounded ? o->wait_ms + WAIT_SLACK_MS : PICKET_FOREVER);
    if (s == PICKET_OK) {
        *out = l;
        return PICKET_OK;
    }
    picket_lock_close(l);
    return s == PICKET_TIMEOUT ? fail_timeout(p, wants[0].name) : s;
}

enum picket_status picket_acquire(struct picket *p, const char *name,
                                  const struct picket_acquire_options *o,
                                  struct picket_lock **out)
{
    struct picket_want want = {.name = name};
    if (o != NULL) {
        want.mode = o->mode;
        want.slots = o->slots;
    }
    return picket_acquire_set(p, &want, 1, o, out);
}

enum picket_status picket_try(struct picket *p, const char *name,
                              const struct picket_acquire_options *o,
                              struct picket_lock **out)
{
    struct picket_acquire_options now = {0};
    if (o != NULL) {
        now = *o;
    }
    now.wait_ms = 0;
    return picket_acquire(p, name, &now, out);
}

/* ---- waiting ---- */

/* What a wait that ends now has to say. Mutex held. */
static enum picket_status wait_verdict(const struct picket_lock *l)
{
    switch (l->phase) {
    case PK_PHASE_HELD:
        return PICKET_OK;
    case PK_PHASE_WAITING:
        return PICKET_TIMEOUT;
    case PK_PHASE_REFUSED:
        return l->verdict;
    case PK_PHASE_LOST:
        return PICKET_LOST;
    default:
        return PICKET_CANCELLED;
    }
}

enum picket_status picket_wait(struct picket_lock *l, int64_t timeout_ms)
{
    struct picket *p = l->client;
    enum picket_status s = pk_client_usable(p);
    if (s != PICKET_OK) {
        return s;
    }
    struct timespec until =
        pk_clock_monotonic(pk_clock_ms() + (timeout_ms < 0 ? 0 : (uint64_t)timeout_ms));
    bool inside = pk_callbacks_inside(p);
    int late = 0;
    pthread_mutex_lock(&p->mutex);
    while (l->phase == PK_PHASE_WAITING && !late && !inside) {
        late = timeout_ms < 0 ? pthread_cond_wait(&p->changed, &p->mutex)
                              : pthread_cond_timedwait(&p->changed, &p->mutex, &until);
    }
    look_at_clock(l);
    s = wait_verdict(l);
    pthread_mutex_unlock(&p->mutex);
    if (s == PICKET_TIMEOUT && timeout_ms != 0 && inside) {
        return pk_callbacks_refuse(p, "picket_wait()", "wait on another thread");
    }
    return s == PICKET_OK ? s : pk_fail_plain(s);
}

static void fail_unless_open(int fd)
{
    if (fd < 0) {
        (void)pk_fail(PICKET_LIMIT, "can't make a descriptor: %s", strerror(errno));
    }
}

int picket_ready_fd(struct picket_lock *l)
{
    if (pk_client_usable(l->client) != PICKET_OK) {
        return -1;
    }
    pthread_mutex_lock(&l->client->mutex);
    if (l->ready_fd < 0) {
        l->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        fail_unless_open(l->ready_fd);
        pk_lock_rearm(l);
    }
    int fd = l->ready_fd;
    pthread_mutex_unlock(&l->client->mutex);
    return fd;
}

/* ---- giving back ---- */

/* Takes the turn to end the claim, after another thread that is at it. Fills in the
 * command, all of it in one look: a grant or a loss comes before it or after. The phase;
 * LOST also when the lease is. */
static enum pk_phase begin_leaving(struct picket_lock *l, struct pk_command *c)
{
    struct picket *p = l->client;
    pthread_mutex_lock(&p->mutex);
    while (l->leaving) {
        pthread_cond_wait(&p->changed, &p->mutex);
    }
    enum pk_phase phase = l->phase;
    bool open = phase == PK_PHASE_WAITING || phase == PK_PHASE_HELD;
    if (open && l->lease != p->lease) {
        phase = PK_PHASE_LOST;
    } else if (open) {
        bool by_token = phase == PK_PHASE_HELD && c->verb == PK_LOCK_RELEASE;
        c->verb = by_token ? PK_LOCK_RELEASE : PK_LOCK_CANCEL;
        c->name = by_token ? pk_text(l->name) : pk_bytes(NULL, 0);
        c->token = by_token ? l->token : 0;
        c->target = by_token ? 0 : l->request;
        c->lease = l->lease;
        c->request = ++p->last_request;
        l->leaving = true;
    }
    pthread_mutex_unlock(&p->mutex);
    return phase;
}

/* Ends the claim by the given command; the phase becomes what the service says. */
static enum picket_status leave(struct picket_lock *l, struct pk_command *c,
                                uint64_t until_ms)
{
    struct picket *p = l->client;
    struct pk_effects answer = {0};
    enum picket_status s = pk_client_call(p, c, until_ms, &answer);
    if (answer.count > 0) {
        s = pk_client_verdict(&answer);
    }
    pthread_mutex_lock(&p->mutex);
    if (answer.count > 0 && p->lease == c->lease) {
        pk_client_hear(p, answer.list[0].event);
    }
    l->leaving = false;
    bool open = l->phase == PK_PHASE_WAITING || l->phase == PK_PHASE_HELD;
    if (open && s == PICKET_OK) {
        l->verdict = PICKET_CANCELLED;
        set_phase(l, l->phase == PK_PHASE_HELD ? PK_PHASE_RELEASED : PK_PHASE_REFUSED);
    } else if (open && (s == PICKET_LOST || s == PICKET_NOTHELD)) {
        pk_lock_lost(l, picket_last_error());
    } else if (open && c->lease != 0 && p->lease == c->lease && p->driver->tells_missed) {
        pk_client_doubt(p, 0); /* what was heard meanwhile was left to this answer */
    }
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    pk_effects_free(&answer);
    pk_client_absorb(p); /* the next in the queue may be another thread of ours */
    return s;
}

/* By PK_LOCK_RELEASE, as long as it is held; or by PK_LOCK_CANCEL, to which it makes no
 * difference whether it is. */
static enum picket_status give_back(struct picket_lock *l, enum pk_verb verb,
                                    uint64_t until_ms)
{
    struct pk_command c = {.verb = verb};
    switch (begin_leaving(l, &c)) {
    case PK_PHASE_WAITING:
    case PK_PHASE_HELD:
        return leave(l, &c, until_ms);
    case PK_PHASE_LOST:
        return verb == PK_LOCK_CANCEL
                   ? PICKET_OK
                   : pk_fail(PICKET_LOST, "%s was lost before it was released: %s",
                             l->name, l->reason);
    default:
        return PICKET_OK;
    }
}

enum picket_status picket_cancel(struct picket_lock *l)
{
    enum picket_status s = pk_client_usable(l->client);
    return s == PICKET_OK ? give_back(l, PK_LOCK_CANCEL, pk_client_patience(l->client))
                          : s;
}

enum picket_status picket_release(struct picket_lock *l)
{
    enum picket_status s = pk_client_usable(l->client);
    return s == PICKET_OK ? give_back(l, PK_LOCK_RELEASE, pk_client_patience(l->client))
                          : s;
}

/* True when the service has nothing of this claim any more. */
static bool settled(struct picket_lock *l)
{
    enum picket_status s = picket_release(l);
    return s == PICKET_OK || s == PICKET_LOST || s == PICKET_NOTHELD;
}

/* Its owner has closed it; freed unless the store has something of it, or its own
 * callback is not over. */
static void end_handle(struct picket_lock *l, bool free_of_claims)
{
    struct picket *p = l->client;
    pthread_mutex_lock(&p->mutex);
    bool called = p->called == l;
    l->handle = free_of_claims ? PK_HANDLE_CLOSED : PK_HANDLE_ABANDONED;
    pthread_mutex_unlock(&p->mutex);
    if (free_of_claims && !called) {
        pk_lock_discard(l);
    }
}

void picket_lock_close(struct picket_lock *l)
{
    if (l == NULL || pk_client_inherited(l->client)) {
        return; /* as picket_close() */
    }
    char why[PK_SENTENCE_MAX];
    pk_sentence_save(why);
    pk_callbacks_set(l, NULL, NULL);
    end_handle(l, settled(l));
    pk_sentence_restore(why);
}

void pk_locks_sweep(struct picket *p)
{
    pthread_mutex_lock(&p->mutex);
    struct picket_lock *l = p->locks;
    while (l != NULL && l->handle != PK_HANDLE_ABANDONED) {
        l = l->next;
    }
    pthread_mutex_unlock(&p->mutex);
    if (l != NULL && settled(l)) { /* one at a time: the next renewal does the next */
        end_handle(l, true);
    }
}

/* ---- what it says of itself ---- */

/* What phase and clock say. Mutex held. */
static enum picket_state state_of(struct picket_lock *l)
{
    look_at_clock(l);
    if (l->phase == PK_PHASE_WAITING) {
        return PICKET_WAITING;
    }
    if (l->phase == PK_PHASE_LOST ||
        (l->phase == PK_PHASE_REFUSED && l->verdict == PICKET_LOST)) {
        return PICKET_GONE;
    }
    if (l->phase != PK_PHASE_HELD) {
        return PICKET_RELEASED;
    }
    enum pk_trust trust = pk_keeper_trust(&l->client->keeper, pk_clock_ms());
    return trust == PK_TRUST_SAFE      ? PICKET_HELD
           : trust == PK_TRUST_OVERDUE ? PICKET_OVERDUE
                                       : PICKET_SUSPENDED;
}

static uint64_t left_of(const struct picket_lock *l)
{
    uint64_t until = l->phase == PK_PHASE_HELD ? pk_lock_safe_until(l) : 0;
    uint64_t now = pk_clock_ms();
    return until > now ? until - now : 0;
}

enum picket_state picket_state(const struct picket_lock *l)
{
    struct picket_lock *mine =
        (struct picket_lock *)l; /* the clock may have the last word */
    if (pk_client_usable(l->client) != PICKET_OK) {
        return PICKET_GONE;
    }
    pthread_mutex_lock(&l->client->mutex);
    enum picket_state state = state_of(mine);
    pthread_mutex_unlock(&l->client->mutex);
    return state;
}

const char *picket_state_name(enum picket_state s)
{
    static const char *const names[] = {"waiting",   "held", "at risk",
                                        "suspended", "lost", "released"};
    return (unsigned)s <= PICKET_RELEASED ? names[s] : "?";
}

uint64_t picket_token(const struct picket_lock *l)
{
    if (pk_client_inherited(l->client)) {
        return l->token; /* nobody else is there to change it */
    }
    pthread_mutex_lock(&l->client->mutex);
    uint64_t token = l->token;
    pthread_mutex_unlock(&l->client->mutex);
    return token;
}

uint64_t picket_safe_until_ms(const struct picket_lock *l)
{
    if (pk_client_usable(l->client) != PICKET_OK) {
        return 0;
    }
    pthread_mutex_lock(&l->client->mutex);
    uint64_t until = l->phase == PK_PHASE_HELD ? pk_lock_safe_until(l) : 0;
    pthread_mutex_unlock(&l->client->mutex);
    return until;
}

uint64_t picket_left_ms(const struct picket_lock *l)
{
    uint64_t until = picket_safe_until_ms(l);
    uint64_t now = pk_clock_ms();
    return until > now ? until - now : 0;
}

enum picket_status picket_checkpoint(struct picket_lock *l, uint64_t need_ms)
{
    enum picket_status usable = pk_client_usable(l->client);
    if (usable != PICKET_OK) {
        return usable;
    }
    pthread_mutex_lock(&l->client->mutex);
    enum picket_state state = state_of(l);
    uint64_t left = left_of(l);
    pthread_mutex_unlock(&l->client->mutex);
    if ((state == PICKET_HELD || state == PICKET_OVERDUE) && left >= need_ms &&
        left > 0) {
        return PICKET_OK;
    }
    if (state == PICKET_GONE) {
        return pk_fail(PICKET_LOST, "%s is lost: %s", l->name, l->reason);
    }
    if (state == PICKET_WAITING || state == PICKET_RELEASED) {
        return pk_fail(PICKET_NOTHELD, "%s is not held", l->name);
    }
    return pk_fail(PICKET_AT_RISK, "%llu ms are left of %s, the step needs %llu",
                   (unsigned long long)left, l->name, (unsigned long long)need_ms);
}

int picket_loss_fd(struct picket_lock *l)
{
    if (pk_client_usable(l->client) != PICKET_OK) {
        return -1;
    }
    pthread_mutex_lock(&l->client->mutex);
    if (l->loss_fd < 0) {
        l->loss_fd = pk_timer_fd(0);
        fail_unless_open(l->loss_fd);
        pk_lock_rearm(l);
    }
    int fd = l->loss_fd;
    pthread_mutex_unlock(&l->client->mutex);
    return fd;
}

const char *picket_loss_reason(const struct picket_lock *l)
{
    return picket_state(l) == PICKET_GONE ? l->reason : "";
}

void picket_on_renewal(struct picket_lock *l,
                       void (*cb)(uint64_t safe_until_ms, void *ctx), void *ctx)
{
    if (pk_client_usable(l->client) == PICKET_OK) {
        pk_callbacks_set(l, cb, ctx);
    }
}

enum picket_status picket_set_value(struct picket_lock *l, const void *value, size_t len)
{
    struct picket *p = l->client;
    enum picket_status s = picket_checkpoint(l, 0);
    if (s != PICKET_OK) {
        return s;
    }
    struct pk_effects answer = {0};
    struct pk_command c = {.verb = PK_LOCK_VALUE,
                           .lease = l->lease,
                           .request = pk_client_request(p),
                           .name = pk_text(l->name),
                           .token = picket_token(l),
                           .value = pk_bytes(value, len)};
    s = pk_client_call(p, &c, pk_client_patience(p), &answer);
    if (s == PICKET_OK) {
        s = pk_client_verdict(&answer);
    }
    pk_effects_free(&answer);
    return s;
}
