/* SPDX-License-Identifier: MIT */
/*
 * Acquiring, as run, acquire and elect do it: the options, the wait that a signal can
 * end, and what is said meanwhile.
 */
#ifndef PICKET_CLI_GRANT_H
#define PICKET_CLI_GRANT_H

#include <picket.h>
#include <stdatomic.h>

#include "cli/errors.h"
#include "cli/options.h"
#include "core/limits.h"

/* What is wanted. PK_GRANT_DEFAULTS first, then the options. */
struct pk_grant {
    const char *name;
    struct pk_option_list also;
    int64_t mode; /* enum picket_mode */
    uint64_t slots;
    int64_t wait_ms;
    uint64_t ttl_ms;
    uint64_t margin_ms;
    uint64_t grace_ms;
    uint64_t max_hold_ms;
    uint64_t lock_delay_ms;
    const char *note;
    const char *label; /* "program" or "command"; NULL: by $PICKET_LABEL */
    char *const *job;  /* what runs under the lock; NULL: nothing but us */
    const char *require;
    const char *value;
    uint64_t conflict_code;
    char store[256]; /* the store's URL for people, by pk_grant_open() */
};

#define PK_GRANT_DEFAULTS                                                                \
    {                                                                                    \
        .wait_ms = PICKET_FOREVER, .conflict_code = PK_EXIT_BUSY                         \
    }

extern const struct pk_option
    pk_grant_options[]; /* for all: waiting, the lease's settings */
extern const struct pk_option pk_grant_kinds[]; /* shared, slots, sets */

/* The row of --ttl, whose default is the verb's own. */
#define PK_GRANT_TTL(text)                                                               \
    {                                                                                    \
        PK_OPTION_SPAN, 0, "ttl", "TIME", text, offsetof(struct pk_grant, ttl_ms),       \
            PK_TTL_MIN_MS, PK_TTL_MAX_MS                                                 \
    }

/* The exit codes that acquiring adds to any verb's. */
#define PK_GRANT_EXITS                                                                   \
    "  122  not allowed\n"                                                               \
    "  124  busy, or not granted in time (-E N: N instead)\n"                            \
    "  125  our own error: a wrong call, the store out of reach\n"                       \
    "  128+N  signal N ended the wait; nothing is left behind"

/* What the rows alone can't tell: -1 to go on, or an exit code after an error said. */
int pk_grant_check(struct pk_grant *g);

/* Opens the store with the lease's settings; as pk_cli_open(). Where the store has no
 * lock-delay, the lease itself is made longer, and `g` asks for none any more. */
int pk_grant_open(const struct pk_common *c, struct pk_grant *g, struct picket **out);

/* What ends a wait early, and who wants to know of it. */
struct pk_grant_wait {
    int signal_fd; /* of pk_signals_catch(); -1: none */
    int gone_fd;   /* readable: nobody wants the lock any more; -1: none */
    _Atomic uint64_t
        *lease; /* gets the lease's id as soon as there is one; may be NULL */
};

/* Acquires, or says why not. A place in the queue that is lost with its lease is taken
 * anew, at the end, while there is time to wait. 0 with the lock in `out`, or an exit
 * code; after the latter nothing is left in the queue. */
int pk_grant_take(struct picket *p, const struct pk_grant *g,
                  const struct pk_grant_wait *w, struct picket_lock **out);

#endif
