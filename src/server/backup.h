/* SPDX-License-Identifier: MIT */
/*
 * CLUSTER BACKUP: a backup of this node's state, for a client that fetches it in chunks.
 *
 *   CLUSTER BACKUP [AFTER index]       makes one, of a state that has that entry in it.
 *                                      Answered when it is whole: its id, the
 *                                      node, the entry and cluster time that it is of,
 *                                      the last token, its bytes
 *   CLUSTER BACKUP id offset [bytes]   a chunk of it, as one bulk string; empty at the
 *                                      end. `bytes` is at most and by default 256 KiB
 *   CLUSTER BACKUP id END              the client has all of it, or gives up
 *
 * Every node answers for itself, so that the leader need not do it. The state is read
 * from a view in slices, as a snapshot is, into a file without a name in the node's data
 * directory: making it does not wait for the client, so a client that is slow or gone
 * keeps the node from nothing. Files are opened, written, read and closed by libuv's
 * threads. A client throttles by asking later, and goes on after a cut by asking again.
 *
 * A node has one backup at a time. It goes when the client says END, when a new one is
 * begun and nobody has read this one for 10 s, after 10 min without a read, and with the
 * process.
 */
#ifndef PICKET_SERVER_BACKUP_H
#define PICKET_SERVER_BACKUP_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "core/bytes.h"
#include "raft/replica.h"

struct pk_conn;
struct pk_server;

/*
 *     NONE      there is no backup
 *     WAITS     for the end of a snapshot that the node is taking
 *     WRITING   a slice is being written
 *     READY     it is whole
 *     READING   it is whole, and a chunk is being read
 */
enum pk_backup_stage {
    PK_BACKUP_NONE,
    PK_BACKUP_WAITS,
    PK_BACKUP_WRITING,
    PK_BACKUP_READY,
    PK_BACKUP_READING,
};

struct pk_backup_job {
    enum pk_backup_stage stage;
    uint64_t id;
    uint64_t after; /* the entry that the state must have */
    struct pk_backup_of of;
    uint64_t bytes;      /* that are in the file */
    uint64_t who;        /* the connection that waits for an answer; 0: none does */
    uint64_t touched_ms; /* when a client last asked for it */
    bool at_end;         /* the slice that is being written is the last one */

    uv_work_t work; /* what a thread does; only it uses the fields below meanwhile */
    const char *dir;
    int fd; /* -1: not open yet */
    unsigned char *room;
    size_t len; /* of what is in the room, or is wanted */
    uint64_t offset;
    int error; /* an errno */
};

/* CLUSTER BACKUP with its words. False: not now; it stays the connection's next one. */
bool pk_backup_ask(struct pk_conn *c, const struct pk_bytes *args, uint32_t n);
/* Once in every turn of the loop. */
void pk_backup_turn(struct pk_server *s);
/* Now and then: drops a backup that nobody has read for long, or waits for. */
void pk_backup_sweep(struct pk_server *s);
/* The node ends. */
void pk_backup_close(struct pk_server *s);

#endif
