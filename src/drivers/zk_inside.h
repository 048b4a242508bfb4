/* SPDX-License-Identifier: MIT */
/*
 * The insides of the driver for ZooKeeper, shared by its files:
 *
 *     zk.c            URLs, leases, what is declared
 *     zk_claim.c      claims: queueing, leaving, being told
 *     zk_look.c       looking, breaking
 *     zk_queue.c      names of nodes, and who has to wait for whom (pure)
 *     zk_session.c    a session: connecting, renewing, closing, what the library tells
 *     zk_ask.c        one request, with its deadline
 *     zk_probe.c      what listens at an address, without a session
 *     zk_doctor.c     for `picket doctor`
 *
 * A lease is a session. A claim is an ephemeral sequential node in its lock's folder; the
 * node with the lowest number holds, and each other one watches the one that it has to
 * wait for. Numbers decide, nothing that nodes contain does.
 *
 * Threads: the bridge calls us by one thread at a time; the library has two threads of
 * its own for each session, which call completions and watchers. `mutex` guards all
 * fields that both touch, and is never held while the bridge or the library is called.
 */
#ifndef PICKET_DRIVERS_ZK_INSIDE_H
#define PICKET_DRIVERS_ZK_INSIDE_H

#include <pthread.h>
#include <zookeeper/zookeeper.h>

#include "client/url.h"
#include "drivers/bridge.h"
#include "drivers/card.h"

#define PK_ZK_FORM "zk://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],...[/ROOT]"

enum {
    PK_ZK_PORT = 2181,
    PK_ZK_SHOWN_MAX = 512,
    PK_ZK_FDS_MAX = 3,
};

/* ---- zk_queue.c ---- */

/* The last number that a claim may get. They have 31 bits, and after the last one they go
 * on below zero, before everybody who holds; those who come after us need some too. */
#define PK_ZK_NUMBER_LAST (INT32_MAX - 1000000)

struct pk_zk_place {
    uint64_t number;
    bool shared;
};

/* Reads the name of a node. False: it is not in the queue. */
bool pk_zk_place_read(const char *node, struct pk_zk_place *out);
/* Where `own` stands among the nodes; *ahead is the one that it has to wait for. */
enum pk_claim_state pk_zk_stands(const struct String_vector *nodes, const char *own,
                                 const char **ahead);
/* The nodes that begin with `start`, the first one of them; NULL: there is none. */
const char *pk_zk_starts(const struct String_vector *nodes, const char *start);
/* Sorts the queue to the front, by number, and returns how many nodes are in it. *held of
 * them hold. */
int pk_zk_sort(struct String_vector *nodes, int *held);

/* What breaking a hold leaves in its lock's folder, for the holder to read. */
struct pk_zk_break {
    uint64_t token;
    char by[PK_PRINCIPAL_MAX + 1], why[PK_REASON_MAX + 1];
};
char *pk_zk_break_write(const struct pk_zk_break *b, size_t *len); /* free() */
bool pk_zk_break_read(struct pk_bytes text, struct pk_zk_break *out);

/* ---- what there is ---- */

/* A claim of ours; its stake's `own`. */
struct pk_zk_claim {
    struct pk_zk_claim *next;
    struct pk_zk_session *session;
    uint64_t lease, request, token;
    char *folder; /* of the lock */
    char *path;   /* NULL: not known to be there */
    char *ahead;  /* what it waits for */
    bool tried;   /* to create it: it may be there although `path` isn't known */
    bool guarded; /* we are told when it goes */
    bool held, leaving;
    bool stirred; /* what it waits for has changed; not yet told */
    bool gone;    /* its node was deleted by somebody else, `broken` says by whom */
    struct pk_zk_break broken;
};

/* A descriptor that the library has opened. */
struct pk_zk_fd {
    int fd;
    char what[32]; /* as /proc shows it: "socket:[4711]" */
};

struct pk_zk_session {
    struct pk_zk_session *next;
    struct pk_zk *store;
    zhandle_t *handle;
    uint64_t wish;       /* the id that it was opened with; 0: only for looking */
    uint64_t lease;      /* its own id, when the lease is somebody's; else 0 */
    int state;           /* ZOO_CONNECTED_STATE... */
    uint64_t timeout_ms; /* as agreed with the server */
    uint64_t id;
    uint64_t begun_ms;          /* before the server was first asked */
    uint64_t ttl_ms;            /* that its owner wants to hear of */
    uint64_t last_ms, known_ms; /* see pk_zk_session_renewed */
    struct pk_zk_claim *claims;
    struct pk_zk_fd fds[PK_ZK_FDS_MAX];
};

struct pk_zk {
    struct pk_store *bridge;
    struct pk_url url;
    struct pk_places places;
    char shown[PK_ZK_SHOWN_MAX]; /* the URL, for people */
    char *hosts;                 /* as the library wants them */
    char *root;
    const char *marks[2]; /* before the number of an exclusive, and of a shared claim */
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* a request was answered, a session's state is another */
    struct pk_zk_session *sessions;
};

/* ---- zk_ask.c ---- */

