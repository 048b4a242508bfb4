/* SPDX-License-Identifier: MIT */
/*
 * The machine's fields, private to src/core. README.md says what each means and which
 * inequalities tie them together; the order of the fields is chosen so that a plain hold
 * (one claim, one part, one lock) stays under 200 bytes.
 */
#ifndef PICKET_CORE_STATE_H
#define PICKET_CORE_STATE_H

#include "core/item.h"
#include "core/machine.h"
#include "core/pool.h"
#include "core/tree.h"

/* Who owns a timer; also the second sort key. The deadlines of leases are a tree of their
 * own; at one instant they come before all timers. */
enum pk_timer_kind {
    PK_TIMER_CLAIM = 1,
    PK_TIMER_LOCK,
    PK_TIMER_FENCE,
    PK_TIMER_SETTLE, /* of a lock whose waiters could not all be granted at once (S5) */
    PK_TIMER_SWEEP,  /* of leases that end by a restore (E5) */
};

struct pk_timer {
    struct pk_node node; /* in pk_machine.timers, by (at, kind, id) */
    uint64_t at;
    uint64_t id; /* claim seq, or the seq at which the lock first closed or was
                    left to be settled, or the fence was written; 0: the sweep */
    void *owner;
    enum pk_timer_kind kind;
};

/* Bytes of their own length, kept until replaced. */
struct pk_blob {
    uint32_t len;
    char data[];
};

/* A remembered answer (R3). */
struct pk_answer {
    uint64_t request;
    uint64_t token;
    uint8_t verb;   /* enum pk_verb */
    uint8_t status; /* enum pk_status */
    uint8_t end;    /* enum pk_end: how the claim of an ACQUIRE ended; else NONE */
};

/* What is remembered; a lease that has nothing to remember has none. */
struct pk_replies {
    uint64_t forgotten; /* the greatest request id whose answer was dropped */
    uint64_t hash;      /* of the answers, kept up with each that comes or goes */
    uint32_t first, count, capacity;
    uint32_t events; /* the number of the lease's last event (D1); here it is free */
    struct pk_answer ring[]; /* oldest at `first`; capacity grows up to the limit */
};

struct pk_lease {
    struct pk_node by_id;
    struct pk_node by_open; /* only when `opened_by` is not 0 */
    union {
        struct pk_node by_deadline;  /* until it has ended */
        struct pk_lease *next_ended; /* from then on: the ended list, oldest first */
    };
    union {
        uint64_t deadline_ms; /* until it has ended */
        uint64_t ended_nth;   /* from then on: its place among all leases that ended */
    };
    uint64_t id;
    uint64_t opened_by;    /* the request id of its OPEN */
    struct pk_tree claims; /* by (request, seq) */
    uint32_t n_holds, n_waits;
    struct pk_replies *replies; /* NULL: nothing to remember */
    struct pk_blob *label;
    uint32_t ttl_ms;
    uint16_t view;   /* the last view that has its item */
    uint8_t end;     /* enum pk_end; PK_END_NONE until it begins to end */
    bool ending : 1; /* some of its claims are still there (S5) */
    bool keyed : 1;  /* opened for one key, and carries it alone (K) */
};

struct pk_claim_part {
    struct pk_node node; /* in lock->queue by seq, or in lock->holds by token */
    struct pk_lock *lock;
    uint8_t mode;  /* enum pk_mode */
    uint8_t index; /* of this part in its claim: the way back to it */
};

/* What most claims have nothing of. */
struct pk_terms {
    struct pk_timer *timer; /* end of a bounded wait or of max-hold, or NULL */
    struct pk_blob *value;
    uint32_t max_hold_ms;
    uint32_t lock_delay_ms;
};

struct pk_claim {
    struct pk_node node; /* in lease->claims */
    struct pk_lease *lease;
    uint64_t request;
    uint64_t seq;
    uint64_t token; /* 0: waiting */
    uint64_t since_ms;
    struct pk_terms *terms; /* NULL: all zero; pk_claim_terms() reads them */
    uint32_t place;         /* in the queue on arrival; 0 when it never waited */
    uint16_t view;          /* the last view that has its item */
    uint8_t n_parts;
    struct pk_claim_part parts[];
};

