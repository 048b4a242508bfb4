/* SPDX-License-Identifier: MIT */
/*
 * A disk of a node, in memory: the files that the real log store (raft/store.h) makes.
 *
 * An operation takes effect when the world finishes it. A crash finds others under way:
 * of each of their sectors the old content is there or the new one. A power cut also
 * takes what was noted and not synced. Damage on purpose: flipped bits, zeroed sectors,
 * cut and lost files. Errors on purpose: an operation fails, the disk is full.
 */
#ifndef PICKET_SIM_DISK_H
#define PICKET_SIM_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "raft/disk.h"
#include "rng.h"

enum { SIM_FILES_MAX = 64, SIM_DISK_KINDS = PK_DISK_SYNC + 1 };

struct sim_file {
    char name[PK_DISK_NAME_MAX];
    unsigned char *bytes;
    size_t len, capacity;
    unsigned char *synced; /* before what was noted or written since; NULL: nothing is */
    size_t synced_len;
};

struct sim_disk {
    struct pk_disk disk;
    struct sim_file files[SIM_FILES_MAX];
    uint32_t n_files;
    struct pk_disk_op *under_way;
    bool full;
    bool overstates;     /* a full disk reports room for new files all the same */
    int fail_in;         /* operations until one fails; 0: none will */
    unsigned fail_kinds; /* bits of pk_disk_kind: those that count and fail; 0: all */
    uint64_t failed[SIM_DISK_KINDS];                /* by kind */
    uint64_t no_space_segments, no_space_snapshots; /* stores that lacked room */
    uint64_t torn, lost; /* sectors of crashes: operations cut in two, and lost whole */
    /* An operation has been begun: sim_disk_finish is to be called for it later. */
    void (*begun)(void *ctx, struct pk_disk_op *op);
    void *ctx;
};

void sim_disk_init(struct sim_disk *d);
void sim_disk_free(struct sim_disk *d);
void sim_disk_finish(struct sim_disk *d, struct pk_disk_op *op);
/* The process is gone, and with it what was under way; or even the power. */
void sim_disk_crash(struct sim_disk *d, struct rng *rng, bool power);
/* Forgets everything: an empty disk in the place of this one. */
void sim_disk_wipe(struct sim_disk *d);

struct sim_file *sim_disk_find(struct sim_disk *d, const char *name);

enum sim_damage {
    SIM_FLIP, /* one bit */
    SIM_ZERO, /* one sector */
    SIM_CUT,  /* the end of the file */
    SIM_LOSE, /* the whole file */
    SIM_DAMAGES
};
/* Damages a file somewhere. */
void sim_disk_damage(struct sim_disk *d, struct sim_file *f, enum sim_damage how,
                     struct rng *rng);

#endif
