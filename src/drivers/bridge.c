/* SPDX-License-Identifier: MIT */
/* Stakes, waiting and news. */
#include "drivers/bridge.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/error.h"
#include "client/keeper.h"
#include "core/door.h"
#include "drivers/bridge_inside.h"
#include "drivers/card.h"
#include "host/clock.h"
#include "host/fd.h"

enum {
    /* For one question of the keeper's thread: meanwhile it can't renew. */
    PATIENCE_MS = 2000,
    AGAIN_LEAST_MS = 50, /* until a question that failed is asked again */
    AGAIN_MOST_MS = 2000,
    /* How long it is remembered that something left after all: longer than its owner asks
     * for it again. */
    REMEMBER_MS = 60000,
};

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- talking ---- */

bool pk_bridge_talk(struct pk_store *b, uint64_t until_ms)
{
    struct timespec until = pk_clock_monotonic(until_ms);
    int late = 0;
    pthread_mutex_lock(&b->mutex);
    while (b->talking && late == 0) {
        late = pthread_cond_timedwait(&b->silent, &b->mutex, &until);
    }
    bool ours = !b->talking;
    b->talking = true;
    pthread_mutex_unlock(&b->mutex);
    return ours;
}

void pk_bridge_hush(struct pk_store *b)
{
    pthread_mutex_lock(&b->mutex);
    b->talking = false;
    pthread_cond_signal(&b->silent);
    pthread_mutex_unlock(&b->mutex);
}

/* ---- stakes ---- */

char *pk_bridge_text(struct pk_bytes text)
{
    char *copy = pk_door_resize(NULL, (size_t)text.len + 1);
    if (text.len > 0) {
        memcpy(copy, text.data, text.len);
    }
    copy[text.len] = '\0';
    return copy;
}

struct pk_stake *pk_stake_new(struct pk_store *b, const struct pk_command *acquire)
{
    const struct pk_part *part = &acquire->parts[0];
    struct pk_stake *k = pk_door_resize(NULL, sizeof *k);
    *k = (struct pk_stake){.lease = acquire->lease,
                           .request = acquire->request,
                           .name = pk_bridge_text(part->name),
                           .mode = part->mode,
                           .ttl_ms = b->ttl_ms,
                           .lock_delay_ms = acquire->lock_delay_ms,
                           .max_hold_ms = acquire->max_hold_ms,
                           .wait_until_ms = UINT64_MAX,
                           .due_ms = UINT64_MAX};
    if (acquire->wait_ms != PK_WAIT_FOREVER) {
        k->wait_until_ms = pk_clock_ms() + acquire->wait_ms;
    }
    struct pk_card card = {.lease = k->lease,
                           .request = k->request,
                           .mode = k->mode,
                           .since_ms = pk_card_now(),
                           .ttl_ms = k->ttl_ms,
                           .value = acquire->value,
                           .label = pk_text(b->label)};
    size_t len;
    const char *text = pk_card_write(&card, &len);
    k->card = pk_bytes(text, len);
    pthread_mutex_lock(&b->mutex);
    k->next = b->stakes;
    b->stakes = k;
    pthread_mutex_unlock(&b->mutex);
    return k;
}

struct pk_stake *pk_stake_find(struct pk_store *b, uint64_t lease, uint64_t request)
{
    struct pk_stake *k = b->stakes;
    while (k != NULL && (k->lease != lease || k->request != request)) {
        k = k->next;
    }
    return k;
}

void pk_stake_drop(struct pk_store *b, struct pk_stake *k)
{
    pthread_mutex_lock(&b->mutex);
    struct pk_stake **at = &b->stakes;
    while (*at != k) {
        at = &(*at)->next;
    }
    *at = k->next;
    pthread_mutex_unlock(&b->mutex);
    if (b->ops->forget != NULL) {
        b->ops->forget(b->own, k);
    }
    free((char *)k->card.data);
    (void)pk_door_resize((char *)k->name, 0);
    (void)pk_door_resize(k, 0);
}

void pk_stakes_drop(struct pk_store *b, uint64_t lease)
{
    for (struct pk_stake *k = b->stakes, *next; k != NULL; k = next) {
        next = k->next;
        if (k->lease == lease) {
            pk_stake_drop(b, k);
        }
    }
}

