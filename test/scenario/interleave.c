/* SPDX-License-Identifier: MIT */
/*
 * Every order in which several clients can speak, each keeping its own order.
 *
 * A client that waits in a queue says nothing until it is granted or refused, as a real
 * one would; if nobody can speak and lines are left over, the order is stuck. Each
 * order is played from the start on a copy of the machine, guided by the list of
 * choices made: what was taken of how many at each turn. Counting that list up like an
 * odometer visits every order once.
 */
#include <inttypes.h>

#include "core/door.h"
#include "player.h"

enum { TURNS_MAX = 64, ORDERS_MAX = 50000, OUTCOMES_MAX = 64 };

struct odometer {
    uint32_t taken[TURNS_MAX];
    uint32_t of[TURNS_MAX];
    uint32_t turns; /* of the last order */
};

/* The lines of one client that are still to come. */
struct sequence {
    struct pk_bytes client;
    uint32_t lines[TURNS_MAX];
    uint32_t n_lines, next;
    struct text refusals;
};

struct order {
    struct player *player;
    struct sequence sequences[CLIENTS_MAX];
    uint32_t n_sequences;
    struct text grants;
    struct text spoken; /* "A B A": who spoke */
};

struct outcome {
    struct text text;
    struct text example; /* the first order that led to it */
    uint32_t count;
};

struct outcomes {
    struct outcome list[OUTCOMES_MAX];
    uint32_t count;
    uint32_t orders;
};

/* ---- one order ---- */

static bool order_begin(struct order *o, const struct player *p, const struct script *s,
                        const struct script_block *b)
{
    memset(o, 0, sizeof *o);
    o->player = player_copy(p);
    for (uint32_t i = b->first_line + 1; i < b->first_line + b->n_lines; i++) {
        struct pk_bytes client = s->lines[i].client;
        uint32_t k = 0;
        while (k < o->n_sequences && !pk_bytes_equal(o->sequences[k].client, client)) {
            k++;
        }
        if (k == CLIENTS_MAX || b->n_lines > TURNS_MAX) {
            return script_wrong(p->error, s->lines[i].number, "too much to interleave",
                                pk_bytes("", 0));
        }
        o->n_sequences = k == o->n_sequences ? k + 1 : o->n_sequences;
        struct sequence *q = &o->sequences[k];
        q->client = client;
        q->lines[q->n_lines++] = i;
    }
    return true;
}

static void order_end(struct order *o)
{
    for (uint32_t i = 0; i < o->n_sequences; i++) {
        text_free(&o->sequences[i].refusals);
    }
    text_free(&o->grants);
    text_free(&o->spoken);
    player_free(o->player);
    pk_door_resize(o->player, 0);
}

static bool waits(const struct order *o, const struct sequence *q)
{
    const struct player *p = o->player;
    uint64_t token = 0;
    for (uint32_t i = 1; i < p->n_clients; i++) {
        const struct player_client *c = &p->clients[i];
        if (pk_bytes_equal(c->name, q->client) && c->acquire != 0) {
            return pk_machine_claim(p->machine, c->lease, c->acquire, &token) ==
                   PK_CLAIM_WAITING;
        }
    }
    return false;
}

/* The n-th sequence that may speak now; NULL: fewer may. */
static struct sequence *speaker(struct order *o, uint32_t n)
{
    for (uint32_t i = 0; i < o->n_sequences; i++) {
        struct sequence *q = &o->sequences[i];
        if (q->next < q->n_lines && !waits(o, q) && n-- == 0) {
            return q;
        }
    }
    return NULL;
}

static void add_name(struct text *t, struct pk_bytes client)
{
    struct pk_bytes name = client.len > 0 ? client : pk_text("nobody");
    text_add(t, name.data, name.len);
}

/* Notes who was granted what, and whom the command refused. */
static void note_effects(struct order *o, struct sequence *q)
{
    const struct pk_effects *effects = &o->player->effects;
    for (uint32_t i = 0; i < effects->count; i++) {
        const struct pk_effect *e = &effects->list[i];
        bool refused =
            e->kind == PK_REPLY && e->status != PK_OK && e->status != PK_QUEUED;
        if (refused) {
            text_addf(&q->refusals, "; ");
            add_name(&q->refusals, q->client);
            text_addf(&q->refusals, " %s", pk_status_name(e->status));
        }
        if (e->kind == PK_EV_GRANTED && e->part == 0) {
            text_addf(&o->grants, "%s", o->grants.len > 0 ? ", " : "");
            print_lease(&o->grants, &o->player->names, e->lease);
            text_addf(&o->grants, " gets ");
        }
        if (e->kind == PK_EV_GRANTED) {
            text_addf(&o->grants, "%s", e->part > 0 ? "+" : "");
            text_string(&o->grants, e->name);
        }
        if (e->kind == PK_EV_GRANTED && e->part + 1 >= e->parts) {
            text_addf(&o->grants, " token=%" PRIu64, e->token);
        }
    }
}

