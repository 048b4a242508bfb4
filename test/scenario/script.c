/* SPDX-License-Identifier: MIT */
#include "script.h"

#include <stdio.h>

#include "core/door.h"

enum { RUN_MAX = 2 * 1024 * 1024, RENEW_TIMES_MAX = 10000 };

struct script_store {
    struct script_store *next;
    char bytes[];
};

/* One word of a line: text, "text", key=text or key="text". */
struct word {
    struct pk_bytes key; /* empty: none */
    struct pk_bytes value;
    bool quoted; /* so that "shared" can be a lock's name */
};

struct parser {
    struct script *script;
    struct script_error *error;
    struct script_line *line;
    const char *at, *end; /* the rest of the line */
    struct word word;
    bool ended; /* there was no further word */
};

bool script_wrong(struct script_error *error, uint32_t line, const char *why,
                  struct pk_bytes what)
{
    int len = what.len > 60 ? 60 : (int)what.len;
    error->line = line;
    snprintf(error->why, sizeof error->why, "%.*s%s%s", len, len > 0 ? what.data : "",
             len > 0 ? ": " : "", why);
    return false;
}

static bool wrong(struct parser *p, const char *why, struct pk_bytes word)
{
    return script_wrong(p->error, p->line == NULL ? 1 : p->line->number, why, word);
}

static bool is(struct pk_bytes word, const char *text)
{
    return pk_bytes_equal(word, pk_text(text));
}

/* ---- words ---- */

static char *keep(struct script *s, size_t len)
{
    struct script_store *b = pk_door_resize(NULL, sizeof *b + len);
    b->next = s->store;
    s->store = b;
    return b->bytes;
}

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef";
    const char *at = c == '\0' ? NULL : strchr(digits, c);
    return at == NULL ? -1 : (int)(at - digits);
}

/* The character after a backslash, at p->at. */
static bool read_escape(struct parser *p, char *out)
{
    struct pk_bytes rest = pk_bytes(p->at, (size_t)(p->end - p->at));
    if (rest.len >= 1 && (*p->at == '"' || *p->at == '\\')) {
        *out = *p->at++;
        return true;
    }
    if (rest.len >= 1 && *p->at == 'n') {
        *out = '\n';
        p->at++;
        return true;
    }
    if (rest.len >= 3 && *p->at == 'x' && hex_digit(p->at[1]) >= 0 &&
        hex_digit(p->at[2]) >= 0) {
        *out = (char)(hex_digit(p->at[1]) * 16 + hex_digit(p->at[2]));
        p->at += 3;
        return true;
    }
    return wrong(p, "a backslash must be followed by \\, \", n or x and two hex digits",
                 rest);
}

/* The *300 behind a quoted string. */
static bool read_times(struct parser *p, struct pk_bytes *s)
{
    const char *from = ++p->at;
    while (p->at < p->end && *p->at != ' ') {
        p->at++;
    }
    struct pk_bytes count = pk_bytes(from, (size_t)(p->at - from));
    uint64_t times = 0;
    if (number_read(count, &times) != NULL || times > RUN_MAX ||
        times * s->len > RUN_MAX) {
        return wrong(p, "not a number of repetitions", count);
    }
    char *run = keep(p->script, times * s->len);
    for (uint64_t i = 0; i < times; i++) {
        memcpy(run + i * s->len, s->data, s->len);
    }
    *s = pk_bytes(run, times * s->len);
    return true;
}

static bool read_quoted(struct parser *p, struct pk_bytes *out)
{
    char *to = keep(p->script, (size_t)(p->end - p->at));
    *out = pk_bytes(to, 0);
    p->at++;
    while (p->at < p->end && *p->at != '"') {
        char c = *p->at++;
        if (c == '\\' && !read_escape(p, &c)) {
            return false;
        }
        to[out->len++] = c;
    }
    if (p->at == p->end) {
        return wrong(p, "the quote is never closed", pk_bytes("", 0));
    }
    p->at++;
    if (p->at < p->end && *p->at == '*' && !read_times(p, out)) {
        return false;
    }
    if (p->at < p->end && *p->at != ' ') {
        return wrong(p, "a space is missing after the quote", pk_bytes("", 0));
    }
    return true;
}

