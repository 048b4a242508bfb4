/* SPDX-License-Identifier: MIT */
/*
 * The insides of struct picket and struct picket_lock, shared by the files of this
 * folder.
 *
 * Threads: `mutex` guards all fields below it and is never held during a call of the
 * driver, so that asking for a state or a checkpoint never waits for a disk or a network.
 * `opening` serialises the opening of leases; `renewing` keeps renewals in the order in
 * which the store ran them, so that the last one's TTL counts; `absorbing` does the same
 * for news. One keeper thread per client, from its first lease on.
 */
#ifndef PICKET_CLIENT_CLIENT_H
#define PICKET_CLIENT_CLIENT_H

#include <picket.h>
#include <pthread.h>
#include <sys/types.h>

#include "client/driver.h"
#include "client/keeper.h"

enum pk_phase {
    PK_PHASE_WAITING,
    PK_PHASE_HELD, /* as far as the service said; the clock may say otherwise */
    PK_PHASE_LOST,
    PK_PHASE_RELEASED,
    PK_PHASE_REFUSED, /* the wait ended without a grant; `verdict` says how */
};

enum pk_handle {
    PK_HANDLE_OPEN,
    PK_HANDLE_ABANDONED, /* closed by its owner, but the store was not told yet */
    PK_HANDLE_CLOSED,    /* by its own callback; freed when that has returned */
};

struct picket_lock {
    struct picket *client;
    struct picket_lock *next; /* of the client's list */
    char *name;               /* of its first lock */
    uint64_t lease;           /* on which it was asked for */
    uint64_t request;
    uint64_t token;
    enum pk_phase phase;
    enum picket_status verdict;
    uint64_t max_hold_ms;   /* 0: none */
    uint64_t hold_until_ms; /* end of max-hold by our clock; UINT64_MAX: none */
    bool bounded;           /* the wait has a limit of its own */
    bool queued;            /* the store has said that it waits */
    bool leaving;           /* a release or cancel is under way, and will tell */
    bool asked;             /* the store knew of it when the last renewal was sent */
    int loss_fd, ready_fd;  /* -1 until asked for */
    char reason[640];       /* of the loss */
    enum pk_handle handle;
    void (*on_renewal)(uint64_t safe_until_ms, void *ctx);
    void *on_renewal_ctx;
    bool due; /* a renewal has not been told to on_renewal yet */
};

/* A store that this process has open, for a forked child to let go of. */
struct pk_opened {
    const struct pk_driver *driver;
    struct pk_store *store;
    struct pk_opened *next;
};

/* What we know of the claims, as far as it depends on having heard all events. */
enum pk_doubt {
    PK_DOUBT_NONE,
    PK_DOUBT_ALL,  /* events were missed: the next renewal tells how all claims stand */
    PK_DOUBT_EACH, /* the keeper has to ask about each claim */
};

/* The events of the lease that were heard: all up to `last`, and of the 64 behind it
 * those whose bit is set, since answers and pushes may overtake each other. */
struct pk_heard {
    uint32_t last;
    uint64_t ahead;
};

struct picket {
    const struct pk_driver *driver;
    const struct picket_guarantees *guarantees;
    struct pk_store *store;
    char *label;
    char principal[PK_PRINCIPAL_MAX + 1]; /* user@host: who breaks a lock, if we do */
    uint64_t ttl_ms;
    pid_t pid; /* that opened it; anybody else is a forked child */
    struct pk_opened opened;
    pthread_mutex_t opening;
    pthread_mutex_t renewing;
    pthread_mutex_t absorbing;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* some lock's phase */
    pthread_t thread;
    int running, stopping;
    uint64_t lease; /* 0: none (yet, or not any more) */
    uint64_t last_request;
    struct pk_keeper keeper;
    struct picket_lock *locks;
    struct picket_lock *called; /* whose callback runs now; NULL: none */
    struct pk_heard heard;
    uint64_t heard_ms; /* whatever has not been heard happened after that */
    enum pk_doubt doubt;
    uint64_t missed_since_ms; /* what was missed happened after that */
    uint64_t gaps;            /* how often the store said that something was */
    uint64_t rounds;          /* how often there was reason to doubt */
    uint64_t asked;           /* EACH: the request asked about last */
    bool again;               /* and after the last one, all are asked about once more */
};

/* ---- client.c ---- */

/* picket_open() for who speaks for another program: `program` is what the label says of
 * it; NULL: of this one. */
enum picket_status pk_client_open(const char *url, const struct picket_options *o,
                                  const char *program, struct picket **out);
void pk_opened_join(struct pk_opened *o, const struct pk_driver *driver,
                    struct pk_store *store);
void pk_opened_leave(struct pk_opened *o);
/* Whether another process opened `p`, so that this one is a forked child. In a child no
 * mutex of `p` is taken and nothing is allocated or freed for a handle of the parent: a
 * thread that is not in the child may have held the locks at the fork. */
