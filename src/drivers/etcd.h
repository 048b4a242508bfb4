/* SPDX-License-Identifier: MIT */
/*
 * The insides of the etcd driver, shared by its files: etcd.c (leases and claims),
 * etcd_ear.c (being told), etcd_look.c (what others have), etcd_watch.c (the stream
 * of events), etcd_exam.c (the doctor).
 *
 * Keys, below the prefix of the URL:
 *
 *     PREFIX/NAME/LEASE-NUMBER      an exclusive claim, NAME as card.h escapes it
 *     PREFIX/NAME/~LEASE-NUMBER     a shared one
 *     PREFIX/NAME/...               anybody else's, as of `etcdctl lock`: exclusive
 *     PREFIX/%note/LEASE            why a claim of that lease was taken away, written in
 *                                   the transaction that did it
 *     PREFIX/%left/LEASE-REQUEST    this claim must not come back: a copy of its creation
 *                                   may still be on its way
 *
 * LEASE is in hexadecimal, NUMBER and REQUEST decimal; all keys go with their lease. No
 * name is escaped to %note or %left. A claim's place is its create revision, and so is
 * its token: an exclusive one holds when nothing older is there, a shared one when
 * nothing older and exclusive is. "~" comes after all digits, so that each of both kinds
 * is one range.
 *
 * Until it is compacted, etcd passes by all keys that ever were in a range. So a client
 * that locks all day does not make a new key each time: a number is used again once its
 * last claim is certainly gone for good.
 */
#ifndef PICKET_DRIVERS_ETCD_H
#define PICKET_DRIVERS_ETCD_H

#include <pthread.h>

#include "drivers/bridge.h"
#include "drivers/card.h"
#include "drivers/etcd_stream.h"

enum {
    PK_ETCD_PREFIX_MAX = 200,
    /* PREFIX / NAME / ~ LEASE - REQUEST */
    PK_ETCD_KEY_MAX = PK_ETCD_PREFIX_MAX + PK_KEY_MAX + 64,
    PK_ETCD_LEASES_MAX = 8,
};

/* What a stake has here, as long as etcd may know of it. */
struct pk_etcd_claim {
    uint64_t lease, request, number;
    char key[PK_ETCD_KEY_MAX];
    char lock[PK_ETCD_KEY_MAX]; /* all claims of its lock begin like that */
    bool shared;
    uint64_t created; /* revision; 0: not known to be there */
    bool doubt;       /* a copy of its creation may still be on its way */
    bool gone;        /* its key is not there any more, or never was */

    /* The ear's: under its mutex. */
    struct pk_etcd_claim *next;
    bool listening;                  /* it is in the ear's list */
    char ahead[PK_ETCD_KEY_MAX];     /* the key that it waits for; "": it holds */
    uint64_t ahead_from;             /* the revision of the last look at it */
    uint64_t own_from;               /* the same of the own key */
    uint64_t own_watch, ahead_watch; /* numbers on the stream; 0: not watched */
    uint64_t not_before_ms;          /* short holds are not worth a watch */
};

/* A lease that was opened or renewed here. */
struct pk_etcd_kept {
    uint64_t id;
    uint64_t ttl_ms;  /* as it was asked for */
    uint64_t sent_ms; /* of the last renewal */
    uint64_t granted_ms;
};

struct pk_etcd_ear {
    pthread_mutex_t mutex;
    struct pk_etcd_claim *claims;
    uint64_t *cancelled; /* watches that are to be taken back */
    size_t n_cancelled, room;
    /* The keeper's thread's alone. */
    struct pk_etcd_caller caller;
    struct pk_etcd_stream stream;
    uint64_t last_watch; /* number given */
    uint64_t ended;      /* a lease that was reported: its claims need no asking */
    uint64_t idle_ms;    /* since when nobody needs the stream */
    uint64_t redial_ms;
    uint32_t failures;
};

struct pk_etcd {
    struct pk_store *bridge;
    struct pk_etcd_site site;
    char prefix[PK_ETCD_PREFIX_MAX + 1];
    struct pk_etcd_caller caller;
    bool checked;                                 /* that it is an etcd as we need it */
    struct pk_etcd_kept kept[PK_ETCD_LEASES_MAX]; /* under the ear's mutex */
    size_t n_kept;
    uint64_t *numbers; /* of claims that are gone */
    size_t n_numbers, numbers_room;
    uint64_t last_number;
    struct pk_etcd_ear ear;
};