struct pk_lock {
    struct pk_tree holds;   /* parts by token */
    struct pk_tree queue;   /* parts by seq */
    struct pk_timer *timer; /* closed until then; or to be settled; or NULL */
    uint32_t n_holds, n_waits;
    uint32_t slots;      /* 0: exclusive and shared */
    uint16_t view;       /* the last view that has its item; only a timed one has one */
    uint8_t touched;     /* it is on the list of locks to settle */
    struct pk_node node; /* in pk_machine.locks; beside the name, which lookups compare */
    uint8_t name_len;
    char name[]; /* right behind its length: made with offsetof, not sizeof */
};

struct pk_fence {
    struct pk_node node;   /* in pk_machine.fences */
    uint64_t token;        /* 0: nobody has claimed it yet */
    uint64_t request;      /* of the last SET under this token */
    uint64_t shadowed;     /* calls with a lower token that were let through */
    struct pk_timer *ends; /* NULL: it stays for good (F10) */
    struct pk_blob *value;
    uint32_t epoch; /* how often the mode was another one (F6) */
    uint16_t view;  /* the last view that has its item */
    bool shadow;    /* in shadow mode (F7) */
    uint8_t name_len;
    char name[];
};

struct pk_machine {
    uint64_t clock;
    uint64_t last_token;
    uint64_t next_lease;
    uint64_t next_seq;
    uint64_t next_ended; /* the place of the next lease that ends */
    uint32_t version;    /* the cluster version in force (N1) */
    bool held;           /* only an operator raises it */
    struct pk_limits limits;
    struct pk_pool pool;      /* leases, claims, locks, timers, fences, blobs */
    struct pk_tree leases;    /* by id, the remembered ended ones included */
    struct pk_tree deadlines; /* leases that have not ended, by (deadline_ms, id) */
    struct pk_tree openings;  /* leases by opened_by */
    struct pk_tree locks;     /* by name */
    struct pk_tree fences;    /* by name */
    struct pk_tree timers;    /* by (at, kind, id) */
    struct pk_lease *ended_first, *ended_last;
    struct pk_replies *replies; /* R2 */
    uint32_t n_ended;
    uint32_t n_timed;        /* locks that have a timer */
    uint32_t work;           /* what may still end or be granted at once (S5) */
    uint64_t restored_below; /* leases with a lower id end by a restore (E5) */
    struct pk_timer *sweep;  /* armed while there are any; or NULL */
    uint64_t swept_below;    /* where the sweep goes on; no part of the state */
    struct pk_stats stats;
    uint64_t items;       /* the sum of their hashes (item.h) */
    struct pk_view *view; /* the one that is being read, or NULL */
    uint16_t views;       /* its number; that of the last one if there is none now */

    /* Only during a step or a read. */
    struct pk_effects *out;
    uint64_t as_of_ms; /* in a read: times left are told as of then, if after `clock` */
    struct pk_lock **touched; /* locks to settle, in the order they were touched */
    uint32_t n_touched, touched_capacity;
};

/* ---- machine.c: what the nouns share ---- */

void *pk_zeroed(size_t size);
struct pk_blob *pk_blob_new(struct pk_machine *m,
                            struct pk_bytes b); /* NULL for no bytes */
void pk_blob_free(struct pk_machine *m, struct pk_blob *b);
struct pk_bytes pk_blob_bytes(const struct pk_blob *b);
uint32_t pk_blob_len(const struct pk_blob *b);

/* Arms `t` (zeroed or disarmed before) in the machine's tree; disarm takes it out. */
void pk_timer_arm(struct pk_machine *m, struct pk_timer *t, uint64_t at);
void pk_timer_disarm(struct pk_machine *m, struct pk_timer *t);
/* True when a timer with the same (at, kind, id) is armed: only a damaged snapshot asks.
 */
bool pk_timer_taken(const struct pk_machine *m, const struct pk_timer *key);
/* An own timer for what has none of its own, armed; and its end. */
struct pk_timer *pk_timer_new(struct pk_machine *m, enum pk_timer_kind kind, uint64_t id,
                              void *owner, uint64_t at);
void pk_timer_free(struct pk_machine *m, struct pk_timer *t);

/* The one question of permission, asked for every verb and every name (S3). */
bool pk_authorize(const struct pk_machine *m, struct pk_bytes principal,
                  enum pk_verb verb, struct pk_bytes name);

/* Appends the REPLY to `c`; the caller may fill in more until the next effect is added.
 */
struct pk_effect *pk_reply(struct pk_machine *m, const struct pk_command *c,
                           enum pk_status s);