bool pk_client_inherited(const struct picket *p);
/* FORKED, with its sentence, if inherited. */
enum picket_status pk_client_usable(const struct picket *p);
/* Makes sure that there is a lease, by `until_ms`. */
enum picket_status pk_client_lease(struct picket *p, uint64_t until_ms, uint64_t *lease);
/* How often a request is sent under another number because threads that share the client
 * were quicker. */
enum { PK_OVERTAKEN_MAX = 64 };

/* The next request id of the client. */
uint64_t pk_client_request(struct picket *p);
/* Runs the command, again and again with growing pauses while the store is out of reach,
 * until `until_ms`. On OK, `out` begins with the REPLY. */
enum picket_status pk_client_call(struct picket *p, struct pk_command *c,
                                  uint64_t until_ms, struct pk_effects *out);
/* For what stands for itself: a call with patience, then its verdict. */
enum picket_status pk_client_ask(struct picket *p, struct pk_command *c,
                                 struct pk_effects *answer);
/* How long calls without a limit of their own may take. */
uint64_t pk_client_patience(const struct picket *p);
/* The machine's word as ours; a refusal's sentence is kept for picket_last_error. */
enum picket_status pk_client_verdict(const struct pk_effects *answer);
/* The lease is over: everything on it is lost, for this reason. Mutex held. */
void pk_client_lost(struct picket *p, const char *reason);

/* ---- events.c ---- */

/* Events after our time `since_ms` may have been missed: the next renewal, which comes at
 * once, tells how the claims stand, or else the keeper asks about each. Mutex held. */
void pk_client_doubt(struct picket *p, uint64_t since_ms);
/* The event with this number was heard, or an answer has told it; 0: it has none. Mutex
 * held. */
void pk_client_hear(struct picket *p, uint32_t event);
/* Takes in what the store has to tell about our lease. */
void pk_client_absorb(struct picket *p);
/* Notes of which claims the answer to a renewal must know, and what was heard so far;
 * returns the round that the answer belongs to. */
uint64_t pk_client_begin_renewal(struct picket *p, unsigned char heard[4]);
/* Takes in what the renewal `c`, sent then, says of events that we have not heard: how
 * all claims stand. One without a row has ended if the service had to know of it. Mutex
 * held. */
void pk_client_absorb_state(struct picket *p, const struct pk_command *c,
                            const struct pk_effects *answer, uint64_t sent);
/* Asks about the claims whose events may have been missed, unless a renewal is due: the
 * rest comes after it. Events that come meanwhile are newer than any answer here. */
void pk_client_catch_up(struct picket *p);

/* ---- lock.c ---- */

/* The service says that the lock is held with `token`, granted after our time `since_ms`.
 */
void pk_lock_granted(struct picket_lock *l, uint64_t token, uint64_t since_ms);
void pk_lock_released(struct picket_lock *l);
void pk_lock_lost(struct picket_lock *l, const char *reason);
/* The wait ended without a grant. */
void pk_lock_refused(struct picket_lock *l, enum picket_status verdict);
/* Tries again to release the abandoned ones, which would be renewed for ever. */
void pk_locks_sweep(struct picket *p);
void pk_lock_discard(struct picket_lock *l);
/* Sets the descriptors to what phase and clock say. */
void pk_lock_rearm(struct picket_lock *l);
uint64_t pk_lock_safe_until(const struct picket_lock *l);

/* ---- callback.c ---- */

/* The lease was renewed, so that callbacks are due; not by a renewal of a callback. Mutex
 * held. */
void pk_callbacks_due(struct picket *p);
/* Runs those that are due, unless another thread is at it. No mutex held. */
void pk_callbacks_run(struct picket *p);
/* Whether this thread is in a callback of the client. */
bool pk_callbacks_inside(const struct picket *p);
/* DENIED, with a sentence, in a callback of the client; `instead`: what to do. */
enum picket_status pk_callbacks_refuse(const struct picket *p, const char *call,
                                       const char *instead);
/* Replaces a callback, after it has returned if it runs; not when it does so itself. */
void pk_callbacks_set(struct picket_lock *l, void (*cb)(uint64_t, void *), void *ctx);
/* Waits for the callback that runs, unless this thread is in it. */
void pk_callbacks_end(struct picket *p);

/* ---- view.c ---- */

enum { PK_DESCRIPTION_MAX = 640 };

/* "held by bob@web1 pid 7 (backup.sh) with token 12 for 3.0s; 2 waiting" for the answer's
 * first hold; says so if nobody holds it. */
void pk_view_describe(const struct pk_effects *answer, char *out, size_t size);
/* Who we are, as others see it: host, pid, user, the `program` (NULL: ours, by
 * $PICKET_LABEL) and the note. To be freed. */
char *pk_view_label(const char *note, const char *program);
/* user@host of such a label, cut to fit. */
void pk_view_principal(const char *label, char *out, size_t size);
enum picket_mode pk_view_mode(enum pk_mode m);

#endif
