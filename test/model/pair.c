/* SPDX-License-Identifier: MIT */
#include "pair.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/door.h"
#include "show.h"

void pair_start(struct pair *p)
{
    *p = (struct pair){.machine = pk_machine_new(), .model = model_new()};
}

void pair_end(struct pair *p)
{
    pk_machine_free(p->machine);
    model_free(p->model);
    watch_free(&p->watch);
    pk_door_resize(p->viewed, 0);
    pk_door_resize(p->expected, 0);
    pk_effects_free(&p->from_machine);
    pk_effects_free(&p->from_model);
    pk_effects_free(&p->from_read);
}

static bool say(struct pair *p, const char *what, const char *detail)
{
    snprintf(p->wrong, sizeof p->wrong, "%s: %s", what, detail);
    return false;
}

static bool same_u64(struct pair *p, const char *what, uint64_t machine, uint64_t model)
{
    if (machine == model) {
        return true;
    }
    snprintf(p->wrong, sizeof p->wrong, "%s: machine %" PRIu64 ", model %" PRIu64, what,
             machine, model);
    return false;
}

/* Through the bytes and back; the block is exactly as long as it says. */
static bool step_machine(struct pair *p, const struct pk_command *c)
{
    struct pk_command decoded;
    size_t size = pk_command_size(c);
    unsigned char *bytes = malloc(size);
    if (bytes == NULL) {
        abort();
    }
    bool good = pk_command_encode(c, bytes) == size &&
                pk_command_decode(bytes, size, &decoded) == size;
    const char *field = good ? command_difference(c, &decoded) : "not decoded";
    if (field == NULL) {
        pk_machine_step(p->machine, &decoded, &p->from_machine);
    }
    free(bytes);
    return field == NULL || say(p, "the command changes on its way through bytes", field);
}

/* Of the machine's step and of `others`, who are called `whose`. */
static bool same_effects(struct pair *p, const struct pk_effects *others,
                         const char *whose)
{
    const struct pk_effects *ours = &p->from_machine;
    uint32_t count = ours->count < others->count ? ours->count : others->count;
    for (uint32_t i = 0; i < count; i++) {
        const char *field = effect_difference(&ours->list[i], &others->list[i]);
        if (field != NULL) {
            snprintf(p->wrong, sizeof p->wrong,
                     "effect %" PRIu32 " (%s) differs in %s from that of the %s", i,
                     pk_effect_name(ours->list[i].kind), field, whose);
            return false;
        }
    }
    if (ours->count != others->count) {
        snprintf(p->wrong, sizeof p->wrong, "%" PRIu32 " effects, %" PRIu32 " of the %s",
                 ours->count, others->count, whose);
    }
    return ours->count == others->count;
}

/* S6: a read without a step changes nothing. True also when `c` is no read. */
static bool read_machine(struct pair *p, const struct pk_command *c)
{
    pk_effects_reset(&p->from_read);
    if (!pk_command_is_read(c)) {
        return true;
    }
    uint64_t digest = pk_machine_digest(p->machine);
    uint64_t clock = pk_machine_clock(p->machine);
    pk_machine_read(p->machine, c, &p->from_read);
    return same_u64(p, "clock after a read", pk_machine_clock(p->machine), clock) &&
           (pk_machine_digest(p->machine) == digest ||
            say(p, "read", "it changed the state"));
}

/* S6: and it says what a step says, unless something is due by then. */
static bool same_as_read(struct pair *p, const struct pk_command *c, uint64_t deadline)
{
    bool comparable = pk_command_is_read(c) && c->stamp_ms < deadline;
    return !comparable || same_effects(p, &p->from_read, "read");
}

/* What machine.h tells beside the effects. */
static bool same_state(struct pair *p, const struct pk_command *c)
{
    struct pk_stats a = pk_machine_stats(p->machine);
    struct pk_stats b = model_stats(p->model);
    uint64_t deadline = pk_machine_next_deadline(p->machine);
    bool same =
        same_u64(p, "clock", pk_machine_clock(p->machine), model_clock(p->model)) &&
        same_u64(p, "next deadline", deadline, model_next_deadline(p->model)) &&
        same_u64(p, "last token", pk_machine_last_token(p->machine),
                 model_last_token(p->model)) &&
        same_u64(p, "version", pk_machine_version(p->machine), model_version(p->model)) &&
        same_u64(p, "version is held", pk_machine_version_is_held(p->machine),
                 model_version_is_held(p->model)) &&
        same_u64(p, "leases", a.leases, b.leases) &&
        same_u64(p, "locks", a.locks, b.locks) &&
        same_u64(p, "holds", a.holds, b.holds) &&
        same_u64(p, "waits", a.waits, b.waits) &&
        same_u64(p, "fences", a.fences, b.fences) &&
        same_u64(p, "stored bytes", a.stored_bytes, b.stored_bytes);
    if (same && c->lease != 0) {
        same = same_u64(p, "lease end", pk_machine_lease_end(p->machine, c->lease),
                        model_lease_end(p->model, c->lease));
    }
    if (same && c->lease != 0 && c->request != 0) {
        uint64_t t = 0;
        uint64_t u = 0;
        same =
            same_u64(p, "claim", pk_machine_claim(p->machine, c->lease, c->request, &t),
                     model_claim(p->model, c->lease, c->request, &u)) &&
            same_u64(p, "claim's token", t, u);
    }
    return same;
}

