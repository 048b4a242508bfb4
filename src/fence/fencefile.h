/* SPDX-License-Identifier: MIT */
/*
 * The fence of one file: a small file beside it, ".NAME.fence", that remembers the state
 * of the fence and is the lock by which writers take turns.
 *
 *     picket-fence 1 seq 7 token 42 shadow 0 shadowed 0 check 1f0c...
 *
 * stands in two slots, at offsets 0 and 512, written by turns and synced: after a crash
 * at any point at least one of them is whole, and the newer whole one counts. The file
 * appears whole (it is made under another name and linked), so one without a whole slot
 * is damaged and never mistaken for "nobody has claimed yet".
 *
 * The lock guards what must be one step: reading the state, changing it, and putting a
 * new file in place. It is held for nothing else, since a holder may be paused in it.
 */
#ifndef PICKET_FENCE_FENCEFILE_H
#define PICKET_FENCE_FENCEFILE_H

#include <picket_fence.h>
#include <stdbool.h>

enum {
    PK_FENCEFILE_NAME_MAX = 256,      /* what a file system takes, with a NUL */
    PK_FENCEFILE_PATIENCE_MS = 10000, /* for a turn */
    PK_FENCEFILE_BYTES = 1024,        /* both slots */
};

/* A file that is fenced: where it is, by a descriptor, so that a change of the working
 * directory or of a parent's name does not lead elsewhere. */
struct pk_fenced {
    int dir_fd;
    char base[PK_FENCEFILE_NAME_MAX];  /* the file's own name */
    char fence[PK_FENCEFILE_NAME_MAX]; /* its fence's */
    char path[512];                    /* for people; cut if need be */
};

/* A link is followed: the file it leads to is the one that is fenced. */
enum picket_status pk_fenced_open(const char *path, struct pk_fenced *out);
void pk_fenced_close(struct pk_fenced *p);
/* What errno says about a deed at that place, as a status. */
enum picket_status pk_fenced_cannot(const struct pk_fenced *p, const char *deed);

struct pk_fencefile {
    int fd; /* with the lock; -1: none */
    uint64_t seq;
    struct picket_fence_state state;
};

/* The state in a fence's bytes: that of the newer whole slot. False: none is whole. */
bool pk_fencefile_parse(const char slots[PK_FENCEFILE_BYTES], struct pk_fencefile *out);

/* Reads the state without a turn; OK with seq 0 when there is no fence yet. */
enum picket_status pk_fencefile_look(const struct pk_fenced *p, struct pk_fencefile *out);
/* Takes the turn, making the fence if there is none, and reads the state. */
enum picket_status pk_fencefile_enter(const struct pk_fenced *p,
                                      struct pk_fencefile *out);
/* Makes `state` the state, durably. */
enum picket_status pk_fencefile_write(const struct pk_fenced *p, struct pk_fencefile *f,
                                      const struct picket_fence_state *state);
void pk_fencefile_leave(struct pk_fencefile *f);

#endif
