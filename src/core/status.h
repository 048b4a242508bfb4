/* SPDX-License-Identifier: MIT */
/*
 * What a command can answer. The machine never fails: every refusal is a reply with one
 * of these codes, the same on every replica. The wire name is the code's name and stays
 * stable.
 */
#ifndef PICKET_CORE_STATUS_H
#define PICKET_CORE_STATUS_H

/*  X(name, what it means to the caller)
 * OK and QUEUED aside, the state is as if the command had not come ("outcome: not done").
 */
#define PK_STATUSES(X)                                                                   \
    X(OK, "done")                                                                        \
    X(QUEUED, "waiting in the queue; the grant comes later")                             \
    X(BUSY, "held by somebody else")                                                     \
    X(TIMEOUT, "not granted within the time allowed")                                    \
    X(CANCELLED, "the wait was cancelled")                                               \
    X(LOST, "the lease has ended, and everything on it")                                 \
    X(NOTHELD, "that lock is not held with that token")                                  \
    X(STALE, "a higher token has been here before")                                      \
    X(UNCLAIMED, "this token has not claimed the resource yet; claim first")             \
    X(MISMATCH, "the lock is in use as another kind or with another number of slots")    \
    X(TOOOLD, "a request id below those still remembered; it is not run again")          \
    X(NOTFOUND, "there is no such thing")                                                \
    X(LIMIT, "a configured limit is reached")                                            \
    X(DENIED, "not allowed")                                                             \
    X(BADARG, "not a valid request")

enum pk_status {
#define X(name, text) PK_##name,
    PK_STATUSES(X)
#undef X
        PK_STATUS_COUNT
};

const char *pk_status_name(enum pk_status s); /* "BUSY" */
const char *pk_status_text(enum pk_status s); /* "held by somebody else" */

/* Why a lease, a hold or a wait came to its end. */
#define PK_ENDS(X)                                                                       \
    X(NONE, "not ended")                                                                 \
    X(RELEASED, "released by its holder")                                                \
    X(CLOSED, "its lease was closed")                                                    \
    X(EXPIRED, "its lease was not renewed in time")                                      \
    X(OVERHELD, "held for longer than its max-hold")                                     \
    X(BROKEN, "broken by an operator")                                                   \
    X(RESTORED, "ended by a restore from backup")                                        \
    X(WITHDRAWN, "the wait was cancelled")                                               \
    X(TIMED_OUT, "the wait reached its limit")                                           \
    X(FORGOTTEN, "it ended so long ago that the reason is no longer kept")

enum pk_end {
#define X(name, text) PK_END_##name,
    PK_ENDS(X)
#undef X
        PK_END_COUNT
};

const char *pk_end_name(enum pk_end e); /* "expired", for the wire and the command line */
const char *pk_end_text(enum pk_end e); /* "its lease was not renewed in time" */

#endif
