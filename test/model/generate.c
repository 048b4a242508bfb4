/* SPDX-License-Identifier: MIT */
#include "generate.h"

#include <stdlib.h>

#include "core/version.h"

enum {
    NAMES = 20,
    FEW_NAMES = 6, /* what most worlds have */
    LEASES = 12,   /* remembered leases, alive or not */
    HOLDS = 24,    /* remembered grants, ended or not */
    RECENT = 48,   /* commands that may come again */
    KEYS = 10,     /* remembered keys, dropped or not */
    KEY_VALUES = 4,
    BIG = 70000, /* bytes of the largest value */
};

struct known_hold {
    uint64_t lease, request, token;
    unsigned name;
    bool ended;
};

struct known_wait {
    uint64_t lease, request;
};

struct known_lease {
    uint64_t id;
    bool ended, keyed;
};

struct known_key {
    uint64_t token;
    unsigned name, value;
    bool ended;
};

/* What makes one world different from the next. */
struct temper {
    unsigned names, leases;
    uint32_t slots[NAMES];                       /* 0: exclusive/shared */
    unsigned shared, sets, tries, delays, holds; /* out of 16 */
    unsigned ttl;                                /* the longest */
    unsigned pace;                               /* how fast time runs, 0..3 */
    unsigned weights[PK_VERB_COUNT];
    bool tight, late, anonymous;
};

struct generator {
    uint64_t random;
    struct temper temper;
    struct known_lease leases[LEASES];
    unsigned n_leases;
    struct known_hold holds[HOLDS];
    unsigned n_holds;
    struct known_wait waits[HOLDS]; /* some of those that queued last */
    unsigned n_waits;
    struct known_key keys[KEYS];
    unsigned n_keys;
    struct generated recent[RECENT];
    unsigned n_recent;
    uint64_t next_request, made;
};

static const char *const names[NAMES] = {
    "a",   "b",   "c/1", "c/2", "c",   "d\xc3\xa9pot", "e/1", "e/2",
    "e/3", "e/4", "e/5", "e/6", "e/7", "e/8",          "e/9", "f",
    "g",   "h",   "i",   "j"};
static const char *const bad_texts[] = {"",     "a\nb",         "\x7f",
                                        "\xc3", "\xed\xa0\x80", "\xc0\xaf"};
static const char *const labels[] = {"",
                                     "h1",
                                     "host=h2 pid=7",
                                     "note=one\nnote=two",
                                     "na\xc3\xafve",
                                     "a label of thirty bytes, all of it"};
static const char *const key_values[KEY_VALUES] = {"mine", "ours", "",
                                                   "a value of 24 bytes, all"};
static char big[BIG];

uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* 0..n-1 */
static unsigned below(struct generator *g, unsigned n)
{
    return (unsigned)(random_next(&g->random) % n);
}

static uint64_t between(struct generator *g, unsigned least, unsigned most)
{
    return least + below(g, most - least + 1);
}

/* True in n of `of` cases. */
static bool chance(struct generator *g, unsigned n, unsigned of)
{
    return below(g, of) < n;
}

void generated_copy(struct generated *to, const struct generated *from)
{
    *to = *from;
    if (from->command.leases == from->leases) {
        to->command.leases = to->leases;
    }
    if (from->command.heard == from->heard) {
        to->command.heard = to->heard;
    }
}

/* ---- the world ---- */

static const unsigned usual_weights[PK_VERB_COUNT] = {
    [PK_TICK] = 40,          [PK_CONFIGURE] = 2,      [PK_LEAP] = 1,
    [PK_LEASE_OPEN] = 60,    [PK_LEASE_RENEW] = 110,  [PK_LEASE_CLOSE] = 14,
    [PK_LEASE_SHOW] = 12,    [PK_LOCK_ACQUIRE] = 420, [PK_LOCK_CANCEL] = 50,
    [PK_LOCK_RELEASE] = 150, [PK_LOCK_VALUE] = 25,    [PK_LOCK_BREAK] = 12,
    [PK_LOCK_SHOW] = 15,     [PK_LOCK_LIST] = 12,     [PK_FENCE_CLAIM] = 20,
    [PK_FENCE_CHECK] = 12,   [PK_FENCE_SET] = 40,     [PK_FENCE_GET] = 20,
    [PK_KEY_TAKE] = 70,      [PK_KEY_KEEP] = 40,      [PK_KEY_DROP] = 30,
    [PK_FENCE_MODE] = 8,     [PK_FENCE_SHOW] = 12,    [PK_SET_VERSION] = 4,
};

