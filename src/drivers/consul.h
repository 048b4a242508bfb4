/* SPDX-License-Identifier: MIT */
/*
 * Locks in Consul: the insides, shared by consul.c (leases and locks), consul_http.c (one
 * request and its answer), consul_watch.c (waiting) and consul_look.c (looking).
 *
 * What stands in the store, under the prefix of the URL:
 *
 *     PREFIX/.leases/ID        the lease's ticket, locked by its session; its label
 *     PREFIX/NAME/.lock        locked by the holder's session; the holder's card
 *     PREFIX/NAME/.broken/T    who broke the hold with token T, and why; for its holder
 *
 * A lease is a session that deletes what it has locked when it ends, so that nothing is
 * left behind. All changes are transactions that name the state they start from: the
 * index of the key, and for a grant that of the ticket too. So whatever is repeated, or
 * done late by a server that we had given up, is done at most once; and a claim that was
 * taken back while its fate was unknown can't come true any more, because the ticket is
 * written anew before (P8, P9).
 *
 * Threads: `call` and the leases belong to who talks (bridge.h), `multi`, `look` and the
 * transfers to the keeper's thread; `mutex` guards the list of watches and the fields of
 * each that both use.
 */
#ifndef PICKET_DRIVERS_CONSUL_H
#define PICKET_DRIVERS_CONSUL_H

#include <curl/curl.h>
#include <jansson.h>
#include <pthread.h>

#include "client/url.h"
#include "drivers/bridge.h"
#include "drivers/card.h"

enum {
    PK_CONSUL_SOCKETS_MAX = 64,
    PK_CONSUL_ID_ROOM = 40, /* of a session: a UUID */
    PK_CONSUL_PREFIX_MAX = 200,
    PK_CONSUL_KEY_ROOM = PK_CONSUL_PREFIX_MAX + PK_KEY_MAX + 48,
    PK_CONSUL_URL_ROOM = 320 + 3 * PK_CONSUL_KEY_ROOM,
    PK_CONSUL_PATIENCE_MS = 3000,
    PK_CONSUL_LOOK_MS = 15000, /* a waiter looks at least that often */
};

/* ---- consul_http.c ---- */

/* One request at a time, and what was answered. */
struct pk_consul_line {
    CURL *easy;
    char why[CURL_ERROR_SIZE];
    char *body; /* of the answer; with a NUL */
    size_t len, capacity;
    long status;
    uint64_t index; /* X-Consul-Index; 0: none */
};

struct pk_consul_watch;
struct pk_consul_lease;

struct pk_consul {
    struct pk_store *bridge;
    struct pk_url url;
    char show[320]; /* for people, without the token */
    char base[300]; /* http://HOST:PORT/v1 */
    char prefix[PK_CONSUL_PREFIX_MAX + 1];
    struct curl_slist *headers;
    bool known;                 /* it has been seen that this is a Consul */
    struct pk_consul_line call; /* who talks */
    uint64_t patience_ms;       /* with one answer: renewals wait for it too */
    struct pk_consul_lease *leases;
    uint64_t mine;    /* the lease that this process opened last */
    uint64_t opening; /* one that may have been opened without our knowing */

    CURLM *multi;
    int epoll_fd;
    uint64_t multi_at_ms;       /* when it wants to be called */
    struct pk_consul_line look; /* the keeper's thread, besides */

    pthread_mutex_t mutex;
    struct pk_consul_watch *watches;
    int sockets[PK_CONSUL_SOCKETS_MAX]; /* that are open, for a forked child; -1: none */
};

struct pk_consul_ask {
    const char *method;
    const char *path; /* behind /v1, as it stands in a URL */
    const char *body; /* NULL: none */
    bool changes;     /* something, so that without an answer it is UNKNOWN */
};

void pk_consul_line_open(struct pk_consul *c, struct pk_consul_line *l);
void pk_consul_line_close(struct pk_consul_line *l);
/* Makes the line ready for that request. */
void pk_consul_line_set(struct pk_consul *c, struct pk_consul_line *l,
                        const struct pk_consul_ask *a);
