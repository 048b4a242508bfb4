/* SPDX-License-Identifier: MIT */
/*
 * Requests, both directions from one table: for each pair of words the verb of the
 * machine, its fields by place and its options. The reader walks it along the words, the
 * writer along the fields.
 */
#include <stdio.h>

#include "core/door.h"
#include "proto/proto.h"

/* ---- the table ---- */

enum kind {
    NUMBER,
    WAIT_TIME, /* a number or "forever" */
    TEXT,
    PART,       /* the name of a lock: begins another part */
    PART_MODE,  /* of the last part */
    PART_SLOTS, /* of the last part */
    IDS,        /* one lease or several */
    NUMBERS,    /* an event number for each of them */
    FENCE_MODE, /* shadow or enforce */
};

/* Everything that can be said in a request.
 *  X(field, word of the option and in sentences, kind, member of struct pk_command) */
#define FIELDS(X)                                                                        \
    X(AFTER, "AFTER", TEXT, cursor)                                                      \
    X(AND, "AND", PART, parts)                                                           \
    X(BY, "BY", TEXT, principal)                                                         \
    X(COUNT, "COUNT", NUMBER, count)                                                     \
    X(DELAY, "DELAY", NUMBER, lock_delay_ms)                                             \
    X(EPOCH, "EPOCH", NUMBER, epoch)                                                     \
    X(FENCING, "MODE", FENCE_MODE, flags)                                                \
    X(HEARD, "HEARD", NUMBERS, heard)                                                    \
    X(KEEP, "KEEP", NUMBER, ttl_ms)                                                      \
    X(LABEL, "LABEL", TEXT, label)                                                       \
    X(LEASE, "LEASE", NUMBER, lease)                                                     \
    X(LEASES, "LEASE", IDS, leases)                                                      \
    X(LOCK, "NAME", PART, parts)                                                         \
    X(MAXHOLD, "MAXHOLD", NUMBER, max_hold_ms)                                           \
    X(MODE, "MODE", PART_MODE, parts)                                                    \
    X(NAME, "NAME", TEXT, name)                                                          \
    X(PREFIX, "PREFIX", TEXT, name)                                                      \
    X(REASON, "REASON", TEXT, reason)                                                    \
    X(REQUEST, "REQUEST", NUMBER, request)                                               \
    X(RESOURCE, "RESOURCE", TEXT, name)                                                  \
    X(SLOTS, "SLOTS", PART_SLOTS, parts)                                                 \
    X(TARGET, "TARGET", NUMBER, target)                                                  \
    X(TOKEN, "TOKEN", NUMBER, token)                                                     \
    X(TTL, "TTL", NUMBER, ttl_ms)                                                        \
    X(VALUE, "VALUE", TEXT, value)                                                       \
    X(WAIT, "WAIT", WAIT_TIME, wait_ms)

enum field {
    NONE,
#define X(field, word, kind, member) field,
    FIELDS(X)
#undef X
        FIELD_COUNT
};

static const struct {
    const char *word;
    enum kind kind;
    size_t offset;
} fields[] = {
#define X(field, word, kind, member)                                                     \
    [field] = {word, kind, offsetof(struct pk_command, member)},
    FIELDS(X)
#undef X
};

enum { PLACES_MAX = 4, OPTIONS_MAX = 8 };

struct form {
    const char *word; /* the second of the two */
    const char *usage;
    enum pk_verb verb;
    enum field places[PLACES_MAX + 1];   /* ends with NONE */
    enum field options[OPTIONS_MAX + 1]; /* likewise */
    uint64_t wait_ms, count;             /* when not given */
};