/* Each world stresses its own mixture; a verb may be missing, so that the others get
 * room. */
static void choose_temper(struct generator *g)
{
    struct temper *t = &g->temper;
    t->names = chance(g, 1, 12) ? NAMES : (unsigned)between(g, 1, FEW_NAMES);
    t->leases = (unsigned)between(g, 2, 6);
    for (unsigned i = 0; i < NAMES; i++) {
        t->slots[i] = chance(g, 1, 4) ? (uint32_t)between(g, 1, 3) : 0;
    }
    t->shared = below(g, 12);
    t->sets = below(g, 10);
    t->tries = below(g, 8);
    t->delays = below(g, 12);
    t->holds = below(g, 8);
    t->pace = below(g, 4);
    t->ttl = chance(g, 1, 3) ? 100 : chance(g, 1, 2) ? 400 : 3000;
    t->tight = chance(g, 3, 4);
    t->late = chance(g, 1, 50);
    t->anonymous = chance(g, 1, 4);
    for (unsigned v = 0; v < PK_VERB_COUNT; v++) {
        static const unsigned quarters[] = {0, 1, 2, 4, 4, 4, 8};
        t->weights[v] = usual_weights[v] * quarters[below(g, 7)];
    }
    t->weights[PK_LEASE_OPEN] = usual_weights[PK_LEASE_OPEN] * 4;
    t->weights[PK_LOCK_ACQUIRE] = usual_weights[PK_LOCK_ACQUIRE] * 4;
    t->weights[PK_TICK] += 4;
}

struct generator *generator_new(uint64_t seed)
{
    struct generator *g = calloc(1, sizeof *g);
    if (g == NULL) {
        abort();
    }
    memset(big, 'v', sizeof big);
    g->random = seed;
    g->next_request = 1;
    choose_temper(g);
    return g;
}

void generator_free(struct generator *g)
{
    free(g);
}

/* ---- fields ---- */

static struct pk_bytes some_name(struct generator *g)
{
    return pk_text(names[below(g, g->temper.names)]);
}

static uint64_t some_lease(struct generator *g, bool alive)
{
    for (unsigned tries = 0; tries < 16 && g->n_leases > 0; tries++) {
        const struct known_lease *l = &g->leases[below(g, g->n_leases)];
        if (l->ended != alive && (!l->keyed || chance(g, 1, 12))) {
            return l->id;
        }
    }
    return chance(g, 1, 20) ? random_next(&g->random) : between(g, 0, 20);
}

static uint64_t usual_lease(struct generator *g)
{
    return some_lease(g, !chance(g, 1, 20));
}

static uint64_t some_request(struct generator *g)
{
    unsigned r = below(g, 100);
    if (r < 8) {
        return 0;
    }
    if (r < 14) {
        return g->next_request > 30 ? g->next_request - between(g, 1, 30) : 1;
    }
    if (r < 18) {
        return g->next_request++ + between(g, 1, 5);
    }
    return r == 18 && chance(g, 1, 40) ? UINT64_MAX : g->next_request++;
}

static struct pk_bytes some_value(struct generator *g)
{
    if (chance(g, 2, 3)) {
        return pk_text("");
    }
    if (chance(g, 1, 400)) {
        return pk_bytes(big, (size_t)between(g, 65535, 65538));
    }
    return pk_bytes("0123456789abcdefghij", (size_t)between(g, 0, 20));
}

/* A hold that is, or one that was; NULL when there never was one. */
static const struct known_hold *some_hold(struct generator *g)
{
    bool ended = chance(g, 1, 8);
    for (unsigned tries = 0; tries < 8 && g->n_holds > 0; tries++) {
        const struct known_hold *h = &g->holds[below(g, g->n_holds)];
        if (h->ended == ended) {
            return h;
        }
    }
    return g->n_holds > 0 ? &g->holds[below(g, g->n_holds)] : NULL;
}

static void fill_hold(struct generator *g, struct pk_command *c)
{
    const struct known_hold *h = some_hold(g);
    bool has_lease = pk_verb_fields(c->verb) & PK_F_LEASE;
    c->name = some_name(g);
    c->token = between(g, 1, 9);
    c->lease = has_lease ? usual_lease(g) : 0;
    if (h != NULL) {
        c->token = h->token;
        c->name = chance(g, 1, 20) ? c->name : pk_text(names[h->name]);
        c->lease = has_lease && !chance(g, 1, 20) ? h->lease : c->lease;
    }
}

