/* SPDX-License-Identifier: MIT */
/*
 * Commands: what goes into the machine, in memory and in bytes.
 *
 * One flat struct for all verbs; the table below says which fields a verb has, and it
 * alone drives encoding, decoding and validation. Fields a verb does not have are zero.
 *
 * Bytes, in order; integers are varints, strings a length and bytes (wire.h):
 *
 *     verb (1 byte)  stamp  principal
 *     those of lease request target token ttl wait max_hold lock_delay count flags
 *     version epoch it has
 *     those of name label value reason cursor it has
 *     PARTS:  count, then per lock: name  mode (1 byte)  slots
 *     LEASES: count, then ids of 8 bytes each, little endian; then 1 byte: 1 if event
 *             numbers follow, one of 4 bytes for each id, little endian, else 0
 *     LIMITS: count, then one integer per limit in the order of PK_LIMITS; 0: as it is
 *
 * The format is that of a cluster version (pk_command_needs); the containers (journal,
 * log entry) carry the number.
 */
#ifndef PICKET_CORE_COMMAND_H
#define PICKET_CORE_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"
#include "core/limits.h"

enum pk_mode {
    PK_MODE_NONE = 0,
    PK_EXCLUSIVE = 1, /* alone */
    PK_SHARED = 2,    /* together with other shared holders */
    PK_SLOT = 3,      /* one of `slots` places of a semaphore */
};

const char *pk_mode_name(enum pk_mode m); /* "exclusive", "shared", "slot", "none" */

enum pk_field {
    PK_F_LEASE = 1 << 0,
    PK_F_REQUEST = 1 << 1,
    PK_F_TARGET = 1 << 2,
    PK_F_NAME = 1 << 3,
    PK_F_PARTS = 1 << 4,
    PK_F_TOKEN = 1 << 5,
    PK_F_TTL = 1 << 6,
    PK_F_WAIT = 1 << 7,
    PK_F_MAX_HOLD = 1 << 8,
    PK_F_LOCK_DELAY = 1 << 9,
    PK_F_COUNT = 1 << 10,
    PK_F_LABEL = 1 << 11,
    PK_F_VALUE = 1 << 12,
    PK_F_REASON = 1 << 13,
    PK_F_CURSOR = 1 << 14,
    PK_F_LEASES = 1 << 15,
    PK_F_LIMITS = 1 << 16,
    PK_F_FLAGS = 1 << 17,
    /* Not fields, but what else the table says of a verb. */
    PK_F_PREFIX = 1 << 18, /* NAME is a prefix and may be empty */
    PK_F_READ = 1 << 19,   /* changes nothing but the clock */
    PK_F_OPTIONAL_TOKEN = 1 << 20,
    PK_F_OPTIONAL_TARGET = 1 << 21,
    PK_F_EXCLUSIVE = 1 << 22, /* PARTS are keys: each exclusive */
    PK_F_VERSION = 1 << 23,   /* a field: a cluster version */
    PK_F_EPOCH = 1 << 24,     /* a field: how often a fence's mode had changed */
};

/* What `flags` can say to KEY KEEP and KEY DROP. */
enum pk_key_flag {
    PK_KEY_ANY = 1, /* whatever the key's value is */
    PK_KEY_ADD = 2, /* KEEP: the TTL counts from the present deadline */
};

/* What `flags` can say to FENCE MODE; without it the fence enforces. */
enum pk_fence_flag {
    PK_FENCE_SHADOW = 1, /* let through what would be refused, and count it */
};

/* What `flags` can say to SET VERSION; without it leaders raise the version. */
enum pk_version_flag {
    PK_VERSION_HOLD = 1, /* only an operator raises the version from now on */
};

