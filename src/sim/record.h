/* SPDX-License-Identifier: MIT */
/*
 * The trace: what happened, one record after the other, in the order of time. Also the
 * form in which a real cluster records itself (`picket serve --trace`), so that the same
 * checkers look at both. In a file: 32 bytes each, little endian.
 */
#ifndef PICKET_SIM_RECORD_H
#define PICKET_SIM_RECORD_H

#include <stdint.h>

/*  X(kind, name): who, token and arg are
 *  SENT      a message from who to `peer`; code: enum pk_word; arg: when it arrives,
 *            0: lost
 *  QUEUED    who waits, in the service's view; peer: number of the claim
 *  LEFT      who waits no longer; code: enum pk_end; peer as above
 *  GRANTED   who holds, in the service's view; token; arg: end of its lease; peer
 *  RENEWED   who's lease, in the service's view; arg: its end
 *  ENDED     who's hold is over in the service's view; token; code: enum pk_end
 *  TRUSTED   who's library trusts its lease; token; arg: until then
 *  LOST      who's library knows that the hold is lost; token
 *  BELIEVED  who's program believes that it has the lock; token
 *  DOUBTED   who's program does so no longer; token; code: enum pk_doubt
 *  READ      the resource was read by who; token; arg: the value; code 1: refused
 *  WROTE     the resource was written by who; token; arg: the value; code 1: refused,
 *            2: came after its writer had given it up
 *  RAISED    the fence is now at token
 *  PAUSED    who stands still; arg: until then
 *  RESUMED   who goes on
 *  CUT       who's link to peer is cut; arg: until then, 0: for good
 *  HEALED    who's link to peer
 *  JUMPED    who's wall clock; arg: by so many us, as a signed number
 *  DRIFTS    who's clock; arg: by so many millionths, signed
 *  FAILOVER  the service has no leader; arg: until then
 *  CRASHED   who is gone; arg: until then
 *  DIGEST    of replica who; arg
 *  IGNORED   who was to do something that makes no sense now; code: enum pk_op */
#define PK_RECORDS(X)                                                                    \
    X(SENT, "sent")                                                                      \
    X(QUEUED, "queued")                                                                  \
    X(LEFT, "left")                                                                      \
    X(GRANTED, "granted")                                                                \
    X(RENEWED, "renewed")                                                                \
    X(ENDED, "ended")                                                                    \
    X(TRUSTED, "trusted")                                                                \
    X(LOST, "lost")                                                                      \
    X(BELIEVED, "believed")                                                              \
    X(DOUBTED, "doubted")                                                                \
    X(READ, "read")                                                                      \
    X(WROTE, "wrote")                                                                    \
    X(RAISED, "raised")                                                                  \
    X(PAUSED, "paused")                                                                  \
    X(RESUMED, "resumed")                                                                \
    X(CUT, "cut")                                                                        \
    X(HEALED, "healed")                                                                  \
    X(JUMPED, "jumped")                                                                  \
    X(DRIFTS, "drifts")                                                                  \
    X(FAILOVER, "failover")                                                              \
    X(CRASHED, "crashed")                                                                \
    X(DIGEST, "digest")                                                                  \
    X(IGNORED, "ignored")

enum pk_record_kind {
#define X(kind, name) PK_REC_##kind,
    PK_RECORDS(X)
#undef X
        PK_RECORD_KINDS
};

const char *pk_record_name(uint32_t kind); /* "sent"; "?" if there is none */

/* Why a program no longer believes. */
enum pk_doubt {
    PK_DOUBT_RELEASED,
    PK_DOUBT_REFUSED, /* the resource has told it */
    PK_DOUBT_CLOCK,   /* its own clock has (checkpoint) */
    PK_DOUBT_CRASHED,
    PK_DOUBT_ANEW, /* it asks for the lock again */
};

/* What messages say. */
#define PK_WORDS(X)                                                                      \
    X(OPEN, "open")                                                                      \
    X(OPENED, "opened")                                                                  \
    X(RENEW, "renew")                                                                    \
    X(RENEWED, "renewed")                                                                \
    X(ACQUIRE, "acquire")                                                                \
    X(QUEUED, "queued")                                                                  \
    X(GRANTED, "granted")                                                                \
    X(GONE, "gone")                                                                      \
    X(RELEASE, "release")                                                                \
    X(RELEASED, "released")                                                              \
    X(READ, "read")                                                                      \
    X(VALUE, "value")                                                                    \
    X(WRITE, "write")                                                                    \
    X(WRITTEN, "written")                                                                \
    X(STALE, "stale")                                                                    \
    X(SET, "set")                                                                        \
    X(SET_YES, "ok")                                                                     \
    X(SET_NO, "taken")                                                                   \
    X(EXTEND, "extend")                                                                  \
    X(DELETE, "delete")

enum pk_word {
#define X(word, name) PK_WORD_##word,
    PK_WORDS(X)
#undef X
        PK_WORD_COUNT
};

const char *pk_word_name(uint32_t word);

struct pk_record {
    uint64_t at_us;
    uint8_t kind, who, peer, code;
    uint32_t section; /* GRANTED, BELIEVED, READ, WROTE: number of the critical section */
    uint64_t token;
    uint64_t arg;
};

_Static_assert(sizeof(struct pk_record) == 32,
               "also the layout in files and in the page");

#endif
