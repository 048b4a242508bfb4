/* SPDX-License-Identifier: MIT */
/*
 * A library for LD_PRELOAD that makes one call of the C library fail. faults.py runs
 * programs under it.
 *
 *     PICKET_INJECT_EXE=PATH    the program to act in; in every other one nothing happens
 *     PICKET_INJECT_PAGE=FILE   a struct page, shared by the program and all its forks
 *     PICKET_INJECT=CLASS:N:FAULT[:on]
 *                               call number N (from 1) of that class gets the fault;
 *                               with ":on", every later call of the class gets it too
 *
 * Classes and their faults:
 *     alloc    memory, if our own code asks for it        none
 *     theirs   memory, if another library asks for it     none
 *     read     read, recv and the like                    short, EINTR, reset, EIO
 *     write    write, send and the like                   short, EINTR, reset, EIO
 *     connect  connect                                    ECONNREFUSED, EINTR, ...
 *     fd       calls that make a descriptor               EMFILE, ENFILE
 *     wait     poll, epoll_wait, flock, waitpid and such  EINTR
 *     sync     fsync, fdatasync                           EIO, ENOSPC
 *     dirsync  fsync of a directory                       EIO
 *     datasync fdatasync alone                            EIO, ENOSPC
 *
 * A class counts a call only where its fault is possible: `short` where more than one
 * byte is wanted from a file, pipe or stream socket, `reset` on TCP sockets, `EIO` on
 * files.
 * A reset also shuts the socket down, so that later calls agree with the fault.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))
#define CALLER ((uintptr_t)__builtin_return_address(0))

enum class {
    ALLOC,
    THEIRS,
    READ,
    WRITE,
    CONNECT,
    FD,
    WAIT,
    SYNC,
    DIRSYNC,
    DATASYNC,
    CLASSES
};
static const char *const class_names[CLASSES] = {"alloc",   "theirs",  "read", "write",
                                                 "connect", "fd",      "wait", "sync",
                                                 "dirsync", "datasync"};

/* faults.py reads the same layout. */
struct page {
    _Atomic uint64_t counts[CLASSES];
    _Atomic uint64_t injected;
    _Atomic uint64_t crash_signal;
    _Atomic uint64_t live; /* blocks of ours at the end of the first process */
    uint64_t live_offset[8];
    char where[256]; /* function, module and offset of the faulty call */
    char crash[1024];
};

enum fault { SHORT = -1, RESET = -2 }; /* else an errno */

enum { RANGES_MAX = 16, BLOCKS = 1 << 16 };

static struct page *page; /* NULL: not in this program */
static enum class chosen = CLASSES;
static int fault;
static uint64_t at;
static bool persistent;
static struct {
    uintptr_t from, to;
} ours[RANGES_MAX];
static size_t n_ours;
static uintptr_t base_of_ours;
static pid_t first_process;

/* ---- whose call it is ---- */

static bool is_ours(uintptr_t caller)
{
    for (size_t i = 0; i < n_ours; i++) {
        if (caller >= ours[i].from && caller < ours[i].to) {
            return true;
        }
    }
    return false;
}

static int add_module(struct dl_phdr_info *info, size_t size, void *ctx)
{
    (void)size;
    (void)ctx;
    bool program = info->dlpi_name[0] == '\0';
    if (!program && strstr(info->dlpi_name, "/libpicket.so") == NULL) {
        return 0;
    }
    base_of_ours = program ? info->dlpi_addr : base_of_ours;
    for (int i = 0; i < info->dlpi_phnum && n_ours < RANGES_MAX; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && (p->p_flags & PF_X) != 0) {
            ours[n_ours].from = info->dlpi_addr + p->p_vaddr;
            ours[n_ours++].to = info->dlpi_addr + p->p_vaddr + p->p_memsz;
        }
    }
    return 0;
}

static void describe(char *out, size_t size, const char *function, uintptr_t caller)
{
    Dl_info info;
    if (dladdr((void *)caller, &info) != 0 && info.dli_fname != NULL) {
        const char *slash = strrchr(info.dli_fname, '/');
        (void)snprintf(out, size, "%s by %s+0x%lx", function,
                       slash == NULL ? info.dli_fname : slash + 1,
                       (unsigned long)(caller - (uintptr_t)info.dli_fbase));
    }
}

