/* SPDX-License-Identifier: MIT */
/*
 * A cluster of Picket servers, over their native protocol: picket://h1,h2,h3.
 *
 * A store has one connection, to the leader, and one thread that keeps it
 * (remote_io.c); a watch is a store of its own that is told all events. Calls of any
 * number of threads share the connection: requests leave as they come, answers return in
 * that order. Nothing is sent before the first call, and closing waits for nothing but a
 * name that is being looked up.
 *
 * A call is repeated until it is answered or its time is over, over as many connections
 * as it takes. That is safe (P8) because it is always the same bytes: an acquire, release
 * or break carries its request id, a renewal or a close does no harm a second time, and
 * what has no id of its own gets one here (number_write). A release by lease id alone, of
 * another process' lease, is the exception: done, but not heard of, its repeat is told
 * "not held". That errs on the safe side: it never takes a lost lock for a released one.
 */
#include "drivers/remote.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "client/error.h"
#include "core/door.h"
#include "host/clock.h"
#include "host/fd.h"
#include "proto/proto.h"

enum {
    SILENCE_MS = 2000,        /* until a lease says how much time there is */
    CLAIM_PATIENCE_MS = 2000, /* to ask about one claim */
    WATCH_PATIENCE_MS = 5000, /* for a watch to begin */
    WRITE_TRIES = 16,         /* of a fenced write that others overtake */
};

/* ---- calls ---- */

/* A fenced write is refused (TOOOLD) when its number is lower than that of the write
 * before it under the same token, so numbers must grow, and from one process to the next
 * as well: a script may run `picket fence put` many times under one token. A process
 * begins anywhere; a refusal tells the fence's number, and the write goes on from there.
 * The steps are random: two processes that go on from the same number must not choose
 * the same next one, which the store would take for a repeat. Several fences may share a
 * place in this table: any numbers that grow will do. */
enum { NUMBERS = 1024 };

static const uint64_t first_below = UINT64_C(1) << 40;
static const uint64_t step_below = UINT64_C(1) << 30;

static _Atomic uint64_t *last_number(const struct pk_command *c)
{
    static _Atomic uint64_t last[NUMBERS];
    uint64_t hash = UINT64_C(14695981039346656037) ^ c->token; /* FNV-1a */
    for (uint32_t i = 0; i < c->name.len; i++) {
        hash = (hash ^ (unsigned char)c->name.data[i]) * UINT64_C(1099511628211);
    }
    return &last[hash % NUMBERS];
}

static uint64_t number_write(const struct pk_command *c)
{
    _Atomic uint64_t *last = last_number(c);
    uint64_t before = atomic_load(last);
    uint64_t number;
    do {
        bool go_on = before != 0 && before < UINT64_MAX - step_below;
        number =
            1 + (go_on ? before + pk_random() % step_below : pk_random() % first_below);
    } while (!atomic_compare_exchange_weak(last, &before, number));
    return number;
}

/* The fence of the command has that number. */
static void note_number(const struct pk_command *c, uint64_t number)
{
    _Atomic uint64_t *last = last_number(c);
    uint64_t before = atomic_load(last);
    while (before < number && !atomic_compare_exchange_weak(last, &before, number)) {
    }
}

/* What stands in the way, for people. Mutex held. */
static const char *trouble_of(const struct pk_store *s, char *out, size_t size)
{
    if (s->trouble[0] != '\0') {
        return s->trouble;
    }
    if (s->line == PK_LINE_NONE) {
        return "not connected";
    }
    (void)snprintf(out, size, "%s: no answer yet", s->place.text);
    return out;
}

/* The time is over. Mutex held. */
static enum picket_status fail_late(struct pk_store *s, struct pk_remote_ask *a)
{
    char text[300];
    bool maybe = !a->only_reads && (a->maybe || a->in_flight);
    const char *trouble = trouble_of(s, text, sizeof text);
    const char *verb = pk_verb_name(a->verb);
    enum picket_status status =
        maybe ? pk_fail(PICKET_UNKNOWN,
                        "no answer to %s in time, so it may or may not have been done "
                        "(%s; %s)",
                        verb, s->names, trouble)
              : pk_fail(PICKET_UNREACHABLE, "no leader of %s answered in time: %s",
                        s->names, trouble);
    if (a->in_flight) {
        a->abandoned = true; /* its answer may come yet, and must find its place */
    } else {
        pk_remote_asks_remove(&s->unsent, a);
        pk_remote_ask_drop(s, a);
    }
    return status;
}

