/* SPDX-License-Identifier: MIT */
/*
 * A raft_io without files and sockets: one life of one node, with the real log store
 * (raft/store.h) on a simulated disk (sim_disk.h), and a simulated network.
 */
#ifndef PICKET_SIM_IO_H
#define PICKET_SIM_IO_H

#include <stdbool.h>
#include <stdint.h>

#include "raft/log_use.h"
#include "rng.h"
#include "sim_disk.h"
#include "sim_net.h"

struct raft_io;
struct sim_io;

/* How long the disk takes; can change while it works. */
struct sim_speed {
    uint64_t least_us, most_us; /* of an append */
    uint64_t snapshot_us;       /* of a snapshot, at most */
};

/* What the store has reported as durable: it must be there after every start (D1). */
struct sim_promised {
    uint64_t index; /* of the last acknowledged entry, less what was truncated since */
    uint64_t term, vote;
};

struct sim_io_options {
    struct sim_process *process;
    struct sim_heap *heap; /* the process's memory, as the library uses it */
    struct sim_disk *disk;
    struct sim_promised *promised;
    bool fresh; /* the node never started: its files are made */
    struct sim_net *net;
    const struct sim_speed *speed;
    struct rng *rng;
    uint32_t place; /* in the network; the node's id is one more */
    /* The library has been at work: whoever is on top of it may have something to do. */
    void (*worked)(void *self);
    /* The process must end: a write failed, or sim_io_withhold_snapshots says so. */
    void (*failed)(void *self, const char *why);
};

struct sim_io_counts {
    uint64_t appends, truncations, snapshots_taken, snapshots_installed;
    uint64_t snapshots_sent, snapshots_withheld, chunks_sent, torn, writes_lost;
};

/* Of the node at this place. */
const char *sim_io_address(uint32_t place);

struct sim_io *sim_io_new(const struct sim_io_options *o, struct sim_io_counts *counts);
struct raft_io *sim_io_raft(struct sim_io *io);
/* KiB that a disk must have left for new entries; after sim_io_raft was initialized. */
uint16_t sim_io_reserve(void);
/* How large the log is: of a struct sim_io. */
struct pk_log_use sim_io_use(void *io);
/* Tells all other nodes the digest of the state after an entry. */
void sim_io_tell_mark(struct sim_io *io, uint64_t index, uint64_t digest);
/* False: the message is for sim_io_receive. */
bool sim_io_is_mark(const struct sim_message *m, uint64_t *index, uint64_t *digest);
/* Sends a note to the node at that place, if there is one. */
void sim_io_note(struct sim_io *io, uint32_t to, const void *bytes, size_t len);
/* The bytes of a note; NULL: the message is for sim_io_receive. */
const void *sim_io_note_in(const struct sim_message *m);
/* A message of another node's sim_io. */
void sim_io_receive(struct sim_io *io, struct sim_message *m);
/* Tells the library that its messages are out. After every use of the library. */
void sim_io_flush(struct sim_io *io);
/* The process ends, by `failed`, before it sends a snapshot; or it does not. */
void sim_io_withhold_snapshots(struct sim_io *io, bool withhold);
/* The process ends: nothing that it still does is seen. */
void sim_io_stop(struct sim_io *io);
/* The process is gone, or even the power: what was under way to the disk gets there or
 * not. */
void sim_io_crash(struct sim_io *io, bool power);
void sim_io_free(struct sim_io *io);

#endif
