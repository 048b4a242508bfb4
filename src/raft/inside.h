/* SPDX-License-Identifier: MIT */
/* The fields of a replica, private to replica.c, state.c and members.c. */
#ifndef PICKET_RAFT_INSIDE_H
#define PICKET_RAFT_INSIDE_H

#include <raft.h>

#include "raft/agreement.h"
#include "raft/backup.h"
#include "raft/garbage.h"
#include "raft/replica.h"
#include "raft/snapshot.h"

#if !defined(RAFT_VERSION_NUMBER) || RAFT_VERSION_NUMBER < 2201
#error "libraft 0.22.1 or newer is needed: older ones lose acknowledged writes."
#endif

/* One proposal, as the library knows it. */
struct pk_request {
    struct raft_apply apply;
    struct pk_request *next;
};

struct pk_changing {
    bool running;
    enum pk_change what;
    uint64_t id, term;
    void (*done)(void *ctx, const char *wrong);
    void *ctx;
    /* The library keeps the pointer after a failed assignment: it lives as long as the
     * replica. */
    struct raft_change request;
};

struct pk_replica {
    struct raft raft;
    struct raft_tracer tracer;
    struct raft_fsm fsm;
    struct raft_io *io;
    struct pk_raft_guard *guard;
    struct pk_replica_hooks hooks;
    uint64_t origin;
    struct pk_log_use (*use)(void *ctx);
    void *use_ctx;
    bool waits; /* see pk_replica_should_wait */
    uint32_t threshold, trailing;

    /* What is replicated: the same on every node that has run the same entries. */
    struct pk_state state;

    struct pk_state_view *taking; /* a snapshot of it that is being taken; NULL: none */
    struct pk_snapshot_source source;
    struct pk_snapshot_handle handle;
    struct raft_buffer buffer; /* with the handle */
    struct pk_backup *backup;  /* that is being made; NULL: none */
    struct pk_garbage garbage;

    struct pk_effects effects;
    struct pk_agreement agreement; /* about the state after marked entries */

    unsigned char *room; /* an entry in the making, from raft_malloc */
    size_t room_size;
    size_t last_size; /* of the entry before: the next one may be as long */
    struct pk_request *first_request, **end_of_requests; /* in the library, by index */
    struct pk_request *spare_requests;

    /* The last entry that a release without version `lowered_from` can't start from:
     * a snapshot behind it is due. 0: there is none since the start. */
    uint64_t lowered_at;
    uint32_t lowered_from;

    struct pk_changing changing;
    struct raft_transfer transfer;

    void (*closed)(void *ctx);
    void *closed_ctx;
    bool starting, closing, broken;
    char why[320];
};

/* Makes r->fsm. */
void pk_state_open(struct pk_replica *r);
void pk_state_free(struct pk_replica *r);
/* A replica without consensus, whose machine has run the snapshot and all entries; free
 * it with pk_state_free and pk_door_resize. `broken` is set if that was not possible. */
struct pk_replica *pk_state_offline(const struct raft_snapshot *snapshot,
                                    const struct raft_entry *entries, size_t n,
                                    uint64_t start);
/* The replica can't go on. */
void pk_replica_break(struct pk_replica *r, const char *why);
/* A snapshot is due as soon as possible, and no entry behind it is to be kept: nodes of
 * an older release can't run them. */
void pk_replica_let_go(struct pk_replica *r);
/* To be called before the library is given a request. */
void pk_replica_own_leadership(struct pk_replica *r);
/* A membership change in progress can't complete on this node. */
void pk_members_close(struct pk_replica *r);
/* Looks whether a membership change has come to its end. */
void pk_members_poll(struct pk_replica *r);

#endif