/* When to try again what has just failed. */
static uint64_t again_ms(struct pk_stake *k)
{
    k->failures += k->failures < 16;
    return pk_clock_ms() +
           pk_backoff_ms(k->failures, AGAIN_LEAST_MS, AGAIN_MOST_MS, pk_random());
}

/* When something has to be done about it, after what it was last told. */
static uint64_t due_ms(const struct pk_stake *k)
{
    if (k->standing == PK_CLAIM_WAITING) {
        return earlier(k->again_ms, k->wait_until_ms);
    }
    bool limited = k->standing == PK_CLAIM_HELD && k->hold_until_ms != 0;
    return limited ? k->hold_until_ms : UINT64_MAX;
}

enum picket_status pk_stake_stand(struct pk_store *b, struct pk_stake *k, bool wait,
                                  uint64_t until_ms)
{
    pthread_mutex_lock(&b->mutex);
    k->stirred = k->doubted = false; /* what changes from now on is another look's */
    pthread_mutex_unlock(&b->mutex);
    uint64_t sent = pk_clock_ms();
    k->again_ms = UINT64_MAX;
    enum picket_status s = b->ops->stand(b->own, k, wait, until_ms);
    k->asked = k->asked || s == PICKET_OK || s == PICKET_UNKNOWN;
    pthread_mutex_lock(&b->mutex);
    if (s == PICKET_OK) {
        bool granted = k->state == PK_CLAIM_HELD && k->standing != PK_CLAIM_HELD;
        k->failures = 0;
        k->standing = k->state;
        if (granted && k->max_hold_ms != 0) {
            k->hold_until_ms = sent + k->max_hold_ms;
        }
        k->due_ms = due_ms(k);
    } else if (k->standing == PK_CLAIM_WAITING) {
        k->due_ms = earlier(again_ms(k), k->wait_until_ms);
    } else if (k->standing == PK_CLAIM_HELD) {
        k->due_ms = earlier(again_ms(k), due_ms(k)); /* whether it does, is not known */
    }
    pthread_mutex_unlock(&b->mutex);
    return s;
}

enum picket_status pk_stake_leave(struct pk_store *b, struct pk_stake *k,
                                  uint64_t until_ms)
{
    bool again = k->leaving;
    if (k->left) {
        pk_stake_drop(b, k);
        return PICKET_OK;
    }
    pthread_mutex_lock(&b->mutex);
    k->leaving = true;
    pthread_mutex_unlock(&b->mutex);
    enum picket_status s = b->ops->leave(b->own, k, until_ms);
    if (s == PICKET_NOTHELD && again) {
        s = PICKET_OK; /* the first attempt did it, and its answer got lost */
    }
    if (s == PICKET_OK || s == PICKET_NOTHELD || s == PICKET_LOST) {
        pk_stake_drop(b, k);
        return s;
    }
    pthread_mutex_lock(&b->mutex);
    k->due_ms = again_ms(k);
    pthread_mutex_unlock(&b->mutex);
    pk_bridge_wake(b);
    return s;
}

/* ---- news ---- */

/* Mutex held. */
static void add_news(struct pk_store *b, const struct pk_effect *e, uint64_t since_ms)
{
    if (e->lease != b->lease) {
        return;
    }
    if (b->inbox.count == 0 || since_ms < b->news_since_ms) {
        b->news_since_ms = since_ms;
    }
    pk_effects_add(&b->inbox, e);
}

static void tell(struct pk_store *b, const struct pk_stake *k, enum pk_effect_kind kind,
                 enum pk_end end, uint64_t since_ms)
{
    struct pk_effect e = {.kind = kind,
                          .end = end,
                          .mode = k->mode,
                          .parts = 1,
                          .lease = k->lease,
                          .request = k->request,
                          .token = k->token,
                          .name = pk_text(k->name)};
    pthread_mutex_lock(&b->mutex);
    add_news(b, &e, since_ms);
    pthread_mutex_unlock(&b->mutex);
}

void pk_bridge_ended(struct pk_store *b, uint64_t lease, uint64_t request,
                     enum pk_end end, const char *by, const char *why)
{
    pthread_mutex_lock(&b->mutex);
    struct pk_stake *k = pk_stake_find(b, lease, request);
    if (k != NULL && k->standing == PK_CLAIM_HELD && !k->leaving && !k->gone) {
        struct pk_effect e = {.kind = PK_EV_ENDED,
                              .end = end,
                              .lease = lease,
                              .request = request,
                              .by = pk_text(by),
                              .why = pk_text(why)};
        add_news(b, &e, pk_clock_ms());
        k->gone = true;
        k->due_ms = 0;
    } else if (k != NULL) {
        k->stirred = k->doubted = true; /* standing again will tell */
    }
    pthread_mutex_unlock(&b->mutex);
    pk_bridge_wake(b);
}