/* Of two forms with the same verb the first is the one that is written. */
static const struct form lease_forms[] = {
    {.word = "RENEW",
     .usage = "LEASE RENEW lease [lease ...] [TTL ms] [HEARD event [event ...]]",
     .verb = PK_LEASE_RENEW,
     .places = {LEASES},
     .options = {TTL, HEARD}},
    {.word = "OPEN",
     .usage = "LEASE OPEN ttl-ms [LABEL text] [REQUEST id]",
     .verb = PK_LEASE_OPEN,
     .places = {TTL},
     .options = {LABEL, REQUEST}},
    {.word = "CLOSE",
     .usage = "LEASE CLOSE lease",
     .verb = PK_LEASE_CLOSE,
     .places = {LEASE}},
    {.word = "SHOW",
     .usage = "LEASE SHOW lease [COUNT n] [TARGET request]",
     .verb = PK_LEASE_SHOW,
     .places = {LEASE},
     .options = {COUNT, TARGET},
     .count = PK_PROTO_ROWS},
    {.word = NULL},
};

static const struct form lock_forms[] = {
    {.word = "ACQUIRE",
     .usage = "LOCK ACQUIRE lease name [MODE exclusive|shared|slot] [SLOTS n] "
              "[AND name [MODE ...] [SLOTS n]] ... [WAIT ms|forever] [MAXHOLD ms] "
              "[DELAY ms] [VALUE bytes] [REQUEST id]",
     .verb = PK_LOCK_ACQUIRE,
     .places = {LEASE, LOCK},
     .options = {REQUEST, WAIT, AND, MODE, SLOTS, MAXHOLD, DELAY, VALUE},
     .wait_ms = PK_WAIT_FOREVER},
    {.word = "RELEASE",
     .usage = "LOCK RELEASE lease name token [REQUEST id]",
     .verb = PK_LOCK_RELEASE,
     .places = {LEASE, NAME, TOKEN},
     .options = {REQUEST}},
    {.word = "TRY",
     .usage = "LOCK TRY lease name [MODE exclusive|shared|slot] [SLOTS n] "
              "[AND name [MODE ...] [SLOTS n]] ... [MAXHOLD ms] [DELAY ms] [VALUE bytes] "
              "[REQUEST id]",
     .verb = PK_LOCK_ACQUIRE,
     .places = {LEASE, LOCK},
     .options = {REQUEST, AND, MODE, SLOTS, MAXHOLD, DELAY, VALUE}},
    {.word = "CANCEL",
     .usage = "LOCK CANCEL lease target [REQUEST id]",
     .verb = PK_LOCK_CANCEL,
     .places = {LEASE, TARGET},
     .options = {REQUEST}},
    {.word = "VALUE",
     .usage = "LOCK VALUE lease name token value [REQUEST id]",
     .verb = PK_LOCK_VALUE,
     .places = {LEASE, NAME, TOKEN, VALUE},
     .options = {REQUEST}},
    {.word = "BREAK",
     .usage = "LOCK BREAK name token [REASON text] [BY who] [REQUEST id]",
     .verb = PK_LOCK_BREAK,
     .places = {NAME, TOKEN},
     .options = {REASON, BY, REQUEST}},
    {.word = "SHOW",
     .usage = "LOCK SHOW name [COUNT n]",
     .verb = PK_LOCK_SHOW,
     .places = {NAME},
     .options = {COUNT},
     .count = PK_PROTO_ROWS},
    {.word = "LIST",
     .usage = "LOCK LIST [PREFIX text] [AFTER name] [COUNT n]",
     .verb = PK_LOCK_LIST,
     .options = {PREFIX, AFTER, COUNT},
     .count = PK_PROTO_ROWS},
    {.word = NULL},
};

static const struct form fence_forms[] = {
    {.word = "CLAIM",
     .usage = "FENCE CLAIM resource token",
     .verb = PK_FENCE_CLAIM,
     .places = {RESOURCE, TOKEN}},
    {.word = "CHECK",
     .usage = "FENCE CHECK resource token",
     .verb = PK_FENCE_CHECK,
     .places = {RESOURCE, TOKEN}},
    {.word = "SET",
     .usage = "FENCE SET resource token value [KEEP ms] [REQUEST id]",
     .verb = PK_FENCE_SET,
     .places = {RESOURCE, TOKEN, VALUE},
     .options = {KEEP, REQUEST}},
    {.word = "GET",
     .usage = "FENCE GET resource [TOKEN token]",
     .verb = PK_FENCE_GET,
     .places = {RESOURCE},
     .options = {TOKEN}},
    {.word = "MODE",
     .usage = "FENCE MODE resource shadow|enforce epoch",
     .verb = PK_FENCE_MODE,
     .places = {RESOURCE, FENCING, EPOCH}},
    {.word = "SHOW",
     .usage = "FENCE SHOW resource",
     .verb = PK_FENCE_SHOW,
     .places = {RESOURCE}},
    {.word = NULL},
};

