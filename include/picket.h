/* SPDX-License-Identifier: MIT */
/*
 * Picket: locks across processes and machines, with fencing tokens.
 *
 * WHAT YOU MAY NOT ASSUME
 *
 *  - That you still hold a lock because you held it a moment ago. A lock is a lease: a
 *    timer elsewhere decides when you lose it. Ask picket_checkpoint() before each side
 *    effect, poll picket_loss_fd(), and give the token to the resource you protect.
 *  - That a checkpoint makes the next instruction safe. Your process can be paused right
 *    after it, for as long as it likes. Only the resource can refuse a late write: it
 *    must remember the highest token it has seen and refuse lower ones (the fence calls
 *    below do that).
 *  - That an error means "nothing happened". Every status has an outcome: not done, done,
 *    or unknown. After "unknown", ask again or repeat; a repeat never takes effect twice.
 *  - That fork() carries a handle over. The lock stays with the parent; see FORK.
 *  - That a token says anything but order. Tokens only grow; they are not consecutive.
 *  - That a call returns when memory has run out: the process stops, after one line on
 *    standard error ("picket: stopping: out of memory"). Its locks end with its lease.
 *
 * CONVENTIONS
 *
 *  - Calls return enum picket_status, PICKET_OK being 0. Results go through out-pointers,
 *    which are written on PICKET_OK only. picket_last_error() has one sentence about the
 *    last call of this thread that failed; closing things leaves it alone.
 *  - A handle belongs to whoever holds it, not to a thread: any thread may use it,
 *    several at a time, except that closing it must be the last use, and that a watch is
 *    for one thread at a time.
 *  - Durations are milliseconds. Names are 1 to 255 bytes of printable UTF-8, '/' for
 *    hierarchy.
 *  - Options may be NULL, or a zeroed struct with the fields set that you care about.
 *
 * FORK
 *
 *  - A client has threads. In the child of a process with threads, POSIX allows only
 *    async-signal-safe functions until exec. Picket and glibc allow more:
 *  - Calls on handles that the parent opened are safe in the child. They take no mutex,
 *    do no I/O and do not allocate (except that, in a library loaded by dlopen(), a
 *    thread's first failed call allocates the storage of picket_last_error()).
 *    A call with a status returns PICKET_FORKED. The others answer as for a lost lock:
 *    state PICKET_GONE, lease 0, 0 ms left, descriptor -1; picket_token() still has the
 *    token. Closing does nothing, and the memory of the handle is not freed.
 *  - Descriptors: fork() itself closes the child's copies of the store's connections and
 *    files and of picket_watch_fd() (by pthread_atfork; vfork(), _Fork() and clone() do
 *    not, and a connection that is only being made may be missed). Those of
 *    picket_loss_fd() and picket_ready_fd() stay open until exec, and still tell of the
 *    parent's lock.
 *  - Opening a client in the child needs malloc(), new threads and whatever the driver
 *    calls. glibc keeps malloc() and pthread_create() usable after fork(). Another
 *    allocator or C library, a sanitizer, name lookup, and the client libraries of other
 *    people's stores may not: a lock inside of them that another thread held at the fork
 *    stays locked, and picket_open() or the first call hangs. If you can't exclude that,
 *    exec first, or fork before the parent opens its first client.
 *
 *     struct picket *p;
 *     struct picket_lock *lock;
 *     if (picket_open(NULL, NULL, &p) == PICKET_OK &&
 *         picket_acquire(p, "reports/nightly", NULL, &lock) == PICKET_OK) {
 *         while (more_to_do() && picket_checkpoint(lock, 500) == PICKET_OK) {
 *             write_some(picket_token(lock));
 *         }
 *         picket_lock_close(lock);
 *     }
 *     picket_close(p);
 */
#ifndef PICKET_H
#define PICKET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PICKET_API __attribute__((visibility("default")))
#define PICKET_CHECKED __attribute__((visibility("default"), warn_unused_result))
#else
#define PICKET_API
#define PICKET_CHECKED
#endif

