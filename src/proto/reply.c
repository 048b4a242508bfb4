/* SPDX-License-Identifier: MIT */
/*
 * Replies, errors and events, both directions from one table of what an effect can
 * carry. Fields that are zero or empty are not sent.
 */
#include "core/door.h"
#include "proto/proto.h"

/* ---- the table ---- */

enum type { SMALL /* 32 bits */, LARGE /* 64 bits */, BYTES, MODE, END, STATUS };

/*  X(member of struct pk_effect and name on the wire, its length, type) */
#define FIELDS(X)                                                                        \
    X(name, 4, BYTES)                                                                    \
    X(mode, 4, MODE)                                                                     \
    X(slots, 5, SMALL)                                                                   \
    X(token, 5, LARGE)                                                                   \
    X(lease, 5, LARGE)                                                                   \
    X(request, 7, LARGE)                                                                 \
    X(part, 4, SMALL)                                                                    \
    X(parts, 5, SMALL)                                                                   \
    X(place, 5, SMALL)                                                                   \
    X(holders, 7, SMALL)                                                                 \
    X(waiters, 7, SMALL)                                                                 \
    X(would, 5, STATUS)                                                                  \
    X(shadow, 6, SMALL)                                                                  \
    X(shadowed, 8, LARGE)                                                                \
    X(value_bytes, 11, SMALL)                                                            \
    X(more, 4, SMALL)                                                                    \
    X(event, 5, SMALL)                                                                   \
    X(epoch, 5, LARGE)                                                                   \
    X(left_ms, 7, LARGE)                                                                 \
    X(closed_ms, 9, LARGE)                                                               \
    X(since_ms, 8, LARGE)                                                                \
    X(renew_after_ms, 14, LARGE)                                                         \
    X(end, 3, END)                                                                       \
    X(value, 5, BYTES)                                                                   \
    X(label, 5, BYTES)                                                                   \
    X(by, 2, BYTES)                                                                      \
    X(why, 3, BYTES)

