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
/* Frees at most `count` leases, claims, locks and fences of a machine that is no longer
 * used (fewer if they are large), so that no step of the caller grows with the state.
 * True: the machine is gone. */
bool pk_machine_free_some(struct pk_machine *m, uint32_t count);

/* Advances the clock to max(clock, stamp), ends what is due, then runs the command.
 * Appends to `out` (see effect.h for the order); never fails. `c` is borrowed for the
 * call. */
void pk_machine_step(struct pk_machine *m, const struct pk_command *c,
                     struct pk_effects *out);

/* Answers a read (pk_command_is_read) from the state as it is (S6): nothing changes, and
 * what is due has not ended. Times left are told as of max(clock, stamp). */
void pk_machine_read(struct pk_machine *m, const struct pk_command *c,
                     struct pk_effects *out);

uint64_t pk_machine_clock(const struct pk_machine *m);
/* The cluster time at which a TICK would next change something; UINT64_MAX: never. */
uint64_t pk_machine_next_deadline(const struct pk_machine *m);
/* The highest token ever granted; 0: none yet. */
uint64_t pk_machine_last_token(const struct pk_machine *m);

/* The cluster version in force (version.h), and whether only an operator raises it. */
uint32_t pk_machine_version(const struct pk_machine *m);
bool pk_machine_version_is_held(const struct pk_machine *m);

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
/* The number of the lease's last event (D1); 0: there was none, or no such lease. */
uint32_t pk_machine_lease_events(const struct pk_machine *m, uint64_t lease);

/* A digest of the state: equal states, equal digests. Kept up with every change, so its
 * cost does not depend on the state's size. */
uint64_t pk_machine_digest(const struct pk_machine *m);

/* ---- snapshots ---- */

/* Begins to view the state as it is now; it may change meanwhile. One view at a time, and
 * only until the machine is freed. */
void pk_view_begin(struct pk_machine *m);
/* Copies the next bytes of the snapshot, at most `room`. Its cost is bounded by `room`
 * and a constant, so there may be none now and more later. */
size_t pk_view_read(struct pk_machine *m, void *to, size_t room);
/* True when all bytes have been read. */
bool pk_view_is_done(const struct pk_machine *m);
/* Once done: false when the state in memory was not what its digest says, so this memory
 * can't be trusted. */
bool pk_view_is_sound(const struct pk_machine *m);
/* Ends the view, done or not. */
void pk_view_end(struct pk_machine *m);

/* Makes a machine from the bytes of a snapshot, in pieces of any size. */
struct pk_restore;
struct pk_restore *pk_restore_begin(void);
/* False: the bytes are damaged, or of a version that this build does not run. */
bool pk_restore_feed(struct pk_restore *s, const void *bytes, size_t len);
/* The cluster version of the snapshot, whether or not this build runs it; 0: its
 * beginning has not come yet, or is no snapshot's. */
uint32_t pk_restore_version(const struct pk_restore *s);
/* The digest of what has been read so far. */
uint64_t pk_restore_digest(const struct pk_restore *s);
/* Whether the end has been read, and the digest there is that of the machine. */
bool pk_restore_is_complete(const struct pk_restore *s);
/* The machine, or NULL when the snapshot was not complete; frees `s`. */
struct pk_machine *pk_restore_end(struct pk_restore *s);
/* The machine, complete or not; frees `s`. One that is not complete can only be freed. */
struct pk_machine *pk_restore_take(struct pk_restore *s);
/* Like pk_restore_begin, but checks only how the bytes are divided into items and keeps
 * none of them: takes the memory of one item. The digest is not checked. */
struct pk_restore *pk_restore_scan(void);

/* The cluster version that a snapshot says it has; 0: the bytes don't begin as one. */
uint32_t pk_snapshot_version(const unsigned char *in, size_t len);

/* A whole snapshot at once: identical bytes for identical state. *out comes from door.h
 * (free with pk_door_resize(p, 0)); returns their number. No view may be under way. */
size_t pk_machine_snapshot(struct pk_machine *m, unsigned char **out);
/* The machine of a whole snapshot, whose invariants are checked too; NULL when the bytes
 * are damaged, cut short, or of another version. */
struct pk_machine *pk_machine_restore(const unsigned char *in, size_t len);

/* Re-derives every invariant of the README; NULL when all hold, else the broken one's
 * sentence. Linear in the state's size: for tests, fuzzers and the simulator. */
const char *pk_machine_check(const struct pk_machine *m);

#endif
