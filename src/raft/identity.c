/* SPDX-License-Identifier: MIT */
/*
 * Both files have one form: a magic word and a version, the fields as core/wire.h writes
 * them, and the digest of all that. They are replaced, never changed in place.
 */
#include "raft/identity.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/door.h"
#include "core/wire.h"
#include "host/clock.h"
#include "host/fd.h"
#include "host/version.h"

enum {
    VERSION = 1,
    MAGIC_BYTES = 4,
    DIGEST_BYTES = 8,
    VARINT_MOST = 10,
    IDENTITY_MOST = MAGIC_BYTES + 4 * VARINT_MOST + PK_NODE_NAME_MAX + DIGEST_BYTES,
    PEER_MOST = 4 * VARINT_MOST + PK_NODE_NAME_MAX + 2 * PK_HOST_MAX,
    PEERS_MOST = MAGIC_BYTES + 2 * VARINT_MOST + PK_PEERS_MAX * PEER_MOST + DIGEST_BYTES,
    SENTENCE_MAX = 5120, /* a path and some words */
};

static const char identity_magic[] = "PKID";
static const char peers_magic[] = "PKPR";

/* What to do when a node can't be what it was any more: its votes may be gone (P3). */
#define START_OVER                                                                       \
    "replace this node: start it with an empty directory, then 'picket cluster replace'"

