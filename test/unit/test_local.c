/* SPDX-License-Identifier: MIT */
/* The embedded default among processes that are killed, stopped, and wait for each
 * other. */
#include <inttypes.h>
#include <sys/syscall.h>

#include "client/keeper.h"
#include "drivers/epoch.h"
#include "drivers/journal.h"
#include "host/filelock.h"
#include "workers.h"

/* ---- tokens (P2) ---- */

TEST(local__tokens_grow_across_reopening)
{
    fresh();
    uint64_t last = 0;
    for (int i = 0; i < 30; i++) {
        struct picket *p = open_client(0);
        struct picket_lock *l = take(p, "db");
        CHECK(picket_token(l) > last);
        last = picket_token(l);
        if (i % 2 == 0) {
            picket_lock_close(l);
        }
        picket_close(p);
    }
}

TEST(local__tokens_grow_across_compaction)
{
    fresh();
    struct picket *idle = open_client(LONG_TTL_MS);
    struct picket *busy = open_client(LONG_TTL_MS);
    struct picket_lock *kept = take(busy, "kept");
    uint64_t last = picket_token(kept);
    for (int i = 0; i < 6; i++) {
        compact(busy);
        /* Whoever was away meanwhile, whoever was there, and whoever is new. */
        struct picket *new = open_client(0);
        struct picket *who[] = {idle, busy, new};
        for (int k = 0; k < 3; k++) {
            struct picket_lock *l = take(who[k], "db");
            CHECK(picket_token(l) > last);
            last = picket_token(l);
            picket_lock_close(l);
        }
        picket_close(new);
        CHECK(file_size(in_state("journal")) < 400000);
    }
    CHECK(picket_checkpoint(kept, 1) == PICKET_OK);
    CHECK(picket_release(kept) == PICKET_OK);
    picket_close(idle);
    picket_close(busy);
}

TEST(local__tokens_grow_across_a_torn_tail)
{
    fresh();
    struct picket *witness = open_client(LONG_TTL_MS);
    uint64_t last = 0;
    for (size_t n = 1; n < 40; n++) {
        struct picket *p = open_client(0);
        struct picket_lock *l = take(p, "db");
        CHECK(picket_token(l) > last);
        last = picket_token(l);
        picket_close(p);
        /* The beginning of a record, as a writer leaves it that was killed in a write. */
        struct file f = file_read(in_state("journal"));
        int fd = open(in_state("journal"), O_WRONLY | O_APPEND | O_CLOEXEC);
        CHECK(fd >= 0 && write(fd, f.bytes + 8, n) == (ssize_t)n);
        (void)close(fd);
        file_drop(&f);
        l = take(witness, "db");
        CHECK(picket_token(l) > last);
        last = picket_token(l);
        picket_lock_close(l);
    }
    picket_close(witness);
}

/* ---- kill -9 ---- */

enum { ROUNDS = 40, RIVALS = 3, SHORT_TTL_MS = 150 };

struct arena {
    _Atomic uint64_t inside;  /* until when whoever is in there is safe; 0: nobody */
    _Atomic uint64_t highest; /* token seen by anybody */
    _Atomic uint64_t grants, overlaps, repeats;
};

/* What a holder does. It may be a zombie at any time, and so may the one before it: what
 * counts is that two who are both safe by their own clocks never meet (P1, P5). */
static void be_inside(struct arena *a, struct picket_lock *l)
{
    uint64_t token = picket_token(l);
    uint64_t until = picket_safe_until_ms(l);
    uint64_t other = atomic_exchange(&a->inside, until);
    if (picket_checkpoint(l, 1) == PICKET_OK && other > pk_clock_ms()) {
        a->overlaps++;
    }
    uint64_t highest = a->highest;
    while (highest < token &&
           !atomic_compare_exchange_weak(&a->highest, &highest, token)) {
    }
    a->grants++;
    (void)atomic_compare_exchange_strong(&a->inside, &until, 0);
}

