/* SPDX-License-Identifier: MIT */
/* HOST:PORT, read, resolved and listened at. IPv6 addresses stand in brackets. */
#ifndef PICKET_SERVER_ADDRESS_H
#define PICKET_SERVER_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

enum { PK_ADDRESS_BACKLOG = 1024 }; /* connections that wait to be accepted */

/* Splits "HOST:PORT"; host without brackets. NULL, or a sentence. */
const char *pk_address_split(const char *text, char *host, size_t size, uint16_t *port);
/* The first address of the host. Blocks while the resolver is asked, so it is for startup
 * and for the command line; a running loop uses pk_lookup_start. NULL, or a sentence. */
const char *pk_address_resolve(const char *text, struct sockaddr_storage *out);

/* ---- resolving on a running loop ---- */

struct pk_lookup;

/* `where` is the first address of the host; NULL: none was found, and `why` says it. */
typedef void (*pk_lookup_done)(void *ctx, const struct sockaddr *where, const char *why);

/* Resolves HOST:PORT on a thread of libuv's. `done` is called once, from the loop and
 * never from inside this call, unless the lookup is cancelled first. NULL: the lookup
 * can't begin, and *why says it. */
struct pk_lookup *pk_lookup_start(uv_loop_t *loop, const char *text, pk_lookup_done done,
                                  void *ctx, const char **why);
/* After this `done` is not called. The thread may be busy for longer, until the resolver
 * gives up; the loop keeps the memory for it. */
void pk_lookup_cancel(struct pk_lookup *l);
/* Reads HOST:PORT whose host is a number, without asking the resolver. */
bool pk_address_is_number(const char *text, struct sockaddr_storage *out);

/* ---- listening ---- */

/* Listens there with an initialised handle; *port is the one that was bound, also when
 * any was asked for. 0, or a negative number of libuv's. */
int pk_address_listen(uv_tcp_t *listener, const struct sockaddr_storage *where,
                      uv_connection_cb connected, uint16_t *port);

#endif
