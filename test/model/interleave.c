/* SPDX-License-Identifier: MIT */
/*
 * All interleavings of small cases: two to four actors, each with a script of a few
 * commands, in every order that keeps each script's own. Machine and model step together,
 * the invariants and the promises P1, P2, P7 and P9 are checked after each command, and
 * in the end time runs on until everything must be gone.
 *
 *     interleave [TEXT]     only the cases whose name contains TEXT
 */
#include <inttypes.h>
#include <stdio.h>

#include "pair.h"
#include "show.h"

enum { ACTORS = 4, SCRIPT = 6, TTL = 1000, ALL_STEPS = ACTORS * SCRIPT };

enum action {
    NOTHING,
    ACQUIRE,
    SHARE,
    SLOT,         /* of two */
    TRY,          /* exclusive, without waiting */
    AGAIN,        /* the actor's first acquire once more, under the same request id */
    RELEASE,      /* what the actor holds, or a token of nobody */
    CANCEL,       /* the actor's last acquire */
    CANCEL_AHEAD, /* the acquire that the actor has not sent yet */
    CLOSE,
    RENEW,
    BREAK, /* whoever holds the lock */
    PASS,  /* time goes by */
    LEAP,
    TAKE, /* keys with the actor's own value, for `wait` */
    KEEP, /* by the actor's value */
    DROP,
};

/* One step of a script. `locks` names one lock or several: "a", "ab". */
struct act {
    enum action action;
    const char *locks;
    uint64_t wait, delay, max_hold; /* of an acquire; PASS: wait is how long */
};

struct scene {
    const char *name;
    struct act scripts[ACTORS][SCRIPT];
};

#define FOREVER PK_WAIT_FOREVER