/*  X(verb, wire name, fields); a verb's place is its byte, so new ones go to the end */
#define PK_VERBS(X)                                                                      \
    X(TICK, "TICK", 0)                                                                   \
    X(CONFIGURE, "CONFIGURE", PK_F_REQUEST | PK_F_LIMITS)                                \
    X(LEAP, "LEAP", PK_F_REQUEST | PK_F_TOKEN | PK_F_OPTIONAL_TOKEN)                     \
    X(LEASE_OPEN, "LEASE OPEN", PK_F_REQUEST | PK_F_TTL | PK_F_LABEL)                    \
    X(LEASE_RENEW, "LEASE RENEW", PK_F_LEASES | PK_F_TTL)                                \
    X(LEASE_CLOSE, "LEASE CLOSE", PK_F_LEASE)                                            \
    X(LEASE_SHOW, "LEASE SHOW",                                                          \
      PK_F_LEASE | PK_F_TARGET | PK_F_OPTIONAL_TARGET | PK_F_COUNT | PK_F_READ)          \
    X(LOCK_ACQUIRE, "LOCK ACQUIRE",                                                      \
      PK_F_LEASE | PK_F_REQUEST | PK_F_PARTS | PK_F_WAIT | PK_F_MAX_HOLD |               \
          PK_F_LOCK_DELAY | PK_F_VALUE)                                                  \
    X(LOCK_CANCEL, "LOCK CANCEL", PK_F_LEASE | PK_F_REQUEST | PK_F_TARGET)               \
    X(LOCK_RELEASE, "LOCK RELEASE", PK_F_LEASE | PK_F_REQUEST | PK_F_NAME | PK_F_TOKEN)  \
    X(LOCK_VALUE, "LOCK VALUE",                                                          \
      PK_F_LEASE | PK_F_REQUEST | PK_F_NAME | PK_F_TOKEN | PK_F_VALUE)                   \
    X(LOCK_BREAK, "LOCK BREAK", PK_F_REQUEST | PK_F_NAME | PK_F_TOKEN | PK_F_REASON)     \
    X(LOCK_SHOW, "LOCK SHOW", PK_F_NAME | PK_F_COUNT | PK_F_READ)                        \
    X(LOCK_LIST, "LOCK LIST",                                                            \
      PK_F_NAME | PK_F_PREFIX | PK_F_CURSOR | PK_F_COUNT | PK_F_READ)                    \
    X(FENCE_CLAIM, "FENCE CLAIM", PK_F_NAME | PK_F_TOKEN)                                \
    X(FENCE_CHECK, "FENCE CHECK", PK_F_NAME | PK_F_TOKEN | PK_F_READ)                    \
    X(FENCE_SET, "FENCE SET",                                                            \
      PK_F_REQUEST | PK_F_NAME | PK_F_TOKEN | PK_F_VALUE | PK_F_TTL)                     \
    X(FENCE_GET, "FENCE GET", PK_F_NAME | PK_F_TOKEN | PK_F_OPTIONAL_TOKEN)              \
    X(KEY_TAKE, "KEY TAKE",                                                              \
      PK_F_PARTS | PK_F_EXCLUSIVE | PK_F_VALUE | PK_F_TTL | PK_F_LABEL)                  \
    X(KEY_KEEP, "KEY KEEP",                                                              \
      PK_F_PARTS | PK_F_EXCLUSIVE | PK_F_VALUE | PK_F_TTL | PK_F_FLAGS)                  \
    X(KEY_DROP, "KEY DROP", PK_F_PARTS | PK_F_EXCLUSIVE | PK_F_VALUE | PK_F_FLAGS)       \
    X(FENCE_MODE, "FENCE MODE", PK_F_NAME | PK_F_FLAGS | PK_F_EPOCH)                     \
    X(FENCE_SHOW, "FENCE SHOW", PK_F_NAME | PK_F_READ)                                   \
    X(SET_VERSION, "SET VERSION", PK_F_REQUEST | PK_F_VERSION | PK_F_FLAGS)

enum pk_verb {
#define X(verb, name, fields) PK_##verb,
    PK_VERBS(X)
#undef X
        PK_VERB_COUNT
};