/* Counts a call, and says whether it is the one that fails. */
static bool strikes(enum class c, const char *function, uintptr_t caller)
{
    if (page == NULL) {
        return false;
    }
    uint64_t n = atomic_fetch_add(&page->counts[c], 1) + 1;
    if (c != chosen || (persistent ? n < at : n != at)) {
        return false;
    }
    if (atomic_fetch_add(&page->injected, 1) == 0) {
        describe(page->where, sizeof page->where, function, caller);
    }
    return true;
}

/* ---- memory ---- */

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void __libc_free(void *p);

static struct {
    void *block;
    uintptr_t caller;
} blocks[BLOCKS];
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;

static void born(void *p, uintptr_t caller)
{
    if (page == NULL || p == NULL || !is_ours(caller)) {
        return;
    }
    (void)pthread_mutex_lock(&blocks_lock);
    size_t i = ((uintptr_t)p >> 4) % BLOCKS;
    for (size_t tries = 0; tries < BLOCKS; tries++, i = (i + 1) % BLOCKS) {
        if (blocks[i].block == NULL || blocks[i].block == (void *)1) {
            blocks[i].block = p;
            blocks[i].caller = caller;
            break;
        }
    }
    (void)pthread_mutex_unlock(&blocks_lock);
}

static void dead(const void *p)
{
    if (page == NULL || p == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&blocks_lock);
    size_t i = ((uintptr_t)p >> 4) % BLOCKS;
    for (size_t tries = 0; tries < BLOCKS && blocks[i].block != NULL; tries++) {
        if (blocks[i].block == p) {
            blocks[i].block = (void *)1; /* was in use: a search goes on behind it */
            break;
        }
        i = (i + 1) % BLOCKS;
    }
    (void)pthread_mutex_unlock(&blocks_lock);
}

static void before_fork(void)
{
    (void)pthread_mutex_lock(&blocks_lock);
}

static void after_fork(void)
{
    (void)pthread_mutex_unlock(&blocks_lock);
}

/* True with errno set if this allocation is to fail. */
static bool starve(const char *function, uintptr_t caller)
{
    if (page == NULL || !strikes(is_ours(caller) ? ALLOC : THEIRS, function, caller)) {
        return false;
    }
    errno = ENOMEM;
    return true;
}

PUBLIC void *malloc(size_t size)
{
    if (starve("malloc", CALLER)) {
        return NULL;
    }
    void *p = __libc_malloc(size);
    born(p, CALLER);
    return p;
}

PUBLIC void *calloc(size_t n, size_t size)
{
    if (starve("calloc", CALLER)) {
        return NULL;
    }
    void *p = __libc_calloc(n, size);
    born(p, CALLER);
    return p;
}

PUBLIC void *realloc(void *old, size_t size)
{
    if (starve("realloc", CALLER)) {
        return NULL;
    }
    dead(old);
    void *p = __libc_realloc(old, size);
    born(p, CALLER);
    return p;
}

PUBLIC void free(void *p)
{
    dead(p);
    __libc_free(p);
}

#define NEXT(name)                                                                       \
    static __typeof__(&name) next;                                                       \
    if (next == NULL) {                                                                  \
        *(void **)&next = dlsym(RTLD_NEXT, #name);                                       \
    }

/* What the C library allocates for a caller counts where the caller is ours. */

PUBLIC char *strdup(const char *s)
{
    size_t len = strlen(s) + 1;
    char *p = starve("strdup", CALLER) ? NULL : __libc_malloc(len);
    born(p, CALLER);
    return p == NULL ? NULL : memcpy(p, s, len);
}

PUBLIC char *strndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *p = starve("strndup", CALLER) ? NULL : __libc_malloc(len + 1);
    born(p, CALLER);
    if (p != NULL) {
        memcpy(p, s, len);
        p[len] = '\0';
    }
    return p;
}

static int print(char **out, const char *format, va_list args, uintptr_t caller)
{
    va_list again;
    if (starve("asprintf", caller)) {
        return -1; /* and *out is undefined, as documented */
    }
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *p = len < 0 ? NULL : __libc_malloc((size_t)len + 1);
    if (p == NULL) {
        return -1;
    }
    (void)vsnprintf(p, (size_t)len + 1, format, args);
    born(p, caller);
    *out = p;
    return len;
}