static const struct scene scenes[] = {
    {"three take turns on one lock",
     {{{ACQUIRE, "a", FOREVER, 0, 0},
       {RELEASE, "a", 0, 0, 0},
       {ACQUIRE, "a", FOREVER, 0, 0}},
      {{ACQUIRE, "a", FOREVER, 0, 0}, {RELEASE, "a", 0, 0, 0}, {TRY, "a", 0, 0, 0}},
      {{ACQUIRE, "a", FOREVER, 0, 0}, {RELEASE, "a", 0, 0, 0}, {CLOSE, "", 0, 0, 0}}}},
    {"readers and writers",
     {{{SHARE, "a", FOREVER, 0, 0},
       {RELEASE, "a", 0, 0, 0},
       {ACQUIRE, "a", FOREVER, 0, 0}},
      {{SHARE, "a", FOREVER, 0, 0}, {RELEASE, "a", 0, 0, 0}, {SHARE, "a", FOREVER, 0, 0}},
      {{ACQUIRE, "a", FOREVER, 0, 0},
       {RELEASE, "a", 0, 0, 0},
       {SHARE, "a", FOREVER, 0, 0}}}},
    {"sets that cross: nobody starves, nothing deadlocks",
     {{{ACQUIRE, "ab", FOREVER, 0, 0},
       {RELEASE, "a", 0, 0, 0},
       {ACQUIRE, "c", FOREVER, 0, 0},
       {RELEASE, "c", 0, 0, 0}},
      {{ACQUIRE, "bc", FOREVER, 0, 0},
       {RELEASE, "c", 0, 0, 0},
       {ACQUIRE, "a", FOREVER, 0, 0},
       {RELEASE, "a", 0, 0, 0}},
      {{ACQUIRE, "ca", FOREVER, 0, 0},
       {RELEASE, "a", 0, 0, 0},
       {ACQUIRE, "b", FOREVER, 0, 0},
       {RELEASE, "b", 0, 0, 0}}}},
    {"a set among single locks, with a shared part",
     {{{ACQUIRE, "a", FOREVER, 0, 0},
       {RELEASE, "a", 0, 0, 0},
       {ACQUIRE, "b", FOREVER, 0, 0},
       {RELEASE, "b", 0, 0, 0}},
      {{SHARE, "ab", FOREVER, 0, 0}, {RELEASE, "b", 0, 0, 0}, {ACQUIRE, "ba", 300, 0, 0}},
      {{SHARE, "b", FOREVER, 0, 0},
       {RELEASE, "b", 0, 0, 0},
       {SHARE, "a", FOREVER, 0, 0}}}},
    {"cancel: in time, too late, and ahead of its acquire",
     {{{ACQUIRE, "a", FOREVER, 0, 0},
       {CANCEL, "", 0, 0, 0},
       {ACQUIRE, "a", FOREVER, 0, 0},
       {RELEASE, "a", 0, 0, 0}},
      {{CANCEL_AHEAD, "", 0, 0, 0},
       {ACQUIRE, "a", FOREVER, 0, 0},
       {ACQUIRE, "a", FOREVER, 0, 0},
       {CANCEL, "", 0, 0, 0}},
      {{ACQUIRE, "ab", FOREVER, 0, 0}, {CANCEL, "", 0, 0, 0}, {RELEASE, "a", 0, 0, 0}}}},
    {"a holder falls silent: expiry, lock-delay, then the next",
     {{{ACQUIRE, "a", FOREVER, 200, 0}, {RELEASE, "a", 0, 0, 0}},
      {{ACQUIRE, "a", FOREVER, 0, 0}, {RENEW, "", 0, 0, 0}, {RELEASE, "a", 0, 0, 0}},
      {{SHARE, "ab", 600, 300, 0}, {RENEW, "", 0, 0, 0}},
      {{PASS, "", 600, 0, 0}, {PASS, "", 400, 0, 0}, {PASS, "", 250, 0, 0}}}},
    {"a semaphore of two among three",
     {{{SLOT, "a", FOREVER, 0, 0}, {RELEASE, "a", 0, 0, 0}, {SLOT, "a", FOREVER, 0, 0}},
      {{SLOT, "a", FOREVER, 0, 0}, {CLOSE, "", 0, 0, 0}},
      {{SLOT, "ab", FOREVER, 0, 0}, {RELEASE, "b", 0, 0, 0}, {ACQUIRE, "b", 50, 0, 0}},
      {{TRY, "a", 0, 0, 0}, {PASS, "", 60, 0, 0}}}},
    {"max-hold and bounded waits that end in the same instant",
     {{{ACQUIRE, "a", FOREVER, 40, 50}, {RELEASE, "a", 0, 0, 0}},
      {{ACQUIRE, "a", 50, 0, 0}, {RELEASE, "a", 0, 0, 0}, {SHARE, "ab", 90, 0, 50}},
      {{ACQUIRE, "ba", FOREVER, 40, 50}, {AGAIN, "ba", FOREVER, 40, 50}},
      {{PASS, "", 50, 0, 0}, {PASS, "", 40, 0, 0}, {PASS, "", 10, 0, 0}}}},
    {"repeats: the same request again gives the same answer",
     {{{ACQUIRE, "a", FOREVER, 0, 0},
       {AGAIN, "a", FOREVER, 0, 0},
       {RELEASE, "a", 0, 0, 0},
       {AGAIN, "a", FOREVER, 0, 0}},
      {{ACQUIRE, "a", 30, 0, 0},
       {AGAIN, "a", 30, 0, 0},
       {RELEASE, "a", 0, 0, 0},
       {AGAIN, "a", 30, 0, 0}},
      {{PASS, "", 30, 0, 0}, {TRY, "a", 0, 0, 0}, {AGAIN, "a", 0, 0, 0}}}},
    {"an operator breaks locks and restores a backup",
     {{{ACQUIRE, "a", FOREVER, 100, 0},
       {RELEASE, "a", 0, 0, 0},
       {ACQUIRE, "b", 200, 0, 0}},
      {{SHARE, "ab", FOREVER, 50, 0}, {RELEASE, "b", 0, 0, 0}},
      {{BREAK, "a", 0, 0, 0}, {BREAK, "b", 0, 0, 0}, {LEAP, "", 0, 0, 0}},
      {{PASS, "", 50, 0, 0}, {PASS, "", 60, 0, 0}}}},
    {"keys among locks: nobody's drop ends what another took",
     {{{TAKE, "a", 300, 0, 0}, {DROP, "a", 0, 0, 0}},
      {{TAKE, "ba", 200, 0, 0}, {KEEP, "a", 250, 0, 0}, {DROP, "ab", 0, 0, 0}},
      {{ACQUIRE, "a", FOREVER, 0, 0}, {RELEASE, "a", 0, 0, 0}},
      {{BREAK, "a", 0, 0, 0}, {PASS, "", 200, 0, 0}}}},
};