static const struct form elect_forms[] = {
    {.word = "CAMPAIGN",
     .usage = "ELECT CAMPAIGN lease name value [WAIT ms|forever] [REQUEST id]",
     .verb = PK_LOCK_ACQUIRE,
     .places = {LEASE, LOCK, VALUE},
     .options = {WAIT, REQUEST},
     .wait_ms = PK_WAIT_FOREVER},
    {.word = "PROCLAIM",
     .usage = "ELECT PROCLAIM lease name token value [REQUEST id]",
     .verb = PK_LOCK_VALUE,
     .places = {LEASE, NAME, TOKEN, VALUE},
     .options = {REQUEST}},
    {.word = "RESIGN",
     .usage = "ELECT RESIGN lease name token [REQUEST id]",
     .verb = PK_LOCK_RELEASE,
     .places = {LEASE, NAME, TOKEN},
     .options = {REQUEST}},
    {.word = "LEADER",
     .usage = "ELECT LEADER name",
     .verb = PK_LOCK_SHOW,
     .places = {NAME},
     .count = 1},
    {.word = NULL},
};

static const struct noun {
    const char *word; /* the first of the two */
    const char *usage;
    const struct form *forms;
} nouns[] = {
    {"LOCK",
     "LOCK ACQUIRE|TRY|CANCEL|RELEASE|VALUE|BREAK|SHOW|LIST|WATCH|UNWATCH|TOKEN ...",
     lock_forms},
    {"LEASE", "LEASE OPEN|RENEW|CLOSE|SHOW ...", lease_forms},
    {"FENCE", "FENCE CLAIM|CHECK|SET|GET|MODE|SHOW ...", fence_forms},
    {"ELECT", "ELECT CAMPAIGN|PROCLAIM|RESIGN|LEADER ...", elect_forms},
};

enum { NOUNS = sizeof nouns / sizeof nouns[0] };

static const struct noun *noun_of(const struct pk_bytes *args, uint32_t n)
{
    for (size_t i = 0; n > 0 && i < NOUNS; i++) {
        if (pk_resp_is(args[0], nouns[i].word)) {
            return &nouns[i];
        }
    }
    return NULL;
}

static const struct form *form_of(const struct noun *noun, struct pk_bytes word)
{
    const struct form *f = noun->forms;
    while (f->word != NULL && !pk_resp_is(word, f->word)) {
        f++;
    }
    return f->word == NULL ? NULL : f;
}

const char *pk_proto_usage(const struct pk_bytes *args, uint32_t n)
{
    const struct noun *noun = noun_of(args, n);
    const struct form *form = noun == NULL || n < 2 ? NULL : form_of(noun, args[1]);
    return form != NULL ? form->usage : noun != NULL ? noun->usage : NULL;
}

const char *pk_proto_usage_line(uint32_t i)
{
    for (size_t k = 0; k < NOUNS; k++) {
        for (const struct form *f = nouns[k].forms; f->word != NULL; f++) {
            if (i-- == 0) {
                return f->usage;
            }
        }
    }
    return NULL;
}

/* What a field has when the request does not say. */
static uint64_t unsaid(const struct form *form, enum field f)
{
    return f == WAIT ? form->wait_ms : f == COUNT ? form->count : 0;
}

/* ---- reading ---- */

