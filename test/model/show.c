/* SPDX-License-Identifier: MIT */
#include "show.h"

#include <inttypes.h>

enum { SHOWN_BYTES = 40 };

static void show_u64(FILE *to, const char *name, uint64_t v)
{
    if (v == UINT64_MAX) {
        fprintf(to, " %s=max", name);
    } else if (v != 0) {
        fprintf(to, " %s=%" PRIu64, name, v);
    }
}

static void show_bytes(FILE *to, const char *name, struct pk_bytes b)
{
    if (b.len == 0) {
        return;
    }
    fprintf(to, " %s=\"", name);
    for (uint32_t i = 0; i < b.len && i < SHOWN_BYTES; i++) {
        unsigned char ch = (unsigned char)b.data[i];
        if (ch < ' ' || ch >= 127) {
            fprintf(to, "\\x%02x", (unsigned)ch);
        } else {
            fputc(ch, to);
        }
    }
    fputc('"', to);
    if (b.len > SHOWN_BYTES) {
        fprintf(to, "...(%" PRIu32 " bytes)", b.len);
    }
}

static void show_limits(FILE *to, const struct pk_limits *l)
{
#define X(name, initial, ceiling, text)                                                  \
    if (l->name != (initial)) {                                                          \
        fprintf(to, " %s=%" PRIu32, #name, l->name);                                     \
    }
    PK_LIMITS(X)
#undef X
}

void show_command(FILE *to, const struct pk_command *c)
{
    fprintf(to, "@%" PRIu64 " %s", c->stamp_ms, pk_verb_name(c->verb));
    show_u64(to, "lease", c->lease);
    show_u64(to, "request", c->request);
    show_u64(to, "target", c->target);
    show_bytes(to, "name", c->name);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        show_bytes(to, pk_mode_name(c->parts[i].mode), c->parts[i].name);
        show_u64(to, "slots", c->parts[i].slots);
    }
    show_u64(to, "token", c->token);
    show_u64(to, "ttl", c->ttl_ms);
    show_u64(to, "wait", c->wait_ms);
    show_u64(to, "max_hold", c->max_hold_ms);
    show_u64(to, "lock_delay", c->lock_delay_ms);
    show_u64(to, "count", c->count);
    show_u64(to, "flags", c->flags);
    show_u64(to, "version", c->version);
    show_u64(to, "epoch", c->epoch);
    show_bytes(to, "label", c->label);
    show_bytes(to, "value", c->value);
    show_bytes(to, "reason", c->reason);
    show_bytes(to, "cursor", c->cursor);
    show_bytes(to, "principal", c->principal);
    for (uint32_t i = 0; i < c->n_leases; i++) {
        fprintf(to, " #%" PRIu64, pk_command_lease_at(c, i));
        if (c->heard != NULL) {
            fprintf(to, "/%" PRIu32, pk_command_heard_at(c, i));
        }
    }
    if (c->verb == PK_CONFIGURE) {
        show_limits(to, &c->limits);
    }
    fputc('\n', to);
}

void show_effect(FILE *to, const struct pk_effect *e)
{
    fputs(pk_effect_name(e->kind), to);
    if (e->kind == PK_REPLY || e->verb != 0 || e->status != 0) {
        fprintf(to, " %s %s", pk_verb_name(e->verb), pk_status_name(e->status));
    }
    show_bytes(to, "name", e->name);
    if (e->mode != PK_MODE_NONE) {
        fprintf(to, " %s", pk_mode_name(e->mode));
    }
    if (e->end != PK_END_NONE) {
        fprintf(to, " end=%s", pk_end_name(e->end));
    }
    show_u64(to, "slots", e->slots);
    show_u64(to, "part", e->part);
    show_u64(to, "parts", e->parts);
    show_u64(to, "place", e->place);
    show_u64(to, "shadow", e->shadow);
    show_u64(to, "shadowed", e->shadowed);
    show_u64(to, "value_bytes", e->value_bytes);
    show_u64(to, "more", e->more);
    show_u64(to, "event", e->event);
    show_u64(to, "epoch", e->epoch);
    if (e->would != PK_OK) {
        fprintf(to, " would=%s", pk_status_name(e->would));
    }
    show_u64(to, "holders", e->holders);
    show_u64(to, "waiters", e->waiters);
    show_u64(to, "lease", e->lease);
    show_u64(to, "request", e->request);
    show_u64(to, "token", e->token);
    show_u64(to, "left", e->left_ms);
    show_u64(to, "closed", e->closed_ms);
    show_u64(to, "since", e->since_ms);
    show_u64(to, "lasted", e->lasted_ms);
    show_bytes(to, "value", e->value);
    show_bytes(to, "label", e->label);
    show_bytes(to, "by", e->by);
    show_bytes(to, "why", e->why);
    fputc('\n', to);
}