/* Reads the next word of the line into p->word; at its end sets p->ended. */
static bool next_word(struct parser *p)
{
    p->word = (struct word){0};
    p->ended = p->at == p->end;
    if (p->ended) {
        return true;
    }
    const char *from = p->at;
    while (p->at < p->end && strchr(" =\"", *p->at) == NULL) {
        p->at++;
    }
    if (p->at < p->end && *p->at == '=' && p->at > from) {
        p->word.key = pk_bytes(from, (size_t)(p->at - from));
        from = ++p->at;
        while (p->at < p->end && strchr(" \"", *p->at) == NULL) {
            p->at++;
        }
    }
    if (p->at < p->end && *p->at == '"') {
        if (p->at != from) {
            return wrong(p, "a quote in the middle of a word",
                         pk_bytes(from, (size_t)(p->at - from)));
        }
        p->word.quoted = true;
        if (!read_quoted(p, &p->word.value)) {
            return false;
        }
    } else {
        p->word.value = pk_bytes(from, (size_t)(p->at - from));
        if (p->word.value.len == 0) {
            return wrong(
                p, p->word.key.len > 0 ? "nothing after the =" : "one space too many",
                p->word.key);
        }
    }
    if (p->at < p->end) {
        p->at++; /* the space */
        if (p->at == p->end) {
            return wrong(p, "a space at the end of the line", pk_bytes("", 0));
        }
    }
    return true;
}

/* ---- options ---- */

enum option_type { NUMBER, DURATION, WAIT, FLAGS, TEXT };

static const struct option {
    const char *key;
    uint32_t field;
    enum option_type type;
    size_t offset;
} options[] = {
    {"lease", PK_F_LEASE, NUMBER, offsetof(struct pk_command, lease)},
    {"request", PK_F_REQUEST, NUMBER, offsetof(struct pk_command, request)},
    {"target", PK_F_TARGET, NUMBER, offsetof(struct pk_command, target)},
    {"token", PK_F_TOKEN, NUMBER, offsetof(struct pk_command, token)},
    {"ttl", PK_F_TTL, DURATION, offsetof(struct pk_command, ttl_ms)},
    {"wait", PK_F_WAIT, WAIT, offsetof(struct pk_command, wait_ms)},
    {"max-hold", PK_F_MAX_HOLD, DURATION, offsetof(struct pk_command, max_hold_ms)},
    {"lock-delay", PK_F_LOCK_DELAY, DURATION, offsetof(struct pk_command, lock_delay_ms)},
    {"count", PK_F_COUNT, NUMBER, offsetof(struct pk_command, count)},
    {"flags", PK_F_FLAGS, FLAGS, offsetof(struct pk_command, flags)},
    {"to", PK_F_VERSION, NUMBER, offsetof(struct pk_command, version)},
    {"epoch", PK_F_EPOCH, NUMBER, offsetof(struct pk_command, epoch)},
    {"label", PK_F_LABEL, TEXT, offsetof(struct pk_command, label)},
    {"value", PK_F_VALUE, TEXT, offsetof(struct pk_command, value)},
    {"why", PK_F_REASON, TEXT, offsetof(struct pk_command, reason)},
    {"after", PK_F_CURSOR, TEXT, offsetof(struct pk_command, cursor)},
};

static const char *const limit_names[] = {
#define X(name, initial, ceiling, text) #name,
    PK_LIMITS(X)
#undef X
};

static const size_t limit_offsets[] = {
#define X(name, initial, ceiling, text) offsetof(struct pk_limits, name),
    PK_LIMITS(X)
#undef X
};

enum {
    OPTIONS = sizeof options / sizeof options[0],
    LIMITS = sizeof limit_names / sizeof limit_names[0],
};

/* any, add, any+add, hold; or a number, for flags that there are not */
static const char *flags_read(struct pk_bytes value, uint64_t *flags)
{
    if (is(value, "any")) {
        *flags = PK_KEY_ANY;
    } else if (is(value, "add")) {
        *flags = PK_KEY_ADD;
    } else if (is(value, "any+add")) {
        *flags = PK_KEY_ANY | PK_KEY_ADD;
    } else if (is(value, "hold")) {
        *flags = PK_VERSION_HOLD;
    } else if (number_read(value, flags) != NULL) {
        return "not any, add, any+add, hold or a number";
    }
    return NULL;
}

