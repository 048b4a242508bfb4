/* SPDX-License-Identifier: MIT */
#include "core/command.h"

#include "core/door.h"
#include "core/utf8.h"
#include "core/version.h"
#include "core/wire.h"

/* More than any text field may have, so that decoding is bounded and validation can
 * explain. */
enum { TEXT_CEILING = 4096 };

const char *pk_mode_name(enum pk_mode m)
{
    static const char *const names[] = {"none", "exclusive", "shared", "slot"};
    PK_ASSERT(m <= PK_SLOT);
    return names[m];
}

const char *pk_verb_name(enum pk_verb v)
{
    static const char *const names[] = {
#define X(verb, name, fields) name,
        PK_VERBS(X)
#undef X
    };
    PK_ASSERT(v < PK_VERB_COUNT);
    return names[v];
}

uint32_t pk_verb_fields(enum pk_verb v)
{
    static const uint32_t masks[] = {
#define X(verb, name, fields) (fields),
        PK_VERBS(X)
#undef X
    };
    PK_ASSERT(v < PK_VERB_COUNT);
    return masks[v];
}

uint64_t pk_command_lease_at(const struct pk_command *c, uint32_t i)
{
    PK_ASSERT(i < c->n_leases);
    return pk_get_u64(c->leases + 8 * (size_t)i);
}

void pk_command_put_lease(unsigned char *leases, uint32_t i, uint64_t id)
{
    pk_put_u64(leases + 8 * (size_t)i, id);
}

uint32_t pk_command_heard_at(const struct pk_command *c, uint32_t i)
{
    PK_ASSERT(c->heard != NULL && i < c->n_leases);
    return pk_get_u32(c->heard + 4 * (size_t)i);
}

void pk_command_put_heard(unsigned char *heard, uint32_t i, uint32_t event)
{
    pk_put_u32(heard + 4 * (size_t)i, event);
}

/* ---- bytes ---- */

static void write_parts(struct pk_writer *w, const struct pk_command *c)
{
    pk_write_uint(w, c->n_parts);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        pk_write_bytes(w, c->parts[i].name);
        pk_write_byte(w, c->parts[i].mode);
        pk_write_uint(w, c->parts[i].slots);
    }
}

static void read_parts(struct pk_reader *r, struct pk_command *c)
{
    c->n_parts = (uint32_t)pk_read_ranged(r, 0, PK_SET_MAX);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        c->parts[i].name = pk_read_bytes(r, TEXT_CEILING);
        unsigned mode = pk_read_byte(r);
        r->bad = r->bad || mode > PK_SLOT;
        c->parts[i].mode = r->bad ? PK_MODE_NONE : (enum pk_mode)mode;
        c->parts[i].slots = (uint32_t)pk_read_ranged(r, 0, UINT32_MAX);
    }
}

static void read_leases(struct pk_reader *r, struct pk_command *c)
{
    c->n_leases = (uint32_t)pk_read_ranged(r, 0, PK_RENEW_MAX);
    c->leases = pk_read_raw(r, 8 * (size_t)c->n_leases);
    unsigned heard = pk_read_byte(r);
    r->bad = r->bad || heard > 1;
    if (!r->bad && heard == 1) {
        c->heard = pk_read_raw(r, 4 * (size_t)c->n_leases);
    }
}

/* The plain fields in their order on the wire: one table for writing and reading. */
static const struct integer_field {
    uint32_t field;
    size_t offset;
} integers[] = {
    {PK_F_LEASE, offsetof(struct pk_command, lease)},
    {PK_F_REQUEST, offsetof(struct pk_command, request)},
    {PK_F_TARGET, offsetof(struct pk_command, target)},
    {PK_F_TOKEN, offsetof(struct pk_command, token)},
    {PK_F_TTL, offsetof(struct pk_command, ttl_ms)},
    {PK_F_WAIT, offsetof(struct pk_command, wait_ms)},
    {PK_F_MAX_HOLD, offsetof(struct pk_command, max_hold_ms)},
    {PK_F_LOCK_DELAY, offsetof(struct pk_command, lock_delay_ms)},
    {PK_F_COUNT, offsetof(struct pk_command, count)},
    {PK_F_FLAGS, offsetof(struct pk_command, flags)},
    {PK_F_VERSION, offsetof(struct pk_command, version)},
    {PK_F_EPOCH, offsetof(struct pk_command, epoch)},
};

static const struct string_field {
    uint32_t field;
    size_t ceiling;
    size_t offset;
} strings[] = {
    {PK_F_NAME, TEXT_CEILING, offsetof(struct pk_command, name)},
    {PK_F_LABEL, PK_LABEL_CEILING, offsetof(struct pk_command, label)},
    {PK_F_VALUE, PK_VALUE_CEILING, offsetof(struct pk_command, value)},
    {PK_F_REASON, TEXT_CEILING, offsetof(struct pk_command, reason)},
    {PK_F_CURSOR, TEXT_CEILING, offsetof(struct pk_command, cursor)},
};

enum {
    INTEGERS = sizeof integers / sizeof integers[0],
    STRINGS = sizeof strings / sizeof strings[0],
};

