/* SPDX-License-Identifier: MIT */
/* The model's fields and the questions its files ask of them; private to the model. */
#ifndef PICKET_TEST_MODEL_STATE_H
#define PICKET_TEST_MODEL_STATE_H

#include <stdbool.h>

#include "model.h"

#define NEVER UINT64_MAX

/* Bytes of its own. */
struct text {
    char *data;
    uint32_t len;
};

struct model_lease {
    uint64_t id, ttl, deadline, opened_by, forgotten;
    uint32_t events; /* D1 */
    struct text label;
    bool keyed;
    enum pk_end end; /* NONE: alive */
};

struct model_part {
    struct text name;
    uint32_t slots;
    enum pk_mode mode;
};

struct model_claim {
    uint64_t lease, request, seq, token, since, max_hold, lock_delay;
    uint64_t timer; /* NEVER: none */
    uint32_t place;
    bool held;
    struct text value;
    struct model_part parts[PK_SET_MAX];
    uint32_t n_parts;
};

/* A lock-delay that is running. */
struct model_closing {
    struct text name;
    uint64_t until, seq;
};

/* A lock whose waiters could not all be granted at once (S5). */
struct model_settling {
    struct text name;
    uint64_t at, seq;
};

struct model_fence {
    struct text name, value;
    uint64_t token, request, shadowed, epoch;
    uint64_t ends, seq; /* NEVER: it stays */
    bool shadow;
};

/* A remembered answer; lease 0: to a request that has no lease. Oldest first. */
struct model_answer {
    uint64_t lease, request, token;
    enum pk_verb verb;
    enum pk_status status;
    enum pk_end end; /* of an acquire's claim; else NONE */
};

struct model {
    uint64_t clock, last_token, next_lease, next_seq;
    uint64_t version;
    bool held;
    struct pk_limits limits;
    struct model_lease *leases; /* alive, by id */
    size_t n_leases;
    struct model_lease *ending; /* over, with claims that are still there (S5) */
    size_t n_ending;
    struct model_lease *ended; /* remembered, oldest first */
    size_t n_ended;
    struct model_claim
        *claims; /* by seq, so that any walk meets waiters in queue order */
    size_t n_claims;
    struct model_closing *closings;
    size_t n_closings;
    struct model_settling *settlings;
    size_t n_settlings;
    struct model_fence *fences;
    size_t n_fences;
    struct model_answer *answers;
    size_t n_answers;
    struct text *touched; /* names of locks still to settle */
    size_t n_touched;
    uint64_t work;                  /* S5 */
    uint64_t restored_below;        /* E5 */
    uint64_t sweep;                 /* E5: since when; NEVER: there is nothing to sweep */
    uint32_t reply_event;           /* D1: of what the command itself ended */
    struct pk_effects rows, events; /* of the command that runs */
};

struct pk_bytes bytes_of(struct text t);
struct text text_from(struct pk_bytes b);
bool text_is(struct text t, struct pk_bytes b);

/* PK_END_NONE, or why a lease that has not begun to end is over all the same (S5). */
enum pk_end over(const struct model *m, const struct model_lease *l);
/* The lease that has not begun to end, or NULL. */
struct model_lease *known_lease(const struct model *m, uint64_t id);
/* The same, unless it is over. */
struct model_lease *live_lease(const struct model *m, uint64_t id);
struct model_lease *ended_lease(const struct model *m, uint64_t id);
struct model_claim *claim_of_request(const struct model *m, uint64_t lease,
                                     uint64_t request);
/* The part of `c` that names the lock, or NULL. */
struct model_part *part_named(struct model_claim *c, struct pk_bytes name);
/* The claim that holds the lock under the token, or NULL. */
struct model_claim *holder_with(const struct model *m, struct pk_bytes name,
                                uint64_t token);
/* The lock's hold with the lowest token, or NULL. */
struct model_claim *oldest_hold(const struct model *m, struct pk_bytes name);

