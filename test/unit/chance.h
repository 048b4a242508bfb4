/* SPDX-License-Identifier: MIT */
/* Numbers and texts by chance, from fixed seeds, for tests of the protocol. */
#ifndef PICKET_TEST_CHANCE_H
#define PICKET_TEST_CHANCE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/bytes.h"

static uint64_t state;

static inline uint64_t chance(void)
{
    uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t below(uint64_t n)
{
    return chance() % n;
}

/* 0, small, large or anything up to `most`. */
static inline uint64_t some_number(uint64_t most)
{
    switch (below(4)) {
    case 0:
        return 0;
    case 1:
        return most == 0 ? 0 : 1 + below(most < 9 ? most : 9);
    case 2:
        return most - below(most < 3 ? 1 : 3);
    default:
        return most == UINT64_MAX ? chance() : below(most + 1);
    }
}

/* A text put together from `pieces`; lives until rewind_texts. */
static char texts[1 << 16];
static size_t texts_len;

static inline void rewind_texts(void)
{
    texts_len = 0;
}

static inline struct pk_bytes some_text(const struct pk_bytes *pieces, size_t n,
                                        uint64_t most)
{
    char *start = texts + texts_len;
    size_t len = 0;
    for (uint64_t i = below(most + 1); i > 0; i--) {
        const struct pk_bytes *p = &pieces[below(n)];
        if (len + p->len > 240 || texts_len + len + p->len > sizeof texts) {
            break;
        }
        memcpy(start + len, p->data, p->len);
        len += p->len;
    }
    texts_len += len;
    return pk_bytes(start, len);
}

#define PIECE(text)                                                                      \
    {                                                                                    \
        text, sizeof text - 1                                                            \
    }
static const struct pk_bytes printable[] = {
    PIECE("a"), PIECE("/"),    PIECE(" "),    PIECE("="), PIECE("%"),
    PIECE("ü"), PIECE("WAIT"), PIECE("%0A="), PIECE(":"), PIECE("row.kind=hold"),
};
static const struct pk_bytes hostile[] = {
    PIECE("a"),    PIECE("\0"),
    PIECE("\r\n"), PIECE("%"),
    PIECE("="),    PIECE(" "),
    PIECE("ü"),    PIECE("\xff"),
    PIECE("\x7f"), PIECE(": name=x"),
    PIECE("%41"),  PIECE("\t"),
    PIECE("-ERR"), PIECE("row.kind=hold"),
};
enum {
    PRINTABLE = sizeof printable / sizeof printable[0],
    HOSTILE = sizeof hostile / sizeof hostile[0],
};

#endif
