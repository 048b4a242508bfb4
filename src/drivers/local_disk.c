/* SPDX-License-Identifier: MIT */
#include "drivers/local_disk.h"

#include <errno.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/statfs.h>

#include "client/error.h"

enum {
    ROOM_MIN_BYTES = 16 * 1024 * 1024, /* a journal that is rewritten is there twice */
};

enum place { DISK, MEMORY, NETWORK, LAYER };

static enum place place_of(const struct statfs *fs)
{
    switch ((uint32_t)fs->f_type) {
    case TMPFS_MAGIC:
    case RAMFS_MAGIC:
        return MEMORY;
    case NFS_SUPER_MAGIC:
    case SMB_SUPER_MAGIC:
    case SMB2_SUPER_MAGIC:
    case CIFS_SUPER_MAGIC:
    case V9FS_MAGIC:
    case CEPH_SUPER_MAGIC:
    case AFS_SUPER_MAGIC:
    case FUSE_SUPER_MAGIC:
        return NETWORK;
    case OVERLAYFS_SUPER_MAGIC:
        return LAYER;
    default:
        return DISK;
    }
}

static void judge_place(enum place place, const char *path, struct pk_findings *out)
{
    switch (place) {
    case MEMORY:
        pk_findings_add(out, PK_UNSAFE, "memory-only",
                        "%s is in memory: a reboot forgets it, and tokens begin at 1 "
                        "again; say local:DIR with a directory on a disk",
                        path);
        break;
    case NETWORK:
        pk_findings_add(out, PK_UNSAFE, "network-disk",
                        "%s may be shared with other machines, whose clocks and file "
                        "locks are not ours: two holders are possible; use a local "
                        "disk, or picket:// for several machines",
                        path);
        break;
    case LAYER:
        pk_findings_add(out, PK_NOTE, "container-layer",
                        "%s is in a container's own layer: no other container sees it, "
                        "and it goes with this one; mount a volume there if that is not "
                        "meant",
                        path);
        break;
    case DISK:
        pk_findings_add(out, PK_FINE, "disk", "%s is on a disk of this machine", path);
        break;
    }
}

enum picket_status pk_local_disk_examine(int dir_fd, const char *path,
                                         struct pk_findings *out)
{
    struct statfs fs;
    if (fstatfs(dir_fd, &fs) != 0) {
        return pk_fail(PICKET_STORE, "can't look at %s: %s", path, strerror(errno));
    }
    judge_place(place_of(&fs), path, out);
    uint64_t room = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
    if (room < ROOM_MIN_BYTES) {
        pk_findings_add(out, PK_NOTE, "little-room",
                        "%s has %llu KiB left: when it is full, leases can't be renewed "
                        "and locks are lost; make room",
                        path, (unsigned long long)(room / 1024));
    } else {
        pk_findings_add(out, PK_FINE, "room", "there is room for the journal to grow");
    }
    return PICKET_OK;
}