static void fill_parts(struct generator *g, struct pk_command *c)
{
    const struct temper *t = &g->temper;
    uint32_t wanted = 1;
    if (t->names > 1 && chance(g, t->sets, 16)) {
        unsigned most = t->names == NAMES ? PK_SET_MAX : t->names < 4 ? t->names : 4;
        wanted = (uint32_t)between(g, 2, most);
    }
    unsigned from = below(g, t->names);
    for (uint32_t i = 0; i < wanted; i++) {
        /* Neighbours in either direction, so that sets overlap and cross. */
        unsigned n = (from + (from % 2 == 0 ? i : t->names - i)) % t->names;
        struct pk_part *p = &c->parts[c->n_parts++];
        p->name = pk_text(names[n]);
        p->slots = t->slots[n];
        if (chance(g, 1, 40)) {
            p->slots = (uint32_t)between(g, 0, 3);
        }
        bool shared = chance(g, t->shared, 16);
        p->mode = p->slots > 0 ? PK_SLOT : shared ? PK_SHARED : PK_EXCLUSIVE;
    }
}

static void fill_acquire(struct generator *g, struct pk_command *c)
{
    const struct temper *t = &g->temper;
    fill_parts(g, c);
    c->wait_ms =
        chance(g, 1, 3) ? PK_WAIT_FOREVER : between(g, 1, 50 + g->temper.ttl / 4);
    if (chance(g, t->tries, 16)) {
        c->wait_ms = 0;
    }
    if (chance(g, t->delays, 16)) {
        c->lock_delay_ms = between(g, 1, 4) * (chance(g, 1, 4) ? 7 : 20);
    }
    if (chance(g, t->holds, 16)) {
        c->max_hold_ms = between(g, 1, 120);
    }
    c->value = some_value(g);
}

static void fill_limits(struct generator *g, struct pk_limits *l)
{
    static const struct pk_limits tight = {.leases = 6,
                                           .locks = 5,
                                           .claims = 9,
                                           .lease_claims = 5,
                                           .lock_waiters = 4,
                                           .set_locks = 4,
                                           .fences = 3,
                                           .label_bytes = 20,
                                           .value_bytes = 16,
                                           .stored_bytes = 120,
                                           .replies = 6,
                                           .ended = 4,
                                           .step_work = 3};
#define X(name, initial, ceiling, text)                                                  \
    l->name = (uint32_t)(chance(g, 2, 3) ? (initial) : between(g, 1, tight.name));
    PK_LIMITS(X)
#undef X
    if (chance(g, 2, 3)) {
        l->replies = (uint32_t)between(g, 1, 6);
        l->ended = (uint32_t)between(g, 1, 6);
        l->step_work = (uint32_t)between(g, 1, 8);
    }
#define X(name, initial, ceiling, text) l->name = chance(g, 1, 8) ? 0 : l->name;
    PK_LIMITS(X)
#undef X
}

static void fill_fence(struct generator *g, struct pk_command *c)
{
    const struct known_hold *h = some_hold(g);
    c->name = some_name(g);
    c->token = h != NULL && chance(g, 1, 2) ? h->token
                                            : between(g, 1, 1 + (unsigned)g->made / 20);
    if (c->verb == PK_FENCE_GET && chance(g, 1, 3)) {
        c->token = 0;
    }
    if (chance(g, 1, 500)) {
        c->token = PK_TOKEN_MAX;
    }
    if (c->verb == PK_FENCE_SET && chance(g, 1, 2)) {
        c->request = between(g, 1, 12); /* a fence's ids need not grow with the world's */
    }
    if (c->verb == PK_FENCE_SET && chance(g, 1, 3)) {
        c->ttl_ms = between(g, 50, g->temper.ttl);
    }
}