/* One run: which actor goes at each step, and what each has done so far. */
struct play {
    const struct scene *scene;
    struct pair pair;
    unsigned order[ALL_STEPS];
    unsigned n_order;
    unsigned at[ACTORS];
    uint64_t asked[ACTORS];               /* the request id of the actor's last command */
    uint64_t first[ACTORS], last[ACTORS]; /* of its first and last acquire */
    uint64_t n_steps;
};

static unsigned script_length(const struct scene *s, unsigned actor)
{
    unsigned n = 0;
    while (n < SCRIPT && s->scripts[actor][n].action != NOTHING) {
        n++;
    }
    return n;
}

static void put_parts(struct pk_command *c, const struct act *a)
{
    enum pk_mode mode = a->action == SHARE  ? PK_SHARED
                        : a->action == SLOT ? PK_SLOT
                                            : PK_EXCLUSIVE;
    for (const char *name = a->locks; *name != '\0'; name++) {
        struct pk_part *p = &c->parts[c->n_parts++];
        p->name = pk_bytes(name, 1);
        p->mode = mode;
        p->slots = mode == PK_SLOT ? 2 : 0;
    }
    c->verb = PK_LOCK_ACQUIRE;
    c->wait_ms = a->action == TRY ? 0 : a->wait;
    c->lock_delay_ms = a->delay;
    c->max_hold_ms = a->max_hold;
}

/* The token of whoever holds the lock; an unknown one when nobody does. */
static uint64_t anybodys_token(const struct play *p, struct pk_bytes name)
{
    for (uint64_t lease = 1; lease <= ACTORS + 2 * ALL_STEPS;
         lease++) { /* keys have own */
        uint64_t token = watch_token(&p->pair.watch, lease, name);
        if (token != 0) {
            return token;
        }
    }
    return 999;
}

static void put_acquire(struct play *p, struct pk_command *c, const struct act *a,
                        unsigned actor)
{
    put_parts(c, a);
    if (a->action ==
        AGAIN) { /* as its first acquire was, whatever this one's script says */
        c->request = p->first[actor];
        return;
    }
    p->last[actor] = c->request;
    p->first[actor] = p->first[actor] == 0 ? c->request : p->first[actor];
}

static void put_end(struct play *p, struct pk_command *c, const struct act *a,
                    unsigned actor)
{
    c->verb = a->action == BREAK ? PK_LOCK_BREAK : PK_LOCK_RELEASE;
    c->name = pk_text(a->locks);
    c->token = a->action == BREAK ? anybodys_token(p, c->name)
                                  : watch_token(&p->pair.watch, c->lease, c->name);
    c->token = c->token == 0 ? 999 : c->token;
    if (a->action == BREAK) {
        c->lease = 0;
        c->request +=
            1000 * (actor + (uint64_t)1); /* ids without a lease are one space */
        c->principal = pk_text("ops");
        c->reason = pk_text("drill");
    }
}

static struct pk_command key_command(const struct play *p, const struct act *a,
                                     unsigned actor)
{
    static const char values[ACTORS] = {'0', '1', '2', '3'};
    struct pk_command c = {.stamp_ms = model_clock(p->pair.model)};
    put_parts(&c, a);
    c.verb = a->action == TAKE   ? PK_KEY_TAKE
             : a->action == KEEP ? PK_KEY_KEEP
                                 : PK_KEY_DROP;
    c.wait_ms = 0;
    c.ttl_ms = a->wait;
    c.value = pk_bytes(&values[actor], 1);
    return c;
}