#define X(member, length, type)                                                          \
    _Static_assert(sizeof #member - 1 == (length), "the length of " #member);
FIELDS(X)
#undef X

/* Keys stand ready as they are written, since every reply has some. */
static const struct field {
    struct pk_bytes name;
    struct pk_bytes key;
    enum type type;
    size_t offset;
} fields[] = {
#define X(member, length, type)                                                          \
    {{#member, (length)},                                                                \
     {"$" #length "\r\n" #member "\r\n", sizeof "$" #length "\r\n" #member "\r\n" - 1},  \
     type,                                                                               \
     offsetof(struct pk_effect, member)},
    FIELDS(X)
#undef X
};

enum {
#define X(member, length, type) AT_##member,
    FIELDS(X)
#undef X
        FIELD_COUNT
};

_Static_assert(FIELD_COUNT <= 32, "a bit for each field");

static const void *at_const(const struct pk_effect *e, const struct field *f)
{
    return (const char *)e + f->offset;
}

static struct pk_bytes bytes_of(const struct pk_effect *e, const struct field *f)
{
    return *(const struct pk_bytes *)at_const(e, f);
}

/* Of a field that is not BYTES. */
static uint64_t number_of(const struct pk_effect *e, const struct field *f)
{
    switch (f->type) {
    case SMALL:
        return *(const uint32_t *)at_const(e, f);
    case LARGE:
        return *(const uint64_t *)at_const(e, f);
    case MODE:
        return *(const enum pk_mode *)at_const(e, f);
    case END:
        return *(const enum pk_end *)at_const(e, f);
    case STATUS:
        return *(const enum pk_status *)at_const(e, f);
    case BYTES:
        break;
    }
    return 0;
}

static bool is_word(enum type type)
{
    return type == MODE || type == END || type == STATUS;
}

/* The word for the value of such a type. */
static const char *word_of(enum type type, uint64_t v)
{
    return type == MODE  ? pk_mode_name((enum pk_mode)v)
           : type == END ? pk_end_name((enum pk_end)v)
                         : pk_status_name((enum pk_status)v);
}

static bool is_given(const struct pk_effect *e, const struct field *f)
{
    return f->type == BYTES ? bytes_of(e, f).len > 0 : number_of(e, f) != 0;
}

static bool is_row(const struct pk_effect *e)
{
    return e->kind >= PK_ROW_LOCK && e->kind <= PK_ROW_OUTCOME;
}

/* The REPLY or ROW that comes next at or after `i`; `count` when there is none. */
static uint32_t next_of(const struct pk_effects *e, uint32_t i)
{
    while (i < e->count && e->list[i].kind != PK_REPLY && !is_row(&e->list[i])) {
        i++;
    }
    return i;
}

/* ---- writing ---- */

/* A bit for each field that is given. */
static uint32_t given_of(const struct pk_effect *e)
{
    uint32_t given = 0;
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        given |= is_given(e, &fields[i]) ? 1U << i : 0;
    }
    return given;
}

static size_t count_bits(uint32_t bits)
{
    size_t n = 0;
    for (; bits != 0; bits &= bits - 1) {
        n++;
    }
    return n;
}

static void write_fields(struct pk_resp_out *o, const struct pk_effect *e, uint32_t given)
{
    for (const struct field *f = fields; given != 0; f++, given >>= 1) {
        if (!(given & 1)) {
            continue;
        }
        pk_resp_raw(o, f->key.data, f->key.len);
        if (f->type == BYTES) {
            pk_resp_bulk(o, bytes_of(e, f));
        } else if (is_word(f->type)) {
            pk_resp_text(o, word_of(f->type, number_of(e, f)));
        } else {
            pk_resp_int(o, number_of(e, f));
        }
    }
}

/* Rows follow their reply, and end at the next one. */
static uint32_t row_count(const struct pk_effects *e, uint32_t reply)
{
    uint32_t n = 0;
    for (uint32_t i = next_of(e, reply + 1); i < e->count && is_row(&e->list[i]);
         i = next_of(e, i + 1)) {
        n++;
    }
    return n;
}

static void write_map(struct pk_resp_out *o, const struct pk_effects *e, uint32_t reply)
{
    const struct pk_effect *r = &e->list[reply];
    uint32_t rows = row_count(e, reply);
    uint32_t given = given_of(r);
    pk_resp_map(o, 1 + count_bits(given) + (rows > 0 ? 1 : 0));
    pk_resp_text(o, "status");
    pk_resp_text(o, pk_status_name(r->status));
    write_fields(o, r, given);
    if (rows == 0) {
        return;
    }
    pk_resp_text(o, "rows");
    pk_resp_array(o, rows);
    for (uint32_t i = next_of(e, reply + 1); rows > 0; i = next_of(e, i + 1), rows--) {
        given = given_of(&e->list[i]);
        pk_resp_map(o, 1 + count_bits(given));
        pk_resp_text(o, "kind");
        pk_resp_text(o, pk_effect_name(e->list[i].kind));
        write_fields(o, &e->list[i], given);
    }
}

static void raw_text(struct pk_resp_out *o, const char *text)
{
    pk_resp_raw(o, text, strlen(text));
}

static bool needs_escape(char c)
{
    unsigned char u = (unsigned char)c;
    return u <= ' ' || u == 0x7f || c == '%' || c == '=';
}

static void write_escaped(struct pk_resp_out *o, struct pk_bytes b)
{
    static const char hex[] = "0123456789ABCDEF";
    char *start = pk_resp_reserve(o, 3 * (size_t)b.len);
    char *to = start;
    for (uint32_t i = 0; i < b.len; i++) {
        unsigned char u = (unsigned char)b.data[i];
        if (needs_escape(b.data[i])) {
            *to++ = '%';
            *to++ = hex[u >> 4];
            *to++ = hex[u & 15];
        } else {
            *to++ = b.data[i];
        }
    }
    o->len += (size_t)(to - start);
}

static void write_decimal(struct pk_resp_out *o, uint64_t v)
{
    char room[PK_RESP_DIGITS_MAX];
    pk_resp_raw(o, room, pk_resp_digits(room, v));
}

static void write_pairs(struct pk_resp_out *o, const struct pk_effect *e, uint32_t given,
                        const char *prefix)
{
    for (const struct field *f = fields; given != 0; f++, given >>= 1) {
        if (!(given & 1)) {
            continue;
        }
        raw_text(o, prefix);
        pk_resp_raw(o, f->name.data, f->name.len);
        raw_text(o, "=");
        if (f->type == BYTES) {
            write_escaped(o, bytes_of(e, f));
        } else if (is_word(f->type)) {
            raw_text(o, word_of(f->type, number_of(e, f)));
        } else {
            write_decimal(o, number_of(e, f));
        }
    }
}

/* A BADARG says what is wrong in place of the sentence that all of them have, for people
 * to read; unless that can't be told from what follows it. */
static bool speaks_for_itself(const struct pk_effect *r)
{
    for (uint32_t i = 0; i < r->why.len; i++) {
        unsigned char u = (unsigned char)r->why.data[i];
        if (u < ' ' || u == 0x7f || u == ':') {
            return false;
        }
    }
    return r->status == PK_BADARG && r->why.len > 0 &&
           !pk_bytes_equal(r->why, pk_text(pk_status_text(r->status)));
}

static void write_refusal(struct pk_resp_out *o, const struct pk_effects *e,
                          uint32_t reply)
{
    const struct pk_effect *r = &e->list[reply];
    uint32_t rows = row_count(e, reply);
    uint32_t given = given_of(r);
    struct pk_bytes sentence = pk_text(pk_status_text(r->status));
    if (speaks_for_itself(r)) {
        sentence = r->why;
        given &= ~(1U << AT_why);
    }
    raw_text(o, "-");
    raw_text(o, pk_status_name(r->status));
    raw_text(o, " ");
    pk_resp_raw(o, sentence.data, sentence.len);
    raw_text(o, rows > 0 || given != 0 ? ":" : "");
    write_pairs(o, r, given, " ");
    for (uint32_t i = next_of(e, reply + 1); rows > 0; i = next_of(e, i + 1), rows--) {
        raw_text(o, " row.kind=");
        raw_text(o, pk_effect_name(e->list[i].kind));
        write_pairs(o, &e->list[i], given_of(&e->list[i]), " row.");
    }
    raw_text(o, "\r\n");
}

void pk_proto_write_each(struct pk_resp_out *o, const struct pk_effects *effects)
{
    for (uint32_t i = 0; i < effects->count; i++) {
        const struct pk_effect *e = &effects->list[i];
        if (e->kind != PK_REPLY) {
            continue;
        }
        if (e->status == PK_OK || e->status == PK_QUEUED) {
            write_map(o, effects, i);
        } else {
            write_refusal(o, effects, i);
        }
    }
}

void pk_proto_write_reply(struct pk_resp_out *o, const struct pk_effects *effects)
{
    uint32_t replies = 0;
    for (uint32_t i = 0; i < effects->count; i++) {
        replies += effects->list[i].kind == PK_REPLY ? 1 : 0;
    }
    PK_ASSERT(replies > 0);
    if (replies > 1) {
        pk_resp_array(o, replies);
    }
    pk_proto_write_each(o, effects);
}

void pk_proto_write_event(struct pk_resp_out *o, const struct pk_effect *e)
{
    pk_resp_push(o, 3);
    pk_resp_text(o, "event");
    pk_resp_text(o, pk_effect_name(e->kind));
    uint32_t given = given_of(e);
    pk_resp_map(o, count_bits(given));
    write_fields(o, e, given);
}

void pk_proto_write_gap(struct pk_resp_out *o, uint64_t lease)
{
    struct pk_effect none = {.lease = lease};
    uint32_t given = given_of(&none);
    pk_resp_push(o, 3);
    pk_resp_text(o, "event");
    pk_resp_text(o, "gap");
    pk_resp_map(o, count_bits(given));
    write_fields(o, &none, given);
}

/* ---- reading ---- */

static bool same(struct pk_bytes b, const char *text)
{
    return pk_bytes_equal(b, pk_text(text));
}

static const struct field *field_of(struct pk_bytes name)
{
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (pk_bytes_equal(name, fields[i].name)) {
            return &fields[i];
        }
    }
    return NULL;
}

/* False: the field can't have this number. */
static bool set_number(struct pk_effect *e, const struct field *f, uint64_t v)
{
    void *at = (char *)e + f->offset;
    if (f->type == SMALL) {
        *(uint32_t *)at = (uint32_t)v;
        return v <= UINT32_MAX;
    }
    *(uint64_t *)at = v;
    return true;
}

static bool set_word(struct pk_effect *e, const struct field *f, struct pk_bytes word)
{
    static const unsigned counts[] = {
        [MODE] = PK_SLOT + 1, [END] = PK_END_COUNT, [STATUS] = PK_STATUS_COUNT};
    void *at = (char *)e + f->offset;
    unsigned count = counts[f->type];
    unsigned v = 0;
    while (v < count && !same(word, word_of(f->type, v))) {
        v++;
    }
    if (f->type == MODE) {
        *(enum pk_mode *)at = (enum pk_mode)v;
    } else if (f->type == END) {
        *(enum pk_end *)at = (enum pk_end)v;
    } else {
        *(enum pk_status *)at = (enum pk_status)v;
    }
    return v < count;
}

/* A field from its text, as errors have it and maps have what is no integer. */
static bool set_text(struct pk_effect *e, const struct field *f, struct pk_bytes text)
{
    uint64_t v;
    if (f->type == BYTES) {
        *(struct pk_bytes *)(void *)((char *)e + f->offset) = text;
        return true;
    }
    if (is_word(f->type)) {
        return set_word(e, f, text);
    }
    return pk_resp_number(text, &v) && set_number(e, f, v);
}

static bool is_text(const struct pk_resp_value *v)
{
    return v->type == PK_RESP_BULK || v->type == PK_RESP_SIMPLE;
}

static bool set_value(struct pk_effect *e, const struct field *f,
                      const struct pk_resp_value *v)
{
    if (v->type == PK_RESP_INT) {
        return (f->type == SMALL || f->type == LARGE) && v->number >= 0 &&
               set_number(e, f, (uint64_t)v->number);
    }
    return is_text(v) && set_text(e, f, v->bytes);
}

/* How many pairs a map has, or an array that stands for one. */
static bool pairs_of(const struct pk_resp_value *v, uint32_t *pairs)
{
    *pairs = v->type == PK_RESP_MAP ? v->n : v->n / 2;
    return v->type == PK_RESP_MAP || (v->type == PK_RESP_ARRAY && v->n % 2 == 0);
}

/* One pair of a map: sets the field, or passes over what is not known. */
static bool read_field(struct pk_resp_cursor *c, struct pk_bytes key, struct pk_effect *e)
{
    struct pk_resp_value v = pk_resp_next(c);
    const struct field *f = field_of(key);
    if (f != NULL) {
        return !c->bad && set_value(e, f, &v);
    }
    pk_resp_skip(c, &v);
    return !c->bad;
}

static bool read_fields(struct pk_resp_cursor *c, uint32_t pairs, struct pk_effect *e)
{
    for (uint32_t i = 0; i < pairs; i++) {
        struct pk_resp_value key = pk_resp_next(c);
        if (!is_text(&key) || !read_field(c, key.bytes, e)) {
            return false;
        }
    }
    return true;
}

/* The number of a kind among first..last by its name; `last + 1` when there is none. */
static unsigned kind_of(struct pk_bytes name, unsigned first, unsigned last)
{
    unsigned k = first;
    while (k <= last && !same(name, pk_effect_name((enum pk_effect_kind)k))) {
        k++;
    }
    return k;
}

static bool read_row(struct pk_resp_cursor *c, struct pk_effects *out)
{
    uint32_t pairs;
    struct pk_resp_value map = pk_resp_next(c);
    if (!pairs_of(&map, &pairs) || pairs == 0) {
        return false;
    }
    struct pk_resp_value key = pk_resp_next(c);
    struct pk_resp_value kind = pk_resp_next(c);
    if (!is_text(&key) || !same(key.bytes, "kind") || !is_text(&kind)) {
        return false;
    }
    unsigned k = kind_of(kind.bytes, PK_ROW_LOCK, PK_ROW_OUTCOME);
    struct pk_effect row = {.kind = (enum pk_effect_kind)k};
    if (k > PK_ROW_OUTCOME || !read_fields(c, pairs - 1, &row)) {
        return false;
    }
    pk_effects_add(out, &row);
    return true;
}

static bool read_rows(struct pk_resp_cursor *c, struct pk_effects *out)
{
    struct pk_resp_value rows = pk_resp_next(c);
    bool ok = rows.type == PK_RESP_ARRAY;
    for (uint32_t i = 0; ok && i < rows.n; i++) {
        ok = read_row(c, out);
    }
    return ok;
}

static bool status_named(struct pk_bytes name, enum pk_status *out)
{
    unsigned s = 0;
    while (s < PK_STATUS_COUNT && !same(name, pk_status_name((enum pk_status)s))) {
        s++;
    }
    *out = (enum pk_status)s;
    return s < PK_STATUS_COUNT;
}

/* A map whose first key has been read: "status". Rows come after their reply in the list,
 * wherever they are in the map. */
static bool read_map(struct pk_resp_cursor *c, uint32_t pairs, struct pk_effects *out)
{
    struct pk_effect reply = {.kind = PK_REPLY};
    struct pk_resp_cursor rows = {.bad = true};
    struct pk_resp_value status = pk_resp_next(c);
    if (!is_text(&status) || !status_named(status.bytes, &reply.status) ||
        (reply.status != PK_OK && reply.status != PK_QUEUED)) {
        return false;
    }
    for (uint32_t i = 1; i < pairs; i++) {
        struct pk_resp_value key = pk_resp_next(c);
        if (is_text(&key) && same(key.bytes, "rows")) {
            rows = *c;
        }
        if (!is_text(&key) || !read_field(c, key.bytes, &reply)) {
            return false;
        }
    }
    pk_effects_add(out, &reply);
    return rows.bad || read_rows(&rows, out);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* Undoes write_escaped in *room, which has space for it, and moves *room on. */
static bool unescape(struct pk_bytes from, char **room, struct pk_bytes *out)
{
    char *to = *room;
    for (uint32_t i = 0; i < from.len; i++) {
        if (from.data[i] != '%') {
            *to++ = from.data[i];
            continue;
        }
        int high = from.len - i > 2 ? hex_digit(from.data[i + 1]) : -1;
        int low = from.len - i > 2 ? hex_digit(from.data[i + 2]) : -1;
        if (high < 0 || low < 0) {
            return false;
        }
        *to++ = (char)(16 * high + low);
        i += 2;
    }
    *out = pk_bytes(*room, (size_t)(to - *room));
    *room = to;
    return true;
}

/* Cuts `*rest` at the first `mark`: what is before it, and *rest goes on behind it. */
static struct pk_bytes cut(struct pk_bytes *rest, char mark)
{
    if (rest->len == 0) {
        return *rest;
    }
    const char *at = memchr(rest->data, mark, rest->len);
    size_t len = at == NULL ? rest->len : (size_t)(at - rest->data);
    size_t step = at == NULL ? len : len + 1;
    struct pk_bytes before = pk_bytes(rest->data, len);
    *rest = pk_bytes(rest->data + step, rest->len - step);
    return before;
}

/* The key without "row." if it has it. */
static bool of_row(struct pk_bytes *key)
{
    static const char prefix[] = "row.";
    size_t len = sizeof prefix - 1;
    bool has = key->len > len && memcmp(key->data, prefix, len) == 0;
    if (has) {
        *key = pk_bytes(key->data + len, key->len - len);
    }
    return has;
}

/* field=value field=value ... row.kind=hold row.field=value ... : first the reply's, then
 * each row's. */
static bool read_pairs(struct pk_bytes pairs, char *room, struct pk_effect *e,
                       struct pk_effects *out)
{
    while (pairs.len > 0) {
        struct pk_bytes value = cut(&pairs, ' ');
        struct pk_bytes key = cut(&value, '=');
        if (!unescape(value, &room, &value)) {
            return false;
        }
        bool row = of_row(&key);
        if (row && same(key, "kind")) {
            unsigned k = kind_of(value, PK_ROW_LOCK, PK_ROW_OUTCOME);
            if (k > PK_ROW_OUTCOME) {
                return false;
            }
            pk_effects_add(out, e);
            *e = (struct pk_effect){.kind = (enum pk_effect_kind)k};
            continue;
        }
        const struct field *f = field_of(key);
        if (row != is_row(e) || (f != NULL && !set_text(e, f, value))) {
            return false;
        }
    }
    pk_effects_add(out, e);
    return true;
}

/* An error of the machine: "BUSY held by somebody else: name=a ...". */
static enum pk_proto_answer read_error(struct pk_bytes text, struct pk_effects *out)
{
    struct pk_effect reply = {.kind = PK_REPLY};
    struct pk_bytes rest = text;
    struct pk_bytes code = cut(&rest, ' ');
    if (!status_named(code, &reply.status) || reply.status == PK_OK ||
        reply.status == PK_QUEUED) {
        return PK_PROTO_REFUSED;
    }
    struct pk_bytes sentence = cut(&rest, ':');
    if (reply.status == PK_BADARG && !same(sentence, pk_status_text(PK_BADARG))) {
        reply.why = sentence;
    }
    if (rest.len > 0 && rest.data[0] == ' ') {
        cut(&rest, ' ');
    }
    /* What is unescaped is never longer than it was. */
    char *room = rest.len == 0 ? NULL : pk_door_resize(NULL, rest.len);
    bool ok = read_pairs(rest, room, &reply, out);
    pk_door_resize(room, 0);
    return ok ? PK_PROTO_REPLY : PK_PROTO_BROKEN;
}

/* "event", kind, map: the first has been read. */
static enum pk_proto_answer read_event(struct pk_resp_cursor *c, struct pk_effects *out)
{
    struct pk_resp_value kind = pk_resp_next(c);
    struct pk_resp_value map = pk_resp_next(c);
    uint32_t pairs;
    if (!is_text(&kind) || !pairs_of(&map, &pairs)) {
        return PK_PROTO_BROKEN;
    }
    if (same(kind.bytes, "gap")) {
        return PK_PROTO_GAP;
    }
    unsigned k = kind_of(kind.bytes, PK_EV_LEASE_OPENED, PK_EFFECT_COUNT - 1);
    if (k == PK_EFFECT_COUNT) {
        return PK_PROTO_STRANGE; /* of a newer server */
    }
    struct pk_effect e = {.kind = (enum pk_effect_kind)k};
    if (!read_fields(c, pairs, &e)) {
        return PK_PROTO_BROKEN;
    }
    pk_effects_add(out, &e);
    return PK_PROTO_EVENT;
}

/* One value that may be the reply to one command. */
static enum pk_proto_answer read_reply(struct pk_resp_cursor *c,
                                       const struct pk_resp_value *v,
                                       struct pk_effects *out, struct pk_bytes *error)
{
    uint32_t pairs;
    if (v->type == PK_RESP_ERROR) {
        *error = v->bytes;
        return read_error(v->bytes, out);
    }
    if (!pairs_of(v, &pairs) || pairs == 0) {
        return PK_PROTO_STRANGE;
    }
    struct pk_resp_cursor inside = *c;
    struct pk_resp_value key = pk_resp_next(&inside);
    if (!is_text(&key) || !same(key.bytes, "status")) {
        return PK_PROTO_STRANGE;
    }
    *c = inside;
    return read_map(c, pairs, out) ? PK_PROTO_REPLY : PK_PROTO_BROKEN;
}

/* A reply each for several leases. An error of another kind makes the whole one strange:
 * a server refuses a request, not a part of it. */
static enum pk_proto_answer read_several(struct pk_resp_cursor *c, uint32_t n,
                                         struct pk_effects *out, struct pk_bytes *error)
{
    enum pk_proto_answer got = PK_PROTO_STRANGE;
    for (uint32_t i = 0; i < n; i++) {
        struct pk_resp_value v = pk_resp_next(c);
        got = read_reply(c, &v, out, error);
        if (got != PK_PROTO_REPLY) {
            return got == PK_PROTO_REFUSED ? PK_PROTO_STRANGE : got;
        }
    }
    return got;
}

static enum pk_proto_answer read_any(struct pk_resp_cursor *c, struct pk_effects *out,
                                     struct pk_bytes *error)
{
    struct pk_resp_value v = pk_resp_next(c);
    bool several = v.type == PK_RESP_ARRAY || v.type == PK_RESP_PUSH;
    if (several && v.n == 3) {
        struct pk_resp_cursor inside = *c;
        struct pk_resp_value first = pk_resp_next(&inside);
        if (is_text(&first) && same(first.bytes, "event")) {
            return read_event(&inside, out);
        }
    }
    enum pk_proto_answer got = read_reply(c, &v, out, error);
    if (got == PK_PROTO_STRANGE && v.type == PK_RESP_ARRAY) {
        got = read_several(c, v.n, out, error);
    }
    return got;
}

enum pk_proto_answer pk_proto_read_answer(struct pk_bytes whole, struct pk_effects *out,
                                          struct pk_bytes *error)
{
    size_t used;
    uint32_t before = out->count;
    *error = pk_bytes("", 0);
    if (pk_resp_whole(whole, &used) != PK_RESP_ONE || used != whole.len) {
        return PK_PROTO_BROKEN;
    }
    struct pk_resp_cursor c = {.rest = whole};
    enum pk_proto_answer got = read_any(&c, out, error);
    if (got != PK_PROTO_REPLY && got != PK_PROTO_EVENT) {
        out->count = before;
    }
    if (got != PK_PROTO_REFUSED) {
        *error = pk_bytes("", 0);
    }
    return got;
}