static void fill_renew(struct generator *g, struct generated *out)
{
    struct pk_command *c = &out->command;
    bool all = chance(g, 2, 3);
    c->n_leases = (uint32_t)between(g, 1, GENERATED_LEASES);
    c->leases = out->leases;
    for (uint32_t i = 0; i < c->n_leases; i++) {
        bool known = all && i < g->n_leases;
        uint64_t id = known ? g->leases[g->n_leases - 1 - i].id : usual_lease(g);
        pk_command_put_lease(out->leases, i, id);
        /* Few numbers, so that some are the last one. */
        pk_command_put_heard(out->heard, i, chance(g, 1, 2) ? 0 : below(g, 6));
    }
    c->heard = chance(g, 1, 2) ? out->heard : NULL;
    c->ttl_ms = chance(g, 2, 3) ? 0 : between(g, 50, g->temper.ttl);
}

static void fill_read(struct generator *g, struct pk_command *c)
{
    static const char *const prefixes[] = {"", "", "c", "c/", "d", "z"};
    static const char *const cursors[] = {"", "", "a", "b", "c", "c/1", "zz", "\xff"};
    c->count = chance(g, 1, 2) ? between(g, 1, 4) : between(g, 1, PK_PAGE_MAX);
    if (c->verb == PK_LEASE_SHOW) {
        const struct known_hold *h = some_hold(g);
        c->lease = usual_lease(g);
        if (h != NULL && chance(g, 1, 3)) {
            c->lease = h->lease;
            c->target = h->request;
        } else if (g->n_waits > 0 && chance(g, 1, 3)) {
            const struct known_wait *w = &g->waits[below(g, g->n_waits)];
            c->lease = w->lease;
            c->target = w->request;
        } else if (chance(g, 1, 4)) {
            c->target = between(g, 1, 9);
        }
    } else if (c->verb == PK_LOCK_SHOW) {
        c->name = some_name(g);
    } else {
        c->name = pk_text(prefixes[below(g, 6)]);
        c->cursor = pk_text(cursors[below(g, 8)]);
    }
}

/* Names of keys: one, or a few neighbours, so that some match and some don't. */
static void fill_key_parts(struct generator *g, struct pk_command *c, unsigned from)
{
    unsigned most = g->temper.names < 3 ? g->temper.names : 3;
    uint32_t wanted = chance(g, 1, 3) ? (uint32_t)between(g, 1, most) : 1;
    for (uint32_t i = 0; i < wanted; i++) {
        struct pk_part *p = &c->parts[c->n_parts++];
        p->name = pk_text(names[(from + i) % g->temper.names]);
        p->mode = PK_EXCLUSIVE;
    }
}

/* One that is there, if such a one is found soon; NULL: there never was one. */
static const struct known_key *some_key(struct generator *g)
{
    const struct known_key *k = NULL;
    for (unsigned tries = 0; tries < 24 && g->n_keys > 0; tries++) {
        k = &g->keys[below(g, g->n_keys)];
        if (!k->ended) {
            break;
        }
    }
    return k;
}

static void fill_key(struct generator *g, struct pk_command *c)
{
    unsigned name = below(g, g->temper.names);
    unsigned value = below(g, KEY_VALUES);
    const struct known_key *k = some_key(g);
    if ((k == NULL || k->ended) && chance(g, 3, 4)) {
        c->verb = PK_KEY_TAKE; /* there is little to keep or to drop */
    }
    if (c->verb != PK_KEY_TAKE && k != NULL && chance(g, 7, 8)) {
        name = k->name;
        value = chance(g, 1, 8) ? value : k->value;
    }
    c->value = pk_text(key_values[value]);
    c->ttl_ms = c->verb == PK_KEY_DROP ? 0 : between(g, 50, g->temper.ttl);
    fill_key_parts(g, c, name);
    if (c->verb == PK_KEY_TAKE) {
        c->label = pk_text(labels[below(g, 6)]);
        c->value = chance(g, 1, 200) ? pk_bytes(big, 65537) : c->value;
        c->label = chance(g, 1, 200) ? pk_bytes(big, 513) : c->label;
        return;
    }
    c->flags = chance(g, 1, 4) ? PK_KEY_ANY : 0;
    if (c->verb == PK_KEY_KEEP && chance(g, 1, 2)) {
        c->flags |= PK_KEY_ADD;
        c->ttl_ms = chance(g, 1, 2)   ? between(g, 0, 30)
                    : chance(g, 1, 6) ? PK_TTL_MAX_MS - between(g, 0, g->temper.ttl)
                                      : c->ttl_ms;
    }
}

