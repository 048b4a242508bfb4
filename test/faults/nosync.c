/* SPDX-License-Identifier: MIT */
/*
 * A library for LD_PRELOAD under which no file is ever synced: the control of tests with
 * power cuts, which must lose something under it.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

enum { SYNCED = O_SYNC | O_DSYNC | O_DIRECT };

PUBLIC int fsync(int fd)
{
    (void)fd;
    return 0;
}

PUBLIC int fdatasync(int fd)
{
    (void)fd;
    return 0;
}

PUBLIC int openat(int folder, const char *path, int flags, ...)
{
    int (*next)(int, const char *, int, ...);
    *(void **)&next = dlsym(RTLD_NEXT, "openat");
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    return next(folder, path, flags & ~SYNCED, mode);
}

PUBLIC int openat64(int folder, const char *path, int flags, ...)
    __attribute__((alias("openat")));
