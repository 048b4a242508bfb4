/* SPDX-License-Identifier: MIT */
/* Keys of Consul's store: their names, what an answer says of them, and transactions. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "core/door.h"
#include "drivers/consul.h"
#include "host/memory.h"

#define LOCK_END "/.lock"
#define TOKEN_LINE "token="

/* That of keys which `consul lock` uses, so that it respects ours. */
static const json_int_t lock_flags = 3304740253564472344;

void pk_consul_lock_key(const struct pk_consul *c, const char *name,
                        char out[PK_CONSUL_KEY_ROOM])
{
    char escaped[PK_KEY_MAX];
    pk_key_escape(name, escaped);
    (void)snprintf(out, PK_CONSUL_KEY_ROOM, "%s/%s" LOCK_END, c->prefix, escaped);
}

bool pk_consul_lock_name(const struct pk_consul *c, const char *key,
                         char out[PK_NAME_MAX + 1])
{
    size_t before = strlen(c->prefix) + 1;
    size_t len = strlen(key);
    size_t end = strlen(LOCK_END);
    if (len < before + end || strcmp(key + len - end, LOCK_END) != 0) {
        return false;
    }
    return pk_key_unescape(pk_bytes(key + before, len - before - end), out);
}

/* ---- base64, in which values travel ---- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                             "0123456789+/="; /* the last one fills up */

enum { FILL = 64 };

static char *encode(struct pk_bytes bytes)
{
    const unsigned char *from = (const unsigned char *)bytes.data;
    char *out = pk_door_resize(NULL, ((size_t)bytes.len + 2) / 3 * 4 + 1);
    size_t n = 0;
    for (size_t i = 0; i < bytes.len; i += 3) {
        size_t left = bytes.len - i;
        uint32_t three = (uint32_t)from[i] << 16;
        three |= left > 1 ? (uint32_t)from[i + 1] << 8 : 0;
        three |= left > 2 ? from[i + 2] : 0;
        out[n++] = digits[three >> 18];
        out[n++] = digits[three >> 12 & 63];
        out[n++] = digits[left > 1 ? three >> 6 & 63 : FILL];
        out[n++] = digits[left > 2 ? three & 63 : FILL];
    }
    out[n] = '\0';
    return out;
}

/* What it is, malloc'ed; what is no digit ends it. */
static char *decode(const char *text, size_t *len)
{
    char *out = pk_door_resize(NULL, strlen(text) / 4 * 3 + 4);
    uint32_t bits = 0;
    unsigned have = 0;
    const char *digit;
    *len = 0;
    while (*text != '\0' && *text != '=' && (digit = strchr(digits, *text++)) != NULL) {
        bits = bits << 6 | (uint32_t)(digit - digits);
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[(*len)++] = (char)(bits >> have & 0xff);
        }
    }
    out[*len] = '\0';
    return out;
}

/* ---- keys ---- */

void pk_consul_key_free(struct pk_consul_key *k)
{
    free(k->value);
    *k = (struct pk_consul_key){0};
}

bool pk_consul_key_parse(const json_t *entry, struct pk_consul_key *out)
{
    const json_t *index = json_object_get(entry, "ModifyIndex");
    const char *session = json_string_value(json_object_get(entry, "Session"));
    const char *value = json_string_value(json_object_get(entry, "Value"));
    *out = (struct pk_consul_key){0};
    if (!json_is_integer(index)) {
        return false;
    }
    out->there = true;
    out->index = (uint64_t)json_integer_value(index);
    (void)snprintf(out->session, sizeof out->session, "%s", session ? session : "");
    out->value = decode(value ? value : "", &out->len);
    return true;
}

enum picket_status pk_consul_key_read(const struct pk_consul *c,
                                      const struct pk_consul_line *l,
                                      struct pk_consul_key *out)
{
    enum picket_status s = PICKET_OK;
    *out = (struct pk_consul_key){.seen = l->index};
    if (l->status == 404) {
        return PICKET_OK;
    }
    json_t *list = pk_consul_json(c, l, &s);
    if (list == NULL) {
        return s;
    }
    if (!pk_consul_key_parse(json_array_get(list, 0), out)) {
        s = pk_fail(PICKET_STORE, "%s answers with what is no key", c->show);
    }
    out->seen = l->index;
    json_decref(list);
    return s;
}