void pk_bridge_lease_ended(struct pk_store *b, uint64_t lease, enum pk_end end)
{
    struct pk_effect e = {.kind = PK_EV_LEASE_ENDED, .end = end, .lease = lease};
    pthread_mutex_lock(&b->mutex);
    add_news(b, &e, pk_clock_ms());
    for (struct pk_stake *k = b->stakes; k != NULL; k = k->next) {
        if (k->lease == lease) {
            k->gone = true;
            k->due_ms = 0;
        }
    }
    pthread_mutex_unlock(&b->mutex);
    pk_bridge_wake(b);
}

void pk_bridge_stir(struct pk_store *b, uint64_t lease, uint64_t request)
{
    pthread_mutex_lock(&b->mutex);
    for (struct pk_stake *k = b->stakes; k != NULL; k = k->next) {
        if (k->lease == lease && (request == 0 || k->request == request)) {
            k->stirred = true;
        }
    }
    pthread_mutex_unlock(&b->mutex);
    pk_bridge_wake(b);
}

bool pk_bridge_news(struct pk_store *b, struct pk_effects *out, uint64_t *since_ms)
{
    pthread_mutex_lock(&b->mutex);
    for (uint32_t i = 0; i < b->inbox.count; i++) {
        pk_effects_add(out, &b->inbox.list[i]);
    }
    pk_effects_reset(&b->inbox);
    *since_ms = b->news_since_ms;
    pthread_mutex_unlock(&b->mutex);
    return true;
}

enum picket_status pk_bridge_claim(struct pk_store *b, uint64_t lease, uint64_t request,
                                   enum pk_claim_state *state, uint64_t *token)
{
    pthread_mutex_lock(&b->mutex);
    const struct pk_stake *k = pk_stake_find(b, lease, request);
    bool known = k != NULL && !k->gone && !k->leaving;
    *state = known ? k->standing : PK_CLAIM_NONE;
    *token = known && k->standing == PK_CLAIM_HELD ? k->token : 0;
    pthread_mutex_unlock(&b->mutex);
    return PICKET_OK;
}

void pk_bridge_attend(struct pk_store *b, uint64_t lease)
{
    pthread_mutex_lock(&b->mutex);
    b->lease = lease;
    pk_effects_reset(&b->inbox);
    pthread_mutex_unlock(&b->mutex);
    pk_bridge_wake(b);
}

/* ---- waiting ---- */

void pk_bridge_wake(struct pk_store *b)
{
    pk_fd_poke(b->wake_fd);
}

bool pk_bridge_sleep(struct pk_store *b, int fd, uint64_t until_ms)
{
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN},
                           {.fd = b->wake_fd, .events = POLLIN},
                           {.fd = b->timer_fd, .events = POLLIN}};
    pk_timer_set(b->timer_fd, until_ms == UINT64_MAX ? 0 : until_ms);
    bool over = until_ms <= pk_clock_ms();
    int n = poll(fds, sizeof fds / sizeof fds[0], over ? 0 : -1);
    return n > 0 && fds[0].revents != 0;
}

/* True if something has to be done about it at that time. */
static bool is_due(const struct pk_stake *k, uint64_t now_ms)
{
    bool stirred = (k->standing == PK_CLAIM_WAITING && k->stirred) ||
                   (k->standing == PK_CLAIM_HELD && k->doubted);
    return (stirred && !k->leaving) || k->due_ms <= now_ms;
}

static uint64_t next_due(struct pk_store *b)
{
    uint64_t at = b->inbox.count > 0 ? 0 : UINT64_MAX;
    for (const struct pk_stake *k = b->stakes; k != NULL; k = k->next) {
        at = is_due(k, 0) ? 0 : earlier(at, k->due_ms);
    }
    return at;
}