/* A LIMIT that names which. */
void pk_reply_limit(struct pk_machine *m, const struct pk_command *c, const char *limit);
/* Appends an event; `from` may be partly filled in. */
void pk_event(struct pk_machine *m, struct pk_effect from);

/* Takes units off the work that may still be done at once. */
void pk_work_done(struct pk_machine *m, uint32_t units);
/* A timer that is due: what is to happen has not happened yet (S5). */
bool pk_timer_is_due(const struct pk_machine *m, const struct pk_timer *t);
/* How long until cluster time `at`, as an answer tells it; at least 1, also when that is
 * due. */
uint64_t pk_time_left(const struct pk_machine *m, uint64_t at);
/* The same of a timer. 0: NULL, there is none. */
uint64_t pk_timer_left(const struct pk_machine *m, const struct pk_timer *t);

/* True when `more` bytes fit under limits.stored_bytes; none always do. */
bool pk_room_for(const struct pk_machine *m, uint64_t more);

/* All of these take NULL for nothing remembered; `add` and `forget` may move it. */
void pk_replies_add(struct pk_replies **r, uint32_t limit, struct pk_answer a);
/* Sets the greatest request id whose answer was dropped. */
void pk_replies_forget(struct pk_replies **r, uint64_t request);
uint64_t pk_replies_forgotten(const struct pk_replies *r);
uint32_t pk_replies_events(const struct pk_replies *r);
void pk_replies_set_events(struct pk_replies **r, uint32_t events);
uint32_t pk_replies_count(const struct pk_replies *r);
const struct pk_answer *pk_replies_at(const struct pk_replies *r, uint32_t i);
const struct pk_answer *pk_replies_find(const struct pk_replies *r, uint64_t request);
/* Their hash from the answers themselves, to compare with the one that is kept. */
uint64_t pk_replies_hash(const struct pk_replies *r);
void pk_replies_free(struct pk_replies **r);

/* Why something ends, and for BROKEN by whom and for what reason. */
struct pk_ending {
    enum pk_end why;
    struct pk_bytes by, reason;
};

/* ---- lease.c ---- */

void pk_lease_open(struct pk_machine *m, const struct pk_command *c);
void pk_lease_renew(struct pk_machine *m, const struct pk_command *c);
void pk_lease_close(struct pk_machine *m, const struct pk_command *c);
void pk_lease_show(struct pk_machine *m, const struct pk_command *c);

/* One that has joined nothing yet: its fields are zero; and its end. */
struct pk_lease *pk_lease_new(struct pk_machine *m);
void pk_lease_drop(struct pk_machine *m, struct pk_lease *l);
struct pk_lease *pk_lease_find(const struct pk_machine *m, uint64_t id);
/* PK_END_NONE while the lease is alive, else why it is over; its claims may still be
 * there (S5). */
enum pk_end pk_lease_over(const struct pk_machine *m, const struct pk_lease *l);
/* True when all of it has ended, and only the memory of it is left. */
bool pk_lease_has_ended(const struct pk_lease *l);
/* The live lease of `c`; NULL after having replied why not (L4). */
struct pk_lease *pk_lease_alive(struct pk_machine *m, const struct pk_command *c);
/* Opens a lease with the TTL, label and request of `c` (L1), with its event. */
struct pk_lease *pk_lease_begin(struct pk_machine *m, const struct pk_command *c,
                                bool keyed);
/* Gives the lease this TTL and the deadline that follows from it (L2). */
void pk_lease_extend(struct pk_machine *m, struct pk_lease *l, uint64_t ttl_ms);
/* Ends the lease and its claims (L5), or goes on with that (S5); the locks touched still
 * have to settle. */
void pk_lease_end(struct pk_machine *m, struct pk_lease *l, const struct pk_ending *e);
uint64_t pk_lease_left(const struct pk_machine *m, const struct pk_lease *l);
/* Puts the lease among the deadlines; disarm takes it out. */
void pk_lease_arm(struct pk_machine *m, struct pk_lease *l, uint64_t deadline_ms);
void pk_lease_disarm(struct pk_machine *m, struct pk_lease *l);
/* True when the lease is among the deadlines: for check.c. */
bool pk_lease_is_armed(const struct pk_machine *m, const struct pk_lease *l);
/* Links a lease, whose fields are set, into the trees. False, and nothing done, when its
 * id or its opening request is there already: only a damaged snapshot can bring that. */