static void be_a_rival(int in, int out, void *arg)
{
    struct arena *a = arg;
    (void)in;
    uint64_t last = 0;
    struct picket *p = try_open(SHORT_TTL_MS);
    MUST(p != NULL);
    for (;;) {
        struct picket_lock *l;
        enum picket_status s = picket_acquire(p, "db", NULL, &l);
        MUST(s == PICKET_OK ||
             s == PICKET_LOST); /* lost: not renewed in time, a slow day */
        if (s == PICKET_OK) {
            if (last == 0) {
                put_byte(out, 'r');
            }
            a->repeats += picket_token(l) <= last;
            last = picket_token(l);
            be_inside(a, l);
            s = picket_release(l);
            MUST(s == PICKET_OK || s == PICKET_LOST || s == PICKET_NOTHELD);
            picket_lock_close(l);
        }
    }
}

TEST(local__killed_at_any_moment_nothing_breaks)
{
    fresh();
    struct arena *a = share(sizeof *a);
    struct worker *rivals[RIVALS];
    struct picket *p = open_client(LONG_TTL_MS);
    for (int i = 0; i < RIVALS; i++) {
        rivals[i] = hire(be_a_rival, a);
        CHECK(hear(rivals[i]) == 'r');
    }
    for (int round = 0; round < ROUNDS; round++) {
        /* Not to wait for anything: a moment that nobody chose. */
        unsigned us = (unsigned)(a->grants * 7919 + (unsigned)round * 104729) % 20000;
        (void)usleep(us);
        struct worker **victim = &rivals[round % RIVALS];
        fire(*victim);
        uint64_t before = a->highest;
        struct picket_lock *l;
        struct picket_acquire_options o = {.wait_ms = PATIENCE_MS};
        CHECK(picket_acquire(p, "db", &o, &l) == PICKET_OK);
        CHECK(picket_token(l) > before);
        be_inside(a, l);
        struct picket_view *v;
        CHECK(picket_show(p, "db", &v) == PICKET_OK);
        CHECK_U64(v->holders, 1);
        CHECK_U64(v->rows[0].token, picket_token(l));
        CHECK_U64(v->rows[0].lease, picket_lease(p));
        picket_view_free(v);
        CHECK(picket_release(l) == PICKET_OK);
        picket_lock_close(l);
        *victim = hire(be_a_rival, a);
        CHECK(hear(*victim) == 'r');
    }
    fire_all();
    CHECK_U64(a->overlaps, 0);
    CHECK_U64(a->repeats, 0);
    printf("# %d killed among %" PRIu64 " grants\n", ROUNDS, (uint64_t)a->grants);
    CHECK(a->highest >= a->grants);
    picket_close(p);
}

struct holder {
    uint32_t ttl_ms;
    struct picket_acquire_options o;
    _Atomic uint64_t safe_until, token;
};

static void note_safe(uint64_t safe_until_ms, void *ctx)
{
    ((struct holder *)ctx)->safe_until = safe_until_ms;
}

/* Holds "db", renewing; releases it when told 'r', closes its client on 'c'. */
static void be_a_holder(int in, int out, void *arg)
{
    struct holder *h = arg;
    struct picket *p = try_open(h->ttl_ms);
    struct picket_lock *l;
    MUST(p != NULL && picket_acquire(p, "db", &h->o, &l) == PICKET_OK);
    picket_on_renewal(l, note_safe, h);
    if (h->safe_until == 0) {
        h->safe_until = picket_safe_until_ms(l);
    }
    h->token = picket_token(l);
    put_byte(out, 'h');
    int order = next_byte(in, 2 * PATIENCE_MS);
    if (order == 'r') {
        MUST(picket_release(l) == PICKET_OK);
        put_byte(out, 'r');
        await(in, 'q');
    }
    picket_close(p);
}

/* The waiter is woken by the end of the dead one's lease, of which nobody is left to
 * tell, and not before the dead one's own view would have ended (P5). */
TEST(local__a_killed_holder_is_followed_after_its_ttl)
{
    fresh();
    struct holder *h = share(sizeof *h);
    *h = (struct holder){.ttl_ms = 400, .o = {.wait_ms = PICKET_FOREVER}};
    struct picket *p = open_client(LONG_TTL_MS);
    for (int i = 0; i < 4; i++) {
        h->safe_until = 0;
        struct worker *w = hire(be_a_holder, h);
        CHECK(hear(w) == 'h');
        struct picket_lock *l = enqueue(p, "db", NULL);
        CHECK(picket_state(l) == PICKET_WAITING);
        /* So that it dies early, or after some renewals. */
        CHECK(!readable(picket_ready_fd(l), i * 150));
        fire(w);
        CHECK(readable(picket_ready_fd(l), PATIENCE_MS));
        CHECK(pk_clock_ms() >= h->safe_until);
        CHECK(picket_wait(l, 0) == PICKET_OK);
        CHECK(picket_token(l) > h->token);
        picket_lock_close(l);
    }
    picket_close(p);
}