__attribute__((format(printf, 1, 2))) static const char *sentence(const char *format, ...)
{
    static _Thread_local char text[SENTENCE_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return text;
}

/* ---- names ---- */

const char *pk_node_name_wrong(const char *name)
{
    size_t len = strlen(name);
    if (len == 0 || len >= PK_NODE_NAME_MAX) {
        return sentence("a node's name has 1 to %d bytes", PK_NODE_NAME_MAX - 1);
    }
    for (const char *c = name; *c != '\0'; c++) {
        bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
        bool digit = *c >= '0' && *c <= '9';
        if (!letter && !digit && strchr("-_.", *c) == NULL) {
            return "a node's name has letters, digits, '-', '_' and '.' only";
        }
    }
    return NULL;
}

uint64_t pk_node_id_new(void)
{
    uint64_t id = 0;
    while (!pk_node_id_is_valid(id)) {
        id = pk_random() & (UINT64_MAX >> 1); /* positive everywhere */
    }
    return id;
}

bool pk_node_id_is_valid(uint64_t id)
{
    return id != 0 && id >> 63 == 0;
}

/* ---- files ---- */

static int open_dir(const char *dir)
{
    return open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Puts a file in the place of DIR/name so that after a power cut there is either the old
 * one or the new one. False with errno set. */
static bool replace_file(const char *dir, const char *name, const unsigned char *bytes,
                         size_t len)
{
    char fresh[64];
    (void)snprintf(fresh, sizeof fresh, "%s.new", name);
    int dir_fd = open_dir(dir);
    int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    int fd = dir_fd < 0 ? -1 : openat(dir_fd, fresh, flags, 0600);
    bool done = fd >= 0 && pk_fd_write(fd, bytes, len) && fsync(fd) == 0 &&
                renameat(dir_fd, fresh, dir_fd, name) == 0 && fsync(dir_fd) == 0;
    int error = errno;
    pk_fd_close(&fd);
    pk_fd_close(&dir_fd);
    errno = error;
    return done;
}

/* Reads DIR/name, at most `size` bytes of it. -1 with errno set. */
static ssize_t read_file(const char *dir, const char *name, unsigned char *out,
                         size_t size)
{
    int dir_fd = open_dir(dir);
    int fd = dir_fd < 0 ? -1 : openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : pk_fd_read_at(fd, out, size, 0);
    int error = errno;
    pk_fd_close(&fd);
    pk_fd_close(&dir_fd);
    errno = error;
    return n;
}

static struct pk_writer begin(unsigned char *out, const char *magic)
{
    struct pk_writer w = {.out = out, .digest = PK_DIGEST_START, .digesting = true};
    pk_write_raw(&w, magic, MAGIC_BYTES);
    pk_write_uint(&w, VERSION);
    return w;
}

static size_t seal(struct pk_writer *w)
{
    pk_put_u64(w->out + w->len, w->digest);
    return w->len + DIGEST_BYTES;
}

/* A reader of the version and the fields, `bad` from the beginning when the frame around
 * them is. */
static struct pk_reader open_frame(const unsigned char *in, size_t len, const char *magic)
{
    size_t body = len < DIGEST_BYTES ? 0 : len - DIGEST_BYTES;
    struct pk_reader r = {.at = in, .end = in + body};
    const unsigned char *word = pk_read_raw(&r, MAGIC_BYTES);
    if (word == NULL || memcmp(word, magic, MAGIC_BYTES) != 0 ||
        pk_get_u64(in + body) != pk_digest(PK_DIGEST_START, in, body)) {
        r.bad = true;
    }
    return r;
}

/* The same, behind the version. */
static struct pk_reader unseal(const unsigned char *in, size_t len, const char *magic)
{
    struct pk_reader r = open_frame(in, len, magic);
    (void)pk_read_ranged(&r, VERSION, VERSION);
    return r;
}

/* The version of a file whose frame checks; 0: it does not. */
static uint32_t version_of(const unsigned char *in, size_t len, const char *magic)
{
    struct pk_reader r = open_frame(in, len, magic);
    return (uint32_t)pk_read_ranged(&r, 0, UINT32_MAX);
}

/* A string without NUL bytes, into `out` of `size`. */
static void read_text(struct pk_reader *r, char *out, size_t size)
{
    struct pk_bytes text = pk_read_bytes(r, size - 1);
    if (!r->bad && text.len > 0) {
        r->bad = memchr(text.data, '\0', text.len) != NULL;
        memcpy(out, text.data, text.len);
    }
    out[text.len] = '\0';
}

/* ---- the directory ---- */

/* Makes the directory, and its name durable; its parent has to be there, so that a
 * mistyped path does not grow a tree. */
static bool make_dir(const char *dir)
{
    if (mkdir(dir, 0700) != 0) {
        return errno == EEXIST;
    }
    int fd = open_dir(dir);
    int parent = fd < 0 ? -1 : openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool durable = parent >= 0 && fsync(parent) == 0;
    pk_fd_close(&parent);
    pk_fd_close(&fd);
    return durable;
}

static const char *in_use(const char *dir, int lock)
{
    char text[32] = "";
    ssize_t n = pread(lock, text, sizeof text - 1, 0);
    long pid = n > 0 ? strtol(text, NULL, 10) : 0;
    if (pid > 0) {
        return sentence("%s is in use by process %ld", dir, pid);
    }
    return sentence("%s is in use by another process", dir);
}

/* Takes the lock and notes who has it. -1 with a sentence. */
static int take_lock(const char *dir, const char **why)
{
    char path[SENTENCE_MAX];
    char pid[32];
    (void)snprintf(path, sizeof path, "%s/lock", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        *why = sentence("can't write to the data directory %s: %s", dir, strerror(errno));
        return -1;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        *why = errno == EWOULDBLOCK
                   ? in_use(dir, fd)
                   : sentence("can't lock %s: %s", path, strerror(errno));
        pk_fd_close(&fd);
        return -1;
    }
    int len = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    /* Only a help for people, who find no number in it when the disk is full. */
    bool noted = ftruncate(fd, 0) == 0 && pwrite(fd, pid, (size_t)len, 0) == len;
    (void)noted;
    return fd;
}

/* A directory without identity: NULL when it is a new one, else what is in it. */
static const char *not_new(const char *dir)
{
    const char *why = NULL;
    DIR *d = opendir(dir);
    if (d == NULL) {
        return sentence("can't read the data directory %s: %s", dir, strerror(errno));
    }
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        const char *n = e->d_name;
        if (strcmp(n, "raft") == 0 || strcmp(n, "peers") == 0) {
            why = sentence("%s has data of a node, but its identity is gone: %s", dir,
                           START_OVER);
        } else if (why == NULL && n[0] != '.' && strcmp(n, "lock") != 0 &&
                   strcmp(n, "identity.new") != 0) {
            why = sentence("%s is not a Picket data directory: it has other files in it",
                           dir);
        }
    }
    (void)closedir(d);
    return why;
}

/* ---- the identity ---- */

static bool decode_identity(const unsigned char *in, size_t len, struct pk_identity *out)
{
    struct pk_reader r = unseal(in, len, identity_magic);
    out->cluster = pk_read_uint(&r);
    out->id = pk_read_uint(&r);
    out->founding = pk_read_ranged(&r, 0, 1) == 1;
    read_text(&r, out->name, sizeof out->name);
    return !r.bad && r.at == r.end && pk_node_name_wrong(out->name) == NULL &&
           pk_node_id_is_valid(out->id);
}

static const char *load_identity(const char *dir, struct pk_identity *out, bool *fresh)
{
    unsigned char bytes[IDENTITY_MOST + 1]; /* one more, to see that it is too long */
    *out = (struct pk_identity){0};
    *fresh = false;
    ssize_t n = read_file(dir, "identity", bytes, sizeof bytes);
    if (n < 0 && errno == ENOENT) {
        *fresh = true;
        return not_new(dir);
    }
    if (n < 0) {
        return sentence("can't read %s/identity: %s", dir, strerror(errno));
    }
    uint32_t version = version_of(bytes, (size_t)n, identity_magic);
    if (version > VERSION) {
        char what[SENTENCE_MAX];
        (void)snprintf(what, sizeof what, "%s/identity", dir);
        return pk_format_needed(what, version, VERSION);
    }
    if (!decode_identity(bytes, (size_t)n, out)) {
        return sentence("%s/identity is damaged: %s", dir, START_OVER);
    }
    return NULL;
}

int pk_identity_open(const char *dir, struct pk_identity *out, bool *fresh, char *why,
                     size_t size)
{
    const char *wrong = NULL;
    int lock = -1;
    if (!make_dir(dir)) {
        wrong = sentence("can't make the data directory %s: %s", dir, strerror(errno));
    } else {
        lock = take_lock(dir, &wrong);
    }
    if (lock >= 0) {
        wrong = load_identity(dir, out, fresh);
    }
    if (wrong != NULL) {
        (void)snprintf(why, size, "%s", wrong);
        pk_fd_close(&lock);
    }
    return lock;
}

const char *pk_identity_create(const char *dir, struct pk_identity *id)
{
    unsigned char bytes[IDENTITY_MOST];
    PK_ASSERT(pk_node_name_wrong(id->name) == NULL && pk_node_id_is_valid(id->id));
    struct pk_writer w = begin(bytes, identity_magic);
    pk_write_uint(&w, id->cluster);
    pk_write_uint(&w, id->id);
    pk_write_uint(&w, id->founding);
    pk_write_bytes(&w, pk_text(id->name));
    if (!replace_file(dir, "identity", bytes, seal(&w))) {
        return sentence("can't write %s/identity: %s", dir, strerror(errno));
    }
    return NULL;
}

/* ---- the peers ---- */

static bool decode_peers(const unsigned char *in, size_t len, struct pk_peers *p)
{
    struct pk_reader r = unseal(in, len, peers_magic);
    p->count = (size_t)pk_read_ranged(&r, 0, PK_PEERS_MAX);
    for (size_t i = 0; i < p->count; i++) {
        struct pk_peer *peer = &p->list[i];
        peer->id = pk_read_uint(&r);
        read_text(&r, peer->name, sizeof peer->name);
        read_text(&r, peer->client, sizeof peer->client);
        read_text(&r, peer->http, sizeof peer->http);
    }
    return !r.bad && r.at == r.end;
}

const char *pk_peers_load(struct pk_peers *p, const char *dir)
{
    memset(p, 0, sizeof *p);
    if (snprintf(p->dir, sizeof p->dir, "%s", dir) >= (int)sizeof p->dir) {
        return "the path of the data directory is too long";
    }
    unsigned char *bytes = pk_door_resize(NULL, PEERS_MOST + 1);
    ssize_t n = read_file(dir, "peers", bytes, PEERS_MOST + 1);
    const char *why = NULL;
    if (n < 0 && errno != ENOENT) {
        why = sentence("can't read %s/peers: %s", dir, strerror(errno));
    } else if (n >= 0 && !decode_peers(bytes, (size_t)n, p)) {
        p->count = 0;
        why = sentence("%s/peers is damaged and begins anew", dir);
    }
    pk_door_resize(bytes, 0);
    return why;
}

static bool store_peers(const struct pk_peers *p)
{
    unsigned char *bytes = pk_door_resize(NULL, PEERS_MOST);
    struct pk_writer w = begin(bytes, peers_magic);
    pk_write_uint(&w, p->count);
    for (size_t i = 0; i < p->count; i++) {
        const struct pk_peer *peer = &p->list[i];
        pk_write_uint(&w, peer->id);
        pk_write_bytes(&w, pk_text(peer->name));
        pk_write_bytes(&w, pk_text(peer->client));
        pk_write_bytes(&w, pk_text(peer->http));
    }
    bool stored = replace_file(p->dir, "peers", bytes, seal(&w));
    pk_door_resize(bytes, 0);
    return stored;
}

static bool is_listed(uint64_t id, const uint64_t *ids, size_t n)
{
    size_t i = 0;
    while (i < n && ids[i] != id) {
        i++;
    }
    return i < n;
}

/* A place for one more: that of a node which is no member, or else the oldest. */
static struct pk_peer *make_place(struct pk_peers *p, const uint64_t *members, size_t n)
{
    if (p->count < PK_PEERS_MAX) {
        return &p->list[p->count++];
    }
    size_t i = 0;
    while (i < p->count && is_listed(p->list[i].id, members, n)) {
        i++;
    }
    i = i < p->count ? i : 0;
    memmove(&p->list[i], &p->list[i + 1], (p->count - i - 1) * sizeof p->list[0]);
    return &p->list[p->count - 1];
}

static bool is_same(const struct pk_peer *a, const struct pk_peer *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->client, b->client) == 0 &&
           strcmp(a->http, b->http) == 0;
}

void pk_peers_meet(struct pk_peers *p, const struct pk_peer *who, const uint64_t *members,
                   size_t n)
{
    struct pk_peer *known = NULL;
    for (size_t i = 0; i < p->count; i++) {
        known = p->list[i].id == who->id ? &p->list[i] : known;
    }
    if (known != NULL && is_same(known, who)) {
        return;
    }
    known = known != NULL ? known : make_place(p, members, n);
    *known = *who;
    /* On a full disk we know until the next start, and are told again then. */
    bool stored = store_peers(p);
    (void)stored;
}

const struct pk_peer *pk_peers_find(const struct pk_peers *p, uint64_t id)
{
    for (size_t i = 0; i < p->count; i++) {
        if (p->list[i].id == id) {
            return &p->list[i];
        }
    }
    return NULL;
}