struct reading {
    const struct form *form;
    const struct pk_bytes *args;
    uint32_t n, at; /* `at`: the next word */
    struct pk_command *c;
    struct pk_proto_scratch *scratch;
    const char *why;
    uint32_t said; /* bits of the options seen */
};

_Static_assert(FIELD_COUNT <= 32, "a bit for each field");

static void *place_of(struct pk_command *c, enum field f)
{
    return (char *)c + fields[f].offset;
}

/* The first two words as the usage line has them: "LOCK ACQUIRE". */
static int title_length(const struct form *form)
{
    const char *end = strchr(strchr(form->usage, ' ') + 1, ' ');
    return (int)(end == NULL ? strlen(form->usage) : (size_t)(end - form->usage));
}

enum { QUOTED_MAX = 32 };

/* A word from outside, fit to be quoted in a sentence. */
static const char *quoted(struct pk_bytes word, char room[static QUOTED_MAX + 1])
{
    uint32_t len = word.len < QUOTED_MAX ? word.len : QUOTED_MAX;
    for (uint32_t i = 0; i < len; i++) {
        char c = word.data[i];
        if (c <= ' ' || c > '~') {
            c = '?';
        }
        room[i] = c;
    }
    room[len] = '\0';
    return room;
}

/* The name of a field as sentences have it: "token". */
static const char *spoken(enum field f, char room[static QUOTED_MAX + 1])
{
    quoted(pk_text(fields[f].word), room);
    for (char *at = room; *at != '\0'; at++) {
        if (*at >= 'A' && *at <= 'Z') {
            *at = (char)(*at | ('a' - 'A'));
        }
    }
    return room;
}

static enum pk_proto_got wrong_words(struct reading *r, const char *before,
                                     const char *word, const char *after)
{
    snprintf(r->scratch->why, sizeof r->scratch->why, "%.*s %s%s%s: %s",
             title_length(r->form), r->form->usage, before, word, after, r->form->usage);
    r->why = r->scratch->why;
    return PK_PROTO_WRONG;
}

static enum pk_proto_got too_few(struct reading *r)
{
    char list[64] = "";
    size_t len = 0;
    for (const enum field *f = r->form->places; *f != NONE; f++) {
        const char *join = f == r->form->places ? "" : f[1] == NONE ? " and " : ", ";
        char room[QUOTED_MAX + 1];
        const char *name = spoken(*f, room);
        const char *article = strchr("aeiou", name[0]) != NULL ? "an" : "a";
        len += (size_t)snprintf(list + len, sizeof list - len, "%s%s %s", join, article,
                                name);
    }
    return wrong_words(r, "wants ", list, "");
}

static enum pk_proto_got bad_value(struct reading *r, const char *sentence)
{
    r->why = sentence;
    return PK_PROTO_BADARG;
}

static enum pk_proto_got bad_number(struct reading *r, enum field f)
{
    char room[QUOTED_MAX + 1];
    snprintf(r->scratch->why, sizeof r->scratch->why,
             "the %s must be a whole number from 0 to 18446744073709551615",
             spoken(f, room));
    return bad_value(r, r->scratch->why);
}

static enum pk_proto_got take_part(struct reading *r, struct pk_bytes word)
{
    struct pk_command *c = r->c;
    if (c->n_parts == PK_SET_MAX) {
        return bad_value(r, "a set must name 1 to 16 locks");
    }
    c->parts[c->n_parts++] = (struct pk_part){.name = word, .mode = PK_EXCLUSIVE};
    r->said &= ~(1U << MODE | 1U << SLOTS | 1U << AND);
    return PK_PROTO_COMMAND;
}

static enum pk_proto_got take_mode(struct reading *r, struct pk_bytes word)
{
    for (enum pk_mode m = PK_EXCLUSIVE; m <= PK_SLOT; m++) {
        if (pk_resp_is(word, pk_mode_name(m))) {
            r->c->parts[r->c->n_parts - 1].mode = m;
            return PK_PROTO_COMMAND;
        }
    }
    return bad_value(r, "the mode must be exclusive, shared or slot");
}