static void write_command(struct pk_writer *w, const struct pk_command *c)
{
    uint32_t fields = pk_verb_fields(c->verb);
    pk_write_byte(w, c->verb);
    pk_write_uint(w, c->stamp_ms);
    pk_write_bytes(w, c->principal);
    for (size_t i = 0; i < INTEGERS; i++) {
        if (fields & integers[i].field) {
            const void *at = (const char *)c + integers[i].offset;
            pk_write_uint(w, *(const uint64_t *)at);
        }
    }
    for (size_t i = 0; i < STRINGS; i++) {
        if (fields & strings[i].field) {
            const void *at = (const char *)c + strings[i].offset;
            pk_write_bytes(w, *(const struct pk_bytes *)at);
        }
    }
    if (fields & PK_F_PARTS) {
        write_parts(w, c);
    }
    if (fields & PK_F_LEASES) {
        pk_write_uint(w, c->n_leases);
        pk_write_raw(w, c->leases, 8 * (size_t)c->n_leases);
        pk_write_byte(w, c->heard != NULL);
        if (c->heard != NULL) {
            pk_write_raw(w, c->heard, 4 * (size_t)c->n_leases);
        }
    }
    if (fields & PK_F_LIMITS) {
        pk_limits_write(w, &c->limits);
    }
}

size_t pk_command_size(const struct pk_command *c)
{
    struct pk_writer w = {0};
    write_command(&w, c);
    return w.len;
}

size_t pk_command_encode(const struct pk_command *c, unsigned char *out)
{
    struct pk_writer w = {.out = out};
    write_command(&w, c);
    return w.len;
}

size_t pk_command_decode(const unsigned char *in, size_t len, struct pk_command *out)
{
    struct pk_reader r = {.at = in, .end = in + len};
    unsigned verb = pk_read_byte(&r);
    memset(out, 0, sizeof *out);
    if (r.bad || verb >= PK_VERB_COUNT) {
        return 0;
    }
    out->verb = (enum pk_verb)verb;
    uint32_t fields = pk_verb_fields(out->verb);
    out->stamp_ms = pk_read_uint(&r);
    out->principal = pk_read_bytes(&r, TEXT_CEILING);
    for (size_t i = 0; i < INTEGERS; i++) {
        if (fields & integers[i].field) {
            void *at = (char *)out + integers[i].offset;
            *(uint64_t *)at = pk_read_uint(&r);
        }
    }
    for (size_t i = 0; i < STRINGS; i++) {
        if (fields & strings[i].field) {
            void *at = (char *)out + strings[i].offset;
            *(struct pk_bytes *)at = pk_read_bytes(&r, strings[i].ceiling);
        }
    }
    if (fields & PK_F_PARTS) {
        read_parts(&r, out);
    }
    if (fields & PK_F_LEASES) {
        read_leases(&r, out);
    }
    if (fields & PK_F_LIMITS) {
        pk_limits_read(&r, &out->limits);
    }
    return r.bad ? 0 : (size_t)(r.at - in);
}

bool pk_command_is_read(const struct pk_command *c)
{
    return (pk_verb_fields(c->verb) & PK_F_READ) != 0 ||
           (c->verb == PK_FENCE_GET && c->token == 0);
}

uint32_t pk_command_needs(const struct pk_command *c)
{
    return c->verb == PK_SET_VERSION ? (uint32_t)c->version : PK_VERSION_OLDEST;
}

/* ---- validation ---- */

const char *pk_name_wrong(struct pk_bytes name)
{
    if (name.len == 0) {
        return "the name is empty";
    }
    if (name.len > PK_NAME_MAX) {
        return "the name is longer than 255 bytes";
    }
    return pk_utf8_printable(name, false) ? NULL : "the name is not printable UTF-8 text";
}

static const char *parts_wrong(const struct pk_command *c, uint32_t fields)
{
    if (c->n_parts == 0 || c->n_parts > PK_SET_MAX) {
        return "a set must name 1 to 16 locks";
    }
    for (uint32_t i = 0; i < c->n_parts; i++) {
        const struct pk_part *p = &c->parts[i];
        const char *wrong = pk_name_wrong(p->name);
        if (wrong != NULL) {
            return wrong;
        }
        if (p->mode == PK_MODE_NONE || p->mode > PK_SLOT) {
            return "the mode must be exclusive, shared or slot";
        }
        if (p->mode == PK_SLOT ? p->slots == 0 || p->slots > PK_SLOTS_MAX
                               : p->slots != 0) {
            return "slots must be 1 to 1000000, and only for a semaphore";
        }
        if ((fields & PK_F_EXCLUSIVE) && p->mode != PK_EXCLUSIVE) {
            return "a key is always exclusive";
        }
        for (uint32_t j = 0; j < i; j++) {
            if (pk_bytes_equal(p->name, c->parts[j].name)) {
                return "a set names the same lock twice";
            }
        }
    }
    return NULL;
}

