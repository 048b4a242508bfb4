/* SPDX-License-Identifier: MIT */
#include "gate/body.h"

#include <string.h>

#include "core/door.h"

enum { SIZE_DIGITS_MAX = 16 };

/* Where we are in a chunked body. */
enum step {
    SIZE,         /* its digits */
    EXTENSION,    /* up to CR */
    SIZE_LF,      /* after it */
    DATA,         /* `left` bytes */
    DATA_CR,      /* and their end */
    DATA_LF,      /*   */
    TRAILER,      /* at the beginning of a line after the last chunk */
    TRAILER_LINE, /* in it, up to CR */
    TRAILER_LF,
    LAST_LF, /* of the empty line */
};

void pk_body_init(struct pk_body *b, const struct pk_head *h)
{
    *b = (struct pk_body){.framing = h->framing, .step = SIZE};
    b->left = h->framing == PK_FRAMING_LENGTH ? h->length : 0;
    b->whole = h->framing == PK_FRAMING_NONE;
}

/* What ends a line of framing must be exactly that. */
static void expect(struct pk_body *b, bool is_it, enum step then)
{
    b->step = then;
    b->bad = b->bad || !is_it;
}

static void take_size(struct pk_body *b, char c)
{
    int digit = pk_head_hex(c);
    if (digit >= 0) {
        b->left = b->left << 4 | (unsigned)digit;
        b->bad = ++b->digits > SIZE_DIGITS_MAX;
    } else if (c == ';' || c == '\r') {
        expect(b, b->digits > 0, c == ';' ? EXTENSION : SIZE_LF);
    } else {
        b->bad = true;
    }
}

static bool is_control(char c)
{
    return (unsigned char)c < ' ' && c != '\t';
}

/* Thrown away, but not without end. */
static void take_aside(struct pk_body *b, char c, uint32_t most, enum step after)
{
    if (c == '\r') {
        b->step = after;
    } else if (is_control(c) || ++b->aside > most) {
        b->bad = true;
    }
}

static void end_size(struct pk_body *b, char c)
{
    bool last = b->left == 0;
    expect(b, c == '\n', last ? TRAILER : DATA);
    b->digits = 0;
    b->aside = 0;
}

/* One byte of framing. */
static void take_framing(struct pk_body *b, char c)
{
    switch ((enum step)b->step) {
    case SIZE:
        take_size(b, c);
        break;
    case EXTENSION:
        take_aside(b, c, PK_BODY_EXTENSION_BYTES, SIZE_LF);
        break;
    case SIZE_LF:
        end_size(b, c);
        break;
    case DATA_CR:
        expect(b, c == '\r', DATA_LF);
        break;
    case DATA_LF:
        expect(b, c == '\n', SIZE);
        break;
    case TRAILER:
        if (c == '\r') {
            b->step = LAST_LF;
            break;
        }
        b->step = TRAILER_LINE;
        take_aside(b, c, PK_BODY_TRAILER_BYTES, TRAILER_LF);
        break;
    case TRAILER_LINE:
        take_aside(b, c, PK_BODY_TRAILER_BYTES, TRAILER_LF);
        break;
    case TRAILER_LF:
        expect(b, c == '\n', TRAILER);
        break;
    case LAST_LF:
        expect(b, c == '\n', LAST_LF);
        b->whole = !b->bad;
        break;
    case DATA:
        PK_ASSERT(false);
    }
}

static size_t take_chunks(struct pk_body *b, char *data, size_t len, size_t *kept)
{
    size_t at = 0;
    while (at < len && !b->whole && !b->bad) {
        if (b->step != DATA) {
            take_framing(b, data[at++]);
            continue;
        }
        size_t n = len - at < b->left ? len - at : (size_t)b->left;
        memmove(data + *kept, data + at, n);
        *kept += n;
        at += n;
        b->left -= n;
        b->step = b->left == 0 ? DATA_CR : DATA;
    }
    return at;
}

size_t pk_body_take(struct pk_body *b, char *data, size_t len, size_t *kept)
{
    size_t used = 0;
    *kept = 0;
    switch (b->framing) {
    case PK_FRAMING_NONE:
        break;
    case PK_FRAMING_LENGTH:
        used = *kept = len < b->left ? len : (size_t)b->left;
        b->left -= used;
        b->whole = b->left == 0;
        break;
    case PK_FRAMING_CHUNKED:
        used = take_chunks(b, data, len, kept);
        break;
    case PK_FRAMING_END:
        used = *kept = len;
        break;
    }
    b->taken += *kept;
    return used;
}

uint64_t pk_body_left(const struct pk_body *b)
{
    return b->whole ? 0 : b->framing == PK_FRAMING_LENGTH ? b->left : UINT64_MAX;
}

bool pk_body_end(struct pk_body *b)
{
    b->whole = b->whole || b->framing == PK_FRAMING_END;
    return b->whole;
}
