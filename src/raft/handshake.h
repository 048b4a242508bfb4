/* SPDX-License-Identifier: MIT */
/*
 * What two nodes say to each other before consensus has its turn: the one that dials
 * says HELLO, the other answers WELCOME, or REFUSAL with a sentence for the operator. A
 * node that belongs to no cluster yet, or wants to know who does, says ASK instead; it is
 * answered with TELL and the connection ends.
 *
 *     head    "PKHI"   version (1)   kind (1)   length of the body (2, little endian)
 *     body    as core/wire.h writes it
 *         HELLO, WELCOME, ASK, TELL: cluster (ASK, TELL: or 0), own id, own name, own
 *             address, own release, the oldest and the newest cluster version it runs
 *         and behind that
 *         HELLO, WELCOME: id of the one addressed, run, client address, HTTP address,
 *                         purpose (1)
 *         TELL:           number of members, and of each: id, address, role
 *         REFUSAL:        the sentence
 *
 * A later release adds fields at the end, and an older one does not look at them; what
 * an older one could not leave out has another version. The head and the REFUSAL stay as
 * they are in all versions, so that two that don't understand each other can say so.
 */
#ifndef PICKET_RAFT_HANDSHAKE_H
#define PICKET_RAFT_HANDSHAKE_H

#include <stddef.h>
#include <stdint.h>

#include "raft/identity.h"
#include "raft/replica.h"

enum {
    PK_GREETING_VERSION = 1,
    PK_GREETING_MAX = 4096,       /* bytes of one, head included */
    PK_SMALL_GREETING_MAX = 1024, /* the same of any but TELL */
    PK_RELEASE_MAX = 32,          /* bytes of a release's name, with its NUL */
    PK_REFUSAL_MAX = 512,         /* a sentence with its NUL; what is longer is cut */
};

/* What a connection is for: messages of consensus, or the states of snapshots. */
enum pk_purpose { PK_FOR_MESSAGES, PK_FOR_SNAPSHOTS };

enum pk_greeting_kind { PK_HELLO = 1, PK_WELCOME, PK_REFUSAL, PK_ASK, PK_TELL };

/* What a node runs. */
struct pk_release {
    char name[PK_RELEASE_MAX]; /* "1.2.0" */
    uint32_t oldest, newest;   /* cluster versions (core/version.h) */
};

/* That of this build. */
struct pk_release pk_release_own(void);
/* "1.2.0, which runs cluster versions 1 to 2". Good until the next call. */
const char *pk_release_text(const struct pk_release *r);
bool pk_release_runs(const struct pk_release *r, uint32_t version);

struct pk_greeting {
    enum pk_greeting_kind kind;
    uint64_t cluster;
    uint64_t to;
    uint64_t run; /* random: this run of the process that speaks */
    enum pk_purpose purpose;
    struct pk_peer from;
    struct pk_release release;         /* of the one that speaks */
    char address[PK_NODE_ADDRESS_MAX]; /* "name@host:port" of the one that speaks */
    char why[PK_REFUSAL_MAX];
    struct pk_member members[PK_MEMBERS_MAX]; /* of TELL */
    size_t n_members;
};

enum pk_greeting_state {
    PK_GREETING_PART,  /* more bytes are needed */
    PK_GREETING_WHOLE, /* and not a byte more than that */
    PK_GREETING_VERSION_DIFFERS,
    PK_GREETING_GARBAGE, /* no greeting, whatever comes */
};

/* Writes at most PK_GREETING_MAX bytes; returns how many. */
size_t pk_greeting_encode(const struct pk_greeting *g, unsigned char *out);
/* Total on any bytes. A greeting that is WHOLE has a valid name and id, an address that
 * begins with the name, versions from 1 on in their order, and members for which the same
 * is true, each once. A byte behind its end is GARBAGE: nobody speaks before it was
 * answered. */
enum pk_greeting_state pk_greeting_decode(const unsigned char *in, size_t len,
                                          struct pk_greeting *out);

#endif