/* Who only looks sees the end of the dead one's lease too: nobody else is there to write
 * it down. */
TEST(local__a_killed_holder_is_not_shown_for_ever)
{
    fresh();
    struct holder *h = share(sizeof *h);
    *h = (struct holder){.ttl_ms = 200, .o = {.wait_ms = PICKET_FOREVER}};
    struct worker *w = hire(be_a_holder, h);
    CHECK(hear(w) == 'h');
    fire(w);
    struct picket *p = open_client(LONG_TTL_MS);
    uint64_t limit = pk_clock_ms() + PATIENCE_MS;
    uint32_t holders = 1;
    while (holders > 0 && pk_clock_ms() < limit) {
        struct picket_view *v;
        CHECK(picket_show(p, "db", &v) == PICKET_OK);
        holders = v->holders;
        picket_view_free(v);
        (void)usleep(1000);
    }
    CHECK_U64(holders, 0);
    picket_close(p);
}

/* After an unclean end the lock stays closed, in cluster time, which needs no
 * stopwatch. */
TEST(local__lock_delay_after_a_kill)
{
    fresh();
    struct holder *h = share(sizeof *h);
    *h = (struct holder){.ttl_ms = 200,
                         .o = {.wait_ms = PICKET_FOREVER, .lock_delay_ms = 700}};
    struct worker *w = hire(be_a_holder, h);
    CHECK(hear(w) == 'h');
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_watch *watch;
    struct picket_event e;
    CHECK(picket_watch_open(p, "db", &watch) == PICKET_OK);
    struct picket_lock *l = enqueue(p, "db", NULL);
    fire(w);
    const char *const story[] = {"queued", "ended", "closed", "opened", "granted"};
    uint64_t ended = 0;
    for (int i = 0; i < 5; i++) {
        CHECK(picket_watch_next(watch, PATIENCE_MS, &e) == PICKET_OK);
        CHECK_STR(e.what, story[i]);
        ended = i == 1 ? e.time_ms : ended;
    }
    CHECK(e.time_ms >= ended + 700);
    CHECK(picket_wait(l, PATIENCE_MS) == PICKET_OK);
    CHECK_U64(e.token, picket_token(l));
    picket_watch_close(watch);
    picket_close(p);
}

/* ---- being woken ---- */

/* With renewals after 40 s, only a poke can be this early. */
static void wakes_within_patience(struct picket_lock *l, const char *by)
{
    uint64_t from = pk_clock_ms();
    CHECK(readable(picket_ready_fd(l), LONG_TTL_MS / 12));
    CHECK(picket_wait(l, 0) == PICKET_OK);
    printf("# woken by %s after %" PRIu64 " ms\n", by, pk_clock_ms() - from);
}

TEST(local__a_waiter_is_woken_by_another_process)
{
    fresh();
    struct holder *h = share(sizeof *h);
    *h = (struct holder){.ttl_ms = LONG_TTL_MS, .o = {.wait_ms = PICKET_FOREVER}};
    struct picket *p = open_client(LONG_TTL_MS);
    const char orders[] = "rc";
    for (int i = 0; orders[i] != '\0'; i++) {
        struct worker *w = hire(be_a_holder, h);
        CHECK(hear(w) == 'h');
        struct picket_lock *l = enqueue(p, "db", NULL);
        tell(w, orders[i]);
        wakes_within_patience(l, orders[i] == 'r' ? "a release" : "a close");
        picket_lock_close(l);
        fire(w);
    }
    /* By a break: a third process, which has no part in it. */
    struct worker *w = hire(be_a_holder, h);
    CHECK(hear(w) == 'h');
    struct picket_lock *l = enqueue(p, "db", NULL);
    struct picket *third = open_client(0);
    CHECK(picket_break(third, "db", h->token, "why not") == PICKET_OK);
    wakes_within_patience(l, "a break");
    picket_close(third);
    picket_close(p);
}

