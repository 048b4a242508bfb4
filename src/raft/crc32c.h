/* SPDX-License-Identifier: MIT */
/* CRC-32C (Castagnoli), the checksum of everything in the log store. It detects every
 * error of up to three bits in a batch, and every burst of up to 32 bits. */
#ifndef PICKET_RAFT_CRC32C_H
#define PICKET_RAFT_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues `crc` (0 at the start) over `len` bytes; in pieces or as a whole. */
uint32_t pk_crc32c(uint32_t crc, const void *data, size_t len);

#endif