/* What came of it, once it is over: OK for an answer below 300, 404 and 409. */
enum picket_status pk_consul_line_end(const struct pk_consul *c, struct pk_consul_line *l,
                                      const struct pk_consul_ask *a, CURLcode code);
/* All at once. Waits for a Consul to be there first. */
enum picket_status pk_consul_ask(struct pk_consul *c, struct pk_consul_line *l,
                                 const struct pk_consul_ask *a, uint64_t until_ms);
/* The answer as JSON, for json_decref. NULL: it isn't; `*s` says so. */
json_t *pk_consul_json(const struct pk_consul *c, const struct pk_consul_line *l,
                       enum picket_status *s);

/* Writes the path of a key behind /v1/kv/, and `query` behind it. */
void pk_consul_path(char out[PK_CONSUL_URL_ROOM], const char *key, const char *query);

/* ---- consul_key.c ---- */

/* A key as Consul has it. */
struct pk_consul_key {
    bool there;
    uint64_t index;                  /* of its last change */
    uint64_t seen;                   /* of the answer: from where to wait on */
    char session[PK_CONSUL_ID_ROOM]; /* "": not locked */
    char *value;                     /* malloc'ed, with a NUL; NULL if not there */
    size_t len;
};

void pk_consul_lock_key(const struct pk_consul *c, const char *name,
                        char out[PK_CONSUL_KEY_ROOM]);
/* The name of the lock that has such a key. False: it is no lock's. */
bool pk_consul_lock_name(const struct pk_consul *c, const char *key,
                         char out[PK_NAME_MAX + 1]);

/* Reads one key from an answer's array. */
enum picket_status pk_consul_key_read(const struct pk_consul *c,
                                      const struct pk_consul_line *l,
                                      struct pk_consul_key *out);
enum picket_status pk_consul_get(struct pk_consul *c, struct pk_consul_line *l,
                                 const char *key, struct pk_consul_key *out,
                                 uint64_t until_ms);
void pk_consul_key_free(struct pk_consul_key *k);
bool pk_consul_key_parse(const json_t *entry, struct pk_consul_key *out);

/* The claim that wrote it; false: not one of ours. The token is that of the grant, also
 * after the card was written again. */
bool pk_consul_key_claim(const struct pk_consul_key *k, uint64_t *request,
                         uint64_t *token, struct pk_bytes *card);
/* The value of a lock's key: the card, and the token of the grant if that is over. */
char *pk_consul_value(uint64_t token, struct pk_bytes card, size_t *len);

/* Adds an operation to a transaction, which is an array; `index` of check-index and
 * delete-cas, `session` and `value` where they belong, else 0 and NULL. */
struct pk_consul_op {
    const char *verb, *key, *session;
    uint64_t index;
    struct pk_bytes value;
    bool has_value;
};
void pk_consul_op_add(json_t *txn, const struct pk_consul_op *op);
/* Runs and frees it. OK: done, *index is that of the change; NOTHELD: refused, by the
 * operation `*refused`, `l` has the answer. */
enum picket_status pk_consul_run(struct pk_consul *c, struct pk_consul_line *l,
                                 json_t *txn, uint64_t *index, size_t *refused,
                                 uint64_t until_ms);
/* Whether the refusal has that word. */
bool pk_consul_said(const struct pk_consul_line *l, const char *word);

/* ---- consul_lease.c ---- */

struct pk_consul_lease {
    struct pk_consul_lease *next;
    uint64_t id;
    char session[PK_CONSUL_ID_ROOM];
    uint64_t ticket;               /* the index of its key; 0: not known */
    uint64_t ttl_ms;               /* that its owner believes in */
    struct pk_consul_watch *watch; /* of the ticket, if it is ours */
};

