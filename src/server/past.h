/* SPDX-License-Identifier: MIT */
/*
 * What has happened of late, for a dashboard: holds that were lost, tokens that fences
 * have refused, and who held a lock before. Fed with the effects of each step, so it is
 * the same on each node that has run the same entries; nothing of it is kept over a
 * restart but what the log still has.
 *
 * All of it is bounded, and memory is taken only for what has happened: the holders of
 * all locks share 256 rings of 16, chosen by the lock's name, so that a busy lock pushes
 * out its own past and that of few others. Times are cluster time.
 */
#ifndef PICKET_SERVER_PAST_H
#define PICKET_SERVER_PAST_H

#include "core/machine.h"

enum {
    PK_PAST_LOSSES = 64,
    PK_PAST_REFUSALS = 32,
    PK_PAST_RINGS = 256,
    PK_PAST_HOLDS = 16, /* in a ring */
    PK_PAST_TEXT = 127, /* bytes kept of a label or a reason */
};

/* Cut to what is kept. */
struct pk_past_text {
    uint8_t len;
    char data[PK_PAST_TEXT];
};

struct pk_past_hold {
    uint64_t lock;  /* the digest of its name; 0: nothing here */
    uint64_t token; /* of a set: the same in each of its locks */
    uint64_t granted_ms, waited_ms;
    uint64_t ended_ms; /* meaningless while `end` is NONE */
    enum pk_end end;   /* NONE: it goes on */
    enum pk_mode mode;
    struct pk_past_text label;
};

/* A hold that ended without its holder asking for it. */
struct pk_past_loss {
    uint64_t token, at_ms, held_ms;
    enum pk_end end;
    uint8_t name_len;
    char name[PK_NAME_MAX];
    struct pk_past_text label, by, why;
};

/* A token that a fence refused, or would have, in shadow mode. */
struct pk_past_refusal {
    uint64_t token, highest, at_ms;
    enum pk_status why;
    bool shadow;
    uint8_t name_len;
    char name[PK_NAME_MAX];
    struct pk_past_text by;
};

struct pk_past;

struct pk_past *pk_past_new(void);
void pk_past_free(struct pk_past *p);
/* All effects of one step of `m`, after it; `c` may be NULL. */
void pk_past_step(struct pk_past *p, const struct pk_machine *m,
                  const struct pk_command *c, const struct pk_effects *e);
/* The state was replaced: what was known may not fit what follows. */
void pk_past_forget(struct pk_past *p);

/* How many losses and refusals there have been; they change when this does. */
uint64_t pk_past_losses(const struct pk_past *p);
uint64_t pk_past_refusals(const struct pk_past *p);
/* The nth latest, from 0; NULL: there is none, or none any more. */
const struct pk_past_loss *pk_past_loss(const struct pk_past *p, uint64_t nth);
const struct pk_past_refusal *pk_past_refusal(const struct pk_past *p, uint64_t nth);
/* The nth latest hold of a lock; NULL: as above. */
const struct pk_past_hold *pk_past_hold(const struct pk_past *p, struct pk_bytes name,
                                        uint32_t nth);

struct pk_bytes pk_past_text(const struct pk_past_text *t);

#endif