/* *maybe: an earlier copy of what was answered may have been done. */
static enum picket_status call_once(struct pk_store *s, struct pk_command *c,
                                    uint64_t until_ms, struct pk_effects *out,
                                    bool *maybe)
{
    struct timespec until = pk_clock_monotonic(until_ms);
    pthread_mutex_lock(&s->mutex);
    struct pk_remote_ask *a = pk_remote_ask_new(s, PK_REMOTE_ASK_CALL);
    if (c->verb == PK_FENCE_SET && c->request == 0) {
        c->request = number_write(c); /* with the mutex: sent in the order of numbers */
    }
    a->verb = c->verb;
    a->only_reads = pk_command_is_read(c);
    pk_proto_write_command(&a->bytes, c);
    pk_remote_send(s, a);
    int late = 0;
    while (!a->done && late == 0) {
        late = pthread_cond_timedwait(&a->answered, &s->mutex, &until);
    }
    enum picket_status status;
    *maybe = a->maybe;
    if (!a->done) {
        status = fail_late(s, a);
    } else {
        status = a->status == PICKET_OK ? PICKET_OK : pk_fail(a->status, "%s", a->said);
        for (uint32_t i = 0; status == PICKET_OK && i < a->answer.count; i++) {
            pk_effects_add(out, &a->answer.list[i]);
        }
        pk_remote_ask_drop(s, a);
    }
    pthread_mutex_unlock(&s->mutex);
    return status;
}

/* A fenced write that has no number yet. Other writers under its token may have been
 * quicker: then it takes a higher number, as long as it was certainly not done. */
static enum picket_status call_numbered(struct pk_store *s, struct pk_command *c,
                                        uint64_t until_ms, struct pk_effects *out)
{
    enum picket_status status = PICKET_OK;
    bool repeat = c->request != 0; /* of a call that ended in UNKNOWN */
    bool again = true;
    for (int i = 0; again; i++) {
        bool maybe = false;
        status = call_once(s, c, until_ms, out, &maybe);
        again = status == PICKET_OK && out->list[0].status == PK_TOOOLD;
        if (again) {
            note_number(c, out->list[0].request);
        }
        if (again && (repeat || maybe)) {
            return pk_fail(PICKET_UNKNOWN,
                           "another write under the same token came after this one, or "
                           "before it: it may or may not have been done");
        }
        again = again && i < WRITE_TRIES;
        if (again) {
            pk_effects_reset(out);
        }
        if (again || (status == PICKET_UNREACHABLE && !repeat)) {
            c->request = 0; /* nobody has seen that number */
        }
    }
    return status;
}

static enum picket_status remote_call(struct pk_store *s, struct pk_command *c,
                                      uint64_t until_ms, struct pk_effects *out)
{
    bool unused;
    const char *wrong = pk_command_wrong(c);
    if (wrong != NULL) {
        return pk_fail(PICKET_BADARG, "%s", wrong);
    }
    return c->verb == PK_FENCE_SET ? call_numbered(s, c, until_ms, out)
                                   : call_once(s, c, until_ms, out, &unused);
}

static enum picket_status remote_claim(struct pk_store *s, uint64_t lease,
                                       uint64_t request, enum pk_claim_state *state,
                                       uint64_t *token)
{
    struct pk_command c = {
        .verb = PK_LEASE_SHOW, .lease = lease, .target = request, .count = 1};
    struct pk_effects answer = {0};
    enum picket_status status =
        remote_call(s, &c, pk_clock_ms() + CLAIM_PATIENCE_MS, &answer);
    if (status == PICKET_OK) {
        const struct pk_effect *row = answer.count > 1 ? &answer.list[1] : NULL;
        bool held = row != NULL && row->kind == PK_ROW_HOLD;
        *state = row == NULL ? PK_CLAIM_NONE : held ? PK_CLAIM_HELD : PK_CLAIM_WAITING;
        *token = held ? row->token : 0;
        if (row != NULL && row->request != request) {
            status = pk_fail(PICKET_STORE, "the server answered about another claim");
        }
    }
    pk_effects_free(&answer);
    return status;
}

/* ---- news ---- */

