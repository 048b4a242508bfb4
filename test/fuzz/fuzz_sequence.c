/* SPDX-License-Identifier: MIT */
/*
 * Bytes as a sequence of meaningful commands, each a few bytes long, through machine and
 * model side by side. Unlike the raw decoder's target nearly every input is a story: the
 * fuzzer spends its time on orders of events instead of on varints.
 */
#include <stdlib.h>

#include "model/pair.h"
#include "model/show.h"

enum { COMMANDS_MOST = 150, LEASES_MOST = 4, SET_MOST = 3, NAMES = 4 };

struct bytes_left {
    const uint8_t *at, *end;
};

/* The next byte, 0 behind the end. */
static unsigned take(struct bytes_left *b)
{
    return b->at < b->end ? *b->at++ : 0;
}

static struct pk_bytes name_number(unsigned i)
{
    static const char letters[NAMES] = {'a', 'b', 'c', 'd'};
    return pk_bytes(&letters[i % NAMES], 1);
}

static struct pk_bytes take_name(struct bytes_left *b)
{
    return name_number(take(b));
}

static struct pk_bytes take_text(struct bytes_left *b)
{
    return pk_bytes("0123456789abcdef", take(b) % 17);
}

/* A small number, or one close to the last token given out. */
static uint64_t take_token(struct bytes_left *b, const struct pair *p)
{
    unsigned v = take(b);
    uint64_t last = model_last_token(p->model);
    uint64_t back = v % 16;
    return v < 128 ? v : last > back ? last - back : 1;
}

static uint64_t take_stamp(struct bytes_left *b, const struct pair *p)
{
    static const unsigned strides[] = {0, 0, 0, 1, 7, 20, 50, 60, 100, 400};
    uint64_t clock = model_clock(p->model);
    uint64_t deadline = model_next_deadline(p->model);
    unsigned v = take(b);
    if (v >= 200 && deadline != UINT64_MAX) {
        return deadline - (v >= 240);
    }
    return clock + strides[v % 10];
}

static void take_parts(struct bytes_left *b, struct pk_command *c)
{
    unsigned v = take(b);
    unsigned first = v % NAMES;
    c->n_parts = 1 + v / NAMES % SET_MOST;
    bool down = v >= 128;
    for (unsigned i = 0; i < c->n_parts; i++) {
        unsigned kind = take(b) % 5;
        struct pk_part *p = &c->parts[i];
        p->name = name_number(first + (down ? NAMES - i : i));
        p->mode = kind < 2 ? PK_EXCLUSIVE : kind == 2 ? PK_SHARED : PK_SLOT;
        if (pk_verb_fields(c->verb) & PK_F_EXCLUSIVE) {
            p->mode = PK_EXCLUSIVE; /* what is refused at once is no story */
        }
        p->slots = p->mode == PK_SLOT ? kind - 2 : 0;
    }
}

static void take_limits(struct bytes_left *b, struct pk_limits *l)
{
    uint64_t v;
#define X(name, initial, ceiling, text)                                                  \
    v = take(b);                                                                         \
    l->name = v == 0 || v > (uint64_t)(ceiling) ? (uint32_t)(initial) : (uint32_t)v;
    PK_LIMITS(X)
#undef X
}

static void take_times(struct bytes_left *b, struct pk_command *c)
{
    unsigned v = take(b);
    c->wait_ms = v % 4 == 0 ? 0 : v % 4 == 1 ? PK_WAIT_FOREVER : v;
    v = take(b);
    c->max_hold_ms = v < 128 ? 0 : v - 127;
    v = take(b);
    c->lock_delay_ms = v < 100 ? 0 : v - 99;
}

/* Fills the fields that the verb has; `leases` is room for a RENEW's ids. */
static struct pk_command take_command(struct bytes_left *b, const struct pair *p,
                                      unsigned char *leases)
{
    struct pk_command c = {.verb = (enum pk_verb)(take(b) % PK_VERB_COUNT)};
    uint32_t fields = pk_verb_fields(c.verb);
    c.stamp_ms = take_stamp(b, p);
    c.lease = fields & PK_F_LEASE ? take(b) % 8 : 0;
    c.request = fields & PK_F_REQUEST ? take(b) : 0;
    c.target = fields & PK_F_TARGET ? take(b) : 0;
    c.name = fields & PK_F_NAME ? take_name(b) : pk_text("");
    c.token = fields & PK_F_TOKEN ? take_token(b, p) : 0;
    c.ttl_ms = fields & PK_F_TTL ? take(b) * 2 : 0;
    c.count = fields & PK_F_COUNT ? take(b) : 0;
    c.flags = fields & PK_F_FLAGS ? take(b) % 4 : 0;
    c.label = fields & PK_F_LABEL ? take_text(b) : pk_text("");
    c.value = fields & PK_F_VALUE ? take_text(b) : pk_text("");
    c.cursor = fields & PK_F_CURSOR ? take_name(b) : pk_text("");
    if (fields & PK_F_PARTS) {
        take_parts(b, &c);
    }
    if (fields & PK_F_WAIT) {
        take_times(b, &c);
    }
    if (fields & PK_F_LIMITS) {
        take_limits(b, &c.limits);
    }
    if (fields & PK_F_LEASES) {
        c.leases = leases;
        c.n_leases = take(b) % (LEASES_MOST + 1);
        for (uint32_t i = 0; i < c.n_leases; i++) {
            pk_command_put_lease(leases, i, take(b) % 8);
        }
    }
    return c;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes_left b = {data, data + size};
    struct pair p;
    pair_start(&p);
    for (int i = 0; i < COMMANDS_MOST && b.at < b.end; i++) {
        unsigned char leases[8 * LEASES_MOST];
        struct pk_command c = take_command(&b, &p, leases);
        if (!pair_step(&p, &c) || (i % 16 == 15 && !pair_restore(&p))) {
            fprintf(stderr, "step %d: %s\n", i, p.wrong);
            show_command(stderr, &c);
            fprintf(stderr, "machine:\n");
            show_effects(stderr, &p.from_machine, "    ");
            fprintf(stderr, "model:\n");
            show_effects(stderr, &p.from_model, "    ");
            abort();
        }
    }
    pair_end(&p);
    return 0;
}
