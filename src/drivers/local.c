/* SPDX-License-Identifier: MIT */
/*
 * The embedded default: the lock machine over a journal in a directory, without a server.
 *
 * Every process has its own copy of the machine. A turn is: take the file lock, apply
 * what others appended, append the own command, wait until it is on disk, apply it, let
 * go. So all copies run the same commands in the same order, and a command that was
 * answered survives anything short of losing the disk (P3). Compaction replaces the
 * journal by a snapshot of the copy.
 *
 * Cluster time follows CLOCK_BOOTTIME, which all processes of a machine share, but for a
 * fixed offset in each time namespace: an *epoch* record says where it stood when. After
 * a reboot the clock begins anew, so the first turn writes a new epoch in which cluster
 * time goes on from where it was: leases are stretched, never shortened (P4).
 *
 * Sleepers (wait) are poked by whoever grants them something; they also wake by
 * themselves when the next deadline of the machine comes, since nobody else may be left
 * to notice that a holder died.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "client/driver.h"
#include "client/error.h"
#include "core/door.h"
#include "core/version.h"
#include "drivers/epoch.h"
#include "drivers/journal.h"
#include "drivers/local_disk.h"
#include "drivers/wakeup.h"
#include "host/clock.h"
#include "host/fd.h"
#include "host/version.h"

enum {
    POKES_MAX = 64,          /* that wait for the end of the turn */
    DEAF_NAP_MS = 100,       /* how long to sleep when nobody can poke us */
    SYNC_PATIENCE_MS = 1000, /* for the lock, when there is no deadline of the caller's */
};

struct pk_store {
    pthread_mutex_t mutex; /* guards all but the descriptors of wait */
    struct pk_journal journal;
    struct pk_wakeup wakeup;
    struct pk_machine *machine; /* NULL until the first turn */
    struct pk_epoch epoch;      /* of the journal */
    struct pk_boot_clock clock; /* of this process */
    struct pk_effects scratch;  /* of one step */
    unsigned char *encoded;
    size_t encoded_capacity;
    uint32_t needs; /* cluster version of a snapshot that could not be read; 0: none */

    uint64_t lease; /* attended */
    bool watching;  /* all events are news */
    struct pk_effects inbox;
    bool missed;
    uint64_t turn_ms;      /* when the present turn began */
    uint64_t last_turn_ms; /* and the last that was finished */
    uint64_t news_since_ms;

    uint64_t pokes[POKES_MAX]; /* leases to poke after the turn */
    uint32_t n_pokes;

    /* Used by wait alone. */
    int timer_fd, wake_fd, inotify_fd;
    bool stuck; /* the last look failed */
};

/* ---- what steps lead to ---- */

static void poke_all(struct pk_store *s)
{
    for (uint32_t i = 0; i < s->n_pokes; i++) {
        pk_wakeup_poke(&s->wakeup, s->pokes[i]);
    }
    s->n_pokes = 0;
}

static void note_poke(struct pk_store *s, const struct pk_effect *e)
{
    bool worth_waking = e->kind == PK_EV_GRANTED || e->kind == PK_EV_ENDED ||
                        e->kind == PK_EV_LEFT || e->kind == PK_EV_LEASE_ENDED;
    bool again = s->n_pokes > 0 && s->pokes[s->n_pokes - 1] == e->lease;
    if (!worth_waking || again || e->lease == s->lease) {
        return;
    }
    if (s->n_pokes == POKES_MAX) {
        poke_all(s); /* early: they will find the lock taken for a moment */
    }
    s->pokes[s->n_pokes++] = e->lease;
}

/* When cluster time was `tau_ms`, by our clock, for something that we had not seen in our
 * last turn. Never too late: max-hold counts from here. */
static uint64_t our_time(const struct pk_store *s, uint64_t tau_ms)
{
    bool known = pk_epoch_fits(&s->epoch, &s->clock) && tau_ms >= s->epoch.tau_ms;
    return known ? pk_epoch_to_clock(&s->epoch, &s->clock, tau_ms) : s->last_turn_ms;
}

