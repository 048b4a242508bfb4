/* SPDX-License-Identifier: MIT */
/*
 * Being told: one stream of watches for all claims of this process. Each claim's own key
 * is watched, so that a break or the end of its lease is known at once, and of who waits
 * the key ahead, so that one release wakes one waiter (P7). A watch begins at the
 * revision of the look that it follows, on a new stream too: so nothing is missed,
 * whatever happens to streams and members. (Not at the next one: should that very one be
 * compacted, etcd says nothing about it, and a deletion in it is never told.)
 */
#include <stdio.h>
#include <string.h>

#include "client/keeper.h"
#include "core/door.h"
#include "drivers/etcd.h"
#include "host/clock.h"

enum {
    SHORT_HOLD_MS = 100, /* holds that are over by then are not watched */
    LINGER_MS = 10000,   /* how long a stream is kept that nobody needs */
    PATIENCE_MS = 1000,  /* for one question; the keeper waits meanwhile */
    REDIAL_LEAST_MS = 20,
    REDIAL_MOST_MS = 2000,
};

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

enum picket_status pk_etcd_ear_init(struct pk_etcd *e)
{
    struct pk_etcd_ear *ear = &e->ear;
    *ear = (struct pk_etcd_ear){0};
    enum picket_status s = pk_etcd_caller_init(&ear->caller, &e->site);
    if (s == PICKET_OK) {
        s = pk_etcd_stream_init(&ear->stream);
        if (s != PICKET_OK) {
            pk_etcd_caller_free(&ear->caller);
        }
    }
    if (s == PICKET_OK) {
        pthread_mutex_init(&ear->mutex, NULL);
    }
    return s;
}

void pk_etcd_ear_free(struct pk_etcd *e)
{
    pk_etcd_stream_free(&e->ear.stream);
    pk_etcd_caller_free(&e->ear.caller);
    pthread_mutex_destroy(&e->ear.mutex);
    (void)pk_door_resize(e->ear.cancelled, 0);
}

/* ---- what is listened for; by the thread that asks ---- */

/* Takes back a watch. Mutex held. */
static void unwatch(struct pk_etcd_ear *ear, uint64_t *watch)
{
    if (*watch != 0) {
        if (ear->n_cancelled == ear->room) {
            ear->room = 2 * ear->room + 16;
            ear->cancelled =
                pk_door_resize(ear->cancelled, ear->room * sizeof ear->cancelled[0]);
        }
        ear->cancelled[ear->n_cancelled++] = *watch;
    }
    *watch = 0;
}

void pk_etcd_ear_listen(struct pk_etcd *e, struct pk_etcd_claim *claim, uint64_t revision,
                        struct pk_bytes ahead)
{
    struct pk_etcd_ear *ear = &e->ear;
    pthread_mutex_lock(&ear->mutex);
    if (!claim->listening) {
        claim->listening = true;
        claim->next = ear->claims;
        ear->claims = claim;
        claim->own_from = revision;
    }
    unwatch(ear, &claim->ahead_watch);
    snprintf(claim->ahead, sizeof claim->ahead, "%.*s", (int)ahead.len,
             ahead.len > 0 ? ahead.data : "");
    claim->ahead_from = revision;
    claim->not_before_ms = ahead.len > 0 ? 0 : pk_clock_ms() + SHORT_HOLD_MS;
    pthread_mutex_unlock(&ear->mutex);
    pk_etcd_stream_nudge(&ear->stream);
}

void pk_etcd_ear_ignore(struct pk_etcd *e, struct pk_etcd_claim *claim)
{
    struct pk_etcd_ear *ear = &e->ear;
    pthread_mutex_lock(&ear->mutex);
    if (claim->listening) {
        claim->listening = false;
        struct pk_etcd_claim **at = &ear->claims;
        while (*at != claim) {
            at = &(*at)->next;
        }
        *at = claim->next;
        unwatch(ear, &claim->own_watch);
        unwatch(ear, &claim->ahead_watch);
    }
    pthread_mutex_unlock(&ear->mutex);
}

/* ---- the stream; by the keeper's thread, as all that follows ---- */

/* Forgets what was watched on a stream that is over. Mutex held. */
static void forget_watches(struct pk_etcd_ear *ear)
{
    for (struct pk_etcd_claim *c = ear->claims; c != NULL; c = c->next) {
        c->own_watch = c->ahead_watch = 0;
    }
    ear->n_cancelled = 0;
}

static void stream_lost(struct pk_etcd_ear *ear)
{
    pk_etcd_stream_hang_up(&ear->stream);
    pthread_mutex_lock(&ear->mutex);
    forget_watches(ear);
    pthread_mutex_unlock(&ear->mutex);
    ear->failures++;
    ear->redial_ms = pk_clock_ms() + pk_backoff_ms(ear->failures, REDIAL_LEAST_MS,
                                                   REDIAL_MOST_MS, pk_random());
}

