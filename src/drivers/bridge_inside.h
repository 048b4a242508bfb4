/* SPDX-License-Identifier: MIT */
/*
 * The insides of the bridge, shared by its three files: bridge.c (stakes, waiting, news),
 * bridge_call.c (commands) and bridge_scan.c (looking).
 *
 * `talking` lets one thread at a time ask the store, with the deadline of the call; only
 * who has it adds or removes stakes. `mutex` guards the fields, and is never held while
 * the store is asked.
 */
#ifndef PICKET_DRIVERS_BRIDGE_INSIDE_H
#define PICKET_DRIVERS_BRIDGE_INSIDE_H

#include <pthread.h>

#include "drivers/bridge.h"

struct pk_store {
    const struct pk_bridged *ops;
    const struct picket_guarantees *g;
    void *own;
    void *watch; /* of a watch stream, which is nothing else */
    pthread_mutex_t mutex;
    pthread_cond_t silent; /* nobody is talking any more */
    bool talking;
    struct pk_stake *stakes;
    uint64_t opened; /* the lease that this process opened last */
    uint64_t ttl_ms; /* of that */
    char *label;
    uint64_t lease; /* attended */
    struct pk_effects inbox;
    uint64_t news_since_ms;
    int wake_fd, timer_fd;
};

/* ---- bridge.c ---- */

/* Begins and ends to ask the store. False: others did until then. */
bool pk_bridge_talk(struct pk_store *b, uint64_t until_ms);
void pk_bridge_hush(struct pk_store *b);

/* A copy with a NUL, for pk_door_resize to free. */
char *pk_bridge_text(struct pk_bytes text);

/* All of these while talking. */
struct pk_stake *pk_stake_new(struct pk_store *b, const struct pk_command *acquire);
struct pk_stake *pk_stake_find(struct pk_store *b, uint64_t lease, uint64_t request);
void pk_stake_drop(struct pk_store *b, struct pk_stake *k);
void pk_stakes_drop(struct pk_store *b, uint64_t lease);
/* Asks where it stands and notes it. A hold counts from before the asking. */
enum picket_status pk_stake_stand(struct pk_store *b, struct pk_stake *k, bool wait,
                                  uint64_t until_ms);
/* Takes it away; if that can't be told now, it is remembered. OK and NOTHELD: it is gone,
 * and the stake with it. */
enum picket_status pk_stake_leave(struct pk_store *b, struct pk_stake *k,
                                  uint64_t until_ms);

/* ---- bridge_scan.c ---- */

/* Answers LOCK SHOW, LOCK LIST and LEASE SHOW. */
enum picket_status pk_bridge_look(struct pk_store *b, const struct pk_command *c,
                                  uint64_t until_ms, struct pk_effects *out);
/* Appends the reply BUSY and who is in the way, as far as the store says. */
void pk_bridge_busy(struct pk_store *b, const struct pk_command *acquire,
                    uint64_t until_ms, struct pk_effects *out);

#endif