/* One request and its answer. The library may answer after nobody waits any more. */
struct pk_zk_ask {
    struct pk_zk *store;
    int users;   /* who waits, and the library for each answer that is to come */
    int pending; /* answers */
    int rc;
    struct Stat stat;
    char *text; /* a path, or a node's value; with a NUL */
    size_t len;
    struct String_vector nodes;
    zoo_op_result_t results[2];
};

/* What a request goes by. Each waits for its answer until `until_ms` and returns the
 * library's code; ZOPERATIONTIMEOUT if there was none. The answer `a` is there until the
 * next request. */
struct pk_zk_call {
    struct pk_zk_session *session;
    uint64_t until_ms;
    struct pk_zk_ask *a;
};
void pk_zk_done(struct pk_zk_call *c); /* with the last one */

int pk_zk_create(struct pk_zk_call *c, const char *path, struct pk_bytes value, int kind);
int pk_zk_delete(struct pk_zk_call *c, const char *path);
/* All nodes of the session's claims. */
int pk_zk_delete_all(struct pk_zk_call *c);
int pk_zk_set(struct pk_zk_call *c, const char *path, struct pk_bytes value);
int pk_zk_get(struct pk_zk_call *c, const char *path);
int pk_zk_children(struct pk_zk_call *c, const char *path);
/* The same, and from now on the end of `path` is told to pk_zk_deleted. */
int pk_zk_guard(struct pk_zk_call *c, const char *path);
/* Both at once: the end of `path`, and the children of the folder. */
int pk_zk_guard_and_list(struct pk_zk_call *c, const char *path, const char *folder);
/* Sees what everybody has written so far: a server may lag behind its leader. */
int pk_zk_sync(struct pk_zk_call *c, const char *path);
/* A transaction that changes nothing. */
int pk_zk_nothing(struct pk_zk_call *c);
/* Writes into the folder and deletes the node, in one step. */
int pk_zk_set_and_delete(struct pk_zk_call *c, const char *folder, struct pk_bytes value,
                         const char *path);

/* The library's code as a status with its sentence. */
enum picket_status pk_zk_verdict(const struct pk_zk *z, int rc);

/* ---- zk_session.c ---- */

/* Waits until the session is connected. LOST: it is over. */
enum picket_status pk_zk_ready(struct pk_zk_session *s, uint64_t until_ms);
/* Begins a session; it is not connected yet. */
enum picket_status pk_zk_begin(struct pk_zk *z, uint64_t wish, uint64_t timeout_ms,
                               struct pk_zk_session **out);
/* Ends it as far as it can: what could not be told ends with its timeout. */
void pk_zk_end(struct pk_zk_session *s);
struct pk_zk_session *pk_zk_session_of(struct pk_zk *z, uint64_t lease);
/* Some session that is connected, for looking. */
enum picket_status pk_zk_any(struct pk_zk *z, uint64_t until_ms,
                             struct pk_zk_session **out);
/* As agreed with the server the last time. */
uint64_t pk_zk_timeout(struct pk_zk_session *s);
/* The part of a session's timeout that a holder may believe in. */
uint64_t pk_zk_believable(uint64_t timeout_ms);
/* A renewal sent at that time was answered: what is left, counted from then. */
uint64_t pk_zk_session_renewed(struct pk_zk_session *s, uint64_t timeout_ms,
                               uint64_t sent_ms);
void pk_zk_forked(void *own);

/* ---- zk_claim.c ---- */

/* Both for free(). */
char *pk_zk_join(const char *folder, const char *node);
char *pk_zk_folder(const struct pk_zk *z, const char *name);

enum picket_status pk_zk_stand(void *own, struct pk_stake *k, bool wait,
                               uint64_t until_ms);
enum picket_status pk_zk_leave(void *own, struct pk_stake *k, uint64_t until_ms);
enum picket_status pk_zk_rewrite(void *own, struct pk_stake *k, uint64_t until_ms);
void pk_zk_forget(void *own, struct pk_stake *k);
/* The node at `path` was deleted. */
void pk_zk_deleted(struct pk_zk_session *s, const char *path);

/* ---- zk_look.c ---- */

enum picket_status pk_zk_scan(void *own, const char *name, bool whole_name,
                              struct pk_scan *scan, uint64_t until_ms);
enum picket_status pk_zk_break_hold(void *own, const struct pk_command *command,
                                    uint64_t until_ms);

/* ---- zk_probe.c ---- */

enum pk_zk_kind {
    PK_ZK_SERVES, /* a ZooKeeper that serves, or may do so */
    PK_ZK_IDLE,   /* a ZooKeeper without a leader */
    PK_ZK_OTHER,  /* something else answers */
    PK_ZK_SILENT, /* something listens and does not answer */
    PK_ZK_ABSENT, /* nothing listens */
};

/* Sends a four-letter word; the answer (with a NUL) goes to `out`. */
enum pk_zk_kind pk_zk_four(const struct pk_place *p, const char *word, uint64_t until_ms,
                           char *out, size_t size);
/* Why there is no session yet, as a status with its sentence: STORE if that won't change.
 */
enum picket_status pk_zk_why_not(const struct pk_zk *z, uint64_t until_ms);

/* ---- zk_doctor.c ---- */

enum picket_status pk_zk_examine(void *own, struct pk_findings *out, uint64_t until_ms);

#endif