static void add_news(struct pk_store *s, const struct pk_effect *e)
{
    uint64_t at = our_time(s, e->since_ms);
    bool first = s->inbox.count == 0 && !s->missed;
    if (first || at < s->news_since_ms) {
        s->news_since_ms = at;
    }
    pk_effects_add(&s->inbox, e);
}

/* Runs a command of the journal on our copy. `ours`: we appended it, so we do the poking.
 */
static void step(struct pk_store *s, const struct pk_command *c, bool ours)
{
    pk_effects_reset(&s->scratch);
    pk_machine_step(s->machine, c, &s->scratch);
    for (uint32_t i = 0; i < s->scratch.count; i++) {
        struct pk_effect *e = &s->scratch.list[i];
        if (e->kind < PK_EV_LEASE_OPENED) {
            continue;
        }
        if (ours) {
            note_poke(s, e);
        }
        if (s->watching || (s->lease != 0 && e->lease == s->lease)) {
            e->since_ms = pk_machine_clock(s->machine);
            add_news(s, e);
        }
    }
}

/* The lease's grants that we have not seen: here, we know when they were. */
static void notice_grants(struct pk_store *s, struct pk_machine *now)
{
    struct pk_command c = {
        .verb = PK_LEASE_SHOW, .lease = s->lease, .count = PK_PAGE_MAX};
    struct pk_effects rows = {0};
    pk_machine_step(now, &c, &rows);
    for (uint32_t i = 1; i < rows.count; i++) {
        struct pk_effect e = rows.list[i];
        uint64_t token;
        if (e.kind == PK_ROW_HOLD && pk_machine_claim(s->machine, s->lease, e.request,
                                                      &token) == PK_CLAIM_WAITING) {
            e.kind = PK_EV_GRANTED;
            add_news(s, &e);
        }
    }
    pk_effects_free(&rows);
}

/* The journal was replaced before we had read all of the old one: events of our lease may
 * be in what we have not seen. If the numbers say so, the next renewal tells what. */
static void notice_changes(struct pk_store *s, struct pk_machine *now)
{
    enum pk_end end = pk_machine_lease_end(now, s->lease);
    if (pk_machine_lease_end(s->machine, s->lease) != PK_END_NONE) {
        return; /* and that is known */
    }
    if (end != PK_END_NONE) {
        struct pk_effect e = {.kind = PK_EV_LEASE_ENDED, .lease = s->lease, .end = end};
        add_news(s, &e);
    } else if (pk_machine_lease_events(now, s->lease) !=
               pk_machine_lease_events(s->machine, s->lease)) {
        notice_grants(s, now);
        s->missed = true;
    }
}

static bool apply_record(void *ctx, enum pk_record kind, struct pk_bytes data)
{
    struct pk_store *s = ctx;
    const unsigned char *at = (const unsigned char *)data.data;
    if (kind == PK_RECORD_SNAPSHOT) {
        struct pk_machine *m = pk_machine_restore(at, data.len);
        if (m == NULL) {
            s->needs = pk_snapshot_version(at, data.len);
            return false;
        }
        if (s->machine != NULL && s->lease != 0) {
            notice_changes(s, m);
        }
        s->missed = s->missed || (s->machine != NULL && s->watching);
        pk_machine_free(s->machine);
        s->machine = m;
        return true;
    }
    if (kind == PK_RECORD_EPOCH) {
        return pk_epoch_decode(data, &s->epoch);
    }
    if (kind != PK_RECORD_COMMANDS || s->machine == NULL) {
        return false;
    }
    size_t left = data.len;
    while (left > 0) {
        struct pk_command c;
        size_t n = pk_command_decode(at, left, &c);
        if (n == 0) {
            return false;
        }
        step(s, &c, false);
        at += n;
        left -= n;
    }
    return true;
}

/* ---- turns ---- */

/* Makes the file's last records a snapshot of our copy; the first journal is made the
 * same way. */
static enum picket_status rewrite(struct pk_store *s)
{
    unsigned char epoch[PK_EPOCH_BYTES_MAX];
    unsigned char *snapshot;
    size_t epoch_len = pk_epoch_encode(&s->epoch, epoch);
    size_t len = pk_machine_snapshot(s->machine, &snapshot);
    enum picket_status status = pk_journal_replace(&s->journal, pk_bytes(snapshot, len),
                                                   pk_bytes(epoch, epoch_len));
    pk_door_resize(snapshot, 0);
    return status;
}