void show_effects(FILE *to, const struct pk_effects *e, const char *indent)
{
    for (uint32_t i = 0; i < e->count; i++) {
        fputs(indent, to);
        show_effect(to, &e->list[i]);
    }
}

static bool parts_equal(const struct pk_command *a, const struct pk_command *b)
{
    bool equal = a->n_parts == b->n_parts;
    for (uint32_t i = 0; equal && i < a->n_parts; i++) {
        const struct pk_part *p = &a->parts[i];
        const struct pk_part *q = &b->parts[i];
        equal = p->mode == q->mode && p->slots == q->slots &&
                pk_bytes_equal(p->name, q->name);
    }
    return equal;
}

/* Field by field, in the order of the struct. */
#define SAME(field)                                                                      \
    if (a->field != b->field) {                                                          \
        return #field;                                                                   \
    }
#define SAME_BYTES(field)                                                                \
    if (!pk_bytes_equal(a->field, b->field)) {                                           \
        return #field;                                                                   \
    }

const char *command_difference(const struct pk_command *a, const struct pk_command *b)
{
    SAME(verb)
    SAME(stamp_ms)
    SAME_BYTES(principal)
    SAME(lease)
    SAME(request)
    SAME(target)
    SAME_BYTES(name)
    if (!parts_equal(a, b)) {
        return "parts";
    }
    SAME(token)
    SAME(ttl_ms)
    SAME(wait_ms)
    SAME(max_hold_ms)
    SAME(lock_delay_ms)
    SAME(count)
    SAME(flags)
    SAME(epoch)
    SAME_BYTES(label)
    SAME_BYTES(value)
    SAME_BYTES(reason)
    SAME_BYTES(cursor)
    SAME(n_leases)
    if (a->n_leases > 0 && memcmp(a->leases, b->leases, 8 * (size_t)a->n_leases) != 0) {
        return "leases";
    }
    if ((a->heard == NULL) != (b->heard == NULL) ||
        (a->heard != NULL && memcmp(a->heard, b->heard, 4 * (size_t)a->n_leases) != 0)) {
        return "heard";
    }
#define X(limit, initial, ceiling, text) SAME(limits.limit)
    PK_LIMITS(X)
#undef X
    return NULL;
}

const char *effect_difference(const struct pk_effect *a, const struct pk_effect *b)
{
    SAME(kind)
    SAME(verb)
    SAME(status)
    SAME(end)
    SAME(mode)
    SAME(slots)
    SAME(part)
    SAME(parts)
    SAME(place)
    SAME(holders)
    SAME(waiters)
    SAME(shadow)
    SAME(more)
    SAME(event)
    SAME(epoch)
    SAME(value_bytes)
    SAME(would)
    SAME(lease)
    SAME(request)
    SAME(token)
    SAME(shadowed)
    SAME(left_ms)
    SAME(closed_ms)
    SAME(since_ms)
    SAME(lasted_ms)
    SAME_BYTES(name)
    SAME_BYTES(value)
    SAME_BYTES(label)
    SAME_BYTES(by)
    SAME_BYTES(why)
    return NULL;
}