bool pk_lease_join(struct pk_machine *m, struct pk_lease *l);
void pk_lease_append_ended(struct pk_machine *m, struct pk_lease *l, uint64_t nth);
/* The first one whose id is not less than that: its node in the tree by id, or NULL. */
struct pk_node *pk_lease_seek(const struct pk_machine *m, uint64_t id);
void pk_lease_free(struct pk_machine *m, struct pk_lease *l);

/* Answers a repeat (R1) and returns true; false: the request is new. */
bool pk_lease_repeated(struct pk_machine *m, struct pk_lease *l,
                       const struct pk_command *c);
/* Remembers the answer to a request id of this lease (R3); id 0 is not remembered. */
void pk_lease_remember(struct pk_machine *m, struct pk_lease *l, struct pk_answer a);
/* Numbers the next event of a lease that lives on (D1); 0: it does not. */
uint32_t pk_lease_count_event(struct pk_machine *m, struct pk_lease *l);
/* The same for the end of a claim, whose outcome is remembered with it. */
uint32_t pk_lease_note_end(struct pk_machine *m, struct pk_lease *l,
                           struct pk_answer outcome);
struct pk_claim *pk_lease_claim(const struct pk_lease *l, uint64_t request);

/* ---- lock.c ---- */

void pk_lock_acquire(struct pk_machine *m, const struct pk_command *c);
void pk_lock_cancel(struct pk_machine *m, const struct pk_command *c);
void pk_lock_release(struct pk_machine *m, const struct pk_command *c);
void pk_lock_value(struct pk_machine *m, const struct pk_command *c);
void pk_lock_break(struct pk_machine *m, const struct pk_command *c);
void pk_lock_show(struct pk_machine *m, const struct pk_command *c);
void pk_lock_list(struct pk_machine *m, const struct pk_command *c);

/* An ACQUIRE or a TAKE on its way; its locks are looked up once. */
struct pk_attempt {
    const struct pk_command *c;
    struct pk_lease *lease; /* NULL: each claim will have a new one */
    uint32_t claims;        /* how many there will be: a set is one, a key each */
    uint32_t blocked;       /* the first part that can't be granted now; n_parts: none */
    struct pk_lock *locks[PK_SET_MAX]; /* NULL: there is no such lock now */
};
struct pk_attempt pk_attempt_begin(const struct pk_machine *m, const struct pk_command *c,
                                   struct pk_lease *lease);
/* G3, K1: replies the refusal that stands against the attempt; false: none does. */
bool pk_attempt_refused(struct pk_machine *m, const struct pk_attempt *a);
/* Makes the claim of `n` parts from `first` on and puts it into the attempt's lease; it
 * stands in no lock yet. */
struct pk_claim *pk_attempt_claim(struct pk_machine *m, const struct pk_attempt *a,
                                  uint32_t first, uint32_t n);
/* The token that the next grant gets (G6). */
uint64_t pk_next_token(const struct pk_machine *m);
/* G6: check, grant and token are one act. The claim is in its lease; its parts are in no
 * tree. */
void pk_claim_grant(struct pk_machine *m, struct pk_claim *c);
/* E1. Frees the claim; the locks touched still have to settle. Returns the number of the
 * event (D1); 0: it has none. */
uint32_t pk_claim_end(struct pk_machine *m, struct pk_claim *c,
                      const struct pk_ending *e);
struct pk_claim *pk_claim_of(const struct pk_claim_part *p);
struct pk_claim *pk_claim_new(struct pk_machine *m, uint32_t n_parts);
/* Gives back the memory of one that has joined nothing yet. */
void pk_claim_drop(struct pk_machine *m, struct pk_claim *c);
/* Its terms: to read; and to write, made if it has none. */
const struct pk_terms *pk_claim_terms(const struct pk_claim *c);
struct pk_terms *pk_claim_own_terms(struct pk_machine *m, struct pk_claim *c);
/* Sets those of a new claim, but for the timer. */
void pk_claim_agree(struct pk_machine *m, struct pk_claim *c, struct pk_bytes value,
                    uint32_t max_hold_ms, uint32_t lock_delay_ms);
/* Arms a timer for a claim that has none; takes away the one it has, if any. */
void pk_claim_time(struct pk_machine *m, struct pk_claim *c, uint64_t at);
void pk_claim_untime(struct pk_machine *m, struct pk_claim *c);
/* Puts the claim into its lease. False, and nothing done, when its (request, seq) is
 * there already. */
