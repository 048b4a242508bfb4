/* SPDX-License-Identifier: MIT */
/*
 * Traces of real clusters: lines of text, as `picket serve --trace` writes them from the
 * effects of the commands that a node runs. So every node of a cluster writes the same,
 * and any of them can be asked.
 *
 *     picket-trace 1 n1 8f3a...         version, node, cluster
 *     1203 opened 5 worker-7@h3         cluster time in ms, what, and its words
 *     1204 granted orders 5 1 17 x 0
 *
 * Words are separated by one space; in names and texts a space, a percent sign and what
 * is not printable is %XX, and an empty one is a dash. A line like the first may come
 * again: the node was started again, or began a new file.
 *
 * Pure: the server writes through this, the command line and the page read through it.
 */
#ifndef PICKET_SIM_TRACEFILE_H
#define PICKET_SIM_TRACEFILE_H

#include <stdbool.h>

#include "core/effect.h"
#include "core/limits.h"
#include "sim/prose.h"

/*  X(kind, word, fields): N name of a lock or resource, L lease, R request, T token,
 *  m mode (x, s, or the number of slots), n a number, t a text
 *  OPENED    a lease, and its owner's label
 *  CLOSED    a lease has ended, and why
 *  RENEWED   a lease, for so many ms
 *  QUEUED    a claim waits, and its place
 *  GRANTED   a claim holds; n: it has waited for so many ms
 *  LEFT      a claim waits no longer, and why
 *  ENDED     a hold is over, and why
 *  RAISED    a fence is now at that token
 *  PASSED    a fence let that token through
 *  REFUSED   a fence refused that token; n: where it stands
 *  SHADOWED  a fence in shadow mode let that token through; n: where it stands
 *  FORGOT    a fence was to be kept no longer
 *  LEADER    this node knows that leader from now on; a dash: none
 *  GAP       the state was replaced; what happened before is not all here */
#define PK_TRACE_KINDS(X)                                                                \
    X(OPENED, "opened", "Lt")                                                            \
    X(CLOSED, "closed", "Lt")                                                            \
    X(RENEWED, "renewed", "Ln")                                                          \
    X(QUEUED, "queued", "NLRn")                                                          \
    X(GRANTED, "granted", "NLRTmn")                                                      \
    X(LEFT, "left", "NLRt")                                                              \
    X(ENDED, "ended", "NLRTt")                                                           \
    X(RAISED, "raised", "NT")                                                            \
    X(PASSED, "passed", "NT")                                                            \
    X(REFUSED, "refused", "NTn")                                                         \
    X(SHADOWED, "shadowed", "NTn")                                                       \
    X(FORGOT, "forgot", "N")                                                             \
    X(LEADER, "leader", "t")                                                             \
    X(GAP, "gap", "")

enum pk_trace_kind {
#define X(kind, word, fields) PK_TRACE_##kind,
    PK_TRACE_KINDS(X)
#undef X
        PK_TRACE_BEGIN, /* the first line: text is the node, number the cluster */
    PK_TRACE_KIND_COUNT
};

enum { PK_TRACE_TEXT_MAX = 128 }; /* bytes of a label that are kept */

struct pk_trace_line {
    enum pk_trace_kind kind;
    uint64_t at_ms;
    struct pk_bytes name, text; /* when written: borrowed; when read: of the two below */
    uint64_t lease, request, token, number;
    enum pk_mode mode;
    uint32_t slots;
    char name_bytes[PK_NAME_MAX], text_bytes[PK_TRACE_TEXT_MAX];
};

/* ---- writing ---- */

void pk_trace_write(const struct pk_trace_line *l, struct pk_prose *out);
/* The lines for what one command has done; `c` may be NULL. */
void pk_trace_step(uint64_t at_ms, const struct pk_command *c, const struct pk_effects *e,
                   struct pk_prose *out);

/* ---- reading ---- */

struct pk_trace_reader {
    const char *at, *end;
    uint32_t line;   /* number of the line read last */
    bool cut;        /* the last line has no end: it was being written, and is left out */
    const char *why; /* what is wrong with this line */
};

void pk_trace_open(struct pk_trace_reader *r, const char *text, size_t len);
/* The next line. False: there is none, or it is wrong: then `why` says so. */
bool pk_trace_read(struct pk_trace_reader *r, struct pk_trace_line *out);

#endif
