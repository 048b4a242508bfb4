/* SPDX-License-Identifier: MIT */
#include "raft/handshake.h"

#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "core/version.h"
#include "core/wire.h"
#include "host/version.h"

enum {
    MAGIC_BYTES = 4,
    AT_VERSION = MAGIC_BYTES,
    AT_KIND,
    AT_LENGTH,
    HEAD_BYTES = AT_LENGTH + 2,
};

static const char magic[] = "PKHI";

struct pk_release pk_release_own(void)
{
    struct pk_release own = {.oldest = PK_VERSION_OLDEST, .newest = PK_VERSION_NEWEST};
    (void)snprintf(own.name, sizeof own.name, "%s", PICKET_VERSION);
    return own;
}

const char *pk_release_text(const struct pk_release *r)
{
    static _Thread_local char text[PK_RELEASE_MAX + 64];
    (void)snprintf(text, sizeof text, "%s, which runs %s", r->name,
                   pk_version_range(r->oldest, r->newest));
    return text;
}

bool pk_release_runs(const struct pk_release *r, uint32_t version)
{
    return version >= r->oldest && version <= r->newest;
}

/* Cut where it is too long, between two characters of UTF-8. */
static struct pk_bytes short_enough(const char *text, size_t most)
{
    size_t len = strlen(text);
    if (len > most) {
        for (len = most; len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80; len--) {
        }
    }
    return pk_bytes(text, len);
}

static size_t body_most(unsigned kind)
{
    size_t most = kind == PK_TELL ? PK_GREETING_MAX : PK_SMALL_GREETING_MAX;
    return most - HEAD_BYTES;
}

static void write_members(struct pk_writer *w, const struct pk_greeting *g)
{
    pk_write_uint(w, g->n_members);
    for (size_t i = 0; i < g->n_members; i++) {
        pk_write_uint(w, g->members[i].id);
        pk_write_bytes(w, pk_text(g->members[i].address));
        pk_write_byte(w, (unsigned)g->members[i].role);
    }
}

static void write_speaker(struct pk_writer *w, const struct pk_greeting *g)
{
    pk_write_uint(w, g->cluster);
    pk_write_uint(w, g->from.id);
    pk_write_bytes(w, pk_text(g->from.name));
    pk_write_bytes(w, pk_text(g->address));
    pk_write_bytes(w, pk_text(g->release.name));
    pk_write_uint(w, g->release.oldest);
    pk_write_uint(w, g->release.newest);
    if (g->kind == PK_TELL) {
        write_members(w, g);
    } else if (g->kind != PK_ASK) {
        pk_write_uint(w, g->to);
        pk_write_uint(w, g->run);
        pk_write_bytes(w, pk_text(g->from.client));
        pk_write_bytes(w, pk_text(g->from.http));
        pk_write_byte(w, (unsigned)g->purpose);
    }
}

size_t pk_greeting_encode(const struct pk_greeting *g, unsigned char *out)
{
    struct pk_writer w = {.out = out + HEAD_BYTES};
    if (g->kind == PK_REFUSAL) {
        pk_write_bytes(&w, short_enough(g->why, PK_REFUSAL_MAX - 1));
    } else {
        write_speaker(&w, g);
    }
    PK_ASSERT(w.len <= body_most(g->kind));
    memcpy(out, magic, MAGIC_BYTES);
    out[AT_VERSION] = PK_GREETING_VERSION;
    out[AT_KIND] = (unsigned char)g->kind;
    out[AT_LENGTH] = (unsigned char)(w.len & 0xff);
    out[AT_LENGTH + 1] = (unsigned char)(w.len >> 8);
    return HEAD_BYTES + w.len;
}

/* Printable ASCII, or UTF-8 that a log can take: no control characters. */
static void read_text(struct pk_reader *r, char *out, size_t size)
{
    struct pk_bytes text = pk_read_bytes(r, size - 1);
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        r->bad = r->bad || c < 0x20 || c == 0x7f;
        out[i] = text.data[i];
    }
    out[text.len] = '\0';
}

/* NAME@ and something behind it. */
static bool is_address_of(const char *address, const char *name)
{
    size_t len = strlen(name);
    return strncmp(address, name, len) == 0 && address[len] == '@';
}

