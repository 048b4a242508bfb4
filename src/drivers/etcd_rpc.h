/* SPDX-License-Identifier: MIT */
/*
 * Calls to the members of an etcd, by gRPC without TLS. A *caller* asks and waits for the
 * answer. It is used by one thread at a time and has connections of its own.
 *
 * A call goes to one member after the other until one answers. Between the one and the
 * other it may have been done twice, so what is called must be repeatable; `doubt` says
 * that some attempt may have reached a member that did not answer.
 */
#ifndef PICKET_DRIVERS_ETCD_RPC_H
#define PICKET_DRIVERS_ETCD_RPC_H

#include <pthread.h>

#include "client/url.h"
#include "drivers/etcd_line.h"

/* Which etcd; the same for all who talk to it. */
/* What etcd gave for our password. All callers of a site share the token, because etcd
 * takes its time to check a password: on a busy server a caller that can wait for a
 * second only would never get a token of its own. */
struct pk_etcd_auth {
    pthread_mutex_t mutex;
    char *token; /* NULL: none yet */
};

struct pk_etcd_site {
    struct pk_url url;
    struct pk_places places;
    char shown[512]; /* the URL, for people */
    struct pk_etcd_auth auth;
};

struct pk_etcd_caller {
    struct pk_etcd_site *site;
    struct pk_etcd_line line;
    uint32_t at;    /* the place asked last */
    bool connected; /* to that */
    char *token;    /* of who has a password: that of the site when last looked */
    bool open_door; /* there is a password, but nobody is asked for one */
    bool doubt;     /* of the last call */
    bool proven;    /* somebody has answered as gRPC does */
};

enum picket_status pk_etcd_caller_init(struct pk_etcd_caller *c,
                                       struct pk_etcd_site *site);
void pk_etcd_caller_free(struct pk_etcd_caller *c);

/* Calls, as "KV/Range". OK: the answer's message, good until the next call. STORE also
 * for what the server refused: pk_etcd_refused tells that. */
enum picket_status pk_etcd_call(struct pk_etcd_caller *c, const char *method,
                                const struct pk_pb_out *request, uint64_t until_ms,
                                struct pk_bytes *reply);
/* The same, but only to the place with that number. */
enum picket_status pk_etcd_call_at(struct pk_etcd_caller *c, uint32_t place,
                                   const char *method, const struct pk_pb_out *request,
                                   uint64_t until_ms, struct pk_bytes *reply);
/* Whether the last call was refused with a text that has this in it. */
bool pk_etcd_refused(const struct pk_etcd_caller *c, const char *text);
/* STORE: the answer is not what an etcd says. */
enum picket_status pk_etcd_fail_garbled(const struct pk_etcd_caller *c);

#endif