int __asprintf_chk(char **out, int flag, const char *format, ...);
int __vasprintf_chk(char **out, int flag, const char *format, va_list args);

PUBLIC int __asprintf_chk(char **out, int flag, const char *format, ...)
{
    (void)flag;
    va_list args;
    va_start(args, format);
    int n = print(out, format, args, CALLER);
    va_end(args);
    return n;
}

PUBLIC int asprintf(char **out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = print(out, format, args, CALLER);
    va_end(args);
    return n;
}

PUBLIC int __vasprintf_chk(char **out, int flag, const char *format, va_list args)
{
    (void)flag;
    return print(out, format, args, CALLER);
}

PUBLIC int vasprintf(char **out, const char *format, va_list args)
{
    return print(out, format, args, CALLER);
}

PUBLIC char *getcwd(char *room, size_t size)
{
    NEXT(getcwd)
    return room == NULL && starve("getcwd", CALLER) ? NULL : next(room, size);
}

PUBLIC char *realpath(const char *path, char *room)
{
    NEXT(realpath)
    return room == NULL && starve("realpath", CALLER) ? NULL : next(path, room);
}

PUBLIC FILE *open_memstream(char **out, size_t *len)
{
    NEXT(open_memstream)
    return starve("open_memstream", CALLER) ? NULL : next(out, len);
}

PUBLIC int setenv(const char *name, const char *value, int replace)
{
    NEXT(setenv)
    return starve("setenv", CALLER) ? -1 : next(name, value, replace);
}

PUBLIC int getaddrinfo(const char *host, const char *service,
                       const struct addrinfo *hints, struct addrinfo **out)
{
    NEXT(getaddrinfo)
    return starve("getaddrinfo", CALLER) ? EAI_MEMORY : next(host, service, hints, out);
}

PUBLIC int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *),
                          void *arg)
{
    NEXT(pthread_create)
    return starve("pthread_create", CALLER) ? EAGAIN : next(t, a, f, arg);
}

/* ---- descriptors ---- */

static bool no_descriptor(const char *function, uintptr_t caller)
{
    if (!strikes(FD, function, caller)) {
        return false;
    }
    errno = fault;
    return true;
}

static mode_t mode_of(int flags, va_list args)
{
    return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
}