/* A run of shared waiters is granted together, and all of them are told. */
TEST(local__many_are_woken_at_once)
{
    enum { MANY = 80 };
    fresh();
    static struct picket *p[MANY];
    static struct picket_lock *l[MANY];
    struct picket *first = open_client(LONG_TTL_MS);
    struct picket_lock *held = take(first, "db");
    struct picket_acquire_options o = {.mode = PICKET_SHARED, .wait_ms = PICKET_FOREVER};
    for (int i = 0; i < MANY; i++) {
        p[i] = open_client(LONG_TTL_MS);
        l[i] = enqueue(p[i], "db", &o);
    }
    CHECK(picket_release(held) == PICKET_OK);
    for (int i = 0; i < MANY; i++) {
        CHECK(readable(picket_ready_fd(l[i]), LONG_TTL_MS / 12));
    }
    for (int i = 0; i < MANY; i++) {
        picket_close(p[i]);
    }
    picket_close(first);
}

/* How often all threads of a process have gone to sleep; asleep, it does not change. */
static uint64_t naps_of(pid_t pid)
{
    char path[300], line[200];
    uint64_t sum = 0, n;
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *d = opendir(path);
    CHECK(d != NULL);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        (void)snprintf(path, sizeof path, "/proc/%d/task/%.20s/status", (int)pid,
                       e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "re");
        while (f != NULL && fgets(line, sizeof line, f) != NULL) {
            if (sscanf(line, "voluntary_ctxt_switches: %" SCNu64, &n) == 1) {
                sum += n;
            }
        }
        if (f != NULL) {
            (void)fclose(f);
        }
    }
    (void)closedir(d);
    return sum;
}

/* Waits until the process sleeps for good. */
static uint64_t settled_naps_of(pid_t pid)
{
    uint64_t before, now = naps_of(pid);
    int same = 0;
    while (same < 5) {
        before = now;
        (void)usleep(10000);
        now = naps_of(pid);
        same = now == before ? same + 1 : 0;
    }
    return now;
}

/* P7: in the order of the queue, and nobody else so much as turns over. */
TEST(local__one_release_wakes_exactly_one_in_order)
{
    enum { QUEUE = 6 };
    fresh();
    struct holder *h = share(QUEUE * sizeof *h);
    struct worker *w[QUEUE];
    uint64_t naps[QUEUE];
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(p, "db");
    uint64_t last = picket_token(l);
    for (uint32_t i = 0; i < QUEUE; i++) {
        h[i] = (struct holder){.ttl_ms = LONG_TTL_MS, .o = {.wait_ms = PICKET_FOREVER}};
        w[i] = hire(be_a_holder, &h[i]);
        while (waiters_of(p, "db") <= i) {
            (void)usleep(1000);
        }
    }
    for (int i = 0; i < QUEUE; i++) {
        naps[i] = settled_naps_of(w[i]->pid);
    }
    for (int next = 0; next < QUEUE; next++) {
        if (next == 0) {
            CHECK(picket_release(l) == PICKET_OK);
        } else {
            tell(w[next - 1], 'r');
            CHECK(hear(w[next - 1]) == 'r');
        }
        CHECK(next_byte(w[next]->from, LONG_TTL_MS / 12) == 'h');
        CHECK(h[next].token > last);
        last = h[next].token;
        CHECK_U64(waiters_of(p, "db"), QUEUE - 1 - next);
        for (int i = next + 1; i < QUEUE; i++) {
            CHECK_U64(naps_of(w[i]->pid), naps[i]);
            CHECK(!readable(w[i]->from, 0));
        }
    }
    picket_close(p);
}

/* ---- leases ---- */

