/* SPDX-License-Identifier: MIT */
/*
 * A store with holds, waits, fences and tokens in it, whose files are damaged: single
 * bits flipped, ends cut off, blocks zeroed. Whoever opens it then is refused by one
 * line, and nothing is changed; or finds everything: each held lock with its token and
 * its queue, each fence where it was, and new tokens above all old ones.
 *
 *     PICKET_DAMAGE=100       so many of each kind of damage to each file; else a sample
 *     PICKET_DAMAGE_SEED=1    of the damage
 */
#include <inttypes.h>

#include "workers.h"

enum {
    LOCKS = 12,
    FENCES = 6,
    SAMPLE = 12,
    DAY_MS = 24 * 3600 * 1000, /* of leases: nothing ends while we look */
};

/* ---- a store with something in it ---- */

struct content {
    uint64_t tokens[LOCKS];  /* of "held/N" */
    uint64_t fences[FENCES]; /* of "fence/N"; the value is the number */
    uint64_t highest;        /* token given out */
    bool compacted;
};

static const char *numbered(const char *what, int n)
{
    static char names[2][64];
    static unsigned next;
    char *name = names[next++ % 2];
    (void)snprintf(name, sizeof names[0], "%s/%d", what, n);
    return name;
}

static void hold(struct picket *p, struct content *c, int n)
{
    struct picket_acquire_options o = {.wait_ms = PICKET_FOREVER};
    struct picket_lock *l;
    o.mode = n % 4 == 3 ? PICKET_SHARED : 0;
    /* Some names were used before, so that tokens are not numbers of locks. */
    for (int times = 1 + n % 3; times > 0; times--) {
        MUST(picket_acquire(p, numbered("held", n), &o, &l) == PICKET_OK);
        c->tokens[n] = c->highest = picket_token(l);
        MUST(times == 1 || picket_release(l) == PICKET_OK);
    }
}

static void raise_fence(struct picket *p, struct content *c, int n)
{
    uint64_t fence;
    char value[32];
    c->fences[n] = c->highest + (uint64_t)n;
    (void)snprintf(value, sizeof value, "%" PRIu64, c->fences[n]);
    MUST(picket_fence_set(p, numbered("fence", n), c->fences[n], value, strlen(value),
                          &fence) == PICKET_OK);
}

/* Fills the store, half of it before a compaction, and is killed: its leases live on. */
static void fill(int in, int out, void *arg)
{
    struct content *c = arg;
    struct picket *holder = try_open(DAY_MS), *waiter[2];
    struct picket_want want = {.name = "held/0"};
    struct picket_lock *l;
    MUST(holder != NULL);
    for (int n = 0; n < LOCKS; n++) {
        if (n == LOCKS / 2 && c->compacted) {
            compact(holder);
        }
        hold(holder, c, n);
        if (n % 2 == 1) {
            raise_fence(holder, c, n / 2);
        }
    }
    for (int i = 0; i < 2; i++) {
        waiter[i] = try_open(DAY_MS);
        MUST(waiter[i] != NULL &&
             picket_enqueue(waiter[i], &want, 1, NULL, &l) == PICKET_OK);
    }
    put_byte(out, 'f');
    await(in, 'q');
}

/* ---- what may be found ---- */

/* NULL: everything is there; else what is not. */
static const char *lost_lock(struct picket *p, const struct content *c, int n)
{
    struct picket_view *v;
    struct picket_lock *l;
    if (picket_show(p, numbered("held", n), &v) != PICKET_OK) {
        return "a lock can't be shown";
    }
    bool held = v->holders == 1 && v->n_rows > 0 && v->rows[0].token == c->tokens[n];
    bool queued = v->waiters == (n == 0 ? 2 : 0);
    picket_view_free(v);
    if (!held || !queued) {
        return held ? "a place in a queue" : "a hold";
    }
    return picket_try(p, numbered("held", n), NULL, &l) == PICKET_BUSY
               ? NULL
               : "a held lock was granted to somebody else";
}

static const char *lost_fence(struct picket *p, const struct content *c, int n)
{
    uint64_t fence = 0;
    size_t len;
    char *value;
    const char *name = numbered("fence", n);
    if (picket_fence_claim(p, name, c->fences[n] - 1, &fence) != PICKET_STALE ||
        picket_fence_get(p, name, 0, &value, &len, &fence) != PICKET_OK) {
        return "a fence was lowered";
    }
    bool same = fence == c->fences[n] && strtoull(value, NULL, 10) == c->fences[n];
    free(value);
    return same ? NULL : "the value behind a fence";
}

static const char *lost(struct picket *p, const struct content *c)
{
    const char *what = NULL;
    struct picket_lock *l;
    for (int n = 0; what == NULL && n < LOCKS; n++) {
        what = lost_lock(p, c, n);
    }
    for (int n = 0; what == NULL && n < FENCES; n++) {
        what = lost_fence(p, c, n);
    }
    if (what == NULL &&
        (picket_try(p, "new", NULL, &l) != PICKET_OK || picket_token(l) <= c->highest)) {
        what = "a token was given out twice";
    }
    return what;
}

