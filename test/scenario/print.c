/* SPDX-License-Identifier: MIT */
#include "print.h"

#include <inttypes.h>

/* Fields that a kind of effect shows even when they are 0. */
enum {
    SHOW_COUNTS = 1 << 0, /* holders, waiters */
    SHOW_SINCE = 1 << 1,
    SHOW_LEFT = 1 << 2,
    SHOW_SLOTS = 1 << 3,
    SHOW_HOLDERS = 1 << 4, /* without waiters: what a reply about keys counts */
    SHOW_SHADOW = 1 << 5,
    SHOW_SHADOWED = 1 << 6, /* and the length of the value */
};

void print_lease(struct text *t, const struct lease_names *names, uint64_t lease)
{
    uint32_t i = names->count;
    while (i > 0 && names->list[i - 1].lease != lease) {
        i--;
    }
    if (i == 0) {
        text_addf(t, "lease=%" PRIu64, lease);
        return;
    }
    struct pk_bytes client = names->list[i - 1].client;
    text_add(t, client.data, client.len);
    for (uint32_t later = i; later < names->count; later++) {
        if (pk_bytes_equal(names->list[later].client, client)) {
            text_addf(t, "@%" PRIu64, lease);
            return;
        }
    }
}

static bool has_name(const struct lease_names *names, uint64_t lease)
{
    uint32_t i = 0;
    while (i < names->count && names->list[i].lease != lease) {
        i++;
    }
    return i < names->count;
}

static void add_number(struct text *t, const char *key, uint64_t n, bool always)
{
    if (n != 0 || always) {
        text_addf(t, " %s=%" PRIu64, key, n);
    }
}

static void add_duration(struct text *t, const char *key, uint64_t ms, bool always)
{
    if (ms != 0 || always) {
        text_addf(t, " %s=", key);
        text_duration(t, ms);
    }
}

static void add_string(struct text *t, const char *key, struct pk_bytes s)
{
    if (s.len > 0) {
        text_addf(t, " %s=", key);
        text_string(t, s);
    }
}

/* What all kinds have in common, in one order. */
static void add_fields(struct text *t, const struct pk_effect *e, unsigned show)
{
    if (e->mode != PK_MODE_NONE) {
        text_addf(t, " %s", pk_mode_name(e->mode));
    }
    add_number(t, "slots", e->slots, show & SHOW_SLOTS);
    add_number(t, "token", e->token, false);
    if (e->would != PK_OK) {
        text_addf(t, " would=%s", pk_status_name(e->would));
    }
    add_number(t, "shadow", e->shadow, show & SHOW_SHADOW);
    add_number(t, "epoch", e->epoch, false);
    add_number(t, "shadowed", e->shadowed, show & SHOW_SHADOWED);
    add_number(t, "value-bytes", e->value_bytes, show & SHOW_SHADOWED);
    add_number(t, "place", e->place, false);
    if (e->end != PK_END_NONE) {
        text_addf(t, " %s", pk_end_name(e->end));
    }
    add_number(t, "holders", e->holders, show & (SHOW_COUNTS | SHOW_HOLDERS));
    add_number(t, "waiters", e->waiters, show & SHOW_COUNTS);
    add_number(t, "more", e->more, 0);
    add_number(t, "event", e->event, 0);
    add_duration(t, "since", e->since_ms, show & SHOW_SINCE);
    add_duration(t, "left", e->left_ms, show & SHOW_LEFT);
    add_duration(t, "closed", e->closed_ms, false);
    add_string(t, "label", e->label);
    add_string(t, "value", e->value);
    add_string(t, "by", e->by);
    add_string(t, "why", e->why);
    if (e->parts > 1) {
        text_addf(t, " part=%" PRIu32 "/%" PRIu32, e->part + 1, e->parts);
    }
    text_addf(t, "\n");
}

static void print_reply(struct text *t, const struct pk_effect *e,
                        const struct pk_command *c, struct pk_bytes client,
                        const struct lease_names *names)
{
    if (c->verb == PK_LEASE_RENEW && e->status != PK_BADARG) {
        print_lease(t, names, e->lease);
        text_addf(t, ": ");
    } else if (client.len > 0) {
        text_add(t, client.data, client.len);
        text_addf(t, ": ");
    }
    text_addf(t, "%s", pk_status_name(e->status));
    if (e->verb != c->verb) {
        text_addf(t, " verb=\"%s\"", pk_verb_name(e->verb));
    }
    if (e->request != c->request) {
        text_addf(t, " request=%" PRIu64, e->request);
    }
    if (e->lease != c->lease && c->verb != PK_LEASE_RENEW) {
        text_addf(t, " lease=%" PRIu64, e->lease);
    }
    if (e->name.len > 0 && !pk_bytes_equal(e->name, c->name)) {
        text_addf(t, " ");
        text_string(t, e->name);
    }
    /* A remembered BUSY no longer knows what was in the way. */
    bool blocked = (e->status == PK_BUSY || e->status == PK_QUEUED) && e->name.len > 0;
    bool shown =
        e->status == PK_OK && (c->verb == PK_LOCK_SHOW || c->verb == PK_LEASE_SHOW);
    unsigned show = blocked || shown ? SHOW_COUNTS : 0;
    show |= e->status == PK_OK && c->verb == PK_KEY_DROP ? SHOW_HOLDERS : 0;
    show |=
        e->status == PK_OK && c->verb == PK_FENCE_SHOW ? SHOW_SHADOW | SHOW_SHADOWED : 0;
    add_fields(t, e, e->status == PK_MISMATCH ? SHOW_SLOTS : show);
}

void print_effect(struct text *t, const struct pk_effect *e, const struct pk_command *c,
                  struct pk_bytes client, const struct lease_names *names)
{
    unsigned show = 0;
    bool row = e->kind >= PK_ROW_LOCK && e->kind <= PK_ROW_OUTCOME;
    bool brief = c->verb == PK_LEASE_RENEW;
    if (e->kind == PK_REPLY) {
        print_reply(t, e, c, client, names);
        return;
    }
    text_addf(t, "%s%s", row ? "  " : "event: ", pk_effect_name(e->kind));
    if (e->name.len > 0) {
        text_addf(t, " ");
        text_string(t, e->name);
    }
    if (e->lease != 0) {
        text_addf(t, " ");
        print_lease(t, names, e->lease);
    }
    if (e->request != 0) {
        text_addf(t, "#%" PRIu64, e->request);
    }
    if (e->verb != 0 || e->status != 0) { /* belong to replies alone */
        text_addf(t, " verb=%d status=%d", (int)e->verb, (int)e->status);
    }
    if (e->kind == PK_EV_LEASE_OPENED && has_name(names, e->lease)) {
        text_addf(t, " lease=%" PRIu64, e->lease);
    }
    if (e->kind == PK_EV_FENCE_MODE) {
        show |= SHOW_SHADOW;
    }
    if (e->kind == PK_ROW_HOLD || e->kind == PK_ROW_WAIT) {
        show |= SHOW_SINCE;
    }
    if (e->kind == PK_ROW_HOLD && !brief) {
        show |= SHOW_LEFT;
    }
    if (e->kind == PK_ROW_LOCK) {
        show |= SHOW_COUNTS;
        show |= e->holders > 0 ? SHOW_SINCE | SHOW_LEFT : 0;
    }
    add_fields(t, e, show);
}