/* ---- etcd.c ---- */

/* Keys; `out` has PK_ETCD_KEY_MAX bytes. */
void pk_etcd_key_lock(const struct pk_etcd *e, const char *name, char *out);
void pk_etcd_key_note(const struct pk_etcd *e, uint64_t lease, char *out);
void pk_etcd_key_left(const struct pk_etcd *e, uint64_t lease, uint64_t request,
                      char *out);
/* The first key behind all that begin with `key`. */
void pk_etcd_key_end(const char *key, char *out);
/* A claim's name and mode by its key. False: it is none. */
bool pk_etcd_key_read(const struct pk_etcd *e, struct pk_bytes key,
                      char name[PK_NAME_MAX + 1], enum pk_mode *mode);

/* The next key that can be one of ours. False: there is none. */
bool pk_etcd_key_after(struct pk_bytes key, char *out);

/* Some keys, and whether there are more. */
enum picket_status pk_etcd_page(struct pk_etcd_caller *c, const struct pk_etcd_find *find,
                                uint64_t until_ms, struct pk_etcd_found *out);
/* Something that no member answers without a majority. */
enum picket_status pk_etcd_ping(struct pk_etcd *e, struct pk_etcd_caller *c,
                                uint64_t until_ms, struct pk_etcd_header *out);
enum picket_status pk_etcd_txn(struct pk_etcd_caller *c, struct pk_pb_out *request,
                               uint64_t until_ms, struct pk_etcd_txn *out);
/* *left_s < 0: there is no such lease. */
enum picket_status pk_etcd_lease_left(struct pk_etcd_caller *c, uint64_t lease,
                                      uint64_t until_ms, int64_t *left_s);
/* Adds that the note of `lease` be written, if the conditions hold. */
void pk_etcd_op_note(const struct pk_etcd *e, struct pk_pb_out *request, uint64_t lease,
                     const char *text);
/* What a note says. */
enum pk_end pk_etcd_note_read(struct pk_bytes note, char by[PK_PRINCIPAL_MAX + 1],
                              char why[PK_REASON_MAX + 1]);

/* ---- etcd_ear.c ---- */

enum picket_status pk_etcd_ear_init(struct pk_etcd *e);
void pk_etcd_ear_free(struct pk_etcd *e);
/* Listens for what becomes of the claim: of its own key, which was there at `revision`,
 * and of the one ahead of it, if there is one. */
void pk_etcd_ear_listen(struct pk_etcd *e, struct pk_etcd_claim *claim, uint64_t revision,
                        struct pk_bytes ahead);
void pk_etcd_ear_ignore(struct pk_etcd *e, struct pk_etcd_claim *claim);
bool pk_etcd_await(void *own, uint64_t until_ms);
/* Makes a stream of watches. */
enum picket_status pk_etcd_dial(struct pk_etcd *e, struct pk_etcd_caller *c,
                                struct pk_etcd_stream *stream, uint64_t until_ms);

/* ---- etcd_look.c ---- */

enum picket_status pk_etcd_scan(void *own, const char *name, bool whole_name,
                                struct pk_scan *scan, uint64_t until_ms);
enum picket_status pk_etcd_release(void *own, uint64_t lease, const char *name,
                                   uint64_t token, uint64_t until_ms);
enum picket_status pk_etcd_break(void *own, const struct pk_command *c,
                                 uint64_t until_ms);

/* ---- etcd_exam.c ---- */

/* Once: that this is an etcd, and not too old. */
enum picket_status pk_etcd_check(struct pk_etcd *e, uint64_t until_ms);
enum picket_status pk_etcd_examine(void *own, struct pk_findings *out, uint64_t until_ms);

/* ---- etcd_watch.c ---- */

enum picket_status pk_etcd_watch_open(void *own, void **out);
enum picket_status pk_etcd_watch_next(void *watch, uint64_t until_ms,
                                      struct pk_effects *out, bool *gap);
int pk_etcd_watch_fd(void *watch);
void pk_etcd_watch_close(void *watch);
void pk_etcd_watch_forked(void *watch);

#endif