static bool read_value(struct parser *p, enum option_type type, void *to)
{
    struct pk_bytes value = p->word.value;
    const char *why = NULL;
    if (type == TEXT) {
        *(struct pk_bytes *)to = value;
    } else if (type == NUMBER) {
        why = number_read(value, to);
    } else if (type == FLAGS) {
        why = flags_read(value, to);
    } else if (type == WAIT && is(value, "forever")) {
        *(uint64_t *)to = PK_WAIT_FOREVER;
    } else {
        why = duration_read(value, to);
    }
    return why == NULL || wrong(p, why, value);
}

/* slots= and mode= belong to the lock named before them. */
static bool part_option(struct parser *p)
{
    struct pk_command *c = &p->line->command;
    uint64_t number = 0;
    if (c->n_parts == 0 || c->n_parts > PK_SET_MAX) {
        return wrong(p, "stands before the lock it belongs to", p->word.key);
    }
    if (!read_value(p, NUMBER, &number)) {
        return false;
    }
    if (number > UINT32_MAX) {
        return wrong(p, "more than 32 bits", p->word.value);
    }
    struct pk_part *part = &c->parts[c->n_parts - 1];
    if (is(p->word.key, "slots")) {
        part->slots = (uint32_t)number;
        part->mode = PK_SLOT;
    } else {
        part->mode = (enum pk_mode)number;
    }
    return true;
}

static bool limit_option(struct parser *p)
{
    for (size_t i = 0; i < LIMITS; i++) {
        uint64_t number = 0;
        if (!is(p->word.key, limit_names[i])) {
            continue;
        }
        if (!read_value(p, NUMBER, &number)) {
            return false;
        }
        if (number > UINT32_MAX) {
            return wrong(p, "more than 32 bits", p->word.value);
        }
        void *to = (char *)&p->line->command.limits + limit_offsets[i];
        *(uint32_t *)to = (uint32_t)number;
        return true;
    }
    return wrong(p, "no such limit", p->word.key);
}

/* renew lease=7 or lease=7*4097 */
static bool renewal_option(struct parser *p)
{
    struct script_renewal r = {.times = 1};
    struct pk_bytes id = p->word.value;
    const char *star = memchr(id.data, '*', id.len);
    if (star != NULL) {
        struct pk_bytes times = pk_bytes(star + 1, (size_t)(id.data + id.len - star - 1));
        id.len = (uint32_t)(star - id.data);
        if (number_read(times, &r.times) != NULL || r.times > RENEW_TIMES_MAX) {
            return wrong(p, "not a number of repetitions", times);
        }
    }
    if (number_read(id, &r.lease) != NULL) {
        return wrong(p, "not a number", id);
    }
    if (p->line->n_renewals == SCRIPT_PARTS_MAX) {
        return wrong(p, "too many leases in one line", id);
    }
    p->line->renewals[p->line->n_renewals++] = r;
    return true;
}

/* renew A heard=3 B heard=0: of the lease before it; without one, of the speaker's. */
static bool heard_option(struct parser *p)
{
    struct script_line *line = p->line;
    uint64_t number = 0;
    if (!read_value(p, NUMBER, &number)) {
        return false;
    }
    if (number > UINT32_MAX) {
        return wrong(p, "more than 32 bits", p->word.value);
    }
    line->given |= SCRIPT_GIVEN_HEARD;
    if (line->n_renewals == 0) {
        line->heard = (uint32_t)number;
    } else {
        line->renewals[line->n_renewals - 1].heard = (uint32_t)number;
    }
    return true;
}

static bool read_option(struct parser *p)
{
    struct script_line *line = p->line;
    uint32_t fields = pk_verb_fields(line->command.verb);
    struct pk_bytes key = p->word.key;
    if (is(key, "as")) {
        line->given |= SCRIPT_GIVEN_PRINCIPAL;
        line->command.principal = p->word.value;
        return true;
    }
    if ((fields & PK_F_PARTS) && (is(key, "slots") || is(key, "mode"))) {
        return part_option(p);
    }
    if ((fields & PK_F_LEASES) && is(key, "lease")) {
        return renewal_option(p);
    }
    if ((fields & PK_F_LEASES) && is(key, "heard")) {
        return heard_option(p);
    }
    for (size_t i = 0; i < OPTIONS; i++) {
        if (is(key, options[i].key) && (fields & options[i].field)) {
            if (line->given & options[i].field) {
                return wrong(p, "given twice", key);
            }
            line->given |= options[i].field;
            return read_value(p, options[i].type,
                              (char *)&line->command + options[i].offset);
        }
    }
    return fields & PK_F_LIMITS ? limit_option(p)
                                : wrong(p, "not an option of this verb", key);
}

