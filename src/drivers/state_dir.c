/* SPDX-License-Identifier: MIT */
#include "drivers/state_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/error.h"

enum {
    PRIVATE_FILE = 0600,
    SHARED_FILE = 0660,
    PRIVATE_DIR = 0700,
    SHARED_DIR = S_ISGID | 0770,
    NAME_ROOM = 64,
};

static bool is_shared(const struct stat *st)
{
    return (st->st_mode & S_ISGID) != 0 && (st->st_mode & S_IWGRP) != 0;
}

enum picket_status pk_state_dir_read(int dir_fd, const char *path,
                                     struct pk_state_dir *out)
{
    struct stat st;
    if (fstat(dir_fd, &st) != 0) {
        return pk_fail(PICKET_STORE, "can't look at %s: %s", path, strerror(errno));
    }
    bool sticky = (st.st_mode & S_ISVTX) != 0;
    *out = (struct pk_state_dir){.owner = st.st_uid, .group = st.st_gid};
    out->shared = is_shared(&st);
    out->open = (st.st_mode & S_IWOTH) != 0;
    if (out->open && (!sticky || out->shared)) {
        return pk_fail(PICKET_DENIED,
                       "everybody may replace files in %s, and so nobody can trust them: "
                       "run 'chmod o-w %s'; a store of several users is a group's, made "
                       "by '" PK_STATE_DIR_HOW " DIR'",
                       path, path);
    }
    if (out->shared && sticky) {
        return pk_fail(PICKET_DENIED,
                       "the sticky bit of %s keeps members of its group from writing its "
                       "journal anew: run 'chmod -t %s'",
                       path, path);
    }
    return PICKET_OK;
}

void pk_state_dir_give(const struct pk_state_dir *d, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || (st.st_uid != geteuid() && geteuid() != 0)) {
        return; /* not ours to give */
    }
    bool directory = S_ISDIR(st.st_mode);
    mode_t wanted = d->shared   ? (directory ? SHARED_DIR : SHARED_FILE)
                    : directory ? PRIVATE_DIR
                                : PRIVATE_FILE;
    /* Fails only where the file is not ours after all; then its owner has seen to it. */
    bool given =
        (!d->shared || st.st_gid == d->group || fchown(fd, (uid_t)-1, d->group) == 0) &&
        ((st.st_mode & wanted) == wanted || fchmod(fd, wanted) == 0);
    (void)given;
}

enum picket_status pk_state_dir_trust(const struct pk_state_dir *d, int fd,
                                      const char *path)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return pk_fail(PICKET_STORE, "can't look at %s: %s", path, strerror(errno));
    }
    bool known =
        !d->open || st.st_uid == geteuid() || st.st_uid == d->owner || st.st_uid == 0;
    return known ? PICKET_OK
                 : pk_fail(PICKET_DENIED,
                           "files in %s belong to user %u, who is neither you nor the "
                           "directory's owner: use a directory of your own, or one of a "
                           "group, made by '" PK_STATE_DIR_HOW " DIR'",
                           path, (unsigned)st.st_uid);
}

bool pk_state_dir_machine(void)
{
    struct stat st;
    return stat(PK_STATE_DIR_MACHINE, &st) == 0 && S_ISDIR(st.st_mode) &&
           st.st_uid == 0 && is_shared(&st) &&
           faccessat(AT_FDCWD, PK_STATE_DIR_MACHINE, R_OK | W_OK | X_OK, AT_EACCESS) == 0;
}

static const char *user_name(uid_t id, char out[NAME_ROOM])
{
    char room[1024];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(id, &entry, room, sizeof room, &found) == 0 && found != NULL) {
        (void)snprintf(out, NAME_ROOM, "%s", entry.pw_name);
    } else {
        (void)snprintf(out, NAME_ROOM, "%u", (unsigned)id);
    }
    return out;
}

static const char *group_name(gid_t id, char out[NAME_ROOM])
{
    char room[4096];
    struct group entry, *found = NULL;
    if (getgrgid_r(id, &entry, room, sizeof room, &found) == 0 && found != NULL) {
        (void)snprintf(out, NAME_ROOM, "%s", entry.gr_name);
    } else {
        (void)snprintf(out, NAME_ROOM, "%u", (unsigned)id);
    }
    return out;
}

void pk_state_dir_examine(const struct pk_state_dir *d, const char *path,
                          struct pk_findings *out)
{
    char name[NAME_ROOM];
    if (d->shared) {
        pk_findings_add(out, PK_FINE, "shared",
                        "locks in %s hold for all members of group \"%s\"", path,
                        group_name(d->group, name));
    } else {
        pk_findings_add(out, PK_NOTE, "one-user",
                        "locks in %s hold for user \"%s\" alone: other users of this "
                        "machine don't see them; a store for all is made by "
                        "'" PK_STATE_DIR_HOW " " PK_STATE_DIR_MACHINE "'",
                        path, user_name(d->owner, name));
    }
}
