/* SPDX-License-Identifier: MIT */
/*
 * The lock machine: leases, locks, queues, tokens and fences as one deterministic state.
 *
 * Commands in, effects out; time comes only as the stamp inside a command. The same
 * commands in the same order give the same state and the same effects, byte for byte, on
 * every node, in the simulator and in the browser. src/core/README.md has the fields, the
 * inequalities and the numbered rules (G, W, E, F, R) that comments here cite; P-numbers
 * are the project's promises.
 *
 * Threading: none; one caller at a time. Memory: through door.h only.
 */
#ifndef PICKET_CORE_MACHINE_H
#define PICKET_CORE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/command.h"
#include "core/effect.h"

struct pk_machine;

/* An empty machine with the default limits, clock 0, no token given out yet. */
struct pk_machine *pk_machine_new(void);
void pk_machine_free(struct pk_machine *m);

/* Advances the clock to max(clock, stamp), ends what is due, then runs the command.
 * Appends to `out` (see effect.h for the order); never fails. `c` is borrowed for the
 * call. */
void pk_machine_step(struct pk_machine *m, const struct pk_command *c,
                     struct pk_effects *out);

uint64_t pk_machine_clock(const struct pk_machine *m);
/* The cluster time at which a TICK would next change something; UINT64_MAX: never. */
uint64_t pk_machine_next_deadline(const struct pk_machine *m);
/* The highest token ever granted; 0: none yet. */
uint64_t pk_machine_last_token(const struct pk_machine *m);

struct pk_stats {
    uint64_t leases, locks, holds, waits, fences, stored_bytes;
};
struct pk_stats pk_machine_stats(const struct pk_machine *m);
struct pk_limits pk_machine_limits(const struct pk_machine *m);

/* Where the acquire (lease, request) stands now; the request must not be 0. */
enum pk_claim_state { PK_CLAIM_NONE, PK_CLAIM_WAITING, PK_CLAIM_HELD };
enum pk_claim_state pk_machine_claim(const struct pk_machine *m, uint64_t lease,
                                     uint64_t request, uint64_t *token);
/* NONE while the lease lives, else why it ended (FORGOTTEN: too long ago, or never
 * opened). */
enum pk_end pk_machine_lease_end(const struct pk_machine *m, uint64_t lease);

/* The canonical bytes of the state: identical for identical state. *out comes from door.h
 * (free with pk_door_resize(p, 0)); returns their number. */
size_t pk_machine_snapshot(const struct pk_machine *m, unsigned char **out);
/* The machine of a snapshot; NULL when the bytes are damaged, cut short, or of another
 * version. */
struct pk_machine *pk_machine_restore(const unsigned char *in, size_t len);
/* A digest of the state: equal states, equal digests. Linear in the state's size. */
uint64_t pk_machine_digest(const struct pk_machine *m);

/* Re-derives every invariant of the README; NULL when all hold, else the broken one's
 * sentence. Linear in the state's size: for tests, fuzzers and the simulator. */
const char *pk_machine_check(const struct pk_machine *m);

#endif