static void remote_attend(struct pk_store *s, uint64_t lease)
{
    pthread_mutex_lock(&s->mutex);
    s->lease = lease;
    pk_effects_reset(&s->inbox);
    s->inbox_bytes = 0;
    s->missed = false;
    s->cut_off = false;
    if (lease != 0 && s->owned != lease) { /* not opened over this connection */
        pk_remote_mistrust(s);
    }
    pk_remote_nudge(s);
    pthread_mutex_unlock(&s->mutex);
}

/* Sleeps until news_fd is readable or `until_ms`. */
static void sleep_for_news(struct pk_store *s, uint64_t until_ms)
{
    struct pollfd fds[] = {{.fd = s->news_fd, .events = POLLIN},
                           {.fd = s->wait_timer_fd, .events = POLLIN}};
    pk_timer_set(s->wait_timer_fd, until_ms == UINT64_MAX ? 0 : until_ms);
    if (until_ms > pk_clock_ms()) {
        (void)poll(fds, sizeof fds / sizeof fds[0], -1);
    }
}

/* Makes news_fd silent until the next news. Mutex held. */
static void hush(struct pk_store *s)
{
    uint64_t count;
    ssize_t n = read(s->news_fd, &count, sizeof count);
    (void)n; /* nothing there is fine */
    s->told = false;
}

static void remote_wait(struct pk_store *s, uint64_t until_ms, bool waiting)
{
    (void)waiting; /* others' deadlines are the server's business */
    sleep_for_news(s, until_ms);
    pthread_mutex_lock(&s->mutex);
    hush(s);
    pthread_mutex_unlock(&s->mutex);
}

static void remote_wake(struct pk_store *s)
{
    pthread_mutex_lock(&s->mutex);
    pk_remote_tell(s);
    pthread_mutex_unlock(&s->mutex);
}

/* Mutex held. */
static bool take_news(struct pk_store *s, struct pk_effects *out)
{
    for (uint32_t i = 0; i < s->inbox.count; i++) {
        pk_effects_add(out, &s->inbox.list[i]);
    }
    pk_effects_reset(&s->inbox);
    s->inbox_bytes = 0;
    bool whole = !s->missed;
    s->missed = false;
    return whole;
}

static bool remote_news(struct pk_store *s, struct pk_effects *out, uint64_t *since_ms)
{
    pthread_mutex_lock(&s->mutex);
    *since_ms = s->news_since_ms;
    bool whole = take_news(s, out);
    pthread_mutex_unlock(&s->mutex);
    return whole;
}

/* ---- opening and closing ---- */

static void remote_forked(struct pk_store *s)
{
    pk_fd_close(&s->link.fd);
    pk_fd_close(&s->news_fd);
    pk_fd_close(&s->nudge_fd);
    pk_fd_close(&s->wait_timer_fd);
    pk_fd_close(&s->io_timer_fd);
}

static void free_asks(struct pk_remote_ask *first)
{
    while (first != NULL) {
        struct pk_remote_ask *next = first->next;
        pk_remote_ask_free(first);
        first = next;
    }
}

/* All but the thread. */
static void free_store(struct pk_store *s)
{
    free_asks(s->unsent.first);
    free_asks(s->in_flight.first);
    free_asks(s->spare);
    pk_link_free(&s->link);
    remote_forked(s);
    pk_effects_free(&s->inbox);
    pk_effects_free(&s->scratch);
    pthread_cond_destroy(&s->began);
    pthread_mutex_destroy(&s->mutex);
    pk_door_resize(s, 0);
}

static void remote_close(struct pk_store *s)
{
    pthread_mutex_lock(&s->mutex);
    s->stopping = true;
    pk_remote_nudge(s);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->thread, NULL);
    free_store(s);
}

static void name_places(struct pk_store *s)
{
    size_t len = 0;
    for (uint32_t i = 0; i < s->places.count && len < sizeof s->names - 1; i++) {
        int n = snprintf(s->names + len, sizeof s->names - len, "%s%s",
                         i == 0 ? "" : ", ", s->places.list[i].text);
        PK_ASSERT(n > 0);
        len += (size_t)n;
    }
}