/* When the next watch will be needed that there isn't. */
static uint64_t needed_ms(struct pk_etcd_ear *ear)
{
    uint64_t at = UINT64_MAX;
    pthread_mutex_lock(&ear->mutex);
    for (const struct pk_etcd_claim *c = ear->claims; c != NULL; c = c->next) {
        at = c->own_watch == 0 ? earlier(at, c->not_before_ms) : at;
    }
    pthread_mutex_unlock(&ear->mutex);
    return at;
}

/* A question before it finds a member that answers, and gets us a token where a password
 * is wanted. */
enum picket_status pk_etcd_dial(struct pk_etcd *e, struct pk_etcd_caller *c,
                                struct pk_etcd_stream *stream, uint64_t until_ms)
{
    struct pk_etcd_header unused;
    uint64_t until = earlier(until_ms, pk_clock_ms() + PATIENCE_MS);
    enum picket_status s = pk_etcd_ping(e, c, until, &unused);
    if (s == PICKET_OK) {
        pk_etcd_stream_dial(stream, c, "Watch/Watch");
    }
    return s;
}

static void say(struct pk_etcd_ear *ear, struct pk_pb_out *message)
{
    pk_etcd_stream_send(&ear->stream, message);
    pk_pb_free(message);
}

/* Asks for the watches that are missing, and takes back those nobody needs. */
static void send_wishes(struct pk_etcd_ear *ear)
{
    struct pk_pb_out message = {0};
    uint64_t now = pk_clock_ms();
    pthread_mutex_lock(&ear->mutex);
    for (size_t i = 0; i < ear->n_cancelled; i++) {
        pk_etcd_put_unwatch(&message, ear->cancelled[i]);
        say(ear, &message);
    }
    ear->n_cancelled = 0;
    for (struct pk_etcd_claim *c = ear->claims; c != NULL; c = c->next) {
        if (c->own_watch == 0 && c->not_before_ms <= now) {
            c->own_watch = ++ear->last_watch;
            pk_etcd_put_watch(&message,
                              &(struct pk_etcd_watching){.key = pk_text(c->key),
                                                         .from = c->own_from,
                                                         .id = c->own_watch,
                                                         .deletions_only = true});
            say(ear, &message);
        }
        if (c->ahead_watch == 0 && c->ahead[0] != '\0') {
            c->ahead_watch = ++ear->last_watch;
            pk_etcd_put_watch(&message,
                              &(struct pk_etcd_watching){.key = pk_text(c->ahead),
                                                         .from = c->ahead_from,
                                                         .id = c->ahead_watch,
                                                         .deletions_only = true});
            say(ear, &message);
        }
    }
    ear->idle_ms = ear->claims != NULL ? now : ear->idle_ms;
    pthread_mutex_unlock(&ear->mutex);
}

/* ---- what is heard ---- */

/* An own key that is gone, or may be. */
struct loss {
    uint64_t lease, request, revision; /* 0: nobody has said that it is gone */
    char key[PK_ETCD_KEY_MAX];
    bool found;
};

/* Finds what the watch with that number is about, and tells who waits. */
static struct loss find_loss(struct pk_etcd *e, const struct pk_etcd_seen *seen,
                             uint64_t revision)
{
    struct loss loss = {.revision = revision};
    struct pk_etcd_ear *ear = &e->ear;
    pthread_mutex_lock(&ear->mutex);
    for (struct pk_etcd_claim *c = ear->claims; c != NULL; c = c->next) {
        if (c->ahead_watch == seen->id) {
            unwatch(ear, &c->ahead_watch);
            c->ahead[0] = '\0'; /* until it has stood again */
            pk_bridge_stir(e->bridge, c->lease, c->request);
        } else if (c->own_watch == seen->id && c->lease != ear->ended) {
            loss.found = true;
            loss.lease = c->lease;
            loss.request = c->request;
            memcpy(loss.key, c->key, sizeof loss.key);
        }
    }
    pthread_mutex_unlock(&ear->mutex);
    return loss;
}

/* The lease is over, before its time or not. */
static void report_lease(struct pk_etcd *e, uint64_t lease)
{
    enum pk_end end = PK_END_EXPIRED;
    pthread_mutex_lock(&e->ear.mutex);
    for (size_t i = 0; i < e->n_kept; i++) {
        const struct pk_etcd_kept *k = &e->kept[i];
        bool early = k->id == lease && pk_clock_ms() < k->sent_ms + k->granted_ms;
        end = early ? PK_END_CLOSED : end;
    }
    pthread_mutex_unlock(&e->ear.mutex);
    e->ear.ended = lease;
    pk_bridge_lease_ended(e->bridge, lease, end);
}