bool pk_claim_join(struct pk_machine *m, struct pk_claim *c);
/* Adds the part to its lock's queue or holds, as the claim's token says. False, and
 * nothing done, when one with that token or seq is there already. */
bool pk_claim_link_part(struct pk_claim_part *p);
void pk_claim_free(struct pk_machine *m, struct pk_claim *c);
/* The rows of one answer to LIST or SHOW, see Q5. */
struct pk_page {
    uint32_t reply; /* its place among the effects */
    uint64_t count; /* rows that are wanted */
    uint64_t rows, bytes;
};

/* After the reply, which is the last effect. */
struct pk_page pk_page_begin(const struct pk_machine *m, const struct pk_command *c);
/* Before each row: whether it may follow. */
bool pk_page_has_room(struct pk_machine *m, struct pk_page *p);

/* A row for SHOW or BUSY about one part of a claim. */
void pk_claim_row(struct pk_machine *m, const struct pk_claim_part *p, uint32_t place);
/* The same without the lease's TTL and label and the hold's value, and with the place of
 * arrival (D2). */
void pk_claim_brief_row(struct pk_machine *m, const struct pk_claim_part *p);
bool pk_claim_ready(const struct pk_claim *c);

struct pk_lock *pk_lock_find(const struct pk_machine *m, struct pk_bytes name);
struct pk_lock *pk_lock_get(struct pk_machine *m, struct pk_bytes name);
struct pk_bytes pk_lock_name(const struct pk_lock *l);
/* The node of the first lock whose name is greater, or NULL. */
struct pk_node *pk_lock_after(const struct pk_machine *m, struct pk_bytes name);
/* The hold with the lowest token: the one that has been there longest; or NULL. */
struct pk_claim_part *pk_lock_oldest_hold(const struct pk_lock *l);
bool pk_lock_is_closed(const struct pk_lock *l);
/* Gives a lock without a timer one, under the id: closed until then, or to be settled. */
void pk_lock_time(struct pk_machine *m, struct pk_lock *l, enum pk_timer_kind kind,
                  uint64_t id, uint64_t at);
/* Its timer is due: opens it, or settles it with the other touched ones. */
void pk_lock_due(struct pk_machine *m, struct pk_lock *l);
void pk_lock_free(struct pk_machine *m, struct pk_lock *l);
/* Wakes whoever is ready in the touched locks (W1, W2). */
void pk_locks_settle(struct pk_machine *m);

/* ---- key.c ---- */

void pk_key_take(struct pk_machine *m, const struct pk_command *c);
void pk_key_keep(struct pk_machine *m, const struct pk_command *c);
void pk_key_drop(struct pk_machine *m, const struct pk_command *c);

/* ---- fence.c ---- */

void pk_fence_claim(struct pk_machine *m, const struct pk_command *c);
void pk_fence_check(struct pk_machine *m, const struct pk_command *c);
void pk_fence_set(struct pk_machine *m, const struct pk_command *c);
void pk_fence_get(struct pk_machine *m, const struct pk_command *c);
void pk_fence_mode(struct pk_machine *m, const struct pk_command *c);
void pk_fence_show(struct pk_machine *m, const struct pk_command *c);
struct pk_fence *pk_fence_find(const struct pk_machine *m, struct pk_bytes name);
/* The node of the first fence whose name is greater, or NULL. */
struct pk_node *pk_fence_after(const struct pk_machine *m, struct pk_bytes name);
struct pk_fence *pk_fence_new(struct pk_machine *m, struct pk_bytes name);
/* Keeps a fence that has no timer until then, under the id; and the end of it (F10). */
void pk_fence_keep(struct pk_machine *m, struct pk_fence *f, uint64_t id, uint64_t until);
void pk_fence_ended(struct pk_machine *m, struct pk_fence *f);
struct pk_bytes pk_fence_name(const struct pk_fence *f);
void pk_fence_free(struct pk_machine *m, struct pk_fence *f);

/* ---- view.c ---- */

/* Writes a item that the view being read has not got yet. */
void pk_view_add(struct pk_machine *m, enum pk_item kind, void *thing);
/* An ended lease leaves its list. */
void pk_view_forget(struct pk_machine *m, const struct pk_lease *ended);

#endif