static struct pk_store *new_store(const struct pk_places *places)
{
    struct pk_store *s = pk_door_resize(NULL, sizeof *s);
    memset(s, 0, sizeof *s);
    s->places = *places;
    s->place = places->list[0];
    name_places(s);
    s->silence_ms = SILENCE_MS;
    s->alarm_ms = UINT64_MAX;
    pk_link_init(&s->link);
    s->news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->nudge_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->wait_timer_fd = pk_timer_fd(0);
    s->io_timer_fd = pk_timer_fd(0);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->began, &attr);
    pthread_condattr_destroy(&attr);
    return s;
}

static enum picket_status start(const struct pk_places *places, bool watching,
                                struct pk_store **out)
{
    struct pk_store *s = new_store(places);
    enum picket_status status = PICKET_OK;
    s->watching = watching;
    if (s->news_fd < 0 || s->nudge_fd < 0 || s->wait_timer_fd < 0 || s->io_timer_fd < 0) {
        status = pk_fail(PICKET_LIMIT, "no file descriptors left: %s", strerror(errno));
    } else {
        sigset_t every, before; /* signals are for the program's own threads */
        sigfillset(&every);
        pthread_sigmask(SIG_BLOCK, &every, &before);
        int failed = pthread_create(&s->thread, NULL, pk_remote_run, s);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (failed) {
            status = pk_fail(PICKET_LIMIT, "can't start a thread: %s", strerror(failed));
        }
    }
    if (status != PICKET_OK) {
        free_store(s);
        return status;
    }
    *out = s;
    return PICKET_OK;
}

static enum picket_status remote_open(const char *rest, struct pk_store **out)
{
    struct pk_places places;
    enum picket_status status = pk_remote_places(rest, &places);
    return status == PICKET_OK ? start(&places, false, out) : status;
}

/* ---- watching ---- */

static enum picket_status remote_watch_open(struct pk_store *s, struct pk_store **out)
{
    struct pk_store *w;
    enum picket_status status = start(&s->places, true, &w);
    if (status != PICKET_OK) {
        return status;
    }
    struct timespec until = pk_clock_monotonic(pk_clock_ms() + WATCH_PATIENCE_MS);
    int late = 0;
    pthread_mutex_lock(&w->mutex);
    while (!w->streamed && late == 0) { /* what happens after we return is seen */
        late = pthread_cond_timedwait(&w->began, &w->mutex, &until);
    }
    if (!w->streamed) {
        char text[300];
        status = pk_fail(PICKET_UNREACHABLE, "no leader of %s to watch: %s", w->names,
                         trouble_of(w, text, sizeof text));
    }
    pthread_mutex_unlock(&w->mutex);
    if (status != PICKET_OK) {
        remote_close(w);
        return status;
    }
    *out = w;
    return PICKET_OK;
}

static enum picket_status remote_watch_next(struct pk_store *w, uint64_t until_ms,
                                            struct pk_effects *out, bool *gap)
{
    for (;;) {
        pthread_mutex_lock(&w->mutex);
        *gap = !take_news(w, out);
        hush(w);
        pthread_mutex_unlock(&w->mutex);
        if (*gap || out->count > 0 || pk_clock_ms() >= until_ms) {
            return PICKET_OK;
        }
        sleep_for_news(w, until_ms);
    }
}

static int remote_watch_fd(struct pk_store *w)
{
    return w->news_fd;
}

const struct pk_driver pk_remote_driver = {
    .scheme = "picket",
    .form = "picket://HOST[:PORT],...",
    .guarantees = {.driver = "picket",
                   .promise = "correctness",
                   .scope = "a cluster",
                   .token =
                       "one counter in the replicated machine, raised by every grant",
                   .fairness = "fifo",
                   .waiting = "push",
                   .clock = "rates within 1 %, values don't matter",
                   .failover = "leases are stretched by the leaderless time, never "
                               "shortened; any minority may die",
                   .shared = 1,
                   .semaphore = 1,
                   .sets = 1,
                   .election = 1,
                   .fence = 1,
                   .watch = 1,
                   .lock_delay = 1,
                   .extend = 1,
                   .by_id = 1,
                   .reasons = 1,
                   .tokens = 2},
    .open = remote_open,
    .close = remote_close,
    .forked = remote_forked,
    .call = remote_call,
    .tells_missed = true,
    .attend = remote_attend,
    .wait = remote_wait,
    .wake = remote_wake,
    .news = remote_news,
    .claim = remote_claim,
    .watch_open = remote_watch_open,
    .watch_next = remote_watch_next,
    .watch_fd = remote_watch_fd,
};