/* Says why the own key is gone. */
static void report_loss(struct pk_etcd *e, const struct loss *loss)
{
    struct pk_pb_out request = {0};
    struct pk_etcd_txn txn;
    struct pk_etcd_kv kv;
    char key[PK_ETCD_KEY_MAX], by[PK_PRINCIPAL_MAX + 1], why[PK_REASON_MAX + 1];
    uint64_t until = pk_clock_ms() + PATIENCE_MS;
    int64_t left_s = 0;
    pk_etcd_key_note(e, loss->lease, key);
    pk_etcd_op_find(&request, PK_ETCD_THEN, &(struct pk_etcd_find){.key = pk_text(key)});
    enum picket_status s = pk_etcd_txn(&e->ear.caller, &request, until, &txn);
    if (s == PICKET_OK && txn.n_found == 1 && pk_etcd_next_kv(&txn.found[0].kvs, &kv) &&
        kv.modified == loss->revision) {
        enum pk_end end = pk_etcd_note_read(kv.value, by, why);
        pk_bridge_ended(e->bridge, loss->lease, loss->request, end, by, why);
        return;
    }
    s = pk_etcd_lease_left(&e->ear.caller, loss->lease, until, &left_s);
    if (s != PICKET_OK) {
        pk_bridge_ended(e->bridge, loss->lease, loss->request, PK_END_FORGOTTEN, NULL,
                        NULL);
    } else if (left_s < 0) {
        report_lease(e, loss->lease);
    } else {
        pk_bridge_ended(e->bridge, loss->lease, loss->request, PK_END_BROKEN, "somebody",
                        "its key was deleted");
    }
}

/* What became of the own key before this revision is not told any more: so look. False:
 * that was not possible. */
static bool look_after(struct pk_etcd *e, const struct loss *loss)
{
    struct pk_pb_out request = {0};
    struct pk_etcd_txn txn;
    struct pk_etcd_kv kv;
    pk_etcd_op_find(&request, PK_ETCD_THEN,
                    &(struct pk_etcd_find){.key = pk_text(loss->key), .keys_only = true});
    enum picket_status s =
        pk_etcd_txn(&e->ear.caller, &request, pk_clock_ms() + PATIENCE_MS, &txn);
    if (s != PICKET_OK || txn.n_found != 1) {
        return false;
    }
    bool there = pk_etcd_next_kv(&txn.found[0].kvs, &kv);
    pthread_mutex_lock(&e->ear.mutex);
    for (struct pk_etcd_claim *c = e->ear.claims; c != NULL; c = c->next) {
        if (c->lease == loss->lease && c->request == loss->request) {
            c->own_from = txn.header.revision;
            c->own_watch = there ? 0 : c->own_watch;
        }
    }
    pthread_mutex_unlock(&e->ear.mutex);
    if (!there) {
        report_loss(e, loss);
    }
    return true;
}

/* False: the stream can't go on. */
static bool hear(struct pk_etcd *e, struct pk_bytes message)
{
    struct pk_etcd_seen seen;
    struct pk_etcd_event event;
    if (!pk_etcd_read_seen(message, &seen) ||
        (seen.cancelled && seen.compacted == 0 && seen.reason.len > 0)) {
        return false; /* no leader, no right any more: begin anew */
    }
    e->ear.failures = 0;
    if (seen.cancelled && seen.compacted != 0) {
        struct loss loss = find_loss(e, &seen, 0);
        return !loss.found || look_after(e, &loss);
    }
    while (!seen.cancelled && pk_etcd_next_event(&seen.events, &event)) {
        if (event.deleted) {
            struct loss loss = find_loss(e, &seen, event.kv.modified);
            if (loss.found) {
                report_loss(e, &loss);
            }
        }
    }
    return true;
}

/* ---- waiting ---- */

static void pump(struct pk_etcd *e)
{
    struct pk_etcd_ear *ear = &e->ear;
    struct pk_bytes message;
    bool was_on = ear->stream.running;
    bool on = pk_etcd_stream_pump(&ear->stream);
    while (was_on && pk_etcd_stream_next(&ear->stream, &message)) {
        if (!hear(e, message)) {
            on = false;
            break;
        }
    }
    if (was_on && !on) {
        stream_lost(ear);
    }
}

/* When there is something to do here that nobody will tell. */
static uint64_t next_ms(struct pk_etcd_ear *ear)
{
    uint64_t needed = needed_ms(ear);
    if (!ear->stream.running) {
        return needed > ear->redial_ms ? needed : ear->redial_ms;
    }
    return earlier(needed, pk_etcd_stream_due(&ear->stream));
}

bool pk_etcd_await(void *own, uint64_t until_ms)
{
    struct pk_etcd *e = own;
    struct pk_etcd_ear *ear = &e->ear;
    uint64_t now = pk_clock_ms();
    if (!ear->stream.running && needed_ms(ear) <= now && ear->redial_ms <= now) {
        ear->idle_ms = now;
        if (pk_etcd_dial(e, &ear->caller, &ear->stream, until_ms) != PICKET_OK) {
            stream_lost(ear);
        }
    }
    if (ear->stream.running) {
        send_wishes(ear);
        if (!pk_etcd_stream_alive(&ear->stream)) {
            ear->caller.at = (ear->caller.at + 1) % e->site.places.count;
            stream_lost(ear);
        }
    }
    if (ear->stream.running && now >= ear->idle_ms + LINGER_MS) {
        pk_etcd_stream_hang_up(&ear->stream);
    }
    pump(e);
    pk_bridge_sleep(e->bridge, ear->stream.epoll_fd, earlier(until_ms, next_ms(ear)));
    pump(e);
    return false;
}