/* ---- statuses ---- */

/*  X(name, outcome, what it means) */
#define PICKET_STATUSES(X)                                                               \
    X(OK, DONE, "done")                                                                  \
    X(BUSY, NOT_DONE, "held by somebody else")                                           \
    X(TIMEOUT, NOT_DONE, "not granted within the time allowed")                          \
    X(CANCELLED, NOT_DONE, "the wait was cancelled")                                     \
    X(LOST, NOT_DONE, "the lease has ended, and everything on it")                       \
    X(AT_RISK, NOT_DONE, "what is left of the lease does not cover the step")            \
    X(NOTHELD, NOT_DONE, "that lock is not held with that token")                        \
    X(STALE, NOT_DONE, "a higher token has been here before")                            \
    X(UNCLAIMED, NOT_DONE, "this token has not claimed the resource yet; claim first")   \
    X(MISMATCH, NOT_DONE, "the lock is in use as another kind or with other slots")      \
    X(TOOOLD, NOT_DONE, "a request id below those still remembered")                     \
    X(NOTFOUND, NOT_DONE, "there is no such thing")                                      \
    X(LIMIT, NOT_DONE, "a configured limit is reached")                                  \
    X(DENIED, NOT_DONE, "not allowed")                                                   \
    X(BADARG, NOT_DONE, "not a valid argument")                                          \
    X(UNSUPPORTED, NOT_DONE, "this store can't do that")                                 \
    X(UNREACHABLE, NOT_DONE, "the store can't be reached or is not ready")               \
    X(STORE, NOT_DONE, "the store refuses: full, damaged, or of another version")        \
    X(FORKED, NOT_DONE, "the handle belongs to the parent process")                      \
    X(UNKNOWN, UNKNOWN, "the request may or may not have taken effect")

enum picket_status {
#define X(name, outcome, text) PICKET_##name,
    PICKET_STATUSES(X)
#undef X
        PICKET_STATUS_COUNT
};

enum picket_outcome { PICKET_NOT_DONE, PICKET_DONE, PICKET_OUTCOME_UNKNOWN };

PICKET_API const char *picket_status_name(enum picket_status s); /* "BUSY" */
PICKET_API const char *picket_status_text(enum picket_status s);
PICKET_API enum picket_outcome picket_outcome(enum picket_status s);
/* One sentence about this thread's last failed call: what is wrong and what to do. */
PICKET_API const char *picket_last_error(void);
PICKET_API const char *picket_version(void);

/* ---- a client: one connection to a store, one lease ---- */

struct picket;

struct picket_options {
    /* Of the lease, from 50 ms to 24 h; 0: 10 s. */
    uint32_t ttl_ms;
    /* After the lease's safe time a handle is suspended, not yet lost, for that long. */
    uint32_t grace_ms;
    /* How long before the lease's end it counts as over; less than the default, 2 % of
     * the TTL + 50 ms, is raised to it. */
    uint32_t margin_ms;
    /* Shown to others beside host, pid, user and the program's name. Arguments are shown
     * only if $PICKET_LABEL is "command". */
    const char *note;
    /* "correctness" or "efficiency": refuse stores that promise less. */
    const char *require;
};

/* Opens the store at `url`; NULL: $PICKET_URL, else "local:". The lease is opened by the
 * first acquire, so that a client which only looks costs the store nothing.
 *   local:      this machine, no server: /var/lib/picket if that is a group's (mode 2770)
 *               and we are in it, for all members; else our own, for this user alone:
 *               $XDG_STATE_HOME/picket, /var/lib/picket for root, ~/.local/state/picket
 *   local:DIR   the same, with its state in DIR
 *   picket://HOST[:PORT],HOST[:PORT],...   a cluster of servers; any of its nodes will
 *               do, all of them are better; the port is 7420 if none is given. Nobody is
 *               asked yet: that the servers can't be reached is told by the first call
 *               that needs them, after trying for its time.
 *   redis://[:PASSWORD@]HOST[:PORT][/NUMBER][?prefix=P]   and other people's stores, as
 *   redlock://HOST[:PORT],...[?prefix=P]                  far as they are built in:
 *   etcd://[USER:PASSWORD@]HOST[:PORT],...[/PREFIX]       docs/drivers.md says what each
 *   zk://[USER:PASSWORD@]HOST[:PORT],...[/ROOT]           one promises, and so does
 *   consul://[:TOKEN@]HOST[:PORT][/PREFIX]                picket_guarantees(). What it
 *   postgres://...[?lock=advisory]                        does not is UNSUPPORTED. */
