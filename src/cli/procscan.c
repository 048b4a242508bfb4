/* SPDX-License-Identifier: MIT */
#include "cli/procscan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Fields of /proc/PID/stat, numbered as in proc(5); the name in parentheses is the
 * second. */
enum { STAT_STATE = 3, STAT_PARENT = 4, STAT_THREADS = 20, STAT_START = 22 };

/* Reads a small /proc file whole. False when it is gone or unreadable. */
static bool slurp(int dir, const char *path, char *buf, size_t size)
{
    int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t n;
    do {
        n = read(fd, buf, size - 1);
    } while (n < 0 && errno == EINTR);
    (void)close(fd);
    if (n <= 0) {
        return false;
    }
    buf[n] = '\0';
    return true;
}

/* A name in /proc that is a pid or a thread id; 0 for the others. */
static pid_t number_of(const char *name)
{
    char *end;
    if (name[0] < '1' || name[0] > '9') {
        return 0;
    }
    errno = 0;
    long n = strtol(name, &end, 10);
    return errno == 0 && *end == '\0' && n > 0 && n <= INT32_MAX ? (pid_t)n : 0;
}

static bool parse_stat(const char *text, struct pk_proc *p)
{
    /* The name may hold blanks and parentheses of its own; the last one closes it. */
    const char *at = strrchr(text, ')');
    if (at == NULL || at[1] != ' ' || at[2] == '\0') {
        return false;
    }
    p->state = at[2];
    at += 3;
    unsigned long long value = 0;
    unsigned long long threads = 0;
    for (int field = STAT_PARENT; field <= STAT_START; field++) {
        char *end;
        value = strtoull(at, &end, 10); /* a negative one wraps; none of ours is */
        if (end == at) {
            return false;
        }
        at = end;
        if (field == STAT_PARENT) {
            p->parent = (pid_t)value;
        } else if (field == STAT_THREADS) {
            threads = value;
        }
    }
    p->start = value;
    /* A first thread that has left while others work on looks like a zombie. */
    p->dead = (p->state == 'Z' || p->state == 'X') && threads <= 1;
    return true;
}

void pk_procscan_name(pid_t pid, char out[PK_PROC_NAME_MAX])
{
    char path[64];
    char text[PK_PROC_NAME_MAX + 1] = ""; /* with its newline */
    (void)snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    (void)slurp(AT_FDCWD, path, text, sizeof text);
    (void)snprintf(out, PK_PROC_NAME_MAX, "%.*s", (int)strcspn(text, "\n"), text);
}

bool pk_procscan_read(pid_t pid, struct pk_proc *p)
{
    char path[64];
    char text[1024];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    p->pid = pid;
    return slurp(AT_FDCWD, path, text, sizeof text) && parse_stat(text, p);
}

bool pk_procscan_usable(void)
{
    char name[32];
    ssize_t n = readlink("/proc/self", name, sizeof name - 1);
    if (n <= 0) {
        return false;
    }
    name[n] = '\0';
    return number_of(name) == getpid();
}

static DIR *open_tasks(pid_t pid)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    return opendir(path);
}

bool pk_procscan_stopped(pid_t pid)
{
    DIR *tasks = open_tasks(pid);
    if (tasks == NULL) {
        return errno == ENOENT || errno == ESRCH;
    }
    bool stopped = true;
    struct dirent *entry;
    while (stopped && (entry = readdir(tasks)) != NULL) {
        char path[300];
        char text[1024];
        struct pk_proc thread;
        if (number_of(entry->d_name) == 0) {
            continue;
        }
        (void)snprintf(path, sizeof path, "%s/stat", entry->d_name);
        if (slurp(dirfd(tasks), path, text, sizeof text) && parse_stat(text, &thread)) {
            stopped = strchr("TtZX", thread.state) != NULL;
        }
    }
    (void)closedir(tasks);
    return stopped;
}

bool pk_procscan_add(struct pk_proclist *l, const struct pk_proc *p)
{
    if (l->count == l->capacity) {
        size_t capacity = l->capacity == 0 ? 64 : l->capacity * 2;
        struct pk_proc *at = NULL;
        if (capacity <= PK_PROCSCAN_MAX) {
            at = realloc(l->at, capacity * sizeof *at);
        }
        if (at == NULL) {
            l->cut = true;
            return false;
        }
        l->at = at;
        l->capacity = capacity;
    }
    l->at[l->count++] = *p;
    return true;
}

void pk_procscan_free(struct pk_proclist *l)
{
    free(l->at);
    *l = (struct pk_proclist){0};
}

/* A scan under way. */
struct scan {
    struct pk_proclist *found;
    pk_procscan_visit_cb *visit_cb;
    void *ctx;
};