/* It has to leave, and its owner is told so, whatever the store has to say to it. */
static void see_off(struct pk_store *b, struct pk_stake *k, uint64_t until_ms)
{
    bool held = k->standing == PK_CLAIM_HELD;
    struct pk_stake copy = *k;
    char *name = pk_bridge_text(pk_text(k->name));
    copy.name = name;
    enum picket_status unimportant = pk_stake_leave(b, k, until_ms);
    (void)unimportant; /* if it could not be told, we'll try again */
    tell(b, &copy, held ? PK_EV_ENDED : PK_EV_LEFT,
         held ? PK_END_OVERHELD : PK_END_TIMED_OUT, pk_clock_ms());
    (void)pk_door_resize(name, 0);
}

/* Its owner was told that it is not known whether it went, and may be asking still. */
static void leave_later(struct pk_store *b, struct pk_stake *k, uint64_t until_ms)
{
    enum picket_status s = b->ops->leave(b->own, k, until_ms);
    bool over = s == PICKET_OK || s == PICKET_NOTHELD || s == PICKET_LOST;
    pthread_mutex_lock(&b->mutex);
    k->left = over;
    k->due_ms = over ? pk_clock_ms() + REMEMBER_MS : again_ms(k);
    pthread_mutex_unlock(&b->mutex);
}

static void stand_again(struct pk_store *b, struct pk_stake *k, uint64_t until_ms)
{
    uint64_t sent = pk_clock_ms();
    uint64_t lease = k->lease;
    bool held = k->standing == PK_CLAIM_HELD; /* and somebody said it were gone */
    enum picket_status s = pk_stake_stand(b, k, true, until_ms);
    if (s == PICKET_LOST) {
        pk_bridge_lease_ended(b, lease, PK_END_EXPIRED);
    } else if (s == PICKET_OK && k->standing == PK_CLAIM_HELD && !held) {
        tell(b, k, PK_EV_GRANTED, PK_END_NONE, sent);
    } else if (s == PICKET_OK && k->standing != PK_CLAIM_HELD && held) {
        tell(b, k, PK_EV_ENDED, PK_END_FORGOTTEN, sent);
        pk_stake_drop(b, k);
    } else if (s == PICKET_OK && k->standing == PK_CLAIM_NONE) {
        tell(b, k, PK_EV_LEFT, PK_END_FORGOTTEN, sent);
        pk_stake_drop(b, k);
    }
}

/* The limit of its wait, or of its hold, is reached. */
static bool is_over(const struct pk_stake *k, uint64_t now_ms)
{
    return k->standing == PK_CLAIM_HELD
               ? k->hold_until_ms != 0 && k->hold_until_ms <= now_ms
               : k->wait_until_ms <= now_ms;
}

/* Does what is due about one stake. False: nothing is. */
static bool do_one(struct pk_store *b, uint64_t until_ms)
{
    if (!pk_bridge_talk(b, until_ms)) {
        return false;
    }
    uint64_t now = pk_clock_ms();
    pthread_mutex_lock(&b->mutex);
    struct pk_stake *k = b->stakes;
    while (k != NULL && !is_due(k, now)) {
        k = k->next;
    }
    pthread_mutex_unlock(&b->mutex);
    if (k != NULL && (k->gone || k->left)) {
        pk_stake_drop(b, k);
    } else if (k != NULL && k->leaving) {
        leave_later(b, k, until_ms);
    } else if (k != NULL && is_over(k, now)) {
        see_off(b, k, until_ms);
    } else if (k != NULL) {
        stand_again(b, k, until_ms);
    }
    pk_bridge_hush(b);
    return k != NULL;
}

/* The store may have told something that nobody heard: who waits stands again, and a
 * renewal tells which holds are gone. */
static void catch_up(struct pk_store *b, uint64_t until_ms)
{
    bool holds = false;
    uint64_t ttl_ms = 0; /* as it is */
    pthread_mutex_lock(&b->mutex);
    uint64_t lease = b->lease;
    for (struct pk_stake *k = b->stakes; k != NULL; k = k->next) {
        k->stirred = true;
        holds = holds || (k->standing == PK_CLAIM_HELD && k->lease == lease);
    }
    pthread_mutex_unlock(&b->mutex);
    if (!holds || !pk_bridge_talk(b, until_ms)) {
        return;
    }
    enum picket_status s = b->ops->lease_renew(b->own, lease, &ttl_ms, until_ms);
    pk_bridge_hush(b);
    if (s == PICKET_LOST) {
        pk_bridge_lease_ended(b, lease, PK_END_EXPIRED);
    } /* else, if it failed, the next one will tell */
}