static const char *times_wrong(const struct pk_command *c, uint32_t fields)
{
    bool none = c->ttl_ms == 0;
    if (c->verb == PK_FENCE_SET) { /* F10 */
        bool kept = c->ttl_ms >= PK_TTL_MIN_MS && c->ttl_ms <= PK_KEEP_MAX_MS;
        return none || kept ? NULL
                            : "a register is kept for 50 ms to 366 days, or 0: for good";
    }
    bool keeps_ttl = c->verb == PK_LEASE_RENEW && none;
    bool adds = (fields & PK_F_FLAGS) && (c->flags & PK_KEY_ADD); /* K4 has more to say */
    if ((fields & PK_F_TTL) && !keeps_ttl &&
        ((c->ttl_ms < PK_TTL_MIN_MS && !adds) || c->ttl_ms > PK_TTL_MAX_MS)) {
        return "the TTL must be between 50 ms and 24 h";
    }
    if (c->wait_ms > PK_WAIT_MAX_MS && c->wait_ms != PK_WAIT_FOREVER) {
        return "a bounded wait must not be longer than 366 days";
    }
    if (c->max_hold_ms > PK_HOLD_MAX_MS) {
        return "max-hold must not be longer than 30 days";
    }
    return c->lock_delay_ms > PK_DELAY_MAX_MS ? "lock-delay must not be longer than 24 h"
                                              : NULL;
}

static const char *texts_wrong(const struct pk_command *c, uint32_t fields)
{
    if (c->principal.len > PK_PRINCIPAL_MAX || !pk_utf8_printable(c->principal, false)) {
        return "the principal must be printable text of at most 64 bytes";
    }
    if (fields & PK_F_PREFIX) {
        if (c->name.len > PK_NAME_MAX || !pk_utf8_printable(c->name, false)) {
            return "the prefix must be printable text of at most 255 bytes";
        }
    } else if (fields & PK_F_NAME) {
        const char *wrong = pk_name_wrong(c->name);
        if (wrong != NULL) {
            return wrong;
        }
    }
    if (c->cursor.len > PK_NAME_MAX) {
        return "the cursor must not be longer than 255 bytes";
    }
    if (c->label.len > PK_LABEL_CEILING || !pk_utf8_printable(c->label, true)) {
        return "the label must be printable text of at most 4096 bytes";
    }
    if (c->reason.len > PK_REASON_MAX || !pk_utf8_printable(c->reason, false)) {
        return "the reason must be printable text of at most 255 bytes";
    }
    return c->value.len > PK_VALUE_CEILING ? "the value is longer than 1 MiB" : NULL;
}

static uint64_t known_flags(enum pk_verb v)
{
    return v == PK_FENCE_MODE    ? PK_FENCE_SHADOW
           : v == PK_SET_VERSION ? PK_VERSION_HOLD
           : v == PK_KEY_KEEP    ? PK_KEY_ANY | PK_KEY_ADD
                                 : PK_KEY_ANY;
}

static const char *numbers_wrong(const struct pk_command *c, uint32_t fields)
{
    bool no_token = c->token == 0 && (fields & PK_F_OPTIONAL_TOKEN);
    if ((fields & PK_F_TOKEN) && !no_token &&
        (c->token == 0 || c->token > PK_TOKEN_MAX)) {
        return "a token must be a number from 1 to 9007199254740991";
    }
    if ((fields & PK_F_COUNT) && (c->count == 0 || c->count > PK_PAGE_MAX)) {
        return "the number of rows must be 1 to 1000";
    }
    if ((fields & PK_F_VERSION) && (c->version == 0 || c->version > UINT8_MAX)) {
        return "a cluster version must be a number from 1 to 255";
    }
    bool needs_target = (fields & PK_F_TARGET) && !(fields & PK_F_OPTIONAL_TARGET);
    if (needs_target && c->target == 0) {
        return "the request to cancel must not be 0";
    }
    if (needs_target && c->target == c->request) {
        return "a cancel needs a request id of its own";
    }
    return (fields & PK_F_FLAGS) && (c->flags & ~known_flags(c->verb)) ? "unknown flags"
                                                                       : NULL;
}

const char *pk_command_wrong(const struct pk_command *c)
{
    if (c->verb >= PK_VERB_COUNT) {
        return "no such command";
    }
    uint32_t fields = pk_verb_fields(c->verb);
    if (c->stamp_ms > PK_TIME_MAX) {
        return "the stamp is out of range";
    }
    const char *wrong = texts_wrong(c, fields);
    if (wrong == NULL) {
        wrong = times_wrong(c, fields);
    }
    if (wrong == NULL && (fields & PK_F_PARTS)) {
        wrong = parts_wrong(c, fields);
    }
    if (wrong == NULL && (fields & PK_F_LIMITS)) {
        wrong = pk_limits_change_wrong(&c->limits);
    }
    if (wrong == NULL) {
        wrong = numbers_wrong(c, fields);
    }
    if (wrong != NULL) {
        return wrong;
    }
    if ((fields & PK_F_LEASES) && (c->n_leases == 0 || c->n_leases > PK_RENEW_MAX)) {
        return "a renewal must name 1 to 4096 leases";
    }
    return NULL;
}