static void find(struct scan *s, const struct pk_proc *p)
{
    if (s->visit_cb != NULL) {
        s->visit_cb(s->ctx, p);
    }
    (void)pk_procscan_add(s->found, p);
}

/* Takes the numbers off the end of `text`, each followed by a blank, down to its
 * start. */
static void find_numbers(struct scan *s, char *text, size_t size)
{
    while (size > 0) {
        struct pk_proc p;
        text[--size] = '\0';
        while (size > 0 && text[size - 1] != ' ') {
            size--;
        }
        pid_t pid = number_of(text + size);
        if (pid != 0 && pid != getpid() && pk_procscan_read(pid, &p)) {
            find(s, &p);
        }
    }
}

static void find_in_children_file(struct scan *s, int tasks, const char *thread)
{
    char path[300];
    char text[4096];
    size_t kept = 0;
    (void)snprintf(path, sizeof path, "%s/children", thread);
    int fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    for (;;) {
        ssize_t n = read(fd, text + kept, sizeof text - kept);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            break;
        }
        size_t size = kept + (size_t)n;
        size_t whole = size;
        while (whole > 0 && text[whole - 1] != ' ') {
            whole--; /* a number cut in two by the end of the buffer */
        }
        find_numbers(s, text, whole);
        kept = size - whole;
        memmove(text, text + whole, kept);
    }
    (void)close(fd);
}

static void find_children_of(struct scan *s, pid_t pid)
{
    DIR *tasks = open_tasks(pid);
    if (tasks == NULL) {
        return;
    }
    /* A child hangs on the thread that forked it. */
    struct dirent *entry;
    while ((entry = readdir(tasks)) != NULL) {
        if (number_of(entry->d_name) != 0) {
            find_in_children_file(s, dirfd(tasks), entry->d_name);
        }
    }
    (void)closedir(tasks);
}

bool pk_procscan_can_walk(void)
{
    return access("/proc/thread-self/children", R_OK) == 0;
}

void pk_procscan_walk(pid_t root, struct pk_proclist *l, pk_procscan_visit_cb *visit_cb,
                      void *ctx)
{
    struct scan s = {l, visit_cb, ctx};
    l->count = 0;
    l->cut = false;
    find_children_of(&s, root);
    for (size_t i = 0; i < l->count && !l->cut; i++) {
        if (!l->at[i].dead) {
            find_children_of(&s, l->at[i].pid);
        }
    }
}

static int by_parent(const void *a, const void *b)
{
    const struct pk_proc *x = a;
    const struct pk_proc *y = b;
    return (x->parent > y->parent) - (x->parent < y->parent);
}

/* Finds the children of `parent` in `all`, which is sorted by parent. */
static void pick_children(struct scan *s, const struct pk_proclist *all, pid_t parent)
{
    size_t low = 0;
    size_t high = all->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (all->at[middle].parent < parent) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low < all->count && all->at[low].parent == parent; low++) {
        if (all->at[low].pid != getpid()) {
            find(s, &all->at[low]);
        }
    }
}

static void read_all(struct pk_proclist *all)
{
    DIR *proc = opendir("/proc");
    if (proc == NULL) {
        all->cut = true;
        return;
    }
    struct dirent *entry;
    while ((entry = readdir(proc)) != NULL) {
        struct pk_proc p;
        pid_t pid = number_of(entry->d_name);
        if (pid != 0 && pk_procscan_read(pid, &p)) {
            (void)pk_procscan_add(all, &p);
        }
    }
    (void)closedir(proc);
}

void pk_procscan_sweep(pid_t root, struct pk_proclist *l, pk_procscan_visit_cb *visit_cb,
                       void *ctx)
{
    struct scan s = {l, visit_cb, ctx};
    struct pk_proclist all = {0};
    l->count = 0;
    l->cut = false;
    read_all(&all);
    if (all.count > 0) {
        qsort(all.at, all.count, sizeof *all.at, by_parent);
        pick_children(&s, &all, root);
    }
    /* Rows read at different moments can form a ring out of a recycled pid; a tree that
     * has more members than there are rows is one. */
    for (size_t i = 0; i < l->count && l->count <= all.count; i++) {
        pick_children(&s, &all, l->at[i].pid);
    }
    l->cut = l->cut || all.cut;
    pk_procscan_free(&all);
}

void pk_procscan_descendants(pid_t root, struct pk_proclist *l,
                             pk_procscan_visit_cb *visit_cb, void *ctx)
{
    if (pk_procscan_can_walk()) {
        pk_procscan_walk(root, l, visit_cb, ctx);
    } else {
        pk_procscan_sweep(root, l, visit_cb, ctx);
    }
}
