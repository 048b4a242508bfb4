/* SPDX-License-Identifier: MIT */
#ifndef PICKET_HOST_SOCKET_H
#define PICKET_HOST_SOCKET_H

/* For a TCP connection to a store: small requests leave at once; a dead peer is noticed
 * by the kernel, too. Failing to set one of these costs time after a fault, nothing else.
 */
void pk_socket_tune(int fd);

#endif