PICKET_CHECKED enum picket_status
picket_open(const char *url, const struct picket_options *o, struct picket **out);
/* Closes the lease, so that all its locks are released at once, and frees the client with
 * the lock handles that are still open. NULL is fine. */
PICKET_API void picket_close(struct picket *p);

/* Renews now, and lets the lease have this TTL from now on (0: as before). The store
 * never ends the lease before the end that an earlier renewal gave it: should the answer
 * about a shorter TTL get lost, picket_left_ms() still tells the truth. */
PICKET_CHECKED enum picket_status picket_extend(struct picket *p, uint32_t ttl_ms);
/* The id of the client's lease; 0: not opened yet. */
PICKET_API uint64_t picket_lease(const struct picket *p);
/* Stops renewing and forgets the lease without closing it: it lives on until its TTL is
 * over, for a later process to renew or close by its id. Lock handles become *lost*. */
PICKET_API void picket_detach(struct picket *p);

/* What the store declares of itself. */
struct picket_guarantees {
    const char *driver;   /* "local" */
    const char *promise;  /* "correctness" or "efficiency" */
    const char *scope;    /* "one machine" */
    const char *token;    /* where tokens come from */
    const char *fairness; /* "fifo" */
    const char *waiting;  /* "push" or "poll" */
    const char *clock;    /* what is assumed of clocks */
    const char *failover; /* what a failover can do */
    /* 1: supported */
    int shared, semaphore, sets, election, fence, watch;
    int lock_delay; /* a lock can stay closed after an unclean end */
    int extend;     /* a lease can get another TTL later */
    int by_id;      /* a lease outlives its process and can be used by its id */
    int reasons;    /* a holder, and who watches, are told why a hold was ended */
    int tokens;     /* 0: none; 1: they grow with every grant of a lock; 2: of any lock */
};
PICKET_API const struct picket_guarantees *picket_guarantees(const struct picket *p);

/* ---- locks ---- */

struct picket_lock;

enum picket_mode { PICKET_EXCLUSIVE = 0, PICKET_SHARED = 1, PICKET_SLOT = 2 };

#define PICKET_FOREVER (-1)

struct picket_acquire_options {
    enum picket_mode mode;
    uint32_t slots;         /* for PICKET_SLOT: how many holders it has room for */
    int64_t wait_ms;        /* 0: try; PICKET_FOREVER; else at most that long */
    uint64_t max_hold_ms;   /* the hold ends after that, renewals or not; 0: never */
    uint32_t lock_delay_ms; /* after an unclean end the lock stays closed that long */
    const void *value;      /* election: what observers read, e.g. the leader's address */
    size_t value_len;
};

/* Acquires `name`; options NULL: exclusive, wait for ever. The handle stays until
 * picket_lock_close(). On BUSY and TIMEOUT picket_last_error() names the holder. */
PICKET_CHECKED enum picket_status picket_acquire(struct picket *p, const char *name,
                                                 const struct picket_acquire_options *o,
                                                 struct picket_lock **out);
/* The same with wait_ms 0, whatever the options say. */
PICKET_CHECKED enum picket_status picket_try(struct picket *p, const char *name,
                                             const struct picket_acquire_options *o,
                                             struct picket_lock **out);

struct picket_want {
    const char *name;
    enum picket_mode mode;
    uint32_t slots;
};

