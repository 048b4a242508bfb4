/* SPDX-License-Identifier: MIT */
/*
 * Plays the lines of a script on a machine and writes what came out.
 *
 * The player knows what a name in a script stands for: a client's lease is the one it
 * opened last, its token on a lock that of its last grant there, its request ids count
 * from 1. After every command it lets the machine check itself, wants tokens to grow
 * (P2), the command to survive its own encoding, and a snapshot to be restored to the
 * same bytes.
 */
#ifndef PICKET_TEST_SCENARIO_PLAYER_H
#define PICKET_TEST_SCENARIO_PLAYER_H

#include "core/machine.h"
#include "print.h"
#include "script.h"

enum { CLIENTS_MAX = 32, GRANTS_MAX = 512, ASKED_MAX = 512 };

struct player_client {
    struct pk_bytes name; /* empty: nobody, always the first */
    uint64_t lease;       /* 0: none yet */
    uint64_t next_request;
    uint64_t token;   /* of its last grant */
    uint64_t acquire; /* request id of its last acquire */
    struct pk_command last;
    bool spoke; /* `last` is set */
};

/* A plain value but for the machine: player_copy makes an independent one. */
struct player {
    struct pk_machine *machine;
    bool restore_always; /* go on with a restored machine after every command */
    struct player_client clients[CLIENTS_MAX];
    uint32_t n_clients;
    struct lease_names names;
    struct {
        struct pk_bytes name;
        uint64_t lease, token;
    } grants[GRANTS_MAX];
    uint32_t n_grants;
    struct {
        struct pk_bytes name;
        uint32_t client;
        uint64_t request;
    } asked[ASKED_MAX]; /* the locks of every acquire and take */
    uint32_t n_asked;
    uint64_t next_shared; /* ids that must differ between all clients */
    uint64_t last_token;
    struct script_error *error;
    /* Of the last command. */
    struct pk_effects effects;
    uint32_t speaker; /* index into clients */
};

void player_init(struct player *p, struct script_error *error);
void player_free(struct player *p);
/* An independent player with the same state. */
struct player *player_copy(const struct player *from);

/* Plays one line and appends its effects to `output`; false: p->error says what is
 * wrong. */
bool player_line(struct player *p, const struct script_line *line, struct text *output);
/* Plays a whole block. */
bool player_block(struct player *p, const struct script *s, const struct script_block *b,
                  struct text *output);
/* interleave.c: every order of the block's lines, each on a copy; p itself stays. */
bool player_interleave(const struct player *p, const struct script *s,
                       const struct script_block *b, struct text *output);

#endif