/* ---- views ---- */

static void begin_view(struct pair *p)
{
    pk_door_resize(p->expected, 0);
    p->expected_len = pk_machine_snapshot(p->machine, &p->expected);
    p->viewed_len = 0;
    pk_view_begin(p->machine);
}

/* The view is complete: restored, it is the machine of the moment when it began. */
static bool end_view(struct pair *p)
{
    bool sound = pk_view_is_sound(p->machine);
    pk_view_end(p->machine);
    struct pk_machine *m = pk_machine_restore(p->viewed, p->viewed_len);
    unsigned char *bytes = NULL;
    size_t len = m == NULL ? 0 : pk_machine_snapshot(m, &bytes);
    bool same = len == p->expected_len && memcmp(bytes, p->expected, len) == 0;
    const char *wrong = m == NULL ? "its bytes are refused"
                        : !sound  ? "it does not believe itself"
                        : !same   ? "it is another state"
                                  : NULL;
    pk_door_resize(bytes, 0);
    pk_machine_free(m);
    pk_door_resize(p->expected, 0);
    p->expected = NULL;
    return wrong == NULL || say(p, "view", wrong);
}

/* Reads a little after each command, so that a view lasts for some of them. */
static bool read_view(struct pair *p)
{
    enum { ROOM = 48 };
    if (p->expected == NULL) {
        begin_view(p);
    }
    p->viewed = pk_door_resize(p->viewed, p->viewed_len + ROOM);
    p->viewed_len += pk_view_read(p->machine, p->viewed + p->viewed_len, ROOM);
    return !pk_view_is_done(p->machine) || end_view(p);
}

bool pair_step(struct pair *p, const struct pk_command *c)
{
    pk_effects_reset(&p->from_machine);
    pk_effects_reset(&p->from_model);
    p->wrong[0] = '\0';
    uint64_t deadline = pk_machine_next_deadline(p->machine);
    if (!read_machine(p, c) || !step_machine(p, c)) {
        return false;
    }
    model_step(p->model, c, &p->from_model);
    const char *broken = pk_machine_check(p->machine);
    if (broken != NULL) {
        return say(p, "invariant", broken);
    }
    if (c->verb == PK_LOCK_ACQUIRE && c->request == 0) {
        p->watch.blind_to_queues = true;
        p->watch.waits.count = 0;
    }
    bool behind = pk_machine_next_deadline(p->machine) <= pk_machine_clock(p->machine);
    broken = watch_step(&p->watch, c, &p->from_machine, behind);
    if (broken != NULL) {
        return say(p, "promise", broken);
    }
    return same_effects(p, &p->from_model, "model") && same_as_read(p, c, deadline) &&
           same_state(p, c) && read_view(p);
}

bool pair_restore(struct pair *p)
{
    pk_view_end(p->machine);
    pk_door_resize(p->expected, 0);
    p->expected = NULL;
    unsigned char *first = NULL;
    unsigned char *second = NULL;
    size_t len = pk_machine_snapshot(p->machine, &first);
    struct pk_machine *restored = pk_machine_restore(first, len);
    bool good = restored != NULL || say(p, "snapshot", "its own bytes are refused");
    if (restored != NULL) {
        size_t again = pk_machine_snapshot(restored, &second);
        if (again != len || memcmp(first, second, len) != 0) {
            good = say(p, "snapshot", "a restored machine has other bytes");
        } else if (pk_machine_digest(restored) != pk_machine_digest(p->machine)) {
            good = say(p, "snapshot", "a restored machine has another digest");
        } else if (pk_machine_check(restored) != NULL) {
            good = say(p, "restored machine", pk_machine_check(restored));
        }
        pk_machine_free(p->machine);
        p->machine = restored;
    }
    pk_door_resize(first, 0);
    pk_door_resize(second, 0);
    return good;
}