const char *pk_verb_name(enum pk_verb v); /* "LOCK ACQUIRE" */
uint32_t pk_verb_fields(enum pk_verb v);  /* mask of enum pk_field */

/* One lock of an acquire. */
struct pk_part {
    struct pk_bytes name;
    uint32_t slots; /* for PK_SLOT: how many places the semaphore has; else 0 */
    enum pk_mode mode;
};

struct pk_command {
    enum pk_verb verb;
    uint64_t stamp_ms; /* cluster time proposed; the machine takes max(clock, stamp) */
    struct pk_bytes principal; /* who asks, as the transport knows them; may be empty */
    uint64_t lease;
    uint64_t request;     /* client-made id; 0: not repeatable, every arrival is new */
    uint64_t target;      /* the request id of the acquire meant; SHOW: 0 for all */
    struct pk_bytes name; /* lock or resource; LIST: prefix */
    struct pk_part parts[PK_SET_MAX];
    uint32_t n_parts;
    uint64_t token;   /* LEAP: the highest known elsewhere, 0: none */
    uint64_t ttl_ms;  /* RENEW: 0 keeps the lease's; SET: of the register, 0 for good */
    uint64_t wait_ms; /* 0: try; PK_WAIT_FOREVER; else a bound in cluster time */
    uint64_t max_hold_ms; /* 0: none */
    uint64_t lock_delay_ms;
    uint64_t count;   /* rows wanted, 1..PK_PAGE_MAX */
    uint64_t flags;   /* of enum pk_key_flag, pk_fence_flag or pk_version_flag */
    uint64_t version; /* the cluster version wanted */
    uint64_t epoch;   /* FENCE MODE: that of the mode which is to be replaced (F6) */
    struct pk_bytes label;
    struct pk_bytes value;
    struct pk_bytes reason;
    struct pk_bytes cursor;      /* LIST: only names after this one */
    const unsigned char *leases; /* RENEW: n_leases ids of 8 bytes, little endian */
    const unsigned char *heard;  /* RENEW: n_leases event numbers of 4 bytes, little
                                    endian (D2); NULL: not named */
    uint32_t n_leases;
    struct pk_limits limits;
};

/* The i-th lease id of a RENEW. */
uint64_t pk_command_lease_at(const struct pk_command *c, uint32_t i);
/* Writes `id` as the i-th of a RENEW's `leases`. */
void pk_command_put_lease(unsigned char *leases, uint32_t i, uint64_t id);
/* The event number that a RENEW with `heard` names for its i-th lease, and its writer. */
uint32_t pk_command_heard_at(const struct pk_command *c, uint32_t i);
void pk_command_put_heard(unsigned char *heard, uint32_t i, uint32_t event);

/* The encoded size of `c`, for the buffer of pk_command_encode. */
size_t pk_command_size(const struct pk_command *c);
/* Writes exactly pk_command_size(c) bytes to `out` and returns their number. */
size_t pk_command_encode(const struct pk_command *c, unsigned char *out);
/* Reads one command from the first bytes of `in`; its strings borrow from `in`.
 * Returns the bytes consumed, 0 when they are not a whole, well-formed command. */
size_t pk_command_decode(const unsigned char *in, size_t len, struct pk_command *out);

/* The cluster version from which on the machine can run the command. Nobody may hand it
 * to a machine of an older one, because its other replicas could not decode it. */
uint32_t pk_command_needs(const struct pk_command *c);

/* Whether the command changes nothing but the clock: the verb only reads, or it is a
 * FENCE GET that brings no token. */
bool pk_command_is_read(const struct pk_command *c);

/* NULL when every field is within the fixed bounds of limits.h, else one sentence that
 * says what is wrong. Clients ask before sending; the machine asks again in the step. */
const char *pk_command_wrong(const struct pk_command *c);
/* The same for a single lock or resource name. */
const char *pk_name_wrong(struct pk_bytes name);

#endif
