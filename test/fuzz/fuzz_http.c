/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a connection's requests. What is read must not depend on how the bytes
 * come: all at once, one at a time, and in pieces of changing length, the same requests
 * with the same verdicts come out; each within its bound.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/wire.h"
#include "server/http_request.h"

static void demand(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

static uint64_t digest_bytes(uint64_t d, struct pk_bytes b)
{
    d = pk_digest(d, &b.len, sizeof b.len);
    return pk_digest(d, b.data, b.len);
}

/* All that an answer depends on. */
static uint64_t digest_request(uint64_t d, const struct pk_http_request *r)
{
    const int facts[] = {r->refusal, r->head_only, r->keep_alive, r->old};
    d = pk_digest(d, facts, sizeof facts);
    d = digest_bytes(d, r->path);
    return digest_bytes(d, r->query);
}

static void check_request(const struct pk_http_request *r, bool whole, size_t taken)
{
    demand(taken <= PK_HTTP_REQUEST_MAX, "a request longer than allowed");
    demand(whole || r->refusal != 0, "bad, and not refused");
    demand(r->refusal == 0 || (r->why[0] != '\0' && !r->keep_alive), "a refusal goes on");
    demand(r->refusal != 0 || (r->path.len > 0 && r->path.data[0] == '/'), "no path");
    demand(r->refusal == 0 || (r->refusal >= 400 && r->refusal < 600), "no such refusal");
}

/* Reads the requests of the connection; piece lengths come from `seed` (0: all at once,
 * 1: one by one). Copies each piece to a block of its size, so that a sanitizer sees a
 * read beyond it. */
static uint64_t read_all(const uint8_t *data, size_t size, uint64_t seed)
{
    static const char *const hosts[] = {"a", "node1.internal", NULL};
    static struct pk_http_request r;
    uint64_t d = PK_DIGEST_START;
    size_t at = 0, taken = 0;
    bool open = true;
    pk_http_request_init(&r, hosts);
    while (open && at < size) {
        seed = seed > 1 ? seed * UINT64_C(6364136223846793005) + 1 : seed;
        size_t len = seed == 0 ? size - at : seed == 1 ? 1 : 1 + (size_t)(seed >> 57);
        len = len < size - at ? len : size - at;
        char *piece = malloc(len);
        demand(piece != NULL, "no memory");
        memcpy(piece, data + at, len);
        size_t used = 0;
        enum pk_http_got got = pk_http_request_read(&r, pk_bytes(piece, len), &used);
        demand(used <= len, "took more than there was");
        demand(got != PK_HTTP_MORE || used == len, "left some and wants more");
        at += used;
        taken += used;
        if (got != PK_HTTP_MORE) {
            check_request(&r, got == PK_HTTP_ONE, taken);
            d = digest_request(pk_digest(d, &got, sizeof got), &r);
            d = got == PK_HTTP_ONE ? pk_digest(d, &at, sizeof at) : d;
            taken = 0;
            open = r.keep_alive;
        }
        free(piece);
    }
    return d;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t whole = read_all(data, size, 0);
    demand(read_all(data, size, 1) == whole, "other requests when read byte by byte");
    demand(read_all(data, size, 2 + size) == whole, "other requests when read in pieces");
    return 0;
}
