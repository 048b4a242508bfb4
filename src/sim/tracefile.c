/* SPDX-License-Identifier: MIT */
#include "sim/tracefile.h"

#include <string.h>

#include "core/utf8.h"

static const char magic[] = "picket-trace";
static const char version[] = "1";

static const struct {
    const char *word, *fields;
} kinds[] = {
#define X(kind, word, fields) {word, fields},
    PK_TRACE_KINDS(X)
#undef X
        {magic, ""},
};

/* ---- writing ---- */

static void add_text(struct pk_prose *out, struct pk_bytes text)
{
    static const char hex[] = "0123456789ABCDEF";
    bool dash = text.len == 1 && text.data[0] == '-';
    if (text.len == 0) {
        pk_prose_add(out, "-");
    }
    for (uint32_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c <= ' ' || c == '%' || c == 0x7f || dash) {
            char code[] = {'%', hex[c >> 4], hex[c & 15]};
            pk_prose_bytes(out, code, sizeof code);
        } else {
            pk_prose_bytes(out, text.data + i, 1);
        }
    }
}

/* At most what is kept of it, and no half of a letter. */
static struct pk_bytes shortened(struct pk_bytes text)
{
    if (text.len > PK_TRACE_TEXT_MAX) {
        text.len = PK_TRACE_TEXT_MAX;
        while (text.len > 0 && !pk_utf8_printable(text, true)) {
            text.len--;
        }
    }
    return text;
}

static void add_mode(struct pk_prose *out, const struct pk_trace_line *l)
{
    if (l->mode == PK_SLOT) {
        pk_prose_number(out, l->slots);
    } else {
        pk_prose_add(out, l->mode == PK_SHARED ? "s" : "x");
    }
}

static void add_field(struct pk_prose *out, char field, const struct pk_trace_line *l)
{
    pk_prose_add(out, " ");
    switch (field) {
    case 'N':
        add_text(out, l->name);
        break;
    case 't':
        add_text(out, shortened(l->text));
        break;
    case 'm':
        add_mode(out, l);
        break;
    default:
        pk_prose_number(out, field == 'L'   ? l->lease
                             : field == 'R' ? l->request
                             : field == 'T' ? l->token
                                            : l->number);
        break;
    }
}

void pk_trace_write(const struct pk_trace_line *l, struct pk_prose *out)
{
    if (l->kind == PK_TRACE_BEGIN) {
        pk_prose_add(out, magic);
        pk_prose_add(out, " ");
        pk_prose_add(out, version);
        add_field(out, 't', l);
        add_field(out, 'n', l);
    } else {
        pk_prose_number(out, l->at_ms);
        pk_prose_add(out, " ");
        pk_prose_add(out, kinds[l->kind].word);
        for (const char *f = kinds[l->kind].fields; *f != '\0'; f++) {
            add_field(out, *f, l);
        }
    }
    pk_prose_add(out, "\n");
}

/* ---- what a command has done ---- */

static struct pk_bytes end_of(const struct pk_effect *e)
{
    return pk_text(pk_end_name(e->end));
}

/* The line for an event; false: it makes none. */
static bool event(const struct pk_effect *e, struct pk_trace_line *l)
{
    switch (e->kind) {
    case PK_EV_LEASE_OPENED:
        l->kind = PK_TRACE_OPENED;
        l->text = e->label;
        return true;
    case PK_EV_LEASE_ENDED:
        l->kind = PK_TRACE_CLOSED;
        l->text = end_of(e);
        return true;
    case PK_EV_QUEUED:
        l->kind = PK_TRACE_QUEUED;
        l->number = e->place;
        return true;
    case PK_EV_GRANTED:
        l->kind = PK_TRACE_GRANTED;
        l->number = e->lasted_ms;
        return true;
    case PK_EV_LEFT:
        l->kind = PK_TRACE_LEFT;
        l->text = end_of(e);
        return true;
    case PK_EV_ENDED:
        l->kind = PK_TRACE_ENDED;
        l->text = end_of(e);
        return true;
    case PK_EV_FENCE_RAISED:
        l->kind = PK_TRACE_RAISED;
        return true;
    case PK_EV_FENCE_ENDED:
        l->kind = PK_TRACE_FORGOT;
        return true;
    default:
        return false;
    }
}