/* The last epoch is of a boot before this one, or of a clock that can't be compared with
 * ours: cluster time goes on from where the machine stands, by our clock. */
static enum picket_status begin_epoch(struct pk_store *s)
{
    struct pk_epoch e = pk_epoch_begin(&s->clock, pk_machine_clock(s->machine));
    unsigned char bytes[PK_EPOCH_BYTES_MAX];
    size_t len = pk_epoch_encode(&e, bytes);
    enum picket_status status =
        pk_journal_append(&s->journal, PK_RECORD_EPOCH, pk_bytes(bytes, len));
    if (status == PICKET_OK) {
        s->epoch = e;
    }
    return status;
}

/* Makes the first journal, of an empty machine. */
static enum picket_status begin_journal(struct pk_store *s)
{
    if (s->machine != NULL) {
        return pk_fail(PICKET_STORE, "%s/journal is gone", s->journal.path);
    }
    s->machine = pk_machine_new();
    s->epoch = pk_epoch_begin(&s->clock, 0);
    enum picket_status status = rewrite(s);
    if (status != PICKET_OK) {
        pk_machine_free(s->machine);
        s->machine = NULL; /* so that the next turn tries again */
    }
    return status;
}

/* Takes the lock and brings our copy up to date. On OK it is ours until end_turn. */
static enum picket_status begin_turn(struct pk_store *s, uint64_t until_ms)
{
    enum picket_status status = pk_journal_lock(&s->journal, until_ms);
    if (status != PICKET_OK) {
        return status;
    }
    s->turn_ms = pk_clock_ms();
    bool empty;
    s->needs = 0;
    status = pk_journal_read(&s->journal, apply_record, s, &empty);
    if (s->needs != 0 && !pk_version_runs(s->needs)) {
        status =
            pk_fail(PICKET_STORE, "%s", pk_version_needed(s->journal.path, s->needs));
    }
    if (status == PICKET_OK && empty) {
        status = begin_journal(s);
    }
    if (status == PICKET_OK && !pk_epoch_fits(&s->epoch, &s->clock)) {
        status = begin_epoch(s);
    }
    if (status != PICKET_OK) {
        pk_journal_unlock(&s->journal);
    }
    return status;
}

static void end_turn(struct pk_store *s)
{
    if (pk_journal_bloated(&s->journal)) {
        /* Failing to compact (a full disk) loses nothing: the command of this turn is in
         * the old journal and in the new one, and the next append makes sure of its own.
         */
        enum picket_status unimportant = rewrite(s);
        (void)unimportant;
    }
    s->last_turn_ms = s->turn_ms;
    pk_journal_unlock(&s->journal);
    poke_all(s);
}

/* Appends the command, stamped with the present, and runs it. One that needs a newer
 * cluster version than the store has is not appended: other processes could not read it.
 */
static enum picket_status commit(struct pk_store *s, struct pk_command *c)
{
    if (pk_command_needs(c) > pk_machine_version(s->machine)) {
        return pk_fail(PICKET_BADARG, "%s needs cluster version %u; %s has version %u",
                       pk_verb_name(c->verb), pk_command_needs(c), s->journal.path,
                       pk_machine_version(s->machine));
    }
    c->stamp_ms = pk_epoch_now(&s->epoch, &s->clock);
    size_t size = pk_command_size(c);
    if (s->encoded_capacity < size) {
        s->encoded = pk_door_resize(s->encoded, size);
        s->encoded_capacity = size;
    }
    pk_command_encode(c, s->encoded);
    enum picket_status status =
        pk_journal_append(&s->journal, PK_RECORD_COMMANDS, pk_bytes(s->encoded, size));
    if (status == PICKET_OK) {
        step(s, c, true);
    }
    return status;
}