/* ---- arguments without a key ---- */

static bool is_client(const struct word *w)
{
    return !w->quoted && w->key.len == 0 && w->value.len > 0 && w->value.data[0] >= 'A' &&
           w->value.data[0] <= 'Z';
}

static bool read_part(struct parser *p)
{
    struct pk_command *c = &p->line->command;
    struct pk_bytes word = p->word.value;
    bool is_mode = !p->word.quoted && (is(word, "shared") || is(word, "exclusive"));
    if (is_mode && (c->n_parts == 0 || c->n_parts > PK_SET_MAX)) {
        return wrong(p, "stands before the lock it belongs to", word);
    }
    if (is_mode) {
        c->parts[c->n_parts - 1].mode = is(word, "shared") ? PK_SHARED : PK_EXCLUSIVE;
        return true;
    }
    /* One lock too many is the machine's to refuse; a command has no room for it. */
    if (c->n_parts < PK_SET_MAX) {
        c->parts[c->n_parts] = (struct pk_part){.name = word, .mode = PK_EXCLUSIVE};
    }
    c->n_parts++;
    return true;
}

static bool read_argument(struct parser *p)
{
    struct script_line *line = p->line;
    uint32_t fields = pk_verb_fields(line->command.verb);
    struct pk_bytes word = p->word.value;
    if (fields & PK_F_PARTS) {
        return read_part(p);
    }
    if (fields & PK_F_LEASES) {
        if (!is_client(&p->word) || line->n_renewals == SCRIPT_PARTS_MAX) {
            return wrong(p, "not a client (those begin with a capital letter)", word);
        }
        line->renewals[line->n_renewals++] =
            (struct script_renewal){.client = word, .times = 1};
        return true;
    }
    if (line->command.verb == PK_LEASE_SHOW && line->of_client.len == 0 &&
        is_client(&p->word)) {
        line->of_client = word;
        return true;
    }
    if (line->command.verb == PK_LOCK_CANCEL && line->lock.len == 0) {
        line->lock = word;
        return true;
    }
    if ((fields & PK_F_NAME) && !(line->given & PK_F_NAME)) {
        line->given |= PK_F_NAME;
        line->command.name = word;
        return true;
    }
    if (line->command.verb == PK_FENCE_MODE && !(line->given & PK_F_FLAGS) &&
        (is(word, "shadow") || is(word, "enforce"))) {
        line->given |= PK_F_FLAGS;
        line->command.flags = is(word, "shadow") ? PK_FENCE_SHADOW : 0;
        return true;
    }
    return wrong(p, "unknown word", word);
}

/* ---- lines ---- */

static const struct verb_word {
    const char *word;
    enum pk_verb verb;
} verbs[] = {
    {"tick", PK_TICK},
    {"configure", PK_CONFIGURE},
    {"leap", PK_LEAP},
    {"open", PK_LEASE_OPEN},
    {"renew", PK_LEASE_RENEW},
    {"close", PK_LEASE_CLOSE},
    {"acquire", PK_LOCK_ACQUIRE},
    {"cancel", PK_LOCK_CANCEL},
    {"release", PK_LOCK_RELEASE},
    {"value", PK_LOCK_VALUE},
    {"break", PK_LOCK_BREAK},
    {"show", PK_LOCK_SHOW},
    {"list", PK_LOCK_LIST},
    {"claim", PK_FENCE_CLAIM},
    {"check", PK_FENCE_CHECK},
    {"set", PK_FENCE_SET},
    {"get", PK_FENCE_GET},
    {"take", PK_KEY_TAKE},
    {"keep", PK_KEY_KEEP},
    {"drop", PK_KEY_DROP},
    {"mode", PK_FENCE_MODE},
    {"set-version", PK_SET_VERSION},
};

static const struct action_word {
    const char *word;
    enum script_action action;
} actions[] = {
    {"repeat", SCRIPT_REPEAT},         {"snapshot", SCRIPT_SNAPSHOT},
    {"deadline", SCRIPT_DEADLINE},     {"stats", SCRIPT_STATS},
    {"interleave", SCRIPT_INTERLEAVE}, {"version", SCRIPT_VERSION},
};