bool lock_exists(const struct model *m, struct pk_bytes name);
uint32_t lock_slots(const struct model *m, struct pk_bytes name);
uint32_t lock_holders(const struct model *m, struct pk_bytes name);
uint32_t lock_waiters(const struct model *m, struct pk_bytes name);
uint64_t lock_closed_ms(const struct model *m, struct pk_bytes name);
/* Waiters of the lock with a lower seq. */
uint32_t waiters_before(const struct model *m, struct pk_bytes name, uint64_t seq);
uint32_t count_locks(const struct model *m);
uint64_t stored_bytes(const struct model *m);
/* True when replacing `less` stored bytes by `more` is growth, and past the limit. */
bool grows_past_store(const struct model *m, uint64_t more, uint64_t less);

/* An effect about part `i` of a claim, with what every such effect says. */
struct pk_effect about_part(enum pk_effect_kind kind, const struct model_claim *c,
                            uint32_t i);
struct pk_effect hold_row(const struct model *m, const struct model_claim *c, uint32_t i);

/* Makes room for one more element at the end of an array. */
void *grown(void *array, size_t count, size_t size);
void free_claim(struct model_claim *c);

struct model_answer *find_answer(const struct model *m, uint64_t lease, uint64_t request);
void remember(struct model *m, const struct model_answer *a);

uint32_t first_blocked(const struct model *m, const struct model_claim *c);
void grant(struct model *m, struct model_claim *c);
void settle(struct model *m);
void sweep(struct model *m);
/* D1: the number of the next event of the lease; 0: it is over. */
uint32_t next_event(const struct model *m, uint64_t lease);
/* D2: the rows that tell the owner of a lease how its claims stand; true: not all. */
bool tell_state(const struct model *m, const struct model_lease *l, uint32_t *room,
                struct pk_effects *out);
void end_claim(struct model *m, struct model_claim *at, enum pk_end end,
               struct pk_bytes by, struct pk_bytes why);
void end_claim_plainly(struct model *m, struct model_claim *c, enum pk_end end);
void end_lease(struct model *m, struct model_lease *at, enum pk_end end,
               struct pk_bytes by, struct pk_bytes why);
void end_lease_plainly(struct model *m, struct model_lease *l, enum pk_end end);
void pass_time(struct model *m, const struct pk_command *c);

void refuse_limit(struct pk_effect *reply, const char *limit);
/* Opens a lease as the command says (L1), with its event; returns its id. */
uint64_t open_lease(struct model *m, const struct pk_command *c, bool keyed);
/* G3: the lock of the first part that is in use as something else, or NULL. */
const struct pk_part *mismatch(const struct model *m, const struct pk_command *c);
/* The claim that a command asks for, behind everybody; to be taken up or freed. */
struct model_claim claim_from(struct model *m, const struct pk_command *c);
void take_up(struct model *m, struct model_claim *claim, bool waits,
             struct pk_effect *reply);
/* G5: what the reply to a claim that is not ready says, and the row that goes with it. */
void tell_blocker(struct model *m, const struct model_claim *c, struct pk_effect *reply);

/* The verbs that only look (Q1 to Q3); each fills the reply and m->rows. */
void model_lease_show(struct model *m, const struct pk_command *c,
                      struct pk_effect *reply);
void model_lock_show(struct model *m, const struct pk_command *c,
                     struct pk_effect *reply);
void model_lock_list(struct model *m, const struct pk_command *c,
                     struct pk_effect *reply);

/* The key verbs (K1 to K5). */
void model_key(struct model *m, const struct pk_command *c, struct pk_effect *reply);

/* The fence verbs (F1 to F5, F7 to F10), and MODE (F6). */
void model_fence(struct model *m, const struct pk_command *c, struct pk_effect *reply);
void model_fence_mode(struct model *m, const struct pk_command *c,
                      struct pk_effect *reply);

#endif
