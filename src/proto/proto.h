/* SPDX-License-Identifier: MIT */
/*
 * The native protocol: machine commands and effects as RESP, both directions in one
 * place, so that server and client can't disagree. docs/protocol.md is the same for
 * people. Words of a request are positional first, then options by name in any order;
 * names don't care for case.
 *
 *   LEASE OPEN ttl-ms [LABEL text] [REQUEST id]
 *   LEASE RENEW lease [lease ...] [TTL ms] [HEARD event [event ...]]
 *   LEASE CLOSE lease
 *   LEASE SHOW lease [COUNT n] [TARGET request]
 *   LOCK ACQUIRE lease name [MODE exclusive|shared|slot] [SLOTS n]
 *        [AND name [MODE ...] [SLOTS n]] ...
 *        [WAIT ms|forever] [MAXHOLD ms] [DELAY ms] [VALUE bytes] [REQUEST id]
 *   LOCK TRY ...                    the same with WAIT 0; no WAIT waits for ever
 *   LOCK CANCEL lease target [REQUEST id]
 *   LOCK RELEASE lease name token [REQUEST id]
 *   LOCK VALUE lease name token value [REQUEST id]
 *   LOCK BREAK name token [REASON text] [BY who] [REQUEST id]
 *   LOCK SHOW name [COUNT n]
 *   LOCK LIST [PREFIX text] [AFTER name] [COUNT n]
 *   FENCE CLAIM resource token
 *   FENCE CHECK resource token
 *   FENCE SET resource token value [REQUEST id]
 *   FENCE GET resource [TOKEN token]
 *   FENCE MODE resource shadow|enforce epoch
 *   FENCE SHOW resource
 *   ELECT CAMPAIGN lease name value [WAIT ms|forever] [REQUEST id]  = LOCK ACQUIRE
 *   ELECT PROCLAIM lease name token value [REQUEST id]              = LOCK VALUE
 *   ELECT RESIGN lease name token [REQUEST id]                      = LOCK RELEASE
 *   ELECT LEADER name                                               = LOCK SHOW COUNT 1
 *
 * SLOTS alone means MODE slot. COUNT is 100 when not given. An option is given once (MODE
 * and SLOTS: once for each lock). BY is for operators behind one connection; the server
 * may put who it knows in its place.
 *
 * A reply that is OK or QUEUED is a map of those fields of the REPLY effect that are not
 * zero or empty, after `status`; rows are under `rows`, an array of maps, each with
 * `kind` (lock, hold, wait, outcome). RENEW of several leases answers an array of such
 * maps (or errors). Any other status is an error:
 *
 *     -CODE sentence: field=value field=value ... row.field=value ...
 *
 * with the same fields; in values, bytes that are blank, control, '%' or '=' are %XX. The
 * sentence of a BADARG is its `why`, which then is no field. An event is a push (RESP3)
 * of three: "event", its kind, and the map of its fields; kind "gap": events were or will
 * be missed, of all that is watched, or of the `lease` in its map. Field names are those
 * of struct pk_effect (core/effect.h). Its `verb` is not sent: who reads an answer has
 * asked.
 */
#ifndef PICKET_PROTO_PROTO_H
#define PICKET_PROTO_PROTO_H

#include "core/command.h"
#include "core/effect.h"
#include "proto/resp.h"

/* ---- requests ---- */

enum { PK_PROTO_WHY_MAX = 384, PK_PROTO_ROWS = 100 /* COUNT when not given */ };

/* Where a command's own bytes go that RESP does not have in this form (RENEW's ids and
 * event numbers), and the sentence about a wrong one. */
struct pk_proto_scratch {
    unsigned char leases[8 * PK_RENEW_MAX];
    unsigned char heard[4 * PK_RENEW_MAX];
    char why[PK_PROTO_WHY_MAX];
};

enum pk_proto_got {
    PK_PROTO_COMMAND, /* a command for the machine */
    PK_PROTO_OTHER,   /* not one of those above: maybe the server's own */
    PK_PROTO_WRONG,   /* one of those, but with other words (code ERR): *why */
    PK_PROTO_BADARG,  /* the right words, but a value is out of bounds (BADARG): *why */
};

/* Reads the words of a request. Strings borrow from `args`, ids and *why from `scratch`.
 * The command has been through pk_command_wrong(). */
enum pk_proto_got pk_proto_read_command(const struct pk_bytes *args, uint32_t n,
                                        struct pk_proto_scratch *scratch,
                                        struct pk_command *out, const char **why);