void pk_bridge_wait(struct pk_store *b, uint64_t until_ms, bool waiting)
{
    (void)waiting; /* what we wait for is known here */
    pthread_mutex_lock(&b->mutex);
    uint64_t at = earlier(until_ms, next_due(b));
    pthread_mutex_unlock(&b->mutex);
    if (b->ops->await(b->own, at)) {
        catch_up(b, earlier(until_ms, pk_clock_ms() + PATIENCE_MS));
    }
    uint64_t count;
    ssize_t n = read(b->wake_fd, &count, sizeof count);
    (void)n; /* nothing there is fine */
    bool more = true;
    while (more && pk_clock_ms() < until_ms) {
        more = do_one(b, earlier(until_ms, pk_clock_ms() + PATIENCE_MS));
    }
}

/* ---- watching ---- */

static struct pk_store *new_store(const struct pk_bridged *ops,
                                  const struct picket_guarantees *g);

enum picket_status pk_bridge_watch_open(struct pk_store *b, struct pk_store **out)
{
    void *watch = NULL;
    if (b->ops->watch_open == NULL) {
        return pk_fail(PICKET_UNSUPPORTED, "%s does not tell what happens to locks",
                       b->g->driver);
    }
    enum picket_status s = b->ops->watch_open(b->own, &watch);
    if (s == PICKET_OK) {
        *out = new_store(b->ops, b->g);
        (*out)->watch = watch;
    }
    return s;
}

enum picket_status pk_bridge_watch_next(struct pk_store *w, uint64_t until_ms,
                                        struct pk_effects *out, bool *gap)
{
    return w->ops->watch_next(w->watch, until_ms, out, gap);
}

int pk_bridge_watch_fd(struct pk_store *w)
{
    return w->ops->watch_fd(w->watch);
}

enum picket_status pk_bridge_examine(struct pk_store *b, struct pk_findings *out,
                                     uint64_t until_ms)
{
    if (b->ops->examine == NULL) {
        return PICKET_OK;
    }
    if (!pk_bridge_talk(b, until_ms)) {
        return pk_fail_plain(PICKET_UNREACHABLE);
    }
    enum picket_status s = b->ops->examine(b->own, out, until_ms);
    pk_bridge_hush(b);
    return s;
}

/* ---- opening and closing ---- */

static struct pk_store *new_store(const struct pk_bridged *ops,
                                  const struct picket_guarantees *g)
{
    struct pk_store *b = pk_door_resize(NULL, sizeof *b);
    *b = (struct pk_store){.ops = ops, .g = g, .wake_fd = -1, .timer_fd = -1};
    pthread_mutex_init(&b->mutex, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&b->silent, &attr);
    pthread_condattr_destroy(&attr);
    return b;
}

enum picket_status pk_bridge_open(const struct pk_bridged *ops,
                                  const struct picket_guarantees *g, void *own,
                                  struct pk_store **out)
{
    struct pk_store *b = new_store(ops, g);
    b->own = own;
    b->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    b->timer_fd = pk_timer_fd(0);
    if (b->wake_fd < 0 || b->timer_fd < 0) {
        enum picket_status s =
            pk_fail(PICKET_LIMIT, "no file descriptors left: %s", strerror(errno));
        pk_bridge_close(b);
        return s;
    }
    if (ops->meet != NULL) {
        ops->meet(own, b);
    }
    *out = b;
    return PICKET_OK;
}

void pk_bridge_forked(struct pk_store *b)
{
    pk_fd_close(&b->wake_fd);
    pk_fd_close(&b->timer_fd);
    if (b->own != NULL) {
        b->ops->forked(b->own);
    }
    if (b->watch != NULL) {
        b->ops->watch_forked(b->watch);
    }
}

void pk_bridge_close(struct pk_store *b)
{
    while (b->stakes != NULL) {
        pk_stake_drop(b, b->stakes);
    }
    if (b->watch != NULL) {
        b->ops->watch_close(b->watch);
    }
    if (b->own != NULL) {
        b->ops->close(b->own);
    }
    pk_fd_close(&b->wake_fd);
    pk_fd_close(&b->timer_fd);
    pk_effects_free(&b->inbox);
    (void)pk_door_resize(b->label, 0);
    pthread_cond_destroy(&b->silent);
    pthread_mutex_destroy(&b->mutex);
    (void)pk_door_resize(b, 0);
}