#define OPEN(name)                                                                       \
    PUBLIC int name(const char *path, int flags, ...)                                    \
    {                                                                                    \
        NEXT(name)                                                                       \
        va_list args;                                                                    \
        va_start(args, flags);                                                           \
        mode_t mode = mode_of(flags, args);                                              \
        va_end(args);                                                                    \
        return no_descriptor(#name, CALLER) ? -1 : next(path, flags, mode);              \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                     \
    PUBLIC int name(int dir, const char *path, int flags, ...)                           \
    {                                                                                    \
        NEXT(name)                                                                       \
        va_list args;                                                                    \
        va_start(args, flags);                                                           \
        mode_t mode = mode_of(flags, args);                                              \
        va_end(args);                                                                    \
        return no_descriptor(#name, CALLER) ? -1 : next(dir, path, flags, mode);         \
    }
OPENAT(openat)
OPENAT(openat64)

#define FCNTL(name)                                                                      \
    PUBLIC int name(int fd, int what, ...)                                               \
    {                                                                                    \
        NEXT(name)                                                                       \
        va_list args;                                                                    \
        va_start(args, what);                                                            \
        void *arg = va_arg(args, void *);                                                \
        va_end(args);                                                                    \
        bool copies = what == F_DUPFD || what == F_DUPFD_CLOEXEC;                        \
        return copies && no_descriptor(#name, CALLER) ? -1 : next(fd, what, arg);        \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

/* A call that makes a descriptor, or a pointer with one in it. */
#define MAKES(type, none, name, parameters, arguments)                                   \
    PUBLIC type name parameters                                                          \
    {                                                                                    \
        NEXT(name)                                                                       \
        return no_descriptor(#name, CALLER) ? none : next arguments;                     \
    }
MAKES(FILE *, NULL, fopen, (const char *path, const char *mode), (path, mode))
MAKES(FILE *, NULL, fopen64, (const char *path, const char *mode), (path, mode))
MAKES(DIR *, NULL, opendir, (const char *path), (path))
MAKES(int, -1, socket, (int domain, int type, int protocol), (domain, type, protocol))
MAKES(int, -1, socketpair, (int domain, int type, int protocol, int fds[2]),
      (domain, type, protocol, fds))
MAKES(int, -1, accept4, (int fd, struct sockaddr *a, socklen_t *len, int flags),
      (fd, a, len, flags))
MAKES(int, -1, accept, (int fd, struct sockaddr *a, socklen_t *len), (fd, a, len))
MAKES(int, -1, pipe, (int fds[2]), (fds))
MAKES(int, -1, pipe2, (int fds[2], int flags), (fds, flags))
MAKES(int, -1, dup, (int fd), (fd))
MAKES(int, -1, epoll_create1, (int flags), (flags))
MAKES(int, -1, eventfd, (unsigned int value, int flags), (value, flags))
MAKES(int, -1, timerfd_create, (clockid_t clock, int flags), (clock, flags))
MAKES(int, -1, inotify_init1, (int flags), (flags))
MAKES(int, -1, memfd_create, (const char *name, unsigned int flags), (name, flags))
MAKES(int, -1, signalfd, (int fd, const sigset_t *mask, int flags), (fd, mask, flags))

PUBLIC int connect(int fd, const struct sockaddr *a, socklen_t len)
{
    NEXT(connect)
    if (a->sa_family != AF_UNIX && strikes(CONNECT, "connect", CALLER)) {
        errno = fault;
        return -1;
    }
    return next(fd, a, len);
}

/* ---- bytes ---- */

static bool is_tcp(int fd)
{
    int domain = 0;
    socklen_t len = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
           (domain == AF_INET || domain == AF_INET6);
}

/* A message is moved whole or not at all. */
static bool keeps_messages(int fd)
{
    int type = SOCK_STREAM;
    socklen_t len = sizeof type;
    (void)getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len);
    return type != SOCK_STREAM;
}

static bool possible(int fd, size_t len)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return false;
    }
    bool stream = S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode) ||
                  (S_ISSOCK(st.st_mode) && !keeps_messages(fd));
    /* A pipe takes a small write whole. */
    bool whole = S_ISFIFO(st.st_mode) && chosen == WRITE && len <= PIPE_BUF;
    switch (fault) {
    case SHORT:
        return stream && !whole && len > 1;
    case RESET:
        return is_tcp(fd);
    case EIO:
        return S_ISREG(st.st_mode);
    default:
        return true;
    }
}

enum verdict { PASS, CUT, FAIL };

/* What happens to a call that moves `len` bytes. While no class of bytes is chosen, the
 * counts are of no use. */
static enum verdict bytes(enum class c, int fd, size_t len, const char *function,
                          uintptr_t caller)
{
    if (page == NULL || chosen != c || !possible(fd, len) ||
        !strikes(c, function, caller)) {
        return PASS;
    }
    if (fault == SHORT) {
        return CUT;
    }
    if (fault == RESET) {
        (void)shutdown(fd, SHUT_RDWR);
        errno = ECONNRESET;
    } else {
        errno = fault;
    }
    return FAIL;
}

static size_t half(size_t len)
{
    return (len + 1) / 2;
}

#define MOVES(class, name, parameters, shorter, arguments)                               \
    PUBLIC ssize_t name parameters                                                       \
    {                                                                                    \
        NEXT(name)                                                                       \
        enum verdict v = bytes(class, fd, len, #name, CALLER);                           \
        if (v == CUT) {                                                                  \
            shorter;                                                                     \
        }                                                                                \
        return v == FAIL ? -1 : next arguments;                                          \
    }
#define SHORTER len = half(len)
MOVES(READ, read, (int fd, void *to, size_t len), SHORTER, (fd, to, len))
MOVES(READ, recv, (int fd, void *to, size_t len, int flags), SHORTER,
      (fd, to, len, flags))
MOVES(READ, recvfrom,
      (int fd, void *to, size_t len, int flags, struct sockaddr *a, socklen_t *n),
      SHORTER, (fd, to, len, flags, a, n))
MOVES(READ, pread, (int fd, void *to, size_t len, off_t from), SHORTER,
      (fd, to, len, from))
MOVES(READ, pread64, (int fd, void *to, size_t len, off64_t from), SHORTER,
      (fd, to, len, from))
MOVES(WRITE, write, (int fd, const void *from, size_t len), SHORTER, (fd, from, len))
MOVES(WRITE, send, (int fd, const void *from, size_t len, int flags), SHORTER,
      (fd, from, len, flags))
MOVES(WRITE, sendto,
      (int fd, const void *from, size_t len, int flags, const struct sockaddr *a,
       socklen_t n),
      SHORTER, (fd, from, len, flags, a, n))
MOVES(WRITE, pwrite, (int fd, const void *from, size_t len, off_t to), SHORTER,
      (fd, from, len, to))
MOVES(WRITE, pwrite64, (int fd, const void *from, size_t len, off64_t to), SHORTER,
      (fd, from, len, to))

static size_t total(const struct iovec *v, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        len += v[i].iov_len;
    }
    return len;
}

/* The first piece, or half of it. */
static struct iovec first(const struct iovec *v, size_t n)
{
    size_t i = 0;
    while (i + 1 < n && v[i].iov_len == 0) {
        i++;
    }
    return (struct iovec){v[i].iov_base, half(v[i].iov_len)};
}

#define MOVES_VECTOR(class, name)                                                        \
    PUBLIC ssize_t name(int fd, const struct iovec *v, int n)                            \
    {                                                                                    \
        NEXT(name)                                                                       \
        enum verdict is = bytes(class, fd, total(v, (size_t)n), #name, CALLER);          \
        struct iovec piece;                                                              \
        if (is == CUT) {                                                                 \
            piece = first(v, (size_t)n);                                                 \
            return next(fd, &piece, 1);                                                  \
        }                                                                                \
        return is == FAIL ? -1 : next(fd, v, n);                                         \
    }
MOVES_VECTOR(READ, readv)
MOVES_VECTOR(WRITE, writev)

#define MOVES_MESSAGE(class, name, constant)                                             \
    PUBLIC ssize_t name(int fd, constant struct msghdr *m, int flags)                    \
    {                                                                                    \
        NEXT(name)                                                                       \
        size_t len = total(m->msg_iov, m->msg_iovlen);                                   \
        enum verdict is = bytes(class, fd, len, #name, CALLER);                          \
        if (is == CUT) {                                                                 \
            struct msghdr shorter = *m;                                                  \
            struct iovec piece = first(m->msg_iov, m->msg_iovlen);                       \
            shorter.msg_iov = &piece;                                                    \
            shorter.msg_iovlen = 1;                                                      \
            return next(fd, &shorter, flags);                                            \
        }                                                                                \
        return is == FAIL ? -1 : next(fd, m, flags);                                     \
    }
#define NOT_CONSTANT
MOVES_MESSAGE(READ, recvmsg, NOT_CONSTANT)
MOVES_MESSAGE(WRITE, sendmsg, const)

/* ---- waits and syncs ---- */

#define FAILS(class, name, parameters, arguments)                                        \
    PUBLIC int name parameters                                                           \
    {                                                                                    \
        NEXT(name)                                                                       \
        if (strikes(class, #name, CALLER)) {                                             \
            errno = fault;                                                               \
            return -1;                                                                   \
        }                                                                                \
        return next arguments;                                                           \
    }
FAILS(WAIT, poll, (struct pollfd * fds, nfds_t n, int ms), (fds, n, ms))
FAILS(WAIT, ppoll,
      (struct pollfd * fds, nfds_t n, const struct timespec *t, const sigset_t *mask),
      (fds, n, t, mask))
int __poll_chk(struct pollfd *fds, nfds_t n, int ms, size_t room);
FAILS(WAIT, __poll_chk, (struct pollfd * fds, nfds_t n, int ms, size_t room),
      (fds, n, ms, room))
FAILS(WAIT, epoll_wait, (int fd, struct epoll_event *e, int n, int ms), (fd, e, n, ms))
FAILS(WAIT, epoll_pwait,
      (int fd, struct epoll_event *e, int n, int ms, const sigset_t *mask),
      (fd, e, n, ms, mask))
FAILS(WAIT, flock, (int fd, int what), (fd, what))
FAILS(WAIT, nanosleep, (const struct timespec *t, struct timespec *left), (t, left))
PUBLIC pid_t waitpid(pid_t pid, int *status, int options)
{
    NEXT(waitpid)
    if (strikes(WAIT, "waitpid", CALLER)) {
        errno = fault;
        return -1;
    }
    return next(pid, status, options);
}
PUBLIC int fsync(int fd)
{
    NEXT(fsync)
    struct stat st;
    bool folder = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
    bool struck = folder && strikes(DIRSYNC, "fsync", CALLER);
    if (strikes(SYNC, "fsync", CALLER) || struck) {
        errno = fault;
        return -1;
    }
    return next(fd);
}
PUBLIC int fdatasync(int fd)
{
    NEXT(fdatasync)
    bool struck = strikes(DATASYNC, "fdatasync", CALLER);
    if (strikes(SYNC, "fdatasync", CALLER) || struck) {
        errno = fault;
        return -1;
    }
    return next(fd);
}

/* ---- beginning and end ---- */

/* Which module the program crashed in, for the report. Addresses on the stack that lie
 * in code of ours tell where the call came from. */
static void crashed(int number, siginfo_t *info, void *ctx)
{
    const ucontext_t *u = ctx;
    (void)info;
    atomic_store(&page->crash_signal, (uint64_t)number);
#if defined(__x86_64__)
    describe(page->crash, sizeof page->crash, strsignal(number),
             (uintptr_t)u->uc_mcontext.gregs[REG_RIP]);
    const uintptr_t *stack = (const uintptr_t *)u->uc_mcontext.gregs[REG_RSP];
    size_t used = strlen(page->crash);
    for (int i = 0, n = 0; i < 200 && n < 8; i++) {
        if (is_ours(stack[i])) {
            used += (size_t)snprintf(page->crash + used, sizeof page->crash - used,
                                     " 0x%lx", (unsigned long)(stack[i] - base_of_ours));
            n++;
        }
    }
#else
    (void)u;
#endif
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

static void parse(const char *text)
{
    char copy[128];
    char *save = NULL;
    (void)snprintf(copy, sizeof copy, "%s", text);
    const char *name = strtok_r(copy, ":", &save);
    const char *number = strtok_r(NULL, ":", &save);
    const char *kind = strtok_r(NULL, ":", &save);
    persistent = strtok_r(NULL, ":", &save) != NULL;
    static const struct {
        const char *name;
        int fault;
    } kinds[] = {
        {"none", 0},        {"short", SHORT},   {"reset", RESET},
        {"EINTR", EINTR},   {"EIO", EIO},       {"EMFILE", EMFILE},
        {"ENFILE", ENFILE}, {"EAGAIN", EAGAIN}, {"ECONNREFUSED", ECONNREFUSED},
        {"ENOSPC", ENOSPC},
    };
    for (size_t i = 0; kind != NULL && i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].name, kind) == 0) {
            fault = kinds[i].fault;
            at = strtoull(number, NULL, 10);
            for (chosen = 0; chosen < CLASSES; chosen++) {
                if (strcmp(class_names[chosen], name) == 0) {
                    return;
                }
            }
        }
    }
    (void)fprintf(stderr, "inject: can't understand '%s'\n", text);
    _exit(99);
}

__attribute__((constructor)) static void begin(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    char self[4096];
    const char *exe = getenv("PICKET_INJECT_EXE");
    const char *file = getenv("PICKET_INJECT_PAGE");
    const char *what = getenv("PICKET_INJECT");
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (exe == NULL || file == NULL || what == NULL || len < 0) {
        return;
    }
    self[len] = '\0';
    if (strcmp(self, exe) != 0) {
        return;
    }
    parse(what);
    int fd = open(file, O_RDWR | O_CLOEXEC);
    void *mapped =
        fd < 0 ? MAP_FAILED
               : mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
        (void)fprintf(stderr, "inject: can't map '%s'\n", file);
        _exit(99);
    }
    (void)close(fd);
    (void)dl_iterate_phdr(add_module, NULL);
    first_process = getpid();
    (void)pthread_atfork(before_fork, after_fork, after_fork);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction a = {.sa_sigaction = crashed, .sa_flags = SA_SIGINFO};
        (void)sigaction(signals[i], &a, NULL);
    }
    page = mapped;
}

__attribute__((destructor)) static void end(void)
{
    if (page == NULL || getpid() != first_process) {
        return;
    }
    uint64_t live = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        if (blocks[i].block != NULL && blocks[i].block != (void *)1) {
            page->live_offset[live % 8] = blocks[i].caller - base_of_ours;
            live++;
        }
    }
    atomic_store(&page->live, live);
}
