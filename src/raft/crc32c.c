/* SPDX-License-Identifier: MIT */
#include "raft/crc32c.h"

#include <string.h>

/* ---- any machine: a table of the 256 bytes ---- */

static uint32_t table[256];

__attribute__((constructor)) static void make_table(void)
{
    const uint32_t polynomial = UINT32_C(0x82f63b78); /* Castagnoli's, bits reversed */
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc & 1) != 0 ? (crc >> 1) ^ polynomial : crc >> 1;
        }
        table[byte] = crc;
    }
}

static uint32_t by_table(uint32_t crc, const unsigned char *at, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        crc = (crc >> 8) ^ table[(crc ^ at[i]) & 0xff];
    }
    return crc;
}

/* ---- x86-64 with SSE 4.2: eight bytes in one instruction ---- */

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t
by_instruction(uint32_t crc, const unsigned char *at, size_t len)
{
    uint64_t wide = crc;
    for (; len >= 8; at += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    return by_table((uint32_t)wide, at, len);
}

static uint32_t add(uint32_t crc, const unsigned char *at, size_t len)
{
    return __builtin_cpu_supports("sse4.2") ? by_instruction(crc, at, len)
                                            : by_table(crc, at, len);
}
#else
static uint32_t add(uint32_t crc, const unsigned char *at, size_t len)
{
    return by_table(crc, at, len);
}
#endif

uint32_t pk_crc32c(uint32_t crc, const void *data, size_t len)
{
    return ~add(~crc, data, len);
}
