/* SPDX-License-Identifier: MIT */
/* HOST:PORT, read and resolved. IPv6 addresses stand in brackets. */
#ifndef PICKET_SERVER_ADDRESS_H
#define PICKET_SERVER_ADDRESS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* Splits "HOST:PORT"; host without brackets. NULL, or a sentence. */
const char *pk_address_split(const char *text, char *host, size_t size, uint16_t *port);
/* The first address of the host. May ask the resolver, so names are for starting up and
 * for reconnecting. NULL, or a sentence. */
const char *pk_address_resolve(const char *text, struct sockaddr_storage *out);

#endif