static enum pk_proto_got take_slots(struct reading *r, struct pk_bytes word)
{
    struct pk_part *part = &r->c->parts[r->c->n_parts - 1];
    uint64_t slots;
    if (!pk_resp_number(word, &slots) || slots > PK_SLOTS_MAX) {
        return bad_value(r, "slots must be 1 to 1000000, and only for a semaphore");
    }
    part->slots = (uint32_t)slots;
    if (!(r->said & 1U << MODE)) {
        part->mode = PK_SLOT;
    }
    return PK_PROTO_COMMAND;
}

/* This word and all numbers behind it. */
static enum pk_proto_got take_ids(struct reading *r, struct pk_bytes word)
{
    struct pk_command *c = r->c;
    uint64_t id;
    if (!pk_resp_number(word, &id)) {
        return bad_number(r, LEASES);
    }
    c->leases = r->scratch->leases;
    for (;;) {
        if (c->n_leases == PK_RENEW_MAX) {
            return bad_value(r, "a renewal must name 1 to 4096 leases");
        }
        pk_command_put_lease(r->scratch->leases, c->n_leases++, id);
        if (r->at == r->n || !pk_resp_number(r->args[r->at], &id)) {
            return PK_PROTO_COMMAND;
        }
        r->at++;
    }
}

/* As many numbers as there are leases, which stand before. */
static enum pk_proto_got take_heard(struct reading *r, struct pk_bytes word)
{
    struct pk_command *c = r->c;
    for (uint32_t i = 0; i < c->n_leases; i++) {
        uint64_t event;
        if (i > 0) {
            word = r->at == r->n ? pk_text("") : r->args[r->at++];
        }
        if (!pk_resp_number(word, &event) || event > UINT32_MAX) {
            return bad_value(r,
                             "HEARD wants a number from 0 to 4294967295 for each lease");
        }
        pk_command_put_heard(r->scratch->heard, i, (uint32_t)event);
    }
    c->heard = r->scratch->heard;
    return PK_PROTO_COMMAND;
}

static enum pk_proto_got take_wait(struct reading *r, enum field f, struct pk_bytes word)
{
    uint64_t *to = place_of(r->c, f);
    if (pk_resp_is(word, "forever")) {
        *to = PK_WAIT_FOREVER;
        return PK_PROTO_COMMAND;
    }
    return pk_resp_number(word, to)
               ? PK_PROTO_COMMAND
               : bad_value(r, "the wait must be a number of milliseconds, or forever");
}

static enum pk_proto_got take_fence_mode(struct reading *r, struct pk_bytes word)
{
    bool shadow = pk_resp_is(word, "shadow");
    if (!shadow && !pk_resp_is(word, "enforce")) {
        return bad_value(r, "the mode must be shadow or enforce");
    }
    r->c->flags = shadow ? PK_FENCE_SHADOW : 0;
    return PK_PROTO_COMMAND;
}

static enum pk_proto_got take(struct reading *r, enum field f, struct pk_bytes word)
{
    switch (fields[f].kind) {
    case NUMBER:
        return pk_resp_number(word, place_of(r->c, f)) ? PK_PROTO_COMMAND
                                                       : bad_number(r, f);
    case WAIT_TIME:
        return take_wait(r, f, word);
    case TEXT:
        *(struct pk_bytes *)place_of(r->c, f) = word;
        return PK_PROTO_COMMAND;
    case PART:
        return take_part(r, word);
    case PART_MODE:
        return take_mode(r, word);
    case PART_SLOTS:
        return take_slots(r, word);
    case IDS:
        return take_ids(r, word);
    case NUMBERS:
        return take_heard(r, word);
    case FENCE_MODE:
        return take_fence_mode(r, word);
    }
    pk_door_stop(__FILE__, __LINE__, "a kind of field that can't be read");
}