enum {
    VERBS = sizeof verbs / sizeof verbs[0],
    ACTIONS = sizeof actions / sizeof actions[0],
};

/* at 10s, +500ms or nothing; leaves the word after it in p->word. */
static bool read_time(struct parser *p)
{
    struct pk_bytes word = p->word.value;
    const char *why = NULL;
    if (p->word.quoted || p->word.key.len > 0) {
        return true;
    }
    if (is(word, "at")) {
        if (!next_word(p)) {
            return false;
        }
        p->line->when = SCRIPT_AT;
        why = duration_read(p->word.value, &p->line->time_ms);
    } else if (word.len > 0 && word.data[0] == '+') {
        p->line->when = SCRIPT_AFTER;
        why = duration_read(pk_bytes(word.data + 1, word.len - 1), &p->line->time_ms);
    } else {
        return true;
    }
    return why == NULL ? next_word(p) : wrong(p, why, p->word.value);
}

/* The verb, or another of the words that say what the line does. */
static bool read_action(struct parser *p)
{
    struct pk_bytes word = p->word.value;
    if (p->ended || p->word.quoted || p->word.key.len > 0) {
        return wrong(p, "here a verb must stand", word);
    }
    for (size_t i = 0; i < VERBS; i++) {
        if (is(word, verbs[i].word)) {
            p->line->command.verb = verbs[i].verb;
            return true;
        }
    }
    for (size_t i = 0; i < ACTIONS; i++) {
        if (is(word, actions[i].word)) {
            bool timed = p->line->when != SCRIPT_NOW || p->line->client.len > 0;
            p->line->action = actions[i].action;
            return actions[i].action == SCRIPT_REPEAT || !timed ||
                   wrong(p, "takes neither time nor client", word);
        }
    }
    return wrong(p, "no such verb", word);
}

static bool needs_name(const struct script_line *line)
{
    uint32_t fields = pk_verb_fields(line->command.verb);
    return line->action == SCRIPT_COMMAND && (fields & PK_F_NAME) &&
           !(fields & PK_F_PREFIX) && !(line->given & PK_F_NAME);
}

/* `show` is of a lock, unless the next word says lease or fence. */
static bool read_what_is_shown(struct parser *p)
{
    bool plain = !p->ended && !p->word.quoted && p->word.key.len == 0;
    if (plain && is(p->word.value, "lease")) {
        p->line->command.verb = PK_LEASE_SHOW;
    } else if (plain && is(p->word.value, "fence")) {
        p->line->command.verb = PK_FENCE_SHOW;
    } else {
        return true;
    }
    return next_word(p);
}

static bool read_line(struct parser *p)
{
    if (!next_word(p) || !read_time(p)) {
        return false;
    }
    if (is_client(&p->word)) {
        p->line->client = p->word.value;
        if (!next_word(p)) {
            return false;
        }
    }
    if (!read_action(p) || !next_word(p)) {
        return false;
    }
    if (p->line->command.verb == PK_LOCK_SHOW && !read_what_is_shown(p)) {
        return false;
    }
    while (!p->ended) {
        if (p->line->action != SCRIPT_COMMAND) {
            return wrong(p, "unknown word", p->word.value);
        }
        bool good = p->word.key.len > 0 ? read_option(p) : read_argument(p);
        if (!good || !next_word(p)) {
            return false;
        }
    }
    if (needs_name(p->line)) {
        return wrong(p, "here a name must stand", pk_bytes("", 0));
    }
    bool has_mode = p->line->command.verb != PK_FENCE_MODE || p->line->given & PK_F_FLAGS;
    return has_mode || wrong(p, "here shadow or enforce must stand", pk_bytes("", 0));
}

/* ---- the file ---- */

static void split(struct script *s, struct pk_bytes text)
{
    const char *end = text.data + text.len;
    uint32_t capacity = 0;
    for (const char *at = text.data; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline == NULL ? end : newline;
        if (s->n_raw == capacity) {
            capacity = capacity == 0 ? 256 : 2 * capacity;
            s->raw = pk_door_resize(s->raw, capacity * sizeof *s->raw);
        }
        s->raw[s->n_raw++] = pk_bytes(at, (size_t)(stop - at));
        at = stop + 1;
    }
    /* One more than needed of each: no array of size 0. */
    s->lines = pk_door_resize(NULL, (s->n_raw + 1) * sizeof *s->lines);
    s->blocks = pk_door_resize(NULL, (s->n_raw + 1) * sizeof *s->blocks);
}

