/* SPDX-License-Identifier: MIT */
/*
 * The stream of events: etcd tells what becomes of keys; who holds and who waits follows
 * from that by the rule of etcd.h. So all claims are kept here as they were at a
 * revision, and each event moves them to the next.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "client/keeper.h"
#include "core/door.h"
#include "drivers/etcd.h"
#include "host/clock.h"

enum {
    PAGE = 200,
    OPEN_PATIENCE_MS = 5000,
    REDIAL_LEAST_MS = 20,
    REDIAL_MOST_MS = 2000,
    WATCH_ID = 1,
};

struct known {
    char *key;
    char name[PK_NAME_MAX + 1];
    enum pk_mode mode;
    uint64_t lease, request, created;
    bool held;
    bool ours; /* it has a card */
    char *value;
    size_t value_len;
    uint64_t since_ms; /* it holds or waits, by our clock */
};

/* The last note of a lease. */
struct note {
    uint64_t lease, revision;
    uint64_t ended; /* at this revision it went; 0: it is there */
    char *text;
    size_t len;
};

struct watch {
    struct pk_etcd *e;
    struct pk_etcd_caller caller;
    struct pk_etcd_stream stream;
    uint64_t revision; /* all up to this one has been told */
    bool created;      /* the stream watches */
    bool compacted;    /* some events are not to be had any more */
    uint64_t redial_ms;
    uint32_t failures;
    struct known **list; /* all claims, in no order */
    size_t count, capacity;
    struct note *notes;
    size_t n_notes, notes_capacity;
};

/* ---- what is known ---- */

static void free_known(struct known *k)
{
    (void)pk_door_resize(k->key, 0);
    (void)pk_door_resize(k->value, 0);
    (void)pk_door_resize(k, 0);
}

static char *copy_of(struct pk_bytes text)
{
    char *copy = pk_door_resize(NULL, (size_t)text.len + 1);
    if (text.len > 0) {
        memcpy(copy, text.data, text.len);
    }
    copy[text.len] = '\0';
    return copy;
}

static void forget_all(struct watch *w)
{
    for (size_t i = 0; i < w->count; i++) {
        free_known(w->list[i]);
    }
    for (size_t i = 0; i < w->n_notes; i++) {
        (void)pk_door_resize(w->notes[i].text, 0);
    }
    w->count = w->n_notes = 0;
}

static size_t find_known(const struct watch *w, struct pk_bytes key)
{
    size_t at = 0;
    while (at < w->count && !pk_bytes_equal(pk_text(w->list[at]->key), key)) {
        at++;
    }
    return at;
}

/* Takes over what the value says. True: the election value is another one now. */
static bool read_value(struct known *k, struct pk_bytes value)
{
    struct pk_card card;
    char *room = pk_door_resize(NULL, (size_t)value.len + 1);
    k->ours = pk_card_read(value, room, &card);
    k->request = card.request;
    bool same = pk_bytes_equal(card.value, pk_bytes(k->value, k->value_len));
    if (!same) {
        (void)pk_door_resize(k->value, 0);
        k->value = copy_of(card.value);
        k->value_len = card.value.len;
    }
    (void)pk_door_resize(room, 0);
    return !same;
}

static struct known *add_known(struct watch *w, const struct pk_etcd_kv *kv)
{
    struct known *k = pk_door_resize(NULL, sizeof *k);
    *k = (struct known){.lease = kv->lease, .created = kv->created};
    if (!pk_etcd_key_read(w->e, kv->key, k->name, &k->mode)) {
        (void)pk_door_resize(k, 0);
        return NULL;
    }
    k->key = copy_of(kv->key);
    k->since_ms = pk_clock_ms();
    (void)read_value(k, kv->value);
    if (w->count == w->capacity) {
        w->capacity = 2 * w->capacity + 16;
        w->list = pk_door_resize(w->list, w->capacity * sizeof w->list[0]);
    }
    w->list[w->count++] = k;
    return k;
}

/* Whether the claim holds, by the rule; *place among those that wait. */
static bool holds(const struct watch *w, const struct known *k, uint32_t *place)
{
    bool free = true;
    *place = 1;
    for (size_t i = 0; i < w->count; i++) {
        const struct known *other = w->list[i];
        if (other->created < k->created && strcmp(other->name, k->name) == 0) {
            bool rival = k->mode != PK_SHARED || other->mode != PK_SHARED;
            free = free && !rival;
            *place += !other->held;
        }
    }
    return free;
}

/* ---- notes ---- */