/* Sometimes a token that is known from elsewhere; seldom one close to the last of all. */
static void fill_leap(struct generator *g, struct pk_command *c)
{
    const struct known_hold *h = some_hold(g);
    if (chance(g, 1, 2)) {
        c->token = (h != NULL ? h->token : 0) + between(g, 1, 1000);
    } else if (chance(g, 1, 6)) {
        c->token = PK_TOKEN_MAX - PK_TOKEN_LEAP - between(g, 0, 6);
    } else if (chance(g, 1, 10)) {
        c->token = PK_TOKEN_MAX - PK_TOKEN_LEAP + between(g, 1, 3);
    }
}

static void fill_open(struct generator *g, struct pk_command *c)
{
    c->ttl_ms = between(g, 50, g->temper.ttl);
    c->label = pk_text(labels[below(g, 6)]);
    if (chance(g, 1, 200)) {
        c->ttl_ms = PK_TTL_MAX_MS;
        c->label = pk_bytes(big, (size_t)between(g, 511, 514));
    }
}

static void fill_cancel(struct generator *g, struct pk_command *c)
{
    const struct known_hold *h = some_hold(g);
    c->lease = usual_lease(g);
    c->target = g->next_request + below(g, 3); /* not arrived yet */
    if (g->n_waits > 0 && chance(g, 1, 2)) {
        const struct known_wait *w = &g->waits[below(g, g->n_waits)];
        c->lease = w->lease;
        c->target = w->request;
    } else if (h != NULL && chance(g, 1, 4)) {
        c->lease = h->lease;
        c->target = h->request;
    } else if (chance(g, 1, 20)) {
        c->target = c->request; /* of itself */
    } else if (g->n_recent > 0 && chance(g, 9, 10)) {
        const struct pk_command *r = &g->recent[below(g, g->n_recent)].command;
        c->lease = r->verb == PK_LOCK_ACQUIRE ? r->lease : c->lease;
        c->target = r->request;
    }
    c->target += c->target == 0;
}

/* Now and then an id that another command of that lease may have had before. */
static void borrow_request(struct generator *g, struct pk_command *c)
{
    const struct pk_command *r = &g->recent[below(g, RECENT)].command;
    if (r->lease != 0 && r->request != 0 && chance(g, 1, 20)) {
        c->lease = r->lease;
        c->request = r->request;
    }
}

static void fill(struct generator *g, struct generated *out)
{
    struct pk_command *c = &out->command;
    if (pk_verb_fields(c->verb) & PK_F_REQUEST) {
        c->request = some_request(g);
    }
    if (c->verb == PK_LOCK_ACQUIRE && c->request == 0 && !g->temper.anonymous) {
        c->request = g->next_request++;
    }
    switch (c->verb) {
    case PK_CONFIGURE:
        fill_limits(g, &c->limits);
        break;
    case PK_LEAP:
        fill_leap(g, c);
        break;
    case PK_KEY_TAKE:
    case PK_KEY_KEEP:
    case PK_KEY_DROP:
        fill_key(g, c);
        break;
    case PK_LEASE_OPEN:
        fill_open(g, c);
        break;
    case PK_LEASE_RENEW:
        fill_renew(g, out);
        break;
    case PK_LEASE_CLOSE:
        c->lease = usual_lease(g);
        break;
    case PK_LOCK_ACQUIRE:
        c->lease = usual_lease(g);
        fill_acquire(g, c);
        borrow_request(g, c);
        break;
    case PK_LOCK_CANCEL:
        fill_cancel(g, c);
        break;
    case PK_LOCK_RELEASE:
    case PK_LOCK_VALUE:
    case PK_LOCK_BREAK:
        fill_hold(g, c);
        c->value = c->verb == PK_LOCK_VALUE ? some_value(g) : c->value;
        c->reason = pk_text(c->verb == PK_LOCK_BREAK ? "stuck" : "");
        break;
    case PK_FENCE_MODE:
        c->flags = chance(g, 2, 3) ? PK_FENCE_SHADOW : 0;
        c->name = some_name(g);
        c->epoch = below(g, chance(g, 1, 2) ? 2 : 5);
        break;
    case PK_FENCE_SHOW:
        c->name = some_name(g);
        break;
    case PK_SET_VERSION:
        c->version = chance(g, 2, 3) ? PK_VERSION_OLDEST : 1 + below(g, 3);
        c->flags = chance(g, 1, 2) ? PK_VERSION_HOLD : 0;
        break;
    case PK_FENCE_CLAIM:
    case PK_FENCE_CHECK:
    case PK_FENCE_SET:
    case PK_FENCE_GET:
        fill_fence(g, c);
        c->value = c->verb == PK_FENCE_SET ? some_value(g) : c->value;
        break;
    case PK_LEASE_SHOW:
    case PK_LOCK_SHOW:
    case PK_LOCK_LIST:
        fill_read(g, c);
        break;
    default:
        break;
    }
}