/* The command of an actor's next step, at the machine's present time. */
static struct pk_command command_of(struct play *p, unsigned actor,
                                    unsigned char *renewed)
{
    const struct act *a = &p->scene->scripts[actor][p->at[actor]];
    struct pk_command c = {.stamp_ms = model_clock(p->pair.model)};
    c.lease = actor + (uint64_t)1;
    c.request = ++p->asked[actor];
    switch (a->action) {
    case RELEASE:
    case BREAK:
        put_end(p, &c, a, actor);
        break;
    case CANCEL:
    case CANCEL_AHEAD:
        c.verb = PK_LOCK_CANCEL;
        c.target = a->action == CANCEL ? p->last[actor] : c.request + 1;
        break;
    case CLOSE:
        c.verb = PK_LEASE_CLOSE;
        c.request = 0;
        break;
    case RENEW:
        c = (struct pk_command){.verb = PK_LEASE_RENEW, .stamp_ms = c.stamp_ms};
        pk_command_put_lease(renewed, 0, actor + (uint64_t)1);
        c.leases = renewed;
        c.n_leases = 1;
        break;
    case PASS:
        c = (struct pk_command){.verb = PK_TICK, .stamp_ms = c.stamp_ms + a->wait};
        break;
    case LEAP:
        c = (struct pk_command){.verb = PK_LEAP, .stamp_ms = c.stamp_ms, .request = 7000};
        break;
    case TAKE:
    case KEEP:
    case DROP:
        c = key_command(p, a, actor);
        break;
    default:
        put_acquire(p, &c, a, actor);
        break;
    }
    return c;
}

static bool step(struct play *p, const struct pk_command *c)
{
    p->n_steps++;
    return pair_step(&p->pair, c);
}

/* Runs p->order from an empty machine; false with the reason in p->pair.wrong. */
static bool perform(struct play *p)
{
    unsigned char renewed[8];
    bool good = true;
    pair_start(&p->pair);
    for (unsigned i = 0; i < ACTORS; i++) {
        struct pk_command open = {.verb = PK_LEASE_OPEN, .request = i + 1, .ttl_ms = TTL};
        good = good && step(p, &open);
        p->at[i] = 0;
        p->asked[i] = p->first[i] = p->last[i] = 0;
    }
    for (unsigned i = 0; good && i < p->n_order; i++) {
        struct pk_command c = command_of(p, p->order[i], renewed);
        p->at[p->order[i]]++;
        good = step(p, &c);
    }
    while (good && model_next_deadline(p->pair.model) != UINT64_MAX) {
        struct pk_command tick = {.verb = PK_TICK,
                                  .stamp_ms = model_next_deadline(p->pair.model)};
        good = step(p, &tick);
    }
    const char *left = good ? watch_leftover(&p->pair.watch) : NULL;
    if (left != NULL) {
        snprintf(p->pair.wrong, sizeof p->pair.wrong, "when all time has passed: %s",
                 left);
    }
    return good && left == NULL;
}

static void report(struct play *p)
{
    printf("# %s\n# actors in order:", p->pair.wrong);
    for (unsigned i = 0; i < p->n_order; i++) {
        printf(" %u", p->order[i]);
    }
    printf("\n# machine:\n");
    show_effects(stdout, &p->pair.from_machine, "#     ");
    printf("# model:\n");
    show_effects(stdout, &p->pair.from_model, "#     ");
}

/* Steps p->order to the next interleaving in lexical order; false after the last. */
static bool next_order(struct play *p)
{
    unsigned i = p->n_order - 1;
    while (i > 0 && p->order[i - 1] >= p->order[i]) {
        i--;
    }
    if (i == 0) {
        return false;
    }
    unsigned k = p->n_order - 1;
    while (p->order[k] <= p->order[i - 1]) {
        k--;
    }
    unsigned t = p->order[i - 1];
    p->order[i - 1] = p->order[k];
    p->order[k] = t;
    for (unsigned low = i, high = p->n_order - 1; low < high; low++, high--) {
        t = p->order[low];
        p->order[low] = p->order[high];
        p->order[high] = t;
    }
    return true;
}

static bool run_scene(const struct scene *s, unsigned number)
{
    struct play p = {.scene = s};
    uint64_t orders = 0;
    bool good = true;
    for (unsigned actor = 0; actor < ACTORS; actor++) {
        for (unsigned i = 0; i < script_length(s, actor); i++) {
            p.order[p.n_order++] = actor;
        }
    }
    do {
        good = perform(&p);
        orders++;
        if (!good) {
            report(&p);
        }
        pair_end(&p.pair);
    } while (good && next_order(&p));
    printf("%s %u - %s: %" PRIu64 " interleavings, %" PRIu64 " commands\n",
           good ? "ok" : "not ok", number, s->name, orders, p.n_steps);
    return good;
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : "";
    unsigned count = 0;
    unsigned failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++) {
        if (strstr(scenes[i].name, only) != NULL) {
            failed += !run_scene(&scenes[i], ++count);
        }
    }
    printf("1..%u\n", count);
    return failed != 0 || count == 0;
}
