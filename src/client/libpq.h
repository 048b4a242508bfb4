/* SPDX-License-Identifier: MIT */
/* What fences and locks in PostgreSQL have in common: libpq without its endless waits,
 * and what it says in words only. */
#ifndef PICKET_CLIENT_LIBPQ_H
#define PICKET_CLIENT_LIBPQ_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes the URL for people, without its password. False: libpq can't read it, or it is
 * too long; libpq's own words about that would quote the password. */
bool pk_libpq_show(const char *url, char *out, size_t size);

/* The SQLSTATE in the words of a connection that failed: "FATAL:  28P01: ...", as libpq
 * tells it in no other way. It needs PQERRORS_VERBOSE. NULL: the server said nothing. */
const char *pk_libpq_state(const char *words);
/* The words without what stands before them. */
const char *pk_libpq_said(const char *words);

/* Goes on with what PQconnectStart began. */
bool pk_libpq_connect(PGconn *conn, uint64_t until_ms);
/* The last result of what was sent, or the first that failed; NULL: it did not come. The
 * server has committed by then, or refused to. */
PGresult *pk_libpq_receive(PGconn *conn, uint64_t until_ms);

#endif