/* ---- what is wrong with some commands ---- */

/* Spoils one of the command's fields; the result still fits the encoding. */
static void spoil(struct generator *g, struct pk_command *c)
{
    uint32_t fields = pk_verb_fields(c->verb);
    struct pk_bytes bad = pk_text(bad_texts[below(g, 6)]);
    switch (below(g, 8)) {
    case 0:
        c->stamp_ms = PK_TIME_MAX + between(g, 1, 9);
        break;
    case 1:
        c->principal = chance(g, 1, 2) ? pk_bytes(big, PK_PRINCIPAL_MAX + 1) : bad;
        break;
    case 2:
        c->name = fields & PK_F_NAME ? bad : c->name;
        break;
    case 3:
        c->token = fields & PK_F_TOKEN ? PK_TOKEN_MAX + 1 : 0;
        break;
    case 4:
        c->ttl_ms = fields & PK_F_TTL ? between(g, 1, 49) : 0;
        c->count = fields & PK_F_COUNT ? PK_PAGE_MAX * below(g, 2) + 1 : 0;
        break;
    case 5:
        c->target = 0;
        c->flags = fields & PK_F_FLAGS ? between(g, 2, 8) : 0;
        c->label = fields & PK_F_LABEL ? bad : c->label;
        break;
    case 6:
        if (fields & PK_F_PARTS) {
            c->parts[c->n_parts < PK_SET_MAX ? c->n_parts++ : 0] = c->parts[0];
        }
        break;
    default:
        if (fields & PK_F_PARTS) {
            c->parts[0].mode = (enum pk_mode)(chance(g, 1, 3)   ? PK_MODE_NONE
                                              : chance(g, 1, 2) ? PK_SHARED
                                                                : PK_SLOT);
            c->parts[0].slots = 0;
        } else if (fields & PK_F_LIMITS) {
            c->limits.claims = 0;
        }
        break;
    }
}

/* ---- the next command ---- */

static enum pk_verb some_verb(struct generator *g)
{
    unsigned sum = 0;
    unsigned alive = 0;
    for (unsigned i = 0; i < g->n_leases; i++) {
        alive += !g->leases[i].ended && !g->leases[i].keyed;
    }
    if (alive < g->temper.leases && chance(g, 1, 4)) {
        return PK_LEASE_OPEN;
    }
    for (unsigned v = 0; v < PK_VERB_COUNT; v++) {
        sum += g->temper.weights[v];
    }
    unsigned at = below(g, sum);
    unsigned v = 0;
    while (at >= g->temper.weights[v]) {
        at -= g->temper.weights[v++];
    }
    return v == PK_LEASE_OPEN && alive > g->temper.leases && !chance(g, 1, 8)
               ? PK_LOCK_ACQUIRE
               : (enum pk_verb)v;
}

static uint64_t some_stamp(struct generator *g, uint64_t clock, uint64_t deadline)
{
    unsigned r = below(g, 100);
    if (g->made == 0 && g->temper.late) {
        return PK_TIME_MAX - 3000;
    }
    if (r < 14 && deadline != UINT64_MAX && deadline < clock + 5000) {
        return r < 8 ? deadline : r < 12 ? deadline - 1 : deadline + 1;
    }
    if (r < 17) {
        return clock > 10 ? clock - 10 : 0;
    }
    if (r < 60) {
        return clock;
    }
    if (r < 90) {
        return clock + between(g, 0, 4 + 4 * g->temper.pace);
    }
    return r < 99 ? clock + between(g, 0, 60) : clock + between(g, 0, 800);
}