/* The same for an answer. What a fence says is about the token that was offered. */
static bool reply(const struct pk_effect *e, const struct pk_command *c,
                  struct pk_trace_line *l)
{
    bool fence = e->verb == PK_FENCE_CLAIM || e->verb == PK_FENCE_CHECK ||
                 e->verb == PK_FENCE_SET || e->verb == PK_FENCE_GET;
    if (e->verb == PK_LEASE_RENEW) {
        l->kind = PK_TRACE_RENEWED;
        l->number = e->left_ms;
        return e->status == PK_OK;
    }
    if (!fence || c == NULL || c->token == 0) {
        return false;
    }
    bool refused = e->status == PK_STALE || e->status == PK_UNCLAIMED;
    l->kind = refused             ? PK_TRACE_REFUSED
              : e->would != PK_OK ? PK_TRACE_SHADOWED
                                  : PK_TRACE_PASSED;
    l->name = c->name;
    l->token = c->token;
    l->number = e->token;
    return refused || e->status == PK_OK;
}

void pk_trace_step(uint64_t at_ms, const struct pk_command *c, const struct pk_effects *e,
                   struct pk_prose *out)
{
    for (uint32_t i = 0; i < e->count; i++) {
        const struct pk_effect *x = &e->list[i];
        struct pk_trace_line l = {.at_ms = at_ms,
                                  .name = x->name,
                                  .lease = x->lease,
                                  .request = x->request,
                                  .token = x->token,
                                  .mode = x->mode,
                                  .slots = x->slots};
        if (x->kind == PK_REPLY ? reply(x, c, &l) : event(x, &l)) {
            pk_trace_write(&l, out);
        }
    }
}

/* ---- reading ---- */

void pk_trace_open(struct pk_trace_reader *r, const char *text, size_t len)
{
    *r = (struct pk_trace_reader){.at = text, .end = text + len};
}

static bool fail(struct pk_trace_reader *r, const char *why)
{
    r->why = why;
    return false;
}

/* The next word of the line, and whether there is one. */
static bool next_word(struct pk_bytes *line, struct pk_bytes *word)
{
    const char *space = memchr(line->data, ' ', line->len);
    size_t n = space != NULL ? (size_t)(space - line->data) : line->len;
    *word = pk_bytes(line->data, n);
    n += space != NULL;
    *line = pk_bytes(line->data + n, line->len - n);
    return word->len > 0;
}