static bool is_consistent(const struct pk_greeting *g)
{
    return pk_node_name_wrong(g->from.name) == NULL && pk_node_id_is_valid(g->from.id) &&
           is_address_of(g->address, g->from.name);
}

/* Valid, and not the same as one of the members before it. */
static bool is_new_member(const struct pk_greeting *g, size_t nth)
{
    const struct pk_member *m = &g->members[nth];
    char name[PK_NODE_NAME_MAX];
    if (!pk_node_id_is_valid(m->id) || !pk_member_name(m, name, sizeof name) ||
        pk_node_name_wrong(name) != NULL ||
        pk_member_named(g->members, nth, name) != NULL) {
        return false;
    }
    for (size_t i = 0; i < nth; i++) {
        if (g->members[i].id == m->id) {
            return false;
        }
    }
    return true;
}

static void read_members(struct pk_reader *r, struct pk_greeting *g)
{
    size_t n = (size_t)pk_read_ranged(r, 0, PK_MEMBERS_MAX);
    for (; g->n_members < n && !r->bad; g->n_members++) {
        struct pk_member *m = &g->members[g->n_members];
        m->id = pk_read_uint(r);
        read_text(r, m->address, sizeof m->address);
        unsigned role = pk_read_byte(r);
        m->role = (enum pk_member_role)role;
        r->bad = r->bad || role > PK_MEMBER_SPARE || !is_new_member(g, g->n_members);
    }
}

static bool read_body(struct pk_reader *r, struct pk_greeting *g)
{
    if (g->kind == PK_REFUSAL) {
        read_text(r, g->why, sizeof g->why);
        return !r->bad && r->at == r->end;
    }
    g->cluster = pk_read_uint(r);
    g->from.id = pk_read_uint(r);
    read_text(r, g->from.name, sizeof g->from.name);
    read_text(r, g->address, sizeof g->address);
    read_text(r, g->release.name, sizeof g->release.name);
    g->release.oldest = (uint32_t)pk_read_ranged(r, 1, UINT8_MAX);
    g->release.newest = (uint32_t)pk_read_ranged(r, g->release.oldest, UINT8_MAX);
    if (g->kind == PK_TELL) {
        read_members(r, g);
    } else if (g->kind != PK_ASK) {
        g->to = pk_read_uint(r);
        g->run = pk_read_uint(r);
        read_text(r, g->from.client, sizeof g->from.client);
        read_text(r, g->from.http, sizeof g->from.http);
        unsigned purpose = pk_read_byte(r);
        r->bad = r->bad || purpose > PK_FOR_SNAPSHOTS;
        g->purpose = (enum pk_purpose)purpose;
    }
    return !r->bad && is_consistent(g); /* what follows, a newer release has added */
}

enum pk_greeting_state pk_greeting_decode(const unsigned char *in, size_t len,
                                          struct pk_greeting *out)
{
    memset(out, 0, sizeof *out);
    if (memcmp(in, magic, len < MAGIC_BYTES ? len : MAGIC_BYTES) != 0) {
        return PK_GREETING_GARBAGE;
    }
    if (len < HEAD_BYTES) {
        return PK_GREETING_PART;
    }
    unsigned kind = in[AT_KIND];
    size_t body = in[AT_LENGTH] | (size_t)in[AT_LENGTH + 1] << 8;
    if (kind < PK_HELLO || kind > PK_TELL || body > body_most(kind)) {
        return PK_GREETING_GARBAGE;
    }
    if (len < HEAD_BYTES + body) {
        return PK_GREETING_PART;
    }
    out->kind = (enum pk_greeting_kind)kind;
    if (in[AT_VERSION] != PK_GREETING_VERSION && kind != PK_REFUSAL) {
        return PK_GREETING_VERSION_DIFFERS;
    }
    if (len > HEAD_BYTES + body) {
        return PK_GREETING_GARBAGE;
    }
    struct pk_reader r = {.at = in + HEAD_BYTES, .end = in + len};
    return read_body(&r, out) ? PK_GREETING_WHOLE : PK_GREETING_GARBAGE;
}