/* All of `n` locks or none, in one step, with one token: no deadlock, whatever the order
 * of names. mode and slots of the options are not used. */
PICKET_CHECKED enum picket_status
picket_acquire_set(struct picket *p, const struct picket_want *wants, size_t n,
                   const struct picket_acquire_options *o, struct picket_lock **out);

/* The same in two halves, for event loops and for cancelling: enqueue returns at once,
 * with a handle that is waiting or held (BUSY with wait_ms 0); wait blocks until it is
 * held (OK) or refused (TIMEOUT, CANCELLED, LOST...), at most timeout_ms (-1: no limit of
 * its own; TIMEOUT leaves the place in the queue as it is: wait again, or cancel). */
PICKET_CHECKED enum picket_status
picket_enqueue(struct picket *p, const struct picket_want *wants, size_t n,
               const struct picket_acquire_options *o, struct picket_lock **out);
PICKET_CHECKED enum picket_status picket_wait(struct picket_lock *l, int64_t timeout_ms);
/* Readable (POLLIN) once the wait is over; don't read from it. -1 on error. */
PICKET_API int picket_ready_fd(struct picket_lock *l);
/* Gives up waiting, from any thread; should the grant have come meanwhile, it is
 * released. */
PICKET_API enum picket_status picket_cancel(struct picket_lock *l);

/* Releases; again is fine (OK). LOST or NOTHELD: the lock was gone before you released
 * it. */
PICKET_API enum picket_status picket_release(struct picket_lock *l);
/* Releases or cancels if need be, and frees the handle. NULL is fine. */
PICKET_API void picket_lock_close(struct picket_lock *l);

enum picket_state {
    PICKET_WAITING,   /* in the queue */
    PICKET_HELD,      /* yours, and the lease is being renewed */
    PICKET_OVERDUE,   /* "at risk": a renewal is late; yours while picket_left_ms() > 0 */
    PICKET_SUSPENDED, /* within the grace period: do nothing until it is held again */
    PICKET_GONE,      /* "lost": do nothing any more; picket_loss_reason() */
    PICKET_RELEASED,  /* by you, or the wait ended without a grant */
};
PICKET_API enum picket_state picket_state(const struct picket_lock *l);
PICKET_API const char *picket_state_name(enum picket_state s); /* "at risk" */

/* The fencing token: give it to what you protect. 0 while waiting. */
PICKET_API uint64_t picket_token(const struct picket_lock *l);
/* How long the lock is certainly still yours, by your own clock (CLOCK_BOOTTIME: suspend
 * counts). */
PICKET_API uint64_t picket_left_ms(const struct picket_lock *l);
/* The same as a point of CLOCK_BOOTTIME, in ms; 0: not held. */
PICKET_API uint64_t picket_safe_until_ms(const struct picket_lock *l);
/* The lease guard: OK if at least need_ms are left; AT_RISK (renewal due: try again
 * soon), LOST, or NOTHELD otherwise. Ask before each side effect, with the time the
 * effect may take. */
PICKET_CHECKED enum picket_status picket_checkpoint(struct picket_lock *l,
                                                    uint64_t need_ms);
/* Readable (POLLIN) from the moment the lock is lost; don't read from it. Told by the
 * local clock, in the kernel, without any thread or network. Close-on-exec; -1: error. */
PICKET_API int picket_loss_fd(struct picket_lock *l);
/* Why it was lost: "expired", "broken: REASON (by WHO)", "overheld"...; "" while it
 * isn't. */
