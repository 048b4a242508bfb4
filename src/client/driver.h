/* SPDX-License-Identifier: MIT */
/*
 * What lets the client use one kind of store. A driver speaks the machine's own language:
 * it takes a command (core/command.h) and answers with effects (core/effect.h), whatever
 * it does for that underneath. It declares what it can promise, and the conformance suite
 * holds it to it.
 *
 * Threading: call, news and claim may be used by several threads at once, the driver sees
 * to that; wait by one thread; wake by any. Errors are reported through pk_fail
 * (error.h).
 */
#ifndef PICKET_CLIENT_DRIVER_H
#define PICKET_CLIENT_DRIVER_H

#include <picket.h>

#include "client/findings.h"
#include "core/machine.h"

struct pk_store; /* the driver's own */

struct pk_driver {
    const char *scheme; /* of its URLs, without the colon */
    const char *alias;  /* another name of the scheme; NULL: none */
    const char *form;   /* of its URLs, for people: "local:DIR" */
    struct picket_guarantees guarantees;
    /* Those of the store at `rest`, where that makes a difference; else NULL. */
    const struct picket_guarantees *(*declares)(const char *rest);

    /* Opens the store at what stands behind the scheme's colon; "" is the default place.
     */
    enum picket_status (*open)(const char *rest, struct pk_store **out);
    void (*close)(struct pk_store *s);
    /* In the child of a fork: lets go of descriptors, without any locking or talking. */
    void (*forked)(struct pk_store *s);

    /* Runs the command (the driver stamps it) and appends its REPLY and ROWs to `out`. OK
     * means that there is a reply; its status is the machine's word, and since_ms of the
     * reply to a read is cluster time. Must return by `until_ms`. */
    enum picket_status (*call)(struct pk_store *s, struct pk_command *c,
                               uint64_t until_ms, struct pk_effects *out);

    /* RENEW answers what was missed of the lease's events (rules D of core/README.md).
     * Else its answers have no event number, and claim has to be asked about each. */
    bool tells_missed;

    /* From now on the lease is ours: its events become news. 0: none. */
    void (*attend)(struct pk_store *s, uint64_t lease);
    /* Sleeps until there may be news, wake is called, or `until_ms`. `waiting`: some
     * acquire is queued, so somebody else's deadline concerns us too. */
    void (*wait)(struct pk_store *s, uint64_t until_ms, bool waiting);
    void (*wake)(struct pk_store *s);
    /* Moves the events of our lease to `out`. All of them, and those that were missed,
     * happened after local time *since_ms. False: some were missed; the next RENEW tells
     * which, or else claim. */
    bool (*news)(struct pk_store *s, struct pk_effects *out, uint64_t *since_ms);
    /* Where the acquire (lease, request) stands now; *token if it holds. May have to ask
     * around for that, but not for long: other than OK, it isn't known yet. */
    enum picket_status (*claim)(struct pk_store *s, uint64_t lease, uint64_t request,
                                enum pk_claim_state *state, uint64_t *token);

    /* A stream of all events, independent of the store's other uses. next appends what
     * there is to `out`, after waiting at most until `until_ms` for the first; *gap: some
     * were missed. */
    enum picket_status (*watch_open)(struct pk_store *s, struct pk_store **out);
    enum picket_status (*watch_next)(struct pk_store *w, uint64_t until_ms,
                                     struct pk_effects *out, bool *gap);
    int (*watch_fd)(struct pk_store *w);

    /* For `picket doctor`: connects, and looks at the settings of the store. NULL: it has
     * none, or the program asks by itself. */
    enum picket_status (*examine)(struct pk_store *s, struct pk_findings *out,
                                  uint64_t until_ms);
};

extern const struct pk_driver pk_local_driver;
extern const struct pk_driver pk_remote_driver;
extern const struct pk_driver pk_redis_driver; /* PICKET_WITH_REDIS, as the next */
extern const struct pk_driver pk_redlock_driver;
extern const struct pk_driver pk_etcd_driver;     /* PICKET_WITH_ETCD */
extern const struct pk_driver pk_consul_driver;   /* PICKET_WITH_CONSUL */
extern const struct pk_driver pk_zk_driver;       /* PICKET_WITH_ZOOKEEPER */
extern const struct pk_driver pk_postgres_driver; /* PICKET_WITH_POSTGRES */

/* Those that are built in, from 0 on; NULL after the last. */
const struct pk_driver *pk_driver_at(size_t i);
/* The one for this URL, and what stands behind the scheme's colon; NULL: none. */
const struct pk_driver *pk_driver_of(const char *url, const char **rest);
/* What it declares of the store there. */
const struct picket_guarantees *pk_driver_declares(const struct pk_driver *d,
                                                   const char *rest);

#endif
