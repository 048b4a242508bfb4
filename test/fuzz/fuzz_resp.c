/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as requests and as values. What is read lies inside the input; every
 * beginning of something whole asks for more, and never for more than there is to it;
 * words that are written again are read as the same words.
 */
#include <stdio.h>
#include <stdlib.h>

#include "proto/resp.h"

enum { BEGINNINGS_MOST = 300 };

static void demand(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

static bool lies_inside(struct pk_bytes part, struct pk_bytes whole)
{
    return part.len == 0 ||
           (part.data >= whole.data && part.data + part.len <= whole.data + whole.len);
}

static void write_again(const struct pk_bytes *args, uint32_t n)
{
    static struct pk_bytes again[PK_RESP_ARGS_MAX];
    struct pk_resp_out o = {0};
    uint32_t m;
    size_t used;
    const char *why;
    pk_resp_array(&o, n);
    for (uint32_t i = 0; i < n; i++) {
        pk_resp_bulk(&o, args[i]);
    }
    struct pk_bytes all = pk_bytes(o.data, o.len);
    demand(pk_resp_request(all, again, &m, &used, &why) == PK_RESP_ONE, "not read again");
    demand(m == n && used == o.len, "other words");
    for (uint32_t i = 0; i < n; i++) {
        demand(pk_bytes_equal(args[i], again[i]), "another word");
    }
    pk_resp_free(&o);
}

static void beginnings(struct pk_bytes in, size_t whole, bool request)
{
    static struct pk_bytes args[PK_RESP_ARGS_MAX];
    uint32_t n;
    const char *why;
    for (size_t part = 0; part < whole && part < BEGINNINGS_MOST; part++) {
        size_t used;
        struct pk_bytes some = pk_bytes(in.data, part);
        enum pk_resp_got got = request ? pk_resp_request(some, args, &n, &used, &why)
                                       : pk_resp_whole(some, &used);
        demand(got == PK_RESP_MORE, "a beginning is taken for more than that");
        demand(used > part && used <= whole, "a beginning wishes for the wrong length");
    }
}

/* Request after request until they end or are bad. */
static void as_requests(struct pk_bytes in)
{
    static struct pk_bytes args[PK_RESP_ARGS_MAX];
    for (;;) {
        uint32_t n;
        size_t used;
        const char *why;
        enum pk_resp_got got = pk_resp_request(in, args, &n, &used, &why);
        demand((got == PK_RESP_BAD) == (why != NULL),
               "a sentence for BAD, and only then");
        demand(got != PK_RESP_MORE || used > in.len, "wishes for what it has");
        if (got != PK_RESP_ONE) {
            return;
        }
        demand(used > 0 && used <= in.len && n <= PK_RESP_ARGS_MAX, "reads too much");
        for (uint32_t i = 0; i < n; i++) {
            demand(lies_inside(args[i], in), "a word from elsewhere");
        }
        write_again(args, n);
        beginnings(in, used, true);
        in = pk_bytes(in.data + used, in.len - used);
    }
}

static void as_values(struct pk_bytes in)
{
    for (;;) {
        size_t used;
        enum pk_resp_got got = pk_resp_whole(in, &used);
        demand(got != PK_RESP_MORE || used > in.len, "wishes for what it has");
        if (got != PK_RESP_ONE) {
            break;
        }
        struct pk_resp_cursor c = {.rest = pk_bytes(in.data, used)};
        struct pk_resp_value v = pk_resp_next(&c);
        demand(lies_inside(v.bytes, in), "a value from elsewhere");
        pk_resp_skip(&c, &v);
        demand(!c.bad && c.rest.len == 0, "the cursor ends elsewhere");
        beginnings(in, used, false);
        in = pk_bytes(in.data + used, in.len - used);
    }
    /* What is not whole is no danger to a cursor. */
    struct pk_resp_cursor c = {.rest = in};
    while (!c.bad) {
        demand(lies_inside(pk_resp_next(&c).bytes, in), "a value from elsewhere");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    as_requests(pk_bytes(data, size));
    as_values(pk_bytes(data, size));
    return 0;
}