/* The answer to words that nobody knows, with what could follow a first word of ours. */
void pk_proto_write_unknown(struct pk_resp_out *o, const struct pk_bytes *args,
                            uint32_t n);
/* The answer to a WRONG or a BADARG; the latter as the machine would have it. */
void pk_proto_write_wrong(struct pk_resp_out *o, enum pk_proto_got got, const char *why);
/* The request for a command (what a client sends). Not for TICK and KEY verbs. */
void pk_proto_write_command(struct pk_resp_out *o, const struct pk_command *c);

/* How a request is right: the line above for words that begin like one of them, for a
 * first word alone (LOCK) what can follow it; NULL for words that are not ours. */
const char *pk_proto_usage(const struct pk_bytes *args, uint32_t n);
/* All lines in turn, for a help text; NULL after the last. */
const char *pk_proto_usage_line(uint32_t i);

/* Reads `name value [name value ...]` over the limits there are, or over zeros for a
 * change. NULL, or a sentence; then the limits are as before. */
const char *pk_proto_read_limits(const struct pk_bytes *args, uint32_t n,
                                 struct pk_limits *inout);
void pk_proto_write_limits(struct pk_resp_out *o, const struct pk_limits *l); /* a map */

/* ---- replies and events ---- */

/* The REPLY and ROWs among `effects` (others are passed over) as one RESP reply. */
void pk_proto_write_reply(struct pk_resp_out *o, const struct pk_effects *effects);
/* The same without the array that is around several. */
void pk_proto_write_each(struct pk_resp_out *o, const struct pk_effects *effects);
/* One event as a push. */
void pk_proto_write_event(struct pk_resp_out *o, const struct pk_effect *e);
/* A push that says that events were missed; or, with a lease, that its events do not come
 * to this connection any more: whoever relies on them renews it, and is told. */
void pk_proto_write_gap(struct pk_resp_out *o, uint64_t lease);

enum pk_proto_answer {
    PK_PROTO_REPLY,   /* effects: REPLY and ROWs */
    PK_PROTO_EVENT,   /* effects: one event */
    PK_PROTO_GAP,     /* events were missed */
    PK_PROTO_REFUSED, /* an error that is not the machine's, e.g. NOTLEADER: `error` */
    PK_PROTO_STRANGE, /* a reply or push that is none of ours (PONG, a plain map ...) */
    PK_PROTO_BROKEN,  /* not understood: close the connection */
};

/* Reads one whole RESP value; appends to `out` (only for REPLY and EVENT). `error`
 * borrows the text of a REFUSED, code first. Unknown fields are passed over. */
enum pk_proto_answer pk_proto_read_answer(struct pk_bytes whole, struct pk_effects *out,
                                          struct pk_bytes *error);

/* ---- errors that are not the machine's ---- */

/*  X(code, outcome, sentence): outcome is "not done" or "unknown" */
#define PK_PROTO_ERRORS(X)                                                               \
    X(ERR, "not done", "not a command, or not with these words")                         \
    X(NOTLEADER, "not done", "ask the node named (host:port), or try again")             \
    X(NOLEADER, "not done", "no leader at the moment; try again")                        \
    X(NOSPACE, "not done", "the disk is full; nothing was changed")                      \
    X(OVERLOAD, "not done", "too much at once; try again later")                         \
    X(UNKNOWN, "unknown", "leadership was lost; it may or may not have been done")       \
    X(NOPROTO, "not done", "this protocol version is not spoken")                        \
    X(NOSCRIPT, "not done", "no script with this digest; send it with EVAL")             \
    X(WRONGTYPE, "not done", "held as something that this command does not apply to")

enum pk_proto_error {
#define X(code, outcome, sentence) PK_PROTO_ERROR_##code,
    PK_PROTO_ERRORS(X)
#undef X
        PK_PROTO_ERROR_COUNT
};

const char *pk_proto_error_name(enum pk_proto_error e);    /* "NOTLEADER" */
const char *pk_proto_error_outcome(enum pk_proto_error e); /* "not done" */
const char *pk_proto_error_text(enum pk_proto_error e);

/* -CODE detail; without one (NULL) the table's sentence. NOTLEADER's is host:port. */
void pk_proto_write_error(struct pk_resp_out *o, enum pk_proto_error e,
                          const char *detail);
/* Which error a REFUSED text is, and what stands behind its code (`detail` may be NULL).
 * COUNT: none of ours. */
enum pk_proto_error pk_proto_error_of(struct pk_bytes text, struct pk_bytes *detail);

#endif