/* The lease of a note's key; 0: it is none. */
static uint64_t note_of(const struct watch *w, struct pk_bytes key)
{
    char text[PK_ETCD_KEY_MAX];
    char *end;
    size_t before = strlen(w->e->prefix) + strlen("/%note/");
    if (key.len >= sizeof text || key.len <= before) {
        return 0;
    }
    memcpy(text, key.data, key.len);
    text[key.len] = '\0';
    if (strncmp(text + strlen(w->e->prefix), "/%note/", strlen("/%note/")) != 0) {
        return 0;
    }
    uint64_t lease = strtoull(text + before, &end, 16);
    return *end == '\0' ? lease : 0;
}

static void keep_note(struct watch *w, uint64_t lease, const struct pk_etcd_event *event)
{
    size_t at = 0;
    while (at < w->n_notes && w->notes[at].lease != lease) {
        at++;
    }
    if (event->deleted) {
        if (at < w->n_notes) {
            w->notes[at].ended = event->kv.modified;
        }
        return;
    }
    if (at == w->n_notes) {
        if (w->n_notes == w->notes_capacity) {
            w->notes_capacity = 2 * w->notes_capacity + 16;
            w->notes = pk_door_resize(w->notes, w->notes_capacity * sizeof w->notes[0]);
        }
        w->notes[w->n_notes++] = (struct note){.lease = lease};
    }
    struct note *n = &w->notes[at];
    (void)pk_door_resize(n->text, 0);
    *n = (struct note){.lease = lease,
                       .revision = event->kv.modified,
                       .text = copy_of(event->kv.value),
                       .len = event->kv.value.len};
}

/* Notes that went before this revision are of no use any more. */
static void drop_notes(struct watch *w, uint64_t revision)
{
    size_t kept = 0;
    for (size_t i = 0; i < w->n_notes; i++) {
        if (w->notes[i].ended != 0 && w->notes[i].ended < revision) {
            (void)pk_door_resize(w->notes[i].text, 0);
        } else {
            w->notes[kept++] = w->notes[i];
        }
    }
    w->n_notes = kept;
}

/* Why the claim went at that revision. */
static enum pk_end why_ended(const struct watch *w, const struct known *k,
                             uint64_t revision, char by[PK_PRINCIPAL_MAX + 1],
                             char why[PK_REASON_MAX + 1])
{
    by[0] = why[0] = '\0';
    for (size_t i = 0; i < w->n_notes; i++) {
        const struct note *n = &w->notes[i];
        if (n->lease == k->lease) {
            enum pk_end end = pk_etcd_note_read(pk_bytes(n->text, n->len), by, why);
            bool now = n->revision == revision;
            bool closed = end == PK_END_CLOSED && n->ended == revision;
            if (now || closed) {
                return end != PK_END_EXPIRED || k->held ? end : PK_END_WITHDRAWN;
            }
        }
    }
    by[0] = why[0] = '\0';
    return k->ours ? PK_END_EXPIRED : PK_END_FORGOTTEN;
}

/* ---- events ---- */

static struct pk_effect effect_of(const struct known *k, enum pk_effect_kind kind)
{
    return (struct pk_effect){.kind = kind,
                              .name = pk_text(k->name),
                              .mode = k->mode,
                              .parts = 1,
                              .lease = k->lease,
                              .request = k->request,
                              .token = k->held ? k->created : 0,
                              .since_ms = pk_card_now()};
}

static void grant(struct known *k, struct pk_effects *out)
{
    uint64_t now = pk_clock_ms();
    k->held = true;
    struct pk_effect e = effect_of(k, PK_EV_GRANTED);
    e.value = pk_bytes(k->value, k->value_len);
    e.lasted_ms = now - k->since_ms;
    k->since_ms = now;
    pk_effects_add(out, &e);
}

static int older(const void *left, const void *right)
{
    const struct known *const *a = left;
    const struct known *const *b = right;
    return ((*a)->created > (*b)->created) - ((*a)->created < (*b)->created);
}

/* Grants what can be granted now, the oldest first. */
static void settle(struct watch *w, const char *name, struct pk_effects *out)
{
    uint32_t unused;
    qsort(w->list, w->count, sizeof w->list[0], older);
    for (size_t i = 0; i < w->count; i++) {
        struct known *k = w->list[i];
        if (!k->held && strcmp(k->name, name) == 0 && holds(w, k, &unused)) {
            grant(k, out);
        }
    }
}