static bool add_line(struct parser *p, uint32_t index)
{
    struct script *s = p->script;
    struct pk_bytes raw = s->raw[index];
    p->line = &s->lines[s->n_lines++];
    memset(p->line, 0, sizeof *p->line);
    p->line->text = raw;
    p->line->number = index + 1;
    p->at = raw.data;
    p->end = raw.data + raw.len;
    return read_line(p);
}

static bool is_separator(struct pk_bytes raw)
{
    return is(raw, "----");
}

/* Reads the block whose first line is `index`, and moves it to the line after. */
static bool add_block(struct parser *p, uint32_t *index, bool accepting)
{
    struct script *s = p->script;
    struct script_block *b = &s->blocks[s->n_blocks++];
    uint32_t i = *index;
    *b = (struct script_block){.first_line = s->n_lines};
    for (; i < s->n_raw && s->raw[i].len > 0 && !is_separator(s->raw[i]); i++) {
        if (s->raw[i].data[0] == '#') {
            return script_wrong(p->error, i + 1, "a comment must stand before its block",
                                s->raw[i]);
        }
        if (!add_line(p, i)) {
            return false;
        }
        b->n_lines++;
    }
    if (b->n_lines == 0) {
        return script_wrong(p->error, i + 1, "---- without a line before it",
                            pk_bytes("", 0));
    }
    b->open = i == s->n_raw || s->raw[i].len == 0;
    if (b->open && !accepting) {
        return wrong(p, "the block has no ----", p->line->text);
    }
    i += !b->open;
    b->expect_first = i;
    for (; i < s->n_raw && s->raw[i].len > 0; i++) {
        if (b->open || is_separator(s->raw[i]) || s->raw[i].data[0] == '#') {
            return script_wrong(p->error, i + 1,
                                "not an effect; a block ends with an empty line",
                                s->raw[i]);
        }
        b->n_expected++;
    }
    *index = i;
    return true;
}

/* `interleave` heads its block; its lines are played in every order. */
static bool check_block(struct parser *p, const struct script_block *b)
{
    bool all = p->script->lines[b->first_line].action == SCRIPT_INTERLEAVE;
    for (uint32_t i = 0; i < b->n_lines; i++) {
        p->line = &p->script->lines[b->first_line + i];
        if (i > 0 && p->line->action == SCRIPT_INTERLEAVE) {
            return wrong(p, "must head its block", p->line->text);
        }
        bool plain =
            p->line->action == SCRIPT_COMMAND || p->line->action == SCRIPT_REPEAT;
        if (all && i > 0 && !plain) {
            return wrong(p, "can't be interleaved", p->line->text);
        }
    }
    return !all || b->n_lines > 1 || wrong(p, "nothing to interleave", pk_bytes("", 0));
}

bool script_read(struct script *s, struct pk_bytes text, bool accepting,
                 struct script_error *error)
{
    *s = (struct script){0};
    struct parser p = {.script = s, .error = error};
    split(s, text);
    if (memchr(text.data, '\0', text.len) != NULL) {
        return wrong(&p, "a script is text; it has a zero byte", pk_bytes("", 0));
    }
    if (s->n_raw == 0 || s->raw[0].len < 3 || memcmp(s->raw[0].data, "# ", 2) != 0) {
        return wrong(&p, "a script begins with its title: # ...", pk_bytes("", 0));
    }
    for (uint32_t i = 0; i < s->n_raw;) {
        if (s->raw[i].len == 0 || s->raw[i].data[0] == '#') {
            i++;
        } else if (!add_block(&p, &i, accepting) ||
                   !check_block(&p, &s->blocks[s->n_blocks - 1])) {
            return false;
        }
    }
    return s->n_blocks > 0 ||
           wrong(&p, "a script without a single block", pk_bytes("", 0));
}

void script_free(struct script *s)
{
    while (s->store != NULL) {
        struct script_store *next = s->store->next;
        pk_door_resize(s->store, 0);
        s->store = next;
    }
    pk_door_resize(s->raw, 0);
    pk_door_resize(s->lines, 0);
    pk_door_resize(s->blocks, 0);
    *s = (struct script){0};
}