TEST(local__a_hundred_locks_live_on_one_lease)
{
    enum { LOCKS = 100, TTL_MS = 3000 };
    fresh();
    struct picket *p = open_client(TTL_MS);
    struct picket_lock *l[LOCKS];
    struct pollfd lost[LOCKS];
    char name[32];
    for (int i = 0; i < LOCKS; i++) {
        (void)snprintf(name, sizeof name, "many/%d", i);
        l[i] = take(p, name);
        lost[i] = (struct pollfd){.fd = picket_loss_fd(l[i]), .events = POLLIN};
    }
    CHECK(poll(lost, LOCKS, 2 * TTL_MS) == 0);
    struct picket_view *v;
    CHECK(picket_list(p, "many/", NULL, 1000, &v) == PICKET_OK);
    CHECK_U64(v->n_rows, LOCKS);
    picket_view_free(v);
    for (int i = 0; i < LOCKS; i++) {
        CHECK(picket_checkpoint(l[i], 1) == PICKET_OK);
    }
    struct picket_view *mine;
    CHECK(picket_lease_show(p, picket_lease(p), &mine) == PICKET_OK);
    CHECK_U64(mine->n_rows, LOCKS);
    picket_view_free(mine);
    picket_close(p);
}

/* The next renewal must come by the new TTL, not when the old one would have it. */
TEST(local__a_shortened_lease_is_renewed_sooner)
{
    enum { DAY_MS = 24 * 3600 * 1000, RENEWALS = 3 };
    fresh();
    struct picket *p = open_client(DAY_MS); /* its next renewal is hours away */
    struct picket_lock *l = take(p, "db");
    CHECK(picket_extend(p, 3000) == PICKET_OK);
    uint64_t limit = pk_clock_ms() + PATIENCE_MS;
    for (int i = 0; i < RENEWALS; i++) { /* each adds to the journal */
        size_t before = file_size(in_state("journal"));
        while (file_size(in_state("journal")) == before && pk_clock_ms() < limit) {
            (void)usleep(1000);
        }
        CHECK(file_size(in_state("journal")) > before);
    }
    CHECK(!readable(picket_loss_fd(l), 0));
    CHECK(picket_checkpoint(l, 1) == PICKET_OK);
    picket_close(p);
}

/* ---- a reboot ---- */

static bool pass_over(void *ctx, enum pk_record kind, struct pk_bytes data)
{
    (void)ctx;
    (void)kind;
    (void)data;
    return true;
}

/* Appends an epoch, as another boot leaves it. */
static void append_epoch(uint64_t tau_ms, uint64_t at_ms)
{
    struct pk_epoch e = {.tau_ms = tau_ms, .at_ms = at_ms, .clock_id = "another boot"};
    unsigned char bytes[PK_EPOCH_BYTES_MAX];
    size_t len = pk_epoch_encode(&e, bytes);
    struct pk_journal j;
    bool empty;
    CHECK(pk_journal_open(&j, state) == PICKET_OK);
    CHECK(pk_journal_lock(&j, pk_clock_ms() + PATIENCE_MS) == PICKET_OK);
    CHECK(pk_journal_read(&j, pass_over, NULL, &empty) == PICKET_OK);
    CHECK(pk_journal_append(&j, PK_RECORD_EPOCH, pk_bytes(bytes, len)) == PICKET_OK);
    pk_journal_close(&j);
}

/* The clock of another boot was far behind ours, or far ahead. Believed, it would end all
 * leases at once, or none until it is reached. */
TEST(local__a_clock_of_another_boot_is_not_believed)
{
    enum { DAY_MS = 24 * 3600 * 1000 };
    for (int ahead = 0; ahead < 2; ahead++) {
        fresh();
        struct holder *h = share(sizeof *h);
        *h = (struct holder){.ttl_ms = ahead ? 400 : LONG_TTL_MS};
        struct worker *w = hire(be_a_holder, h);
        CHECK(hear(w) == 'h');
        fire(w);
        append_epoch(ahead ? 0 : DAY_MS, ahead ? pk_clock_ms() + DAY_MS : 0);
        struct picket *p = open_client(LONG_TTL_MS);
        struct picket_lock *l = enqueue(p, "db", NULL);
        if (ahead) {
            CHECK(picket_wait(l, PATIENCE_MS) == PICKET_OK);
        } else {
            CHECK(picket_state(l) == PICKET_WAITING);
        }
        picket_close(p);
    }
}

/* ---- max-hold ---- */