static enum pk_proto_got take_option(struct reading *r)
{
    struct pk_bytes word = r->args[r->at++];
    const enum field *f = r->form->options;
    while (*f != NONE && !pk_resp_is(word, fields[*f].word)) {
        f++;
    }
    if (*f == NONE) {
        char room[QUOTED_MAX + 1];
        return wrong_words(r, "has no option ", quoted(word, room), "");
    }
    if (r->at == r->n) {
        return wrong_words(r, "wants something behind ", fields[*f].word, "");
    }
    if (r->said & 1U << *f) {
        return wrong_words(r, "has ", fields[*f].word, " twice");
    }
    r->said |= 1U << *f;
    return take(r, *f, r->args[r->at++]);
}

static enum pk_proto_got read_form(struct reading *r)
{
    enum pk_proto_got got = PK_PROTO_COMMAND;
    for (const enum field *f = r->form->places; *f != NONE; f++) {
        if (r->at == r->n) {
            return too_few(r);
        }
        got = take(r, *f, r->args[r->at++]);
        if (got != PK_PROTO_COMMAND) {
            return got;
        }
    }
    while (got == PK_PROTO_COMMAND && r->at < r->n) {
        got = take_option(r);
    }
    if (got == PK_PROTO_COMMAND) {
        const char *wrong = pk_command_wrong(r->c);
        return wrong == NULL ? got : bad_value(r, wrong);
    }
    return got;
}

enum pk_proto_got pk_proto_read_command(const struct pk_bytes *args, uint32_t n,
                                        struct pk_proto_scratch *scratch,
                                        struct pk_command *out, const char **why)
{
    const struct noun *noun = noun_of(args, n);
    const struct form *form = noun == NULL || n < 2 ? NULL : form_of(noun, args[1]);
    *why = NULL;
    if (form == NULL) {
        return PK_PROTO_OTHER;
    }
    *out = (struct pk_command){
        .verb = form->verb, .wait_ms = form->wait_ms, .count = form->count};
    struct reading r = {
        .form = form, .args = args, .n = n, .at = 2, .c = out, .scratch = scratch};
    enum pk_proto_got got = read_form(&r);
    *why = r.why;
    return got;
}

void pk_proto_write_unknown(struct pk_resp_out *o, const struct pk_bytes *args,
                            uint32_t n)
{
    char first[QUOTED_MAX + 1] = "", second[QUOTED_MAX + 1] = "";
    char text[PK_PROTO_WHY_MAX];
    const struct noun *noun = noun_of(args, n);
    if (n > 0) {
        quoted(args[0], first);
    }
    if (noun != NULL && n > 1) {
        quoted(args[1], second);
    }
    snprintf(text, sizeof text, "unknown command '%s%s%s'%s%s", first,
             second[0] == '\0' ? "" : " ", second, noun == NULL ? "" : ": ",
             noun == NULL ? "" : noun->usage);
    pk_proto_write_error(o, PK_PROTO_ERROR_ERR, text);
}

void pk_proto_write_wrong(struct pk_resp_out *o, enum pk_proto_got got, const char *why)
{
    PK_ASSERT(got == PK_PROTO_WRONG || got == PK_PROTO_BADARG);
    if (got == PK_PROTO_WRONG) {
        pk_proto_write_error(o, PK_PROTO_ERROR_ERR, why);
        return;
    }
    struct pk_effect reply = {.kind = PK_REPLY, .status = PK_BADARG, .why = pk_text(why)};
    pk_proto_write_reply(o, &(struct pk_effects){.list = &reply, .count = 1});
}

/* ---- writing ---- */

/* Words that are counted first, then written, by the same code. */
struct words {
    struct pk_resp_out *o; /* NULL: counted only */
    size_t n;
};

static void put(struct words *w, struct pk_bytes word)
{
    w->n++;
    if (w->o != NULL) {
        pk_resp_bulk(w->o, word);
    }
}

static void put_number(struct words *w, uint64_t v)
{
    char room[PK_RESP_DIGITS_MAX];
    put(w, pk_bytes(room, pk_resp_digits(room, v)));
}

static uint64_t number_in(const struct pk_command *c, enum field f)
{
    const void *at = (const char *)c + fields[f].offset;
    return *(const uint64_t *)at;
}