enum picket_status pk_consul_get(struct pk_consul *c, struct pk_consul_line *l,
                                 const char *key, struct pk_consul_key *out,
                                 uint64_t until_ms)
{
    char path[PK_CONSUL_URL_ROOM];
    pk_consul_path(path, key, "?consistent");
    const struct pk_consul_ask a = {.method = "GET", .path = path};
    *out = (struct pk_consul_key){0};
    enum picket_status s = pk_consul_ask(c, l, &a, until_ms);
    return s == PICKET_OK ? pk_consul_key_read(c, l, out) : s;
}

/* Reads the line "token=N\n" at the start of a value; its length, 0: there is none. */
static size_t read_token(const struct pk_consul_key *k, uint64_t *token)
{
    size_t at = strlen(TOKEN_LINE);
    if (k->len < at || memcmp(k->value, TOKEN_LINE, at) != 0) {
        return 0;
    }
    uint64_t n = 0;
    for (; at < k->len && k->value[at] >= '0' && k->value[at] <= '9'; at++) {
        n = n * 10 + (uint64_t)(k->value[at] - '0');
    }
    if (at == k->len || k->value[at] != '\n') {
        return 0;
    }
    *token = n;
    return at + 1;
}

bool pk_consul_key_claim(const struct pk_consul_key *k, uint64_t *request,
                         uint64_t *token, struct pk_bytes *card)
{
    struct pk_card read;
    *token = k->index;
    size_t skip = read_token(k, token);
    *card = pk_bytes(k->value + skip, k->len - skip);
    char *room = pk_door_resize(NULL, (size_t)card->len + 1);
    bool ours = pk_card_read(*card, room, &read);
    *request = ours ? read.request : 0;
    (void)pk_door_resize(room, 0);
    return ours;
}

char *pk_consul_value(uint64_t token, struct pk_bytes card, size_t *len)
{
    char *text =
        pk_memory_print(TOKEN_LINE "%" PRIu64 "\n%.*s", token, (int)card.len, card.data);
    *len = strlen(text);
    return text;
}

/* ---- transactions ---- */

void pk_consul_op_add(json_t *txn, const struct pk_consul_op *op)
{
    json_t *kv = json_object();
    json_object_set_new(kv, "Verb", json_string(op->verb));
    json_object_set_new(kv, "Key", json_string(op->key));
    if (op->index != 0) {
        json_object_set_new(kv, "Index", json_integer((json_int_t)op->index));
    }
    if (op->session != NULL) {
        json_object_set_new(kv, "Session", json_string(op->session));
    }
    if (op->has_value) {
        char *value = encode(op->value);
        json_object_set_new(kv, "Value", json_string(value));
        json_object_set_new(kv, "Flags", json_integer(lock_flags));
        (void)pk_door_resize(value, 0);
    }
    json_t *entry = json_object();
    json_object_set_new(entry, "KV", kv);
    json_array_append_new(txn, entry);
}

/* The index of the last thing that was changed; 0: nothing was. */
static uint64_t index_of(const json_t *results)
{
    size_t n = json_array_size(results);
    const json_t *kv =
        n == 0 ? NULL : json_object_get(json_array_get(results, n - 1), "KV");
    return (uint64_t)json_integer_value(json_object_get(kv, "ModifyIndex"));
}

enum picket_status pk_consul_run(struct pk_consul *c, struct pk_consul_line *l,
                                 json_t *txn, uint64_t *index, size_t *refused,
                                 uint64_t until_ms)
{
    char *body = json_dumps(txn, JSON_COMPACT);
    json_decref(txn);
    pk_memory_need(body);
    const struct pk_consul_ask a = {
        .method = "PUT", .path = "/txn", .body = body, .changes = true};
    enum picket_status s = pk_consul_ask(c, l, &a, until_ms);
    free(body);
    json_t *answer = s == PICKET_OK ? pk_consul_json(c, l, &s) : NULL;
    if (answer == NULL) {
        return s;
    }
    *refused = 0;
    *index = 0;
    if (l->status == 409) {
        const json_t *first = json_array_get(json_object_get(answer, "Errors"), 0);
        *refused = (size_t)json_integer_value(json_object_get(first, "OpIndex"));
        s = PICKET_NOTHELD;
    } else if (l->status == 200) {
        *index = index_of(json_object_get(answer, "Results"));
    } else {
        s = pk_fail(PICKET_STORE, "%s is too old: it knows no transactions", c->show);
    }
    json_decref(answer);
    return s;
}

bool pk_consul_said(const struct pk_consul_line *l, const char *word)
{
    return strstr(l->body, word) != NULL;
}