TEST(local__max_hold_ends_in_spite_of_renewals)
{
    fresh();
    struct picket *a = open_client(3000);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_acquire_options o = {.wait_ms = PICKET_FOREVER, .max_hold_ms = 5000};
    struct picket_lock *l, *m;
    CHECK(picket_acquire(a, "db", &o, &l) == PICKET_OK);
    m = enqueue(b, "db", NULL);
    struct pollfd fds[] = {{.fd = picket_loss_fd(l), .events = POLLIN},
                           {.fd = picket_ready_fd(m), .events = POLLIN}};
    CHECK(poll(fds, 2, PATIENCE_MS) > 0);
    CHECK(fds[0].revents != 0); /* the holder first, whoever comes second */
    CHECK(picket_state(l) == PICKET_GONE);
    CHECK(strstr(picket_loss_reason(l), "overheld") != NULL);
    CHECK(readable(fds[1].fd, PATIENCE_MS));
    CHECK(picket_wait(m, 0) == PICKET_OK);
    CHECK(picket_token(m) > picket_token(l));
    /* Only the hold is over: the lease lives, and can be used. */
    CHECK(picket_try(a, "other", NULL, &l) == PICKET_OK);
    picket_close(a);
    picket_close(b);
}

/* Max-hold counts from the grant: the time in the queue is not part of it, also when the
 * waiter slept all that time. */
TEST(local__max_hold_counts_from_the_grant)
{
    fresh();
    struct holder *h = share(sizeof *h);
    *h = (struct holder){.ttl_ms = LONG_TTL_MS, .o = {.wait_ms = PICKET_FOREVER}};
    struct worker *w = hire(be_a_holder, h);
    CHECK(hear(w) == 'h');
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_acquire_options o = {.wait_ms = PICKET_FOREVER, .max_hold_ms = 20000};
    struct picket_lock *l = enqueue(p, "db", &o);
    CHECK(!readable(picket_ready_fd(l), 2500));
    uint64_t before = pk_clock_ms();
    tell(w, 'r');
    CHECK(readable(picket_ready_fd(l), PATIENCE_MS));
    CHECK(picket_wait(l, 0) == PICKET_OK);
    CHECK(picket_safe_until_ms(l) >= before + 20000 - pk_keeper_margin(20000, 0));
    CHECK(picket_safe_until_ms(l) <= pk_clock_ms() + 20000);
    picket_close(p);
}

/* ---- what a sleeper missed ---- */

struct missing {
    struct picket_acquire_options o;
    _Atomic uint64_t safe_until;
};

/* Waits for "db"; reports what its wait came to. */
static void be_a_waiter(int in, int out, void *arg)
{
    struct missing *m = arg;
    struct picket_want want = {.name = "db"};
    struct picket_lock *l;
    struct picket *p = try_open(LONG_TTL_MS);
    (void)in;
    MUST(p != NULL && picket_enqueue(p, &want, 1, &m->o, &l) == PICKET_OK);
    put_byte(out, 'q');
    MUST(readable(picket_ready_fd(l), 2 * PATIENCE_MS));
    enum picket_status s = picket_wait(l, 0);
    m->safe_until = picket_safe_until_ms(l);
    put_byte(out, s == PICKET_OK ? 'g' : s == PICKET_TIMEOUT ? 't' : '?');
    await(in, 'q');
}

/* Stops a waiter, lets its wait end and the journal be replaced, so that it has only the
 * outcome to go by, and wakes it up. */
static void miss(struct missing *m, bool granted)
{
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_watch *watch;
    struct picket_event e = {.what = ""};
    CHECK(picket_watch_open(p, "db", &watch) == PICKET_OK);
    struct picket_lock *l = take(p, "db");
    struct worker *w = hire(be_a_waiter, m);
    CHECK(hear(w) == 'q');
    CHECK(pk_filelock_stop(w->pid));
    uint64_t before = pk_clock_ms();
    if (granted) {
        CHECK(picket_release(l) == PICKET_OK);
    } else {
        while (strcmp(e.what, "left") != 0) {
            CHECK(picket_watch_next(watch, PATIENCE_MS, &e) == PICKET_OK);
        }
    }
    uint64_t after = pk_clock_ms();
    compact(p);
    CHECK(kill(w->pid, SIGCONT) == 0);
    CHECK(hear(w) == (granted ? 'g' : 't'));
    if (m->o.max_hold_ms != 0) {
        uint64_t hold = m->o.max_hold_ms - pk_keeper_margin(m->o.max_hold_ms, 0);
        CHECK(m->safe_until >= before + hold && m->safe_until <= after + hold);
    }
    picket_watch_close(watch);
    picket_close(p);
}

