/* SPDX-License-Identifier: MIT */
/*
 * The bridge: what drivers over other people's stores have in common. Such a store knows
 * keys, rows or nodes, but neither commands nor effects; the bridge speaks the machine's
 * language to the client, and asks the store for little: keep a lease, let a claim stand,
 * take it away, show what is there, tell when to look again.
 *
 * A *stake* is one claim of this process, from its acquire to its end. Where it stands is
 * found out by standing again (`stand` is idempotent): when the store has said that
 * something changed, and at the latest at the stake's own time `again_ms`. The bridge
 * keeps the limits of waits and max-holds by itself: should the process die, the lease
 * ends them. A stake that must go, but could not be told so because the store was out of
 * reach, is remembered and taken away later (P9).
 *
 * Threads: the functions of `struct pk_bridged` that take `until_ms` are called by one
 * thread at a time, and must be back by then. `await` is called by the keeper's thread
 * alone, possibly while another one is in such a function. pk_bridge_* may be called by
 * any thread, those of the store's own library too.
 *
 * What they return: OK; UNREACHABLE (certainly not done), UNKNOWN (may have been done:
 * the bridge asks again, so everything must be repeatable); LOST (the lease is over),
 * NOTHELD; DENIED, STORE, BADARG, UNSUPPORTED with a sentence (error.h) that names the
 * store as pk_url_show writes it: without its password.
 */
#ifndef PICKET_DRIVERS_BRIDGE_H
#define PICKET_DRIVERS_BRIDGE_H

#include "client/driver.h"
#include "client/findings.h"

/* A lease that is to be opened. */
struct pk_tenancy {
    uint64_t id;           /* our wish, below 2^63; the store may have its own */
    uint64_t ttl_ms;       /* wanted; then what it got, counted from the asking */
    struct pk_bytes label; /* whose it is */
};

struct pk_stake {
    uint64_t lease, request;
    const char *name; /* of the lock */
    enum pk_mode mode;
    uint64_t ttl_ms;        /* of its lease */
    uint64_t lock_delay_ms; /* 0 unless that is declared */
    /* For everybody to read, as the store's value of this claim: text, see card.h. */
    struct pk_bytes card;

    /* What `stand` finds. */
    enum pk_claim_state state; /* NONE: not even waiting */
    uint64_t token;            /* if it holds; 0: the store has none */
    uint64_t again_ms; /* stand again by then, whatever happens; UINT64_MAX: no need */

    void *own; /* the driver's, NULL at first; see `forget` */

    /* The bridge's own. */
    struct pk_stake *next;
    enum pk_claim_state standing; /* as it was last told */
    uint64_t due_ms;              /* when to do something about it */
    uint64_t wait_until_ms, max_hold_ms;
    uint64_t hold_until_ms; /* 0: it does not hold, or without a limit */
    uint32_t failures;      /* to ask about it, in a row */
    bool stirred;           /* something has changed since it was asked about */
    bool doubted;           /* it was said to be gone before it was known to hold */
    bool asked;             /* an attempt to stand may have reached the store */
    bool leaving;           /* it has to go; the store may not know yet */
    bool left;              /* it went later than its owner was told; should they ask */
    bool gone;              /* the store has said so itself */
};

struct pk_scan; /* where what a scan sees goes */

/* One claim as the store has it, ours or anybody's. */
struct pk_sight {
    struct pk_bytes name;
    struct pk_bytes card;
    bool held;
    uint64_t token;   /* if held */
    uint64_t order;   /* in the queue: smaller is earlier */
    uint64_t left_ms; /* of its lease; 0: the store doesn't say, take the card's TTL */
};

struct pk_bridged {
    /* The bridge introduces itself, before anything else is called. */
    void (*meet)(void *own, struct pk_store *b);

    /* Opens the lease; with the same id again it is the same one. */
    enum picket_status (*lease_open)(void *own, struct pk_tenancy *t, uint64_t until_ms);
    /* *ttl_ms: 0 keeps it as it is; then what is left, counted from the asking. A TTL
     * that can't be had is UNSUPPORTED. A hold that is gone without its lease is reported
     * by pk_bridge_ended. */
    enum picket_status (*lease_renew)(void *own, uint64_t lease, uint64_t *ttl_ms,
                                      uint64_t until_ms);
    /* Ends it and everything on it. */
    enum picket_status (*lease_close)(void *own, uint64_t lease, uint64_t until_ms);
    /* LOST: there is no such lease. NULL, as `release`: leases can't be used by id. */
    enum picket_status (*lease_look)(void *own, uint64_t lease, uint64_t *left_ms,
                                     uint64_t until_ms);