static struct pk_bytes text_in(const struct pk_command *c, enum field f)
{
    const void *at = (const char *)c + fields[f].offset;
    return *(const struct pk_bytes *)at;
}

static void put_place(struct words *w, const struct pk_command *c, enum field f)
{
    switch (fields[f].kind) {
    case NUMBER:
        put_number(w, number_in(c, f));
        return;
    case TEXT:
        put(w, text_in(c, f));
        return;
    case PART:
        put(w, c->parts[0].name);
        return;
    case IDS:
        for (uint32_t i = 0; i < c->n_leases; i++) {
            put_number(w, pk_command_lease_at(c, i));
        }
        return;
    case FENCE_MODE:
        put(w, pk_text(c->flags & PK_FENCE_SHADOW ? "shadow" : "enforce"));
        return;
    case WAIT_TIME:
    case NUMBERS:
    case PART_MODE:
    case PART_SLOTS:
        break;
    }
    pk_door_stop(__FILE__, __LINE__, "a kind of field that is an option only");
}

/* All parts in order, the first without its name: that has a place. */
static void put_parts(struct words *w, const struct pk_command *c)
{
    for (uint32_t i = 0; i < c->n_parts; i++) {
        const struct pk_part *part = &c->parts[i];
        if (i > 0) {
            put(w, pk_text(fields[AND].word));
            put(w, part->name);
        }
        if (part->mode == PK_SLOT) {
            put(w, pk_text(fields[SLOTS].word));
            put_number(w, part->slots);
        } else if (part->mode != PK_EXCLUSIVE) {
            put(w, pk_text(fields[MODE].word));
            put(w, pk_text(pk_mode_name(part->mode)));
        }
    }
}

static void put_option(struct words *w, const struct form *form,
                       const struct pk_command *c, enum field f)
{
    switch (fields[f].kind) {
    case NUMBER:
    case WAIT_TIME:
        if (number_in(c, f) != unsaid(form, f)) {
            put(w, pk_text(fields[f].word));
            put_number(w, number_in(c, f));
        }
        return;
    case TEXT:
        if (text_in(c, f).len > 0) {
            put(w, pk_text(fields[f].word));
            put(w, text_in(c, f));
        }
        return;
    case NUMBERS:
        if (c->heard != NULL) {
            put(w, pk_text(fields[f].word));
            for (uint32_t i = 0; i < c->n_leases; i++) {
                put_number(w, pk_command_heard_at(c, i));
            }
        }
        return;
    case PART:
        put_parts(w, c);
        return;
    case PART_MODE:
    case PART_SLOTS:
        return; /* said with their part */
    case IDS:
    case FENCE_MODE:
        break;
    }
    pk_door_stop(__FILE__, __LINE__, "a kind of field that has a place only");
}

static void put_form(struct words *w, const struct noun *noun, const struct form *form,
                     const struct pk_command *c)
{
    put(w, pk_text(noun->word));
    put(w, pk_text(form->word));
    for (const enum field *f = form->places; *f != NONE; f++) {
        put_place(w, c, *f);
    }
    for (const enum field *f = form->options; *f != NONE; f++) {
        put_option(w, form, c, *f);
    }
}

static void write_form(struct pk_resp_out *o, const struct noun *noun,
                       const struct form *form, const struct pk_command *c)
{
    struct words counted = {0};
    struct words written = {.o = o};
    put_form(&counted, noun, form, c);
    pk_resp_array(o, counted.n);
    put_form(&written, noun, form, c);
}

void pk_proto_write_command(struct pk_resp_out *o, const struct pk_command *c)
{
    for (size_t i = 0; i < NOUNS; i++) {
        for (const struct form *f = nouns[i].forms; f->word != NULL; f++) {
            if (f->verb == c->verb) {
                write_form(o, &nouns[i], f, c);
                return;
            }
        }
    }
    pk_door_stop(__FILE__, __LINE__, "not a verb of the protocol");
}
