/* SPDX-License-Identifier: MIT */
/* For tests of the client: the embedded store, with a function between that sees every
 * call and may answer it. */
#ifndef PICKET_TEST_HOOKED_H
#define PICKET_TEST_HOOKED_H

#include <stdatomic.h>

#include "client/client.h"

typedef enum picket_status (*hooked_call)(struct pk_store *s, struct pk_command *c,
                                          uint64_t until_ms, struct pk_effects *out);

static _Atomic(hooked_call) hook;
static struct pk_driver hooked_driver;

static enum picket_status call_hook(struct pk_store *s, struct pk_command *c,
                                    uint64_t until_ms, struct pk_effects *out)
{
    hooked_call now = hook;
    return now != NULL ? now(s, c, until_ms, out)
                       : pk_local_driver.call(s, c, until_ms, out);
}

/* NULL: calls go to the store as they are. */
static inline void set_hook(hooked_call call)
{
    atomic_store(&hook, call);
}

/* Before the client does anything. */
static inline void hook_client(struct picket *p)
{
    set_hook(NULL);
    hooked_driver = pk_local_driver;
    hooked_driver.call = call_hook;
    p->driver = &hooked_driver;
}

#endif
