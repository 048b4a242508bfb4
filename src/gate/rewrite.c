/* SPDX-License-Identifier: MIT */
#include "gate/rewrite.h"

#include <http_parser.h>

#include "gate/say.h"

static const char via[] = "Via: 1.1 picket-gate\r\n";

static void put_bytes(struct pk_resp_out *out, struct pk_bytes b)
{
    pk_resp_raw(out, b.data, b.len);
}

static void put_field(struct pk_resp_out *out, const struct pk_field *f)
{
    put_bytes(out, f->name);
    pk_say(out, ": ");
    put_bytes(out, f->value);
    pk_say(out, "\r\n");
}

void pk_rewrite_field(struct pk_resp_out *out, const char *name, const char *value)
{
    pk_say(out, name);
    pk_say(out, ": ");
    pk_say(out, value);
    pk_say(out, "\r\n");
}

/* ---- requests ---- */

static void put_forwarded(struct pk_resp_out *out, const struct pk_head *h,
                          const char *client)
{
    pk_say(out, "X-Forwarded-For: ");
    for (size_t i = 0; i < h->n; i++) {
        if (h->fields[i].kind == PK_FIELD_FORWARDED_FOR && h->fields[i].value.len > 0) {
            put_bytes(out, h->fields[i].value);
            pk_say(out, ", ");
        }
    }
    pk_say(out, client);
    pk_say(out, "\r\n");
}

void pk_rewrite_request(struct pk_resp_out *out, const struct pk_head *h,
                        const struct pk_rewrite_request *r)
{
    pk_say(out, pk_head_method(h));
    pk_say(out, " ");
    pk_say(out, r->base);
    put_bytes(out, h->target);
    pk_say(out, " HTTP/1.1\r\n");
    if (pk_head_field(h, PK_FIELD_HOST, NULL) == NULL) {
        pk_rewrite_field(out, "Host", r->host);
    }
    for (size_t i = 0; i < h->n; i++) {
        const struct pk_field *f = &h->fields[i];
        bool expect = f->kind == PK_FIELD_EXPECT && !h->expects;
        if (!f->hop && !expect && f->kind != PK_FIELD_FORWARDED_FOR) {
            put_field(out, f);
        }
    }
    put_forwarded(out, h, r->client);
    pk_say(out, via);
    pk_say(out, h->framing == PK_FRAMING_CHUNKED ? "Transfer-Encoding: chunked\r\n\r\n"
                                                 : "\r\n");
}

/* ---- answers ---- */

void pk_rewrite_status(struct pk_resp_out *out, int status, struct pk_bytes reason)
{
    char code[] = {(char)('0' + status / 100 % 10), (char)('0' + status / 10 % 10),
                   (char)('0' + status % 10), ' '};
    pk_say(out, "HTTP/1.1 ");
    pk_resp_raw(out, code, sizeof code);
    if (reason.len > 0) {
        put_bytes(out, reason);
    } else {
        pk_say(out, http_status_str((enum http_status)status));
    }
    pk_say(out, "\r\n");
}

void pk_rewrite_fields(struct pk_resp_out *out, const struct pk_head *h)
{
    for (size_t i = 0; i < h->n; i++) {
        const struct pk_field *f = &h->fields[i];
        bool ours = f->kind == PK_FIELD_CONTENT_LENGTH || f->kind == PK_FIELD_REPLAYED ||
                    f->kind == PK_FIELD_WOULD_REFUSE;
        if (!f->hop && !ours) {
            put_field(out, f);
        }
    }
    pk_say(out, via);
}

static void put_length(struct pk_resp_out *out, uint64_t length)
{
    pk_say(out, "Content-Length: ");
    pk_say_number(out, length);
    pk_say(out, "\r\n");
}

void pk_rewrite_end(struct pk_resp_out *out, const struct pk_rewrite_answer *r)
{
    if (r->would_refuse != NULL) {
        pk_rewrite_field(out, "Picket-Would-Refuse", r->would_refuse);
    }
    if (r->framing == PK_FRAMING_CHUNKED) {
        pk_say(out, "Transfer-Encoding: chunked\r\n");
    }
    pk_say(out, r->close ? "Connection: close\r\n\r\n"
                : r->old ? "Connection: keep-alive\r\n\r\n"
                         : "\r\n");
}

void pk_rewrite_answer(struct pk_resp_out *out, const struct pk_head *h,
                       const struct pk_rewrite_answer *r)
{
    pk_rewrite_status(out, h->status, h->reason);
    pk_rewrite_fields(out, h);
    if (h->has_length && r->framing != PK_FRAMING_CHUNKED) {
        put_length(out, h->length); /* to a HEAD it stands for what a GET would have */
    }
    pk_rewrite_end(out, r);
}

void pk_rewrite_interim(struct pk_resp_out *out, const struct pk_head *h)
{
    pk_rewrite_status(out, h->status, h->reason);
    pk_rewrite_fields(out, h);
    pk_say(out, "\r\n");
}

size_t pk_rewrite_chunk(char *room, size_t len)
{
    static const char hex[] = "0123456789abcdef";
    size_t n = 1;
    while (n < 16 && len >> (4 * n) != 0) {
        n++;
    }
    for (size_t i = 0; i < n; i++) {
        room[i] = hex[len >> (4 * (n - 1 - i)) & 15];
    }
    room[n] = '\r';
    room[n + 1] = '\n';
    return n + 2;
}