/* ---- damage ---- */

static uint64_t seed;

static uint64_t below(uint64_t n)
{
    uint64_t z = (seed += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % n;
}

enum damage { FLIP, CUT, ZERO, DAMAGES };
static const char *const damage_names[DAMAGES] = {"bit flipped", "cut", "block zeroed"};

/* Describes what it did, for a failure. False: nothing is changed by it. */
static bool try_damage(struct file *f, enum damage d, char *what, size_t size)
{
    static const size_t blocks[] = {8, 64, 512, 4096};
    size_t at = below(f->len), block = blocks[below(4)];
    bool changed = d != ZERO;
    if (d == FLIP) {
        unsigned bit = (unsigned)below(8);
        f->bytes[at] ^= (unsigned char)(1u << bit);
        (void)snprintf(what, size, "bit %u of byte %zu flipped", bit, at);
    } else if (d == CUT) {
        (void)snprintf(what, size, "cut from %zu to %zu", f->len, at);
        f->len = at;
    } else {
        at -= at % block;
        block = at + block < f->len ? block : f->len - at;
        for (size_t i = at; i < at + block; i++) {
            changed = changed || f->bytes[i] != 0;
            f->bytes[i] = 0;
        }
        (void)snprintf(what, size, "%zu zeros at %zu", block, at);
    }
    return changed;
}

struct figures {
    unsigned refused, whole;
};

/* Opens the damaged store and judges what is found. */
static void judge(const struct content *c, const char *name, const char *what,
                  struct figures *sum)
{
    struct file before = file_read(in_state(name));
    struct picket *p;
    struct picket_options o = {.ttl_ms = DAY_MS};
    enum picket_status s = picket_open(url(), &o, &p);
    if (s == PICKET_OK) {
        const char *gone = lost(p, c);
        if (gone != NULL) {
            printf("# %s, %s: %s (%s)\n", name, what, gone, picket_last_error());
            FAIL("nothing is lost");
        }
        picket_close(p);
        sum->whole++;
    } else {
        const char *line = picket_last_error();
        if (s != PICKET_STORE || strchr(line, '\n') != NULL ||
            strstr(line, state) == NULL) {
            printf("# %s, %s: %s: %s\n", name, what, picket_status_name(s), line);
            FAIL("refused by one clear line");
        }
        CHECK(file_is(in_state(name), before.bytes, before.len));
        sum->refused++;
    }
    file_drop(&before);
}

static struct file copy_of(const struct file *f)
{
    struct file copy = {.bytes = malloc(f->len + 1), .len = f->len};
    CHECK(copy.bytes != NULL);
    memcpy(copy.bytes, f->bytes, f->len);
    return copy;
}

static const char *const names[] = {"journal", "lock", "journal.new"};
enum { FILES = sizeof names / sizeof names[0] };

/* Puts the files back as they were, in the inodes that are there. */
static void put_back(const struct file *good)
{
    for (int i = 0; i < FILES; i++) {
        file_write(in_state(names[i]), good[i].bytes, good[i].len);
    }
}

static unsigned number_in(const char *variable, unsigned otherwise)
{
    const char *text = getenv(variable);
    return text == NULL ? otherwise : (unsigned)strtoul(text, NULL, 10);
}

static void damage_all(bool compacted)
{
    fresh();
    struct content *c = share(sizeof *c);
    c->compacted = compacted;
    struct worker *w = hire(fill, c);
    CHECK(hear(w) == 'f');
    fire(w);
    unsigned times = number_in("PICKET_DAMAGE", SAMPLE);
    seed = number_in("PICKET_DAMAGE_SEED", 1);
    struct file good[FILES] = {file_read(in_state("journal")),
                               file_read(in_state("lock"))};
    good[2] = copy_of(&good[0]); /* as a compaction leaves it that was killed */
    struct figures unharmed = {0};
    put_back(good);
    judge(c, "lock", "nothing", &unharmed);
    CHECK_U64(unharmed.whole, 1);
    for (int i = 0; i < FILES; i++) {
        for (enum damage d = 0; d < DAMAGES; d++) {
            struct figures sum = {0};
            for (unsigned n = 0; n < times; n++) {
                char what[100];
                put_back(good);
                struct file bad = copy_of(&good[i]);
                while (!try_damage(&bad, d, what, sizeof what)) {
                }
                file_write(in_state(names[i]), bad.bytes, bad.len);
                file_drop(&bad);
                judge(c, names[i], what, &sum);
            }
            printf("# %s of %zu bytes, %s: %u refused, %u unharmed\n", names[i],
                   good[i].len, damage_names[d], sum.refused, sum.whole);
            /* Nothing but the journal is needed, and of that every byte. */
            CHECK_U64(i == 0 ? sum.whole : sum.refused, 0);
        }
    }
    for (int i = 0; i < FILES; i++) {
        file_drop(&good[i]);
    }
}

TEST(damage__to_any_file_loses_nothing)
{
    damage_all(false);
}

TEST(damage__after_a_compaction_loses_nothing)
{
    damage_all(true);
}