/* What is due by now ends before anybody is answered. */
static enum picket_status tick_if_due(struct pk_store *s)
{
    struct pk_command tick = {.verb = PK_TICK};
    bool due = pk_machine_next_deadline(s->machine) <= pk_epoch_now(&s->epoch, &s->clock);
    return due ? commit(s, &tick) : PICKET_OK;
}

static enum picket_status run(struct pk_store *s, struct pk_command *c)
{
    if (!pk_command_is_read(c)) {
        return commit(s, c);
    }
    enum picket_status status = tick_if_due(s);
    if (status == PICKET_OK) {
        c->stamp_ms = pk_epoch_now(&s->epoch, &s->clock);
        pk_effects_reset(&s->scratch);
        pk_machine_read(s->machine, c, &s->scratch);
        s->scratch.list[0].since_ms = c->stamp_ms; /* so that ages can be told */
    }
    return status;
}

static enum picket_status local_call(struct pk_store *s, struct pk_command *c,
                                     uint64_t until_ms, struct pk_effects *out)
{
    const char *wrong = pk_command_wrong(c);
    if (wrong != NULL) {
        return pk_fail(PICKET_BADARG, "%s", wrong);
    }
    pthread_mutex_lock(&s->mutex);
    enum picket_status status = begin_turn(s, until_ms);
    if (status == PICKET_OK) {
        status = run(s, c);
        for (uint32_t i = 0; status == PICKET_OK && i < s->scratch.count; i++) {
            if (s->scratch.list[i].kind < PK_EV_LEASE_OPENED) {
                pk_effects_add(out, &s->scratch.list[i]);
            }
        }
        end_turn(s);
    }
    pthread_mutex_unlock(&s->mutex);
    return status;
}

/* A turn of our own: only looks, and lets time do its work. */
static enum picket_status sync_up(struct pk_store *s, uint64_t until_ms)
{
    pthread_mutex_lock(&s->mutex);
    enum picket_status status = begin_turn(s, until_ms);
    if (status == PICKET_OK) {
        status = tick_if_due(s);
        end_turn(s);
    }
    pthread_mutex_unlock(&s->mutex);
    return status;
}

/* ---- news and waiting ---- */

static void local_attend(struct pk_store *s, uint64_t lease)
{
    pthread_mutex_lock(&s->mutex);
    s->lease = lease;
    pk_effects_reset(&s->inbox);
    s->missed = false;
    pk_wakeup_listen(&s->wakeup, lease);
    pthread_mutex_unlock(&s->mutex);
}

static bool local_news(struct pk_store *s, struct pk_effects *out, uint64_t *since_ms)
{
    pthread_mutex_lock(&s->mutex);
    for (uint32_t i = 0; i < s->inbox.count; i++) {
        pk_effects_add(out, &s->inbox.list[i]);
    }
    pk_effects_reset(&s->inbox);
    *since_ms = s->news_since_ms;
    bool whole = !s->missed;
    s->missed = false;
    pthread_mutex_unlock(&s->mutex);
    return whole;
}

static enum picket_status local_claim(struct pk_store *s, uint64_t lease,
                                      uint64_t request, enum pk_claim_state *state,
                                      uint64_t *token)
{
    pthread_mutex_lock(&s->mutex);
    *state = s->machine == NULL ? PK_CLAIM_NONE
                                : pk_machine_claim(s->machine, lease, request, token);
    pthread_mutex_unlock(&s->mutex);
    return PICKET_OK;
}