    /* Finds where the stake stands; the first time, puts it into the queue or takes the
     * lock. Not `wait`: if it can't hold at once, its state is NONE and it leaves
     * nothing behind. A grant counts only if the lease was alive when it was found. */
    enum picket_status (*stand)(void *own, struct pk_stake *k, bool wait,
                                uint64_t until_ms);
    /* Takes it away, held or waiting. NOTHELD: it was not there. */
    enum picket_status (*leave)(void *own, struct pk_stake *k, uint64_t until_ms);
    /* Lets go of k->own; nothing is asked. NULL: there is nothing. */
    void (*forget)(void *own, struct pk_stake *k);
    /* The card of a hold has changed (election). */
    enum picket_status (*rewrite)(void *own, struct pk_stake *k, uint64_t until_ms);
    /* The hold of a lease that may be another process'. */
    enum picket_status (*release)(void *own, uint64_t lease, const char *name,
                                  uint64_t token, uint64_t until_ms);
    /* Ends the hold, whoever has it. The holder should be told: by its next renewal at
     * the latest. */
    enum picket_status (*break_hold)(void *own, const struct pk_command *c,
                                     uint64_t until_ms);
    /* Calls pk_bridge_see for each claim on the locks that begin with `name`, or on that
     * lock alone; in any order. */
    enum picket_status (*scan)(void *own, const char *name, bool whole_name,
                               struct pk_scan *scan, uint64_t until_ms);

    /* Sleeps until the store says that something has changed, wake is called, or
     * `until_ms` (UINT64_MAX: no end). pk_bridge_sleep does the sleeping, also between
     * two attempts to reach a store that is away: it must not spin. True: something
     * may have been missed, look after all stakes now; for single ones there is
     * pk_bridge_stir. */
    bool (*await)(void *own, uint64_t until_ms);

    /* For `picket doctor`: looks at the settings of the store. */
    enum picket_status (*examine)(void *own, struct pk_findings *out, uint64_t until_ms);

    /* As in driver.h, or NULL all five: not supported. */
    enum picket_status (*watch_open)(void *own, void **out);
    enum picket_status (*watch_next)(void *watch, uint64_t until_ms,
                                     struct pk_effects *out, bool *gap);
    int (*watch_fd)(void *watch);
    void (*watch_close)(void *watch);
    void (*watch_forked)(void *watch); /* as `forked` */

    void (*forked)(void *own); /* closes descriptors; nothing else */
    void (*close)(void *own);
};

/* The store for driver.h, over `own`, which it will close; `own` is closed too when this
 * fails. `g` says what is supported. */
enum picket_status pk_bridge_open(const struct pk_bridged *ops,
                                  const struct picket_guarantees *g, void *own,
                                  struct pk_store **out);

/* All but scheme, form, guarantees and open of a bridged driver. */
#define PK_BRIDGE_DRIVER                                                                 \
    .close = pk_bridge_close, .forked = pk_bridge_forked, .call = pk_bridge_call,        \
    .attend = pk_bridge_attend, .wait = pk_bridge_wait, .wake = pk_bridge_wake,          \
    .news = pk_bridge_news, .claim = pk_bridge_claim,                                    \
    .watch_open = pk_bridge_watch_open, .watch_next = pk_bridge_watch_next,              \
    .watch_fd = pk_bridge_watch_fd, .examine = pk_bridge_examine

enum picket_status pk_bridge_call(struct pk_store *b, struct pk_command *c,
                                  uint64_t until_ms, struct pk_effects *out);
void pk_bridge_attend(struct pk_store *b, uint64_t lease);
void pk_bridge_wait(struct pk_store *b, uint64_t until_ms, bool waiting);
void pk_bridge_wake(struct pk_store *b);
bool pk_bridge_news(struct pk_store *b, struct pk_effects *out, uint64_t *since_ms);
enum picket_status pk_bridge_claim(struct pk_store *b, uint64_t lease, uint64_t request,
                                   enum pk_claim_state *state, uint64_t *token);
enum picket_status pk_bridge_watch_open(struct pk_store *b, struct pk_store **out);
enum picket_status pk_bridge_watch_next(struct pk_store *w, uint64_t until_ms,
                                        struct pk_effects *out, bool *gap);
int pk_bridge_watch_fd(struct pk_store *w);
enum picket_status pk_bridge_examine(struct pk_store *b, struct pk_findings *out,
                                     uint64_t until_ms);
void pk_bridge_forked(struct pk_store *b);
void pk_bridge_close(struct pk_store *b);

/* ---- for drivers to call; `b` is what they met ---- */

/* Sleeps until `fd` is readable (true; -1: none), wake was called, or `until_ms`. For
 * `await` alone. */
bool pk_bridge_sleep(struct pk_store *b, int fd, uint64_t until_ms);
/* Something that this stake waits for may have changed: stand again soon. Request 0: all
 * of the lease's. */
void pk_bridge_stir(struct pk_store *b, uint64_t lease, uint64_t request);
/* The hold is gone although its lease lives, or the whole lease is over; `by` and `why`
 * of a break, else NULL. */
void pk_bridge_ended(struct pk_store *b, uint64_t lease, uint64_t request,
                     enum pk_end end, const char *by, const char *why);
void pk_bridge_lease_ended(struct pk_store *b, uint64_t lease, enum pk_end end);
/* One claim seen by a scan. */
void pk_bridge_see(struct pk_scan *scan, const struct pk_sight *seen);
/* The lock that was looked for stays closed that long, after an unclean end. */
void pk_bridge_see_closed(struct pk_scan *scan, uint64_t closed_ms);

#endif