static void written(struct watch *w, const struct pk_etcd_event *event,
                    struct pk_effects *out)
{
    size_t at = find_known(w, event->kv.key);
    uint32_t place;
    if (at < w->count) {
        struct known *k = w->list[at];
        if (read_value(k, event->kv.value) && k->held) {
            struct pk_effect e = effect_of(k, PK_EV_VALUE);
            e.value = pk_bytes(k->value, k->value_len);
            pk_effects_add(out, &e);
        }
        return;
    }
    struct known *k = add_known(w, &event->kv);
    if (k != NULL && holds(w, k, &place)) {
        grant(k, out);
    } else if (k != NULL) {
        struct pk_effect e = effect_of(k, PK_EV_QUEUED);
        e.place = place;
        pk_effects_add(out, &e);
    }
}

static void deleted(struct watch *w, const struct pk_etcd_event *event,
                    struct pk_effects *out)
{
    char by[PK_PRINCIPAL_MAX + 1], why[PK_REASON_MAX + 1];
    size_t at = find_known(w, event->kv.key);
    if (at == w->count) {
        return;
    }
    struct known *k = w->list[at];
    struct pk_effect e = effect_of(k, k->held ? PK_EV_ENDED : PK_EV_LEFT);
    e.end = why_ended(w, k, event->kv.modified, by, why);
    e.by = pk_text(by);
    e.why = pk_text(why);
    e.lasted_ms = pk_clock_ms() - k->since_ms;
    pk_effects_add(out, &e);
    w->list[at] = w->list[--w->count];
    if (w->count > 0) {
        settle(w, k->name, out);
    }
    free_known(k);
}

static void tell(struct watch *w, const struct pk_etcd_event *event,
                 struct pk_effects *out)
{
    uint64_t lease = note_of(w, event->kv.key);
    drop_notes(w, event->kv.modified);
    if (lease != 0) {
        keep_note(w, lease, event);
    } else if (event->deleted) {
        deleted(w, event, out);
    } else {
        written(w, event, out);
    }
    w->revision = event->kv.modified > w->revision ? event->kv.modified : w->revision;
}

/* False: the stream can't go on. */
static bool hear(struct watch *w, struct pk_bytes message, struct pk_effects *out)
{
    struct pk_etcd_seen seen;
    struct pk_etcd_event event;
    if (!pk_etcd_read_seen(message, &seen)) {
        return false;
    }
    w->created = w->created || seen.created;
    w->compacted = w->compacted || seen.compacted != 0;
    w->failures = 0;
    uint64_t told = w->revision; /* a new stream begins with it once more: etcd_ear.c */
    while (!seen.cancelled && pk_etcd_next_event(&seen.events, &event)) {
        if (event.kv.modified > told) {
            tell(w, &event, out);
        }
    }
    return !seen.cancelled;
}

/* ---- the stream ---- */

/* All claims as they are now. */
static enum picket_status load(struct watch *w, uint64_t until_ms)
{
    char from[PK_ETCD_KEY_MAX], end[PK_ETCD_KEY_MAX];
    struct pk_etcd_find find = {.limit = PAGE};
    struct pk_etcd_found found = {.more = true};
    struct pk_etcd_kv kv = {0};
    uint32_t unused;
    forget_all(w);
    snprintf(from, sizeof from, "%s/", w->e->prefix);
    pk_etcd_key_end(from, end);
    while (found.more) {
        find.key = pk_text(from);
        find.end = pk_text(end);
        enum picket_status s = pk_etcd_page(&w->caller, &find, until_ms, &found);
        if (s != PICKET_OK) {
            return s;
        }
        while (pk_etcd_next_kv(&found.kvs, &kv)) {
            (void)add_known(w, &kv);
        }
        find.revision = found.header.revision;
        found.more = found.more && pk_etcd_key_after(kv.key, from);
    }
    w->revision = find.revision;
    for (size_t i = 0; i < w->count; i++) {
        w->list[i]->held = holds(w, w->list[i], &unused);
    }
    w->compacted = false;
    return PICKET_OK;
}

static void dial(struct watch *w, uint64_t until_ms)
{
    struct pk_pb_out message = {0};
    char from[PK_ETCD_KEY_MAX], end[PK_ETCD_KEY_MAX];
    w->created = false;
    if (pk_etcd_dial(w->e, &w->caller, &w->stream, until_ms) != PICKET_OK) {
        return;
    }
    snprintf(from, sizeof from, "%s/", w->e->prefix);
    pk_etcd_key_end(from, end);
    pk_etcd_put_watch(&message, &(struct pk_etcd_watching){.key = pk_text(from),
                                                           .end = pk_text(end),
                                                           .from = w->revision,
                                                           .id = WATCH_ID});
    pk_etcd_stream_send(&w->stream, &message);
    pk_pb_free(&message);
}