void generator_next(struct generator *g, uint64_t clock, uint64_t deadline,
                    struct generated *out)
{
    static const char *const principals[] = {"", "ops", "ops", "alice"};
    bool first = g->made == 0;
    if (!first && g->n_recent > 0 && chance(g, 1, 9)) {
        generated_copy(out, &g->recent[below(g, g->n_recent)]);
        out->command.stamp_ms = some_stamp(g, clock, deadline);
    } else {
        *out = (struct generated){.leases = {0}};
        out->command.verb = first && g->temper.tight ? PK_CONFIGURE : some_verb(g);
        out->command.stamp_ms = some_stamp(g, clock, deadline);
        out->command.principal = pk_text(principals[below(g, 4)]);
        fill(g, out);
        if ((pk_verb_fields(out->command.verb) & PK_F_READ) && chance(g, 1, 2)) {
            out->command.stamp_ms = 0;
        }
        if (chance(g, 1, 60)) {
            spoil(g, &out->command);
        }
        unsigned at = g->n_recent < RECENT ? g->n_recent++ : below(g, RECENT);
        generated_copy(&g->recent[at], out);
    }
    g->made++;
}

/* ---- what flows back ---- */

static void learn_lease(struct generator *g, uint64_t id, bool keyed)
{
    if (g->n_leases == LEASES) {
        unsigned gone = 0;
        while (gone < LEASES - 1 && !g->leases[gone].ended) {
            gone++;
        }
        g->n_leases--;
        memmove(g->leases + gone, g->leases + gone + 1,
                (g->n_leases - gone) * sizeof g->leases[0]);
    }
    g->leases[g->n_leases++] = (struct known_lease){id, false, keyed};
}

static unsigned index_of(struct pk_bytes name)
{
    unsigned i = 0;
    while (i < NAMES - 1 && !pk_bytes_equal(pk_text(names[i]), name)) {
        i++;
    }
    return i;
}

static void learn_hold(struct generator *g, const struct pk_effect *e)
{
    unsigned at = g->n_holds < HOLDS ? g->n_holds++ : below(g, HOLDS);
    g->holds[at] =
        (struct known_hold){e->lease, e->request, e->token, index_of(e->name), false};
}

static void learn_key(struct generator *g, const struct pk_effect *e)
{
    unsigned value = 0;
    while (value < KEY_VALUES - 1 &&
           !pk_bytes_equal(pk_text(key_values[value]), e->value)) {
        value++;
    }
    unsigned at = g->n_keys;
    for (unsigned i = 0; i < g->n_keys; i++) {
        at = g->keys[i].ended ? i : at;
    }
    if (at == KEYS) {
        at = below(g, KEYS);
    }
    g->n_keys += at == g->n_keys;
    g->keys[at] = (struct known_key){e->token, index_of(e->name), value, false};
}

/* Most of the time: a cancel that comes too late is worth a try, too. */
static void forget_wait(struct generator *g, const struct pk_effect *e)
{
    for (unsigned i = 0; i < g->n_waits && !chance(g, 1, 6); i++) {
        if (g->waits[i].lease == e->lease && g->waits[i].request == e->request) {
            g->waits[i--] = g->waits[--g->n_waits];
        }
    }
}

void generator_observe(struct generator *g, const struct generated *command,
                       const struct pk_effects *effects)
{
    bool takes = command->command.verb == PK_KEY_TAKE;
    for (uint32_t i = 0; i < effects->count; i++) {
        const struct pk_effect *e = &effects->list[i];
        switch (e->kind) {
        case PK_EV_LEASE_OPENED:
            learn_lease(g, e->lease, takes);
            break;
        case PK_EV_LEASE_ENDED:
            for (unsigned k = 0; k < g->n_leases; k++) {
                g->leases[k].ended = g->leases[k].ended || g->leases[k].id == e->lease;
            }
            break;
        case PK_EV_QUEUED:
            g->waits[g->n_waits < HOLDS ? g->n_waits++ : below(g, HOLDS)] =
                (struct known_wait){e->lease, e->request};
            break;
        case PK_EV_LEFT:
            forget_wait(g, e);
            break;
        case PK_EV_GRANTED:
            learn_hold(g, e);
            if (takes) {
                learn_key(g, e);
            }
            forget_wait(g, e);
            break;
        case PK_EV_ENDED:
            for (unsigned k = 0; k < g->n_holds; k++) {
                g->holds[k].ended = g->holds[k].ended || g->holds[k].token == e->token;
            }
            for (unsigned k = 0; k < g->n_keys; k++) {
                g->keys[k].ended = g->keys[k].ended || g->keys[k].token == e->token;
            }
            break;
        default:
            break;
        }
    }
}