/* One that is known already; NULL: none. */
struct pk_consul_lease *pk_consul_lease_find(struct pk_consul *c, uint64_t id);
/* Any that there is, by its ticket. LOST: there is none. */
enum picket_status pk_consul_lease_know(struct pk_consul *c, uint64_t id,
                                        uint64_t until_ms, struct pk_consul_lease **out);
void pk_consul_lease_forget(struct pk_consul *c, uint64_t id);
void pk_consul_ticket_key(const struct pk_consul *c, uint64_t id,
                          char out[PK_CONSUL_KEY_ROOM]);
/* Writes the ticket, or writes it anew: what was asked for with the old one can't be done
 * any more. */
enum picket_status pk_consul_ticket_write(struct pk_consul *c, struct pk_consul_lease *l,
                                          struct pk_bytes card, uint64_t until_ms);
/* Finds out its index, which a request of ours without an answer may have changed. */
enum picket_status pk_consul_ticket_read(struct pk_consul *c, struct pk_consul_lease *l,
                                         uint64_t until_ms);
/* As in bridge.h. */
enum picket_status pk_consul_lease_open(void *own, struct pk_tenancy *t,
                                        uint64_t until_ms);
enum picket_status pk_consul_lease_renew(void *own, uint64_t lease, uint64_t *ttl_ms,
                                         uint64_t until_ms);
enum picket_status pk_consul_lease_close(void *own, uint64_t lease, uint64_t until_ms);
enum picket_status pk_consul_lease_look(void *own, uint64_t lease, uint64_t *left_ms,
                                        uint64_t until_ms);

/* ---- consul_watch.c ---- */

/* What the keeper's thread watches: a key for a stake, whose own this is, or the ticket
 * of our lease, with request 0. */
struct pk_consul_watch {
    struct pk_consul_watch *next;
    uint64_t lease, request;
    char key[PK_CONSUL_KEY_ROOM];
    char session[PK_CONSUL_ID_ROOM];
    bool
        unsure; /* a copy of its request may be under way, even if another one was done */

    /* Under the mutex. */
    bool hold;        /* it holds since `index`, else it waits */
    bool parked;      /* it was told, and has to stand first */
    bool dropped;     /* nobody wants it any more */
    uint64_t index;   /* of the key, as we wrote it */
    uint64_t token;   /* does not change while it holds */
    uint64_t from;    /* wait from there on */
    uint64_t due_ms;  /* no query before that */
    uint64_t stir_ms; /* tell the bridge then; 0: no need */

    /* The keeper's thread's; the line is opened under the mutex. */
    struct pk_consul_line line;
    bool running;
    uint32_t failures;
};

/* For who talks. A new one, which waits for nothing yet. */
struct pk_consul_watch *pk_consul_watch_new(struct pk_consul *c, uint64_t lease,
                                            uint64_t request, const char *key,
                                            const char *session);
/* It waits for the key to be free, seen as it is in `seen`; false: so many do that it may
 * not be told. */
bool pk_consul_watch_wait(struct pk_consul *c, struct pk_consul_watch *w, uint64_t seen);
/* It holds, since its write at `index`, with `token`. */
void pk_consul_watch_hold(struct pk_consul *c, struct pk_consul_watch *w, uint64_t index,
                          uint64_t token);
void pk_consul_watch_drop(struct pk_consul *c, struct pk_consul_watch *w);

bool pk_consul_watch_open(struct pk_consul *c);
void pk_consul_watch_close(struct pk_consul *c);
bool pk_consul_await(void *own, uint64_t until_ms);
/* Tells the bridge that the hold is gone, and why, as far as it was noted; or that the
 * lease is. */
void pk_consul_ended(struct pk_consul *c, struct pk_consul_line *l,
                     const struct pk_consul_watch *w, uint64_t until_ms);

/* ---- consul_look.c ---- */

enum picket_status pk_consul_scan(void *own, const char *name, bool whole_name,
                                  struct pk_scan *scan, uint64_t until_ms);
enum picket_status pk_consul_examine(void *own, struct pk_findings *out,
                                     uint64_t until_ms);

#endif