PICKET_API const char *picket_loss_reason(const struct picket_lock *l);
/* Called after every successful renewal, with the new end of the safe time in ms of
 * CLOCK_BOOTTIME, while the lock is held; for supervisors of other processes. NULL: no
 * more.
 *  - It runs on the thread that renewed: the client's own, or one in picket_extend(). The
 *    callbacks of one client run one at a time. While one runs on the client's own thread
 *    that renews nothing and hears nothing, so it should return soon.
 *  - It may call everything here, its own lock and client included: release or close the
 *    lock, replace itself, extend (which calls nobody again), detach. Except for waiting:
 *    picket_wait() with a timeout, unless the wait is over, and an acquire with one are
 *    PICKET_DENIED, since the grant is heard by the thread that the callback is on; use
 *    picket_try() or picket_enqueue(). picket_close() of its client does nothing but set
 *    picket_last_error().
 *  - Once picket_on_renewal(), picket_lock_close(), picket_detach() or picket_close() has
 *    returned on another thread, the callback has, too, and is not called any more. So
 *    don't call them with a mutex locked that the callback wants. */
PICKET_API void picket_on_renewal(struct picket_lock *l,
                                  void (*cb)(uint64_t safe_until_ms, void *ctx),
                                  void *ctx);
/* Election: changes the value that observers see. */
PICKET_CHECKED enum picket_status picket_set_value(struct picket_lock *l,
                                                   const void *value, size_t len);

/* ---- looking ---- */

/* One hold or one place in a queue. Strings live as long as the struct picket_view. */
struct picket_row {
    const char *name;
    enum picket_mode mode;
    uint32_t slots; /* of the semaphore; 0 otherwise */
    uint64_t token; /* 0: waiting */
    uint64_t lease;
    uint32_t place;   /* in the queue, from 1; 0 for a hold */
    uint64_t for_ms;  /* held or waiting for that long */
    uint64_t left_ms; /* what is left of its lease */
    const char *host, *user, *command, *note;
    uint64_t pid;
    const char *label; /* all of it, as the owner wrote it */
    const char *value; /* election value; value_len bytes and a NUL */
    size_t value_len;
    uint32_t holders, waiters; /* of the lock; in lists */
    uint64_t closed_ms;        /* the lock's delay after an unclean end; in lists */
};

struct picket_view {
    const char *name;
    uint32_t slots, holders, waiters;
    uint64_t closed_ms; /* closed by a lock-delay for that long yet */
    size_t n_rows;
    struct picket_row *rows; /* holds by token, then waiters in queue order */
    int more;                /* 1: there are rows that were left out */
};

/* Who holds `name` and who waits. A free lock is OK with no rows. Free with
 * picket_view_free. */
PICKET_CHECKED enum picket_status picket_show(struct picket *p, const char *name,
                                              struct picket_view **out);
/* The locks that begin with `prefix` ("" for all) and come after `after` (NULL: from the
 * start), in byte order, at most `count` (up to 1000) and about 256 KiB: one row each,
 * about its oldest hold. While the view says `more`, go on after the last name. */
PICKET_CHECKED enum picket_status picket_list(struct picket *p, const char *prefix,
                                              const char *after, size_t count,
                                              struct picket_view **out);
/* What a lease holds and waits for. */
PICKET_CHECKED enum picket_status picket_lease_show(struct picket *p, uint64_t lease,
                                                    struct picket_view **out);
PICKET_API void picket_view_free(struct picket_view *v);

/* ---- watching ---- */

struct picket_watch;

struct picket_event {
    const char *what; /* "granted", "queued", "left", "ended", "value", "closed",
                         "opened", "lease-opened", "lease-ended", "fence-raised",
                         "fence-set", "fence-mode", "fence-shadowed", "fence-ended",
                         "leapt", and "gap": some were missed, look again */
    const char *name; /* "" for events that concern no lock */
    const char *why;  /* of an end: "released", "expired"...; "" otherwise */
    const char *by;   /* who broke it, and for what reason */
    const char *reason;
    enum picket_mode mode;
    uint64_t lease, token;
    uint32_t place;
    int shadow; /* of fence-mode: 1: in shadow mode from now on */
    uint64_t closed_ms;
    uint64_t time_ms; /* cluster time */
    const char *value;
    size_t value_len;
};

/* Events of all locks and fences that begin with `prefix`, from now on. */
PICKET_CHECKED enum picket_status picket_watch_open(struct picket *p, const char *prefix,
                                                    struct picket_watch **out);
