/* SPDX-License-Identifier: MIT */
/* HOST:PORT, read, resolved and listened at. IPv6 addresses stand in brackets. */
#ifndef PICKET_SERVER_ADDRESS_H
#define PICKET_SERVER_ADDRESS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

enum { PK_ADDRESS_BACKLOG = 1024 }; /* connections that wait to be accepted */

/* Splits "HOST:PORT"; host without brackets. NULL, or a sentence. */
const char *pk_address_split(const char *text, char *host, size_t size, uint16_t *port);
/* The first address of the host. May ask the resolver, so names are for starting up and
 * for reconnecting. NULL, or a sentence. */
const char *pk_address_resolve(const char *text, struct sockaddr_storage *out);

/* Listens there with an initialised handle; *port is the one that was bound, also when
 * any was asked for. 0, or a negative number of libuv's. */
int pk_address_listen(uv_tcp_t *listener, const struct sockaddr_storage *where,
                      uv_connection_cb connected, uint16_t *port);

#endif