/* Takes in what has come. */
static void pump(struct watch *w, struct pk_effects *out)
{
    struct pk_bytes message;
    bool was_on = w->stream.running;
    bool on = pk_etcd_stream_pump(&w->stream);
    while (was_on && pk_etcd_stream_next(&w->stream, &message)) {
        if (!hear(w, message, out)) {
            on = false;
            break;
        }
    }
    if (was_on && (!on || !pk_etcd_stream_alive(&w->stream))) {
        pk_etcd_stream_hang_up(&w->stream);
        w->caller.at = (w->caller.at + 1) % w->e->site.places.count;
        w->failures++;
        w->redial_ms = pk_clock_ms() + pk_backoff_ms(w->failures, REDIAL_LEAST_MS,
                                                     REDIAL_MOST_MS, pk_random());
    }
}

/* Sleeps until there may be something to pump. */
static void sleep_until(struct watch *w, uint64_t until_ms)
{
    uint64_t due = w->stream.running ? pk_etcd_stream_due(&w->stream) : w->redial_ms;
    struct pollfd fd = {.fd = w->stream.epoll_fd, .events = POLLIN};
    pk_timer_set(w->stream.timer_fd, due < until_ms ? due : until_ms);
    (void)poll(&fd, 1, pk_clock_ms() < until_ms ? -1 : 0);
}

/* ---- the door ---- */

enum picket_status pk_etcd_watch_open(void *own, void **out)
{
    struct watch *w = pk_door_resize(NULL, sizeof *w);
    *w = (struct watch){.e = own};
    struct pk_effects none = {0};
    uint64_t until = pk_clock_ms() + OPEN_PATIENCE_MS;
    enum picket_status s = pk_etcd_caller_init(&w->caller, &w->e->site);
    if (s != PICKET_OK) {
        (void)pk_door_resize(w, 0);
        return s;
    }
    s = pk_etcd_stream_init(&w->stream);
    if (s != PICKET_OK) {
        pk_etcd_caller_free(&w->caller);
        (void)pk_door_resize(w, 0);
        return s;
    }
    s = load(w, until);
    while (s == PICKET_OK && !w->created) { /* from now on its descriptor tells */
        if (pk_clock_ms() >= until) {
            s = pk_fail(PICKET_UNREACHABLE, "%s does not let us watch: %s",
                        w->e->site.shown, w->stream.line.trouble);
        } else if (!w->stream.running && w->redial_ms <= pk_clock_ms()) {
            dial(w, until);
        } else {
            sleep_until(w, until);
            pump(w, &none);
        }
    }
    pk_effects_free(&none);
    if (s != PICKET_OK) {
        pk_etcd_watch_close(w);
        return s;
    }
    *out = w;
    return PICKET_OK;
}

enum picket_status pk_etcd_watch_next(void *watch, uint64_t until_ms,
                                      struct pk_effects *out, bool *gap)
{
    struct watch *w = watch;
    for (;;) {
        pump(w, out);
        *gap = w->compacted;
        if (w->compacted) {
            enum picket_status s = load(w, pk_clock_ms() + OPEN_PATIENCE_MS);
            if (s != PICKET_OK && s != PICKET_UNREACHABLE && s != PICKET_UNKNOWN) {
                return s;
            }
            *gap = s == PICKET_OK;
        }
        if (!w->stream.running && !w->compacted && w->redial_ms <= pk_clock_ms()) {
            dial(w, until_ms);
        }
        uint64_t due = w->stream.running ? pk_etcd_stream_due(&w->stream) : w->redial_ms;
        pk_timer_set(w->stream.timer_fd, due);
        if (*gap || out->count > 0 || pk_clock_ms() >= until_ms) {
            return PICKET_OK;
        }
        sleep_until(w, until_ms);
    }
}

int pk_etcd_watch_fd(void *watch)
{
    const struct watch *w = watch;
    return w->stream.epoll_fd;
}

void pk_etcd_watch_close(void *watch)
{
    struct watch *w = watch;
    forget_all(w);
    (void)pk_door_resize(w->list, 0);
    (void)pk_door_resize(w->notes, 0);
    pk_etcd_stream_free(&w->stream);
    pk_etcd_caller_free(&w->caller);
    (void)pk_door_resize(w, 0);
}

void pk_etcd_watch_forked(void *watch)
{
    struct watch *w = watch;
    pk_etcd_line_forked(&w->caller.line);
    pk_etcd_stream_forked(&w->stream);
}