/* The next event, valid until the next call. TIMEOUT after timeout_ms (-1: never). */
PICKET_CHECKED enum picket_status
picket_watch_next(struct picket_watch *w, int64_t timeout_ms, struct picket_event *out);
/* Readable when picket_watch_next(w, 0) is worth a try. */
PICKET_API int picket_watch_fd(const struct picket_watch *w);
PICKET_API void picket_watch_close(struct picket_watch *w);

/* ---- fences: the resource's side ---- */

/* The store's own small fenced registers; `resource` is a name like a lock's. `fence`
 * (may be NULL) gets the highest token seen, on OK, STALE and UNCLAIMED alike. Claim
 * before you read: only then can no older holder's write slip in between.
 * On OK, *fence > token: the fence is in shadow mode and would have refused (STALE). */
PICKET_CHECKED enum picket_status picket_fence_claim(struct picket *p,
                                                     const char *resource, uint64_t token,
                                                     uint64_t *fence);
/* OK only while `token` is the one that claimed last. Changes nothing. In shadow mode
 * always OK; *fence < token then says that it would have been UNCLAIMED. */
PICKET_CHECKED enum picket_status picket_fence_check(struct picket *p,
                                                     const char *resource, uint64_t token,
                                                     uint64_t *fence);
PICKET_CHECKED enum picket_status picket_fence_set(struct picket *p, const char *resource,
                                                   uint64_t token, const void *value,
                                                   size_t len, uint64_t *fence);
/* The same, but the store keeps the register for keep_ms only (50 ms to 366 days; 0: for
 * good), counted from this write; then it is gone, and the fence with it: an older token
 * is accepted again. So it is for records under a name that is not used again, as the
 * outcome of one request, and never for a resource that is written to under a lock. */
PICKET_CHECKED enum picket_status picket_fence_keep(struct picket *p,
                                                    const char *resource, uint64_t token,
                                                    const void *value, size_t len,
                                                    uint64_t keep_ms);
/* The value, malloc'ed and NUL-terminated; token 0 reads without the fence. */
PICKET_CHECKED enum picket_status picket_fence_get(struct picket *p, const char *resource,
                                                   uint64_t token, char **value,
                                                   size_t *len, uint64_t *fence);

/* Shadow mode finds out whom a fence would hit before it may: nobody is refused for a
 * token, what would have been is counted, and nothing is protected meanwhile. 0: it
 * enforces, as every fence does at first. A resource that is not known is created. */
PICKET_CHECKED enum picket_status picket_fence_mode(struct picket *p,
                                                    const char *resource, int shadow);

struct picket_fence_state {
    uint64_t token;    /* the highest seen; 0: nobody has claimed it yet */
    int shadow;        /* 1: in shadow mode */
    uint64_t shadowed; /* claims, sets and gets with a lower token let through so far */
    uint64_t left_ms;  /* until the store's register ends; 0: it is kept for good */
};
/* Changes nothing. NOTFOUND: nobody has claimed it, nor set its mode. */
PICKET_CHECKED enum picket_status
picket_fence_show(struct picket *p, const char *resource, struct picket_fence_state *out);

/* ---- for operators and scripts: leases by their id ---- */

/* Ends the hold of `name` with `token`, whoever has it; `reason` is recorded and told. */
PICKET_CHECKED enum picket_status picket_break(struct picket *p, const char *name,
                                               uint64_t token, const char *reason);
PICKET_CHECKED enum picket_status picket_lease_renew(struct picket *p, uint64_t lease,
                                                     uint32_t ttl_ms, uint64_t *left_ms);
PICKET_CHECKED enum picket_status picket_lease_release(struct picket *p, uint64_t lease,
                                                       const char *name, uint64_t token);
PICKET_CHECKED enum picket_status picket_lease_close(struct picket *p, uint64_t lease);

#ifdef __cplusplus
}
#endif

#endif