static bool read_number(struct pk_bytes word, uint64_t *out)
{
    *out = 0;
    for (uint32_t i = 0; i < word.len; i++) {
        uint64_t digit = (uint64_t)(word.data[i] - '0');
        if (digit > 9 || *out > (UINT64_MAX - digit) / 10) {
            return false;
        }
        *out = *out * 10 + digit;
    }
    return word.len > 0;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Takes the %XX out of a word; false when it is too long or no text at all. */
static bool read_text(struct pk_bytes word, char *room, uint32_t size,
                      struct pk_bytes *out)
{
    uint32_t n = 0;
    bool empty = word.len == 1 && word.data[0] == '-';
    for (uint32_t i = 0; !empty && i < word.len; i++) {
        char c = word.data[i];
        if (c == '%') {
            bool whole = i + 2 < word.len;
            int high = whole ? hex_digit(word.data[i + 1]) : -1;
            int low = whole ? hex_digit(word.data[i + 2]) : -1;
            if (high < 0 || low < 0) {
                return false;
            }
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (n == size) {
            return false;
        }
        room[n++] = c;
    }
    *out = pk_bytes(room, n);
    return pk_utf8_printable(*out, true);
}

static bool read_mode(struct pk_bytes word, struct pk_trace_line *out)
{
    uint64_t slots;
    if (word.len == 1 && (word.data[0] == 'x' || word.data[0] == 's')) {
        out->mode = word.data[0] == 'x' ? PK_EXCLUSIVE : PK_SHARED;
        return true;
    }
    out->mode = PK_SLOT;
    bool fine = read_number(word, &slots) && slots > 0 && slots <= PK_SLOTS_MAX;
    out->slots = fine ? (uint32_t)slots : 0;
    return fine;
}

static bool read_field(struct pk_trace_reader *r, char field, struct pk_bytes word,
                       struct pk_trace_line *out)
{
    switch (field) {
    case 'N':
        return (read_text(word, out->name_bytes, sizeof out->name_bytes, &out->name) &&
                out->name.len > 0) ||
               fail(r, "a name is missing or wrong");
    case 't':
        return read_text(word, out->text_bytes, sizeof out->text_bytes, &out->text) ||
               fail(r, "a text is missing or wrong");
    case 'm':
        return read_mode(word, out) || fail(r, "a mode is x, s or a number of slots");
    default:
        return read_number(word, field == 'L'   ? &out->lease
                                 : field == 'R' ? &out->request
                                 : field == 'T' ? &out->token
                                                : &out->number) ||
               fail(r, "a number is missing or wrong");
    }
}

static bool read_fields(struct pk_trace_reader *r, const char *fields,
                        struct pk_bytes line, struct pk_trace_line *out)
{
    for (const char *f = fields; *f != '\0'; f++) {
        struct pk_bytes word;
        (void)next_word(&line, &word);
        if (!read_field(r, *f, word, out)) {
            return false;
        }
    }
    return line.len == 0 || fail(r, "there is too much on this line");
}

static bool read_line(struct pk_trace_reader *r, struct pk_bytes line,
                      struct pk_trace_line *out)
{
    struct pk_bytes word;
    *out = (struct pk_trace_line){0};
    (void)next_word(&line, &word);
    if (pk_bytes_equal(word, pk_text(magic))) {
        (void)next_word(&line, &word);
        if (!pk_bytes_equal(word, pk_text(version))) {
            return fail(r, "this is a trace of another version; this program reads 1");
        }
        out->kind = PK_TRACE_BEGIN;
        return read_fields(r, "tn", line, out);
    }
    if (r->line == 1) {
        return fail(r, "this is no trace: it does not begin with picket-trace 1");
    }
    if (!read_number(word, &out->at_ms) || out->at_ms > PK_TIME_MAX) {
        return fail(r, "a line begins with its time in ms");
    }
    (void)next_word(&line, &word);
    uint32_t kind = 0;
    while (kind < PK_TRACE_BEGIN && !pk_bytes_equal(word, pk_text(kinds[kind].word))) {
        kind++;
    }
    out->kind = (enum pk_trace_kind)kind;
    return kind < PK_TRACE_BEGIN ? read_fields(r, kinds[kind].fields, line, out)
                                 : fail(r, "there is no such word");
}

bool pk_trace_read(struct pk_trace_reader *r, struct pk_trace_line *out)
{
    size_t left = (size_t)(r->end - r->at);
    const char *newline = left > 0 ? memchr(r->at, '\n', left) : NULL;
    r->why = NULL;
    if (newline == NULL && r->line > 0) {
        r->cut = left > 0;
        return false;
    }
    r->line++;
    size_t len = newline != NULL ? (size_t)(newline - r->at) : left;
    if (len > UINT16_MAX) {
        return fail(r, "this line is too long for a trace");
    }
    struct pk_bytes line = pk_bytes(r->at, len);
    r->at = newline != NULL ? newline + 1 : r->end;
    return read_line(r, line, out);
}