/* When the machine will next change by itself, by our clock; UINT64_MAX: never. */
static uint64_t next_change_ms(struct pk_store *s)
{
    pthread_mutex_lock(&s->mutex);
    uint64_t at = UINT64_MAX;
    uint64_t deadline =
        s->machine == NULL ? UINT64_MAX : pk_machine_next_deadline(s->machine);
    if (deadline != UINT64_MAX) {
        at = pk_epoch_to_clock(&s->epoch, &s->clock, deadline);
    }
    pthread_mutex_unlock(&s->mutex);
    return at;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void drain(int fd)
{
    char bytes[4096];
    while (fd >= 0 && read(fd, bytes, sizeof bytes) > 0) {
    }
}

/* Sleeps until `until_ms`, a poke, a call of wake or a change of the journal that we
 * watch. */
static void nap(struct pk_store *s, uint64_t until_ms)
{
    pk_timer_set(s->timer_fd, until_ms == UINT64_MAX ? 0 : until_ms);
    pthread_mutex_lock(&s->mutex);
    int ear = s->wakeup.ear; /* a new lease would bring a new one, and a call of wake */
    pthread_mutex_unlock(&s->mutex);
    struct pollfd fds[] = {{.fd = s->timer_fd, .events = POLLIN},
                           {.fd = s->wake_fd, .events = POLLIN},
                           {.fd = ear, .events = POLLIN},
                           {.fd = s->inotify_fd, .events = POLLIN}};
    if (until_ms > pk_clock_ms()) {
        poll(fds, sizeof fds / sizeof fds[0], -1);
    }
    drain(s->timer_fd);
    drain(s->wake_fd);
    drain(s->inotify_fd);
    pthread_mutex_lock(&s->mutex);
    pk_wakeup_drain(&s->wakeup);
    pthread_mutex_unlock(&s->mutex);
}

/* True when we attend a lease and nobody can poke us about it. */
static bool deaf(struct pk_store *s)
{
    pthread_mutex_lock(&s->mutex);
    bool no_ear = s->lease != 0 && s->wakeup.ear < 0;
    pthread_mutex_unlock(&s->mutex);
    return no_ear;
}

static void local_wait(struct pk_store *s, uint64_t until_ms, bool waiting)
{
    uint64_t at = waiting ? earlier(until_ms, next_change_ms(s)) : until_ms;
    if (s->stuck) {
        /* What was due then is due still; on a full disk we can only try now and then. */
        uint64_t later = pk_clock_ms() + DEAF_NAP_MS;
        at = earlier(until_ms, at > later ? at : later);
    }
    if (deaf(s)) {
        at = earlier(at, pk_clock_ms() + DEAF_NAP_MS);
    }
    nap(s, at);
    /* Failing means no news; the next renewal reports what is wrong. */
    s->stuck = sync_up(s, pk_clock_ms() + SYNC_PATIENCE_MS) != PICKET_OK;
}

static void local_wake(struct pk_store *s)
{
    pk_fd_poke(s->wake_fd);
}

/* ---- watching ---- */

static enum picket_status open_at(const char *path, struct pk_store **out);
static void local_close(struct pk_store *s);

static enum picket_status local_watch_open(struct pk_store *s, struct pk_store **out)
{
    struct pk_store *w;
    enum picket_status status = open_at(s->journal.path, &w);
    if (status != PICKET_OK) {
        return status;
    }
    w->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    char through_fd[64];
    snprintf(through_fd, sizeof through_fd, "/proc/self/fd/%d", w->journal.dir_fd);
    if (w->inotify_fd < 0 ||
        inotify_add_watch(w->inotify_fd, through_fd, IN_MODIFY | IN_MOVED_TO) < 0) {
        status =
            pk_fail(PICKET_STORE, "can't watch %s: %s", s->journal.path, strerror(errno));
        local_close(w);
        return status;
    }
    status = sync_up(w, pk_clock_ms() + SYNC_PATIENCE_MS);
    if (status != PICKET_OK) {
        local_close(w);
        return status;
    }
    w->watching = true;
    *out = w;
    return PICKET_OK;
}

static enum picket_status local_watch_next(struct pk_store *w, uint64_t until_ms,
                                           struct pk_effects *out, bool *gap)
{
    for (;;) {
        enum picket_status status = sync_up(w, pk_clock_ms() + SYNC_PATIENCE_MS);
        if (status != PICKET_OK && status != PICKET_UNREACHABLE) {
            return status;
        }
        uint64_t unused;
        *gap = !local_news(w, out, &unused);
        if (*gap || out->count > 0 || pk_clock_ms() >= until_ms) {
            return PICKET_OK;
        }
        nap(w, earlier(until_ms, next_change_ms(w)));
    }
}

static int local_watch_fd(struct pk_store *w)
{
    return w->inotify_fd;
}

/* ---- opening and closing ---- */

static enum picket_status open_at(const char *path, struct pk_store **out)
{
    struct pk_store *s = pk_door_resize(NULL, sizeof *s);
    memset(s, 0, sizeof *s);
    s->inotify_fd = -1;
    pthread_mutex_init(&s->mutex, NULL);
    s->clock = pk_boot_clock_find();
    enum picket_status status = pk_journal_open(&s->journal, path);
    /* Nothing is made in a directory that isn't ours. */
    pk_wakeup_open(&s->wakeup, &s->journal.dir,
                   status == PICKET_OK ? s->journal.dir_fd : -1);
    s->timer_fd = pk_timer_fd(0);
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (status == PICKET_OK && (s->timer_fd < 0 || s->wake_fd < 0)) {
        status = pk_fail(PICKET_STORE, "no file descriptors left: %s", strerror(errno));
    }
    if (status == PICKET_OK) {
        /* Looked at once now, so that a place we can't use is refused at the door. */
        status = sync_up(s, pk_clock_ms() + UINT64_C(10) * SYNC_PATIENCE_MS);
    }
    if (status != PICKET_OK) {
        local_close(s);
        return status;
    }
    *out = s;
    return PICKET_OK;
}

/* Where the state is when the URL doesn't say: the machine's, if there is one that we may
 * use, else our own. */
static enum picket_status default_path(char *out, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    bool chosen = state != NULL && state[0] == '/';
    if (pk_state_dir_machine() || (geteuid() == 0 && !chosen)) {
        snprintf(out, size, "%s", PK_STATE_DIR_MACHINE);
    } else if (chosen) {
        snprintf(out, size, "%s/picket", state);
    } else if (home != NULL && home[0] == '/') {
        snprintf(out, size, "%s/.local/state/picket", home);
    } else {
        return pk_fail(PICKET_BADARG,
                       "no HOME is set: say where the state is, with local:DIR");
    }
    return PICKET_OK;
}

static enum picket_status local_open(const char *rest, struct pk_store **out)
{
    char path[4096];
    if (rest[0] == '\0') {
        enum picket_status status = default_path(path, sizeof path);
        return status == PICKET_OK ? open_at(path, out) : status;
    }
    return open_at(rest, out);
}

static void local_forked(struct pk_store *s)
{
    pk_journal_forked(&s->journal);
    pk_wakeup_forked(&s->wakeup);
    pk_fd_close(&s->timer_fd);
    pk_fd_close(&s->wake_fd);
    pk_fd_close(&s->inotify_fd);
}

static void local_close(struct pk_store *s)
{
    pk_wakeup_close(&s->wakeup);
    local_forked(s);
    pk_journal_close(&s->journal);
    pk_machine_free(s->machine);
    pk_effects_free(&s->scratch);
    pk_effects_free(&s->inbox);
    pk_door_resize(s->encoded, 0);
    pthread_mutex_destroy(&s->mutex);
    pk_door_resize(s, 0);
}

static enum picket_status local_examine(struct pk_store *s, struct pk_findings *out,
                                        uint64_t until_ms)
{
    (void)until_ms;
    pk_state_dir_examine(&s->journal.dir, s->journal.path, out);
    return pk_local_disk_examine(s->journal.dir_fd, s->journal.path, out);
}

const struct pk_driver pk_local_driver = {
    .scheme = "local",
    .form = "local:DIR",
    .guarantees = {.driver = "local",
                   .promise = "correctness",
                   .scope = "one machine",
                   .token = "one counter in the machine, raised by every grant",
                   .fairness = "fifo",
                   .waiting = "push",
                   .clock = "CLOCK_BOOTTIME of this machine; wall clock not used",
                   .failover =
                       "none: state is in one directory; survives kill -9 and reboot",
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
    .open = local_open,
    .close = local_close,
    .forked = local_forked,
    .call = local_call,
    .tells_missed = true,
    .attend = local_attend,
    .wait = local_wait,
    .wake = local_wake,
    .news = local_news,
    .claim = local_claim,
    .watch_open = local_watch_open,
    .watch_next = local_watch_next,
    .watch_fd = local_watch_fd,
    .examine = local_examine,
};