TEST(local__a_missed_grant_is_found)
{
    fresh();
    struct missing *m = share(sizeof *m);
    m->o.wait_ms = PICKET_FOREVER;
    miss(m, true);
}

TEST(local__a_missed_timeout_is_found)
{
    fresh();
    struct missing *m = share(sizeof *m);
    m->o.wait_ms = 1000;
    miss(m, false);
}

/* Max-hold runs since the grant that we slept through, not since we saw it. */
TEST(local__a_missed_grant_counts_from_when_it_was)
{
    fresh();
    struct missing *m = share(sizeof *m);
    m->o.wait_ms = PICKET_FOREVER;
    m->o.max_hold_ms = 30000;
    miss(m, true);
}

/* ---- a full disk ---- */

static _Atomic uint64_t *writes; /* shared; NULL: nobody counts */

ssize_t pwrite(int fd, const void *bytes, size_t len, off_t offset)
{
    if (writes != NULL) {
        ++*writes;
    }
    return syscall(SYS_pwrite64, fd, bytes, len, offset);
}

/* Waits for "db" on a disk that is full from the moment it waits; told 'f', it is
 * freed. */
static void wait_on_a_full_disk(int in, int out, void *arg)
{
    struct picket_want want = {.name = "db"};
    struct picket_lock *l;
    struct picket *p = try_open(LONG_TTL_MS);
    MUST(p != NULL && picket_enqueue(p, &want, 1, NULL, &l) == PICKET_OK);
    limit_files(1);
    writes = arg;
    put_byte(out, 'q');
    await(in, 'f');
    unlimit_files();
    MUST(picket_wait(l, PATIENCE_MS) == PICKET_OK);
    put_byte(out, 'g');
}

/* It can't write down that the dead holder's lease is over. It tries again, but not all
 * the time, and when there is room it gets the lock. */
TEST(local__a_waiter_on_a_full_disk_is_patient)
{
    fresh();
    struct holder *h = share(sizeof *h);
    _Atomic uint64_t *count = share(sizeof *count);
    *h = (struct holder){.ttl_ms = 300, .o = {.wait_ms = PICKET_FOREVER}};
    struct worker *holder = hire(be_a_holder, h);
    CHECK(hear(holder) == 'h');
    struct worker *w = hire(wait_on_a_full_disk, count);
    CHECK(hear(w) == 'q');
    fire(holder);
    for (uint64_t until = pk_clock_ms() + PATIENCE_MS; *count == 0;) {
        CHECK(pk_clock_ms() < until);
        (void)usleep(1000);
    }
    (void)usleep(500000);
    printf("# %" PRIu64 " attempts in half a second\n", (uint64_t)*count);
    CHECK(*count < 100);
    tell(w, 'f');
    CHECK(hear(w) == 'g');
}

/* ---- directories ---- */

TEST(local__a_refused_directory_is_left_as_it_was)
{
    fresh();
    struct picket *p;
    CHECK(mkdir(state, 0700) == 0);
    file_write(in_state("thesis.tex"), "important", 9);
    CHECK(picket_open(url(), NULL, &p) == PICKET_STORE);
    CHECK_U64(entries_of(state), 1);
    CHECK(file_is(in_state("thesis.tex"), "important", 9));
}

/* ---- fork ---- */

/* A child that lives on must not have our lock file open: should we die in our turn, the
 * lock would stay taken as long as the child lives. */
TEST(local__a_forked_child_has_nothing_of_ours_open)
{
    fresh();
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(p, "db");
    struct picket_watch *watch;
    CHECK(picket_watch_open(p, "", &watch) == PICKET_OK);
    pid_t child = fork();
    if (child == 0) {
        char path[64], target[5000];
        int found = 0;
        for (int fd = 3; fd < 1024; fd++) {
            (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
            ssize_t n = readlink(path, target, sizeof target - 1);
            target[n > 0 ? n : 0] = '\0';
            found += strncmp(target, state, strlen(state)) == 0;
        }
        bool told = picket_left_ms(l) == 0 && picket_lease(p) == 0;
        _exit(found + (told ? 0 : 100));
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_U64((uint64_t)status, 0);
    CHECK(picket_checkpoint(l, 1) == PICKET_OK);
    picket_watch_close(watch);
    picket_close(p);
}