static void summarize(struct order *o, struct text *to)
{
    bool left = false;
    text_add(to, o->grants.data, o->grants.len);
    if (o->grants.len == 0) {
        text_addf(to, "no grant");
    }
    for (uint32_t i = 0; i < o->n_sequences; i++) {
        struct sequence *q = &o->sequences[i];
        text_add(to, q->refusals.data, q->refusals.len);
        if (waits(o, q)) {
            text_addf(to, "; ");
            add_name(to, q->client);
            text_addf(to, " waits");
        }
        left = left || q->next < q->n_lines;
    }
    text_addf(to, "%s", left ? "; STUCK" : "");
}

/* Plays one order; where the odometer has no choice yet it takes the first. */
static bool play_order(struct order *o, const struct script *s, struct odometer *meter)
{
    struct text output = {0};
    bool good = true;
    uint32_t turn = 0;
    while (good && speaker(o, 0) != NULL) {
        uint32_t alternatives = 1;
        while (speaker(o, alternatives) != NULL) {
            alternatives++;
        }
        if (turn >= meter->turns) {
            meter->taken[turn] = 0;
        }
        meter->of[turn] = alternatives;
        struct sequence *q = speaker(o, meter->taken[turn++]);
        text_addf(&o->spoken, "%s", o->spoken.len > 0 ? " " : "");
        add_name(&o->spoken, q->client);
        text_clear(&output);
        good = player_line(o->player, &s->lines[q->lines[q->next++]], &output);
        note_effects(o, q);
    }
    meter->turns = turn;
    text_free(&output);
    return good;
}

/* ---- all orders ---- */

/* The next list of choices; false: that was the last. */
static bool meter_advance(struct odometer *m)
{
    while (m->turns > 0) {
        uint32_t last = m->turns - 1;
        if (m->taken[last] + 1 < m->of[last]) {
            m->taken[last]++;
            return true;
        }
        m->turns--;
    }
    return false;
}

static bool add_outcome(struct outcomes *all, struct order *o)
{
    struct text summary = {0};
    uint32_t i = 0;
    summarize(o, &summary);
    while (i < all->count && !text_equal(&all->list[i].text, &summary)) {
        i++;
    }
    if (i == OUTCOMES_MAX) {
        text_free(&summary);
        return false;
    }
    if (i == all->count) {
        all->list[all->count++] = (struct outcome){.text = summary};
        text_add(&all->list[i].example, o->spoken.data, o->spoken.len);
    } else {
        text_free(&summary);
    }
    all->list[i].count++;
    all->orders++;
    return true;
}

static void print_outcomes(const struct outcomes *all, struct text *output)
{
    text_addf(output, "%" PRIu32 " orders, %" PRIu32 " outcome%s\n", all->orders,
              all->count, all->count == 1 ? "" : "s");
    for (uint32_t i = 0; i < all->count; i++) {
        const struct outcome *o = &all->list[i];
        text_addf(output, "%" PRIu32 "x %.*s (as in %.*s)\n", o->count, (int)o->text.len,
                  o->text.data, (int)o->example.len, o->example.data);
    }
}

bool player_interleave(const struct player *p, const struct script *s,
                       const struct script_block *b, struct text *output)
{
    struct outcomes *all = pk_door_resize(NULL, sizeof *all);
    struct order *o = pk_door_resize(NULL, sizeof *o);
    struct odometer meter = {0};
    bool good = true;
    memset(all, 0, sizeof *all);
    do {
        good = order_begin(o, p, s, b) && play_order(o, s, &meter);
        if (good && (!add_outcome(all, o) || all->orders > ORDERS_MAX)) {
            good = script_wrong(p->error, s->lines[b->first_line].number,
                                "too many orders or outcomes", pk_bytes("", 0));
        }
        order_end(o);
    } while (good && meter_advance(&meter));
    if (good) {
        print_outcomes(all, output);
    }
    for (uint32_t i = 0; i < all->count; i++) {
        text_free(&all->list[i].text);
        text_free(&all->list[i].example);
    }
    pk_door_resize(all, 0);
    pk_door_resize(o, 0);
    return good;
}
