/* SPDX-License-Identifier: MIT */
/*
 * A scenario script: text in, blocks of parsed lines out. README.md has the language.
 *
 * Nothing here knows the machine's state: names of clients and what they stand for (a
 * lease, a token) are resolved by the player. No files either, so that the same code
 * can serve a page.
 */
#ifndef PICKET_TEST_SCENARIO_SCRIPT_H
#define PICKET_TEST_SCENARIO_SCRIPT_H

#include "core/command.h"
#include "text.h"

enum { SCRIPT_PARTS_MAX = 64 };

enum script_when { SCRIPT_NOW, SCRIPT_AT, SCRIPT_AFTER };

enum script_action {
    SCRIPT_COMMAND,
    SCRIPT_REPEAT,     /* the client's last command once more */
    SCRIPT_SNAPSHOT,   /* save, restore, go on with the restored machine */
    SCRIPT_DEADLINE,   /* when does time next change something */
    SCRIPT_STATS,      /* the machine's counts */
    SCRIPT_VERSION,    /* the machine's cluster version */
    SCRIPT_INTERLEAVE, /* the block's other lines in every order */
};

/* One lease of a `renew`, by its client or by its id. */
struct script_renewal {
    struct pk_bytes client; /* empty: by id */
    uint64_t lease;
    uint64_t times; /* how often it stands in the list */
    uint32_t heard; /* with SCRIPT_GIVEN_HEARD */
};

/* Set in script_line.given: the line says it itself, the player need not fill it in. */
enum {
    SCRIPT_GIVEN_HEARD = 1 << 29,     /* by one lease of a renewal, so by all of them */
    SCRIPT_GIVEN_PRINCIPAL = 1 << 30, /* beside the bits of enum pk_field */
};

struct script_line {
    struct pk_bytes text;
    uint32_t number; /* in the file, from 1 */
    enum script_action action;
    enum script_when when;
    uint64_t time_ms;
    struct pk_bytes client;    /* who speaks; empty: nobody */
    struct pk_bytes of_client; /* show lease A: whose */
    struct pk_bytes lock;      /* cancel db: which of the client's acquires */
    struct pk_command command; /* what the line says; the rest is zero */
    uint32_t given;            /* mask of enum pk_field and SCRIPT_GIVEN_* */
    struct script_renewal renewals[SCRIPT_PARTS_MAX];
    uint32_t n_renewals;
    uint32_t heard; /* of the speaker's own lease, when the line names none */
};

/* Lines of a block that stand together; index into script.raw, from 0. */
struct script_block {
    uint32_t first_line; /* in script.lines */
    uint32_t n_lines;
    uint32_t expect_first; /* in script.raw */
    uint32_t n_expected;
    bool open; /* no ---- yet: only when accepting */
};

struct script_error {
    uint32_t line;
    char why[200];
};

/* Fills `error` with "what: why" (or `why` alone) and returns false. */
bool script_wrong(struct script_error *error, uint32_t line, const char *why,
                  struct pk_bytes what);

struct script_store; /* unescaped strings */

struct script {
    struct pk_bytes *raw; /* the text's lines, without their newlines */
    uint32_t n_raw;
    struct script_line *lines;
    uint32_t n_lines;
    struct script_block *blocks;
    uint32_t n_blocks;
    struct script_store *store;
};

/* Reads a whole script; its strings borrow from `text`. `accepting` lets a block end
 * without its ----. On false `error` says where and what; script_free is due either
 * way. */
bool script_read(struct script *s, struct pk_bytes text, bool accepting,
                 struct script_error *error);
void script_free(struct script *s);

#endif
