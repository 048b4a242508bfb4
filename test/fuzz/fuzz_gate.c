/* SPDX-License-Identifier: MIT */
/*
 * What the gate reads from strangers: the first byte chooses the rules, the rest is a
 * connection's bytes. A head that is taken must come out of the rewriting as a head that
 * is taken again and says the same; a body must be the same however it comes in pieces.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/utf8.h"
#include "core/wire.h"
#include "gate/body.h"
#include "gate/head.h"
#include "gate/rewrite.h"
#include "gate/wish.h"

static void demand(bool true_, const char *what)
{
    if (!true_) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

static void check_ask(const struct pk_wish *a, const struct pk_wish_rules *r)
{
    if (a->flaw != PK_WISH_FINE) {
        demand(a->why[0] != '\0', "a flaw without a word");
        return;
    }
    demand(a->has_token == (a->token != 0), "a token of 0");
    demand(a->token <= PK_TOKEN_MAX, "too large a token");
    demand(!a->has_token || a->resource_len > 0, "a token for nothing");
    demand(a->resource_len <= r->resource_max, "too long a name");
    demand(pk_utf8_printable(pk_bytes(a->resource, a->resource_len), false),
           "a name that is not printable");
    demand(strncmp(a->resource, PK_WISH_RESERVED, strlen(PK_WISH_RESERVED)) != 0,
           "a name of the gate's own");
    demand(a->has_key == (a->key.len > 0) && a->key.len <= PK_WISH_KEY_MAX, "a bad key");
}

/* What is passed on must be read as what was taken. */
static void check_rewritten(const struct pk_head *h, const struct pk_wish *a,
                            const struct pk_wish_rules *r)
{
    static struct pk_head again;
    static struct pk_wish asked;
    struct pk_resp_out out = {0};
    pk_rewrite_request(
        &out, h,
        &(struct pk_rewrite_request){.base = "", .host = "up:80", .client = "10.0.0.1"});
    size_t end = 0;
    demand(pk_head_scan(out.data, out.len, &end) == PK_SCAN_WHOLE && end == out.len,
           "passed on with an end inside");
    bool taken = pk_head_read_request(&again, pk_bytes(out.data, out.len));
    demand(taken || again.refusal == 431, "passed on and not taken again");
    if (taken) {
        demand(again.framing == h->framing && again.length == h->length,
               "passed on with another length");
        demand(again.method == h->method && pk_bytes_equal(again.target, h->target),
               "passed on to another target");
        demand(again.minor == 1 && again.keep_alive, "passed on as the last");
        (void)pk_wish_read(&asked, &again, r);
        demand(asked.flaw == a->flaw && asked.token == a->token &&
                   asked.resource_len == a->resource_len,
               "passed on with another token or resource");
    }
    pk_resp_free(&out);
}

/* Takes a body in pieces of a length (0: all at once), and digests what came out. */
static uint64_t take_body(const struct pk_head *h, struct pk_bytes bytes, size_t step)
{
    struct pk_body b;
    uint64_t d = PK_DIGEST_START;
    size_t at = 0;
    pk_body_init(&b, h);
    while (at < bytes.len && !b.whole && !b.bad) {
        size_t kept, len = bytes.len - at;
        len = step != 0 && step < len ? step : len;
        char *piece = malloc(len); /* so that a sanitizer sees a step beyond it */
        demand(piece != NULL, "no memory");
        memcpy(piece, bytes.data + at, len);
        size_t used = pk_body_take(&b, piece, len, &kept);
        demand(used <= len && kept <= used, "took more than there was");
        demand(used == len || b.whole || b.bad, "left some and wants more");
        d = pk_digest(d, piece, kept);
        at += used;
        free(piece);
    }
    const int facts[] = {b.whole, b.bad};
    d = b.bad ? d : pk_digest(d, &at, sizeof at);
    return pk_digest(d, facts, sizeof facts);
}

static void check_bodies(const struct pk_head *h, struct pk_bytes bytes)
{
    uint64_t whole = take_body(h, bytes, 0);
    demand(take_body(h, bytes, 1) == whole, "another body when read byte by byte");
    demand(take_body(h, bytes, 7) == whole, "another body when read in pieces");
}

static void try_request(const char *data, size_t len, size_t head_len,
                        const struct pk_wish_rules *r)
{
    static struct pk_head h;
    static struct pk_wish a;
    if (!pk_head_read_request(&h, pk_bytes(data, head_len))) {
        demand(h.refusal >= 400 && h.refusal < 600 && h.why[0] != '\0', "no refusal");
        return;
    }
    demand(h.framing != PK_FRAMING_END, "a request without an end");
    (void)pk_wish_read(&a, &h, r);
    check_ask(&a, r);
    check_rewritten(&h, &a, r);
    check_bodies(&h, pk_bytes(data + head_len, len - head_len));
}

static void try_answer(const char *data, size_t len, size_t head_len, bool to_head)
{
    static struct pk_head h;
    struct pk_resp_out out = {0};
    if (!pk_head_read_answer(&h, pk_bytes(data, head_len), to_head)) {
        return;
    }
    demand(!to_head || h.framing == PK_FRAMING_NONE, "an answer to HEAD with a body");
    bool chunks = h.framing == PK_FRAMING_CHUNKED || h.framing == PK_FRAMING_END;
    pk_rewrite_answer(
        &out, &h,
        &(struct pk_rewrite_answer){.framing = chunks ? PK_FRAMING_CHUNKED : h.framing});
    size_t end = 0;
    demand(pk_head_scan(out.data, out.len, &end) == PK_SCAN_WHOLE && end == out.len,
           "an answer with an end inside");
    check_bodies(&h, pk_bytes(data + head_len, len - head_len));
    pk_resp_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    if (size < 1 || size > 65536) {
        return 0;
    }
    struct pk_wish_rules r = {.from_field = (input[0] & 1) != 0,
                              .depth = 1 + (input[0] >> 1 & 3),
                              .resource_max = 20,
                              .based = (input[0] & 8) != 0};
    const char *data = (const char *)input + 1;
    size_t len = size - 1, whole = 0, slow = 0;
    enum pk_scan scan = pk_head_scan(data, len, &whole);
    enum pk_scan slowly = PK_SCAN_MORE;
    for (size_t n = 0; n <= len && slowly == PK_SCAN_MORE; n++) {
        slowly = pk_head_scan(data, n, &slow);
    }
    demand(slowly == scan && (scan == PK_SCAN_BAD || slow == whole),
           "another end when read byte by byte");
    if (scan == PK_SCAN_WHOLE && whole <= PK_HEAD_BYTES) {
        try_request(data, len, whole, &r);
        try_answer(data, len, whole, (input[0] & 16) != 0);
    }
    return 0;
}
