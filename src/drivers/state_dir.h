/* SPDX-License-Identifier: MIT */
/*
 * Whose an embedded store is: its directory says so.
 *
 *     mode                            whose                      files
 *     not writable by others          the owner's alone          0600
 *     setgid and writable by the      the group's: all members   0660, of that group
 *     group: 2770, 2775               exclude each other
 *     writable by everybody, sticky   whoever made the files     0600
 *     writable by everybody           refused: anybody may replace the journal
 *     setgid, group and sticky        refused: members could not compact the journal
 *
 * Where everybody may make files, those of strangers (neither ours, nor root's, nor the
 * directory owner's) are refused too: who owns the journal decides who holds.
 */
#ifndef PICKET_DRIVERS_STATE_DIR_H
#define PICKET_DRIVERS_STATE_DIR_H

#include <picket.h>
#include <stdbool.h>
#include <sys/types.h>

#include "client/findings.h"

/* The store of the whole machine, if its admin has made one. */
#define PK_STATE_DIR_MACHINE "/var/lib/picket"
#define PK_STATE_DIR_HOW "install -d -m 2770 -g GROUP"

struct pk_state_dir {
    uid_t owner;
    gid_t group;
    bool shared; /* by the group */
    bool open;   /* everybody may make files in it */
};

/* Reads whose the open directory is. DENIED, with a sentence, if it is refused. */
enum picket_status pk_state_dir_read(int dir_fd, const char *path,
                                     struct pk_state_dir *out);
/* Gives a file or directory of ours, open as `fd`, to those whose the store is. */
void pk_state_dir_give(const struct pk_state_dir *d, int fd);
/* OK, or DENIED if the open file is a stranger's. */
enum picket_status pk_state_dir_trust(const struct pk_state_dir *d, int fd,
                                      const char *path);
/* Whether there is a store of the machine that we may use. */
bool pk_state_dir_machine(void);

/* For `picket doctor`: for whom locks in this directory hold. */
void pk_state_dir_examine(const struct pk_state_dir *d, const char *path,
                          struct pk_findings *out);

#endif
