/* SPDX-License-Identifier: MIT */
#include "sim/script.h"

#include <string.h>

#include "core/bytes.h"
#include "core/door.h"
#include "core/utf8.h"

enum { AFTERMATH_US = 10000000, UNTIL_MAX_S = 86400 };

void pk_script_free(struct pk_script *s)
{
    (void)pk_door_resize(s->acts, 0);
    *s = (struct pk_script){0};
}

/* Keeps the order of time; of two at the same time, the later one written comes later. */
void pk_script_add(struct pk_script *s, const struct pk_act *a)
{
    if (s->n_acts == s->acts_capacity) {
        s->acts_capacity = s->acts_capacity == 0 ? 32 : 2 * s->acts_capacity;
        s->acts = pk_door_resize(s->acts, s->acts_capacity * sizeof s->acts[0]);
    }
    uint32_t at = s->n_acts++;
    while (at > 0 && s->acts[at - 1].at_us > a->at_us) {
        s->acts[at] = s->acts[at - 1];
        at--;
    }
    s->acts[at] = *a;
}

/* ---- reading ---- */

struct reader {
    struct pk_bytes line; /* what is left of it */
    struct pk_script *script;
    /* The second time: all settings, which acts are now judged by. */
    const struct pk_world_config *settings;
    struct pk_script_error *error;
};

static bool fail(struct reader *r, const char *what, struct pk_bytes word)
{
    size_t len = strlen(what);
    size_t room = sizeof r->error->text - 1;
    len = len < room ? len : room;
    memcpy(r->error->text, what, len);
    if (word.len > 0 && len + 2 + word.len + 1 <= room) {
        memcpy(r->error->text + len, ": ", 2);
        memcpy(r->error->text + len + 2, word.data, word.len);
        len += 2 + word.len;
    }
    r->error->text[len] = '\0';
    return false;
}

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == ',' || c == ';';
}

/* The next word of the line; empty at its end. */
static struct pk_bytes next_word(struct reader *r)
{
    struct pk_bytes *l = &r->line;
    while (l->len > 0 && blank(l->data[0])) {
        *l = pk_bytes(l->data + 1, l->len - 1);
    }
    uint32_t n = 0;
    while (n < l->len && !blank(l->data[n])) {
        n++;
    }
    struct pk_bytes word = pk_bytes(l->data, n);
    *l = pk_bytes(l->data + n, l->len - n);
    return word;
}

static bool is(struct pk_bytes word, const char *text)
{
    return pk_bytes_equal(word, pk_text(text));
}

static bool read_number(struct pk_bytes word, uint64_t most, uint64_t *out)
{
    *out = 0;
    for (uint32_t i = 0; i < word.len; i++) {
        uint64_t digit = (uint64_t)(word.data[i] - '0');
        if (digit > 9 || *out > (most - digit) / 10) {
            return false;
        }
        *out = *out * 10 + digit;
    }
    return word.len > 0 && *out <= most;
}

/* The unit's length in us, and the word without it; seconds if there is none. */
static uint64_t cut_unit(struct pk_bytes *word)
{
    static const struct {
        const char *name;
        uint64_t us;
    } units[] = {{"us", 1}, {"ms", 1000}, {"s", 1000000}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        size_t len = strlen(units[i].name);
        if (word->len > len &&
            memcmp(word->data + word->len - len, units[i].name, len) == 0) {
            word->len -= (uint32_t)len;
            return units[i].us;
        }
    }
    return 1000000;
}

/* "8", "0.25", "20ms", "-3s" */
static bool read_time(struct pk_bytes word, int64_t *out)
{
    bool negative = word.len > 0 && word.data[0] == '-';
    if (negative) {
        word = pk_bytes(word.data + 1, word.len - 1);
    }
    uint64_t unit = cut_unit(&word);
    const char *dot = memchr(word.data, '.', word.len);
    uint32_t whole = dot != NULL ? (uint32_t)(dot - word.data) : word.len;
    uint64_t n = 0;
    if (!read_number(pk_bytes(word.data, whole), UINT64_C(1) << 40, &n)) {
        return false;
    }
    uint64_t us = n * unit;
    uint64_t place = unit;
    for (uint32_t i = whole + 1; i < word.len; i++) {
        place /= 10;
        if (word.data[i] < '0' || word.data[i] > '9') {
            return false;
        }
        us += (uint64_t)(word.data[i] - '0') * place;
    }
    *out = negative ? -(int64_t)us : (int64_t)us;
    return us <= UINT64_C(1000000) * UNTIL_MAX_S && whole + 1 != word.len;
}

static bool read_who(struct pk_bytes word, uint32_t *out)
{
    if (word.len == 1 && word.data[0] >= 'A' && word.data[0] < 'A' + PK_CLIENTS_MAX) {
        *out = (uint32_t)(word.data[0] - 'A');
        return true;
    }
    if (word.len == 2 && word.data[0] == 'n' && word.data[1] >= '1' &&
        word.data[1] < '1' + PK_NODES_MAX) {
        *out = PK_WHO_NODE + (uint32_t)(word.data[1] - '1');
        return true;
    }
    *out = PK_WHO_SERVICE;
    return is(word, "service");
}

static bool has_length(enum pk_op op)
{
    return op >= PK_OP_PAUSE && op != PK_OP_HEAL;
}

/* at TIME WHO WHAT [HOW LONG] */
static bool read_act(struct reader *r)
{
    struct pk_act a = {0};
    int64_t at;
    struct pk_bytes word = next_word(r);
    if (!read_time(word, &at) || at < 0) {
        return fail(r, "a time is missing or wrong", word);
    }
    a.at_us = (uint64_t)at;
    word = next_word(r);
    if (!read_who(word, &a.who)) {
        return fail(r, "who is A to H, service, or n1 to n5, not", word);
    }
    word = next_word(r);
    uint32_t op = 0;
    while (op < PK_OP_COUNT && !is(word, pk_op_name((enum pk_op)op))) {
        op++;
    }
    if (op == PK_OP_COUNT) {
        return fail(r, "nobody can do that", word);
    }
    a.op = (enum pk_op)op;
    word = next_word(r);
    uint64_t millionths = 0;
    bool minus = word.len > 0 && word.data[0] == '-';
    if (a.op == PK_OP_DRIFT) {
        struct pk_bytes size = minus ? pk_bytes(word.data + 1, word.len - 1) : word;
        if (!read_number(size, 500000, &millionths)) {
            return fail(r, "a drift is a number of millionths, not", word);
        }
        a.arg = minus ? -(int64_t)millionths : (int64_t)millionths;
    } else if (word.len > 0 && (!has_length(a.op) || !read_time(word, &a.arg))) {
        return fail(r, has_length(a.op) ? "that is no length of time" : "too much", word);
    }
    const char *wrong = r->settings != NULL ? pk_world_act_wrong(r->settings, &a) : NULL;
    if (wrong != NULL) {
        return fail(r, wrong, pk_bytes("", 0));
    }
    if (r->script->n_acts == PK_ACTS_MAX) {
        return fail(r, "more than 4096 acts are too many", pk_bytes("", 0));
    }
    pk_script_add(r->script, &a);
    return true;
}

static bool read_expect(struct reader *r, uint32_t *mask)
{
    struct pk_bytes word;
    *mask = 0;
    while ((word = next_word(r)).len > 0) {
        enum pk_check c = pk_check_named(word.data, word.len);
        if (c == PK_CHECK_COUNT && !is(word, "nothing")) {
            return fail(r, "there is no such check", word);
        }
        *mask |= c == PK_CHECK_COUNT ? 0 : UINT32_C(1) << c;
    }
    return true;
}

/* One of the settings' words. */
static bool read_choice(struct reader *r, const char *const *names, uint32_t n,
                        uint32_t *out)
{
    struct pk_bytes word = next_word(r);
    *out = 0;
    while (*out < n && !is(word, names[*out])) {
        (*out)++;
    }
    return *out < n || fail(r, "there is no such choice", word);
}

static bool read_setting(struct reader *r, struct pk_bytes key)
{
    struct pk_world_config *c = &r->script->config;
    static const char *const fences[] = {"off", "check", "on"};
    static const char *const switches[] = {"off", "on"};
    static const char *const flavours[] = {"picket", "etcd", "zookeeper", "redlock"};
    uint32_t choice = 0;
    uint64_t number = 0;
    if (is(key, "flavour")) {
        bool fine = read_choice(r, flavours, PK_FLAVOUR_COUNT, &choice);
        c->flavour = fine ? (enum pk_flavour)choice : c->flavour;
        return fine;
    }
    if (is(key, "fence")) {
        bool fine = read_choice(r, fences, PK_PROTECTIONS, &choice);
        c->fence = fine ? (enum pk_protection)choice : c->fence;
        return fine;
    }
    if (is(key, "checkpoint")) {
        bool fine = read_choice(r, switches, 2, &choice);
        c->checkpoint = choice == 1;
        return fine;
    }
    struct pk_bytes word = next_word(r);
    if (!read_number(word, UINT64_MAX, &number)) {
        return fail(r, "a number is missing or wrong", word);
    }
    if (is(key, "seed")) {
        c->seed = number;
    } else if (is(key, "clients")) {
        c->clients = number <= PK_CLIENTS_MAX ? (uint32_t)number : 0;
    } else if (is(key, "loss")) {
        c->loss = number <= 1000 ? (uint32_t)number : 1001;
    } else if (is(key, "slow")) {
        c->slow = number <= 1000 ? (uint32_t)number : 1001;
    } else {
        c->mistakes = number < PK_MISTAKES_END ? (uint32_t)number : PK_MISTAKES_END;
    }
    return true;
}

static bool read_duration(struct reader *r, struct pk_bytes key)
{
    struct pk_world_config *c = &r->script->config;
    struct pk_bytes word = next_word(r);
    int64_t us;
    if (!read_time(word, &us) || us < 0) {
        return fail(r, "a time is missing or wrong", word);
    }
    uint64_t *to = is(key, "ttl")     ? &c->ttl_us
                   : is(key, "delay") ? &c->delay_us
                   : is(key, "until") ? &r->script->until_us
                                      : &c->jitter_us;
    *to = (uint64_t)us;
    return true;
}

static bool among(struct pk_bytes word, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (is(word, names[i])) {
            return true;
        }
    }
    return false;
}

/* One line; several settings may stand on it. */
static bool read_line(struct reader *r)
{
    static const char *const settings[] = {"flavour", "fence", "checkpoint", "seed",
                                           "clients", "loss",  "slow",       "mistakes"};
    static const char *const durations[] = {"ttl", "delay", "jitter", "until"};
    for (;;) {
        struct pk_bytes key = next_word(r);
        bool fine = key.len == 0 || fail(r, "there is no such word", key);
        if (key.len == 0) {
            return true;
        }
        if (is(key, "at")) {
            fine = read_act(r);
        } else if (is(key, "expect")) {
            r->script->expects = true;
            fine = read_expect(r, &r->script->expect);
        } else if (is(key, "expect-fenced")) {
            r->script->expects_fenced = true;
            fine = read_expect(r, &r->script->expect_fenced);
        } else if (among(key, settings, sizeof settings / sizeof settings[0])) {
            fine = read_setting(r, key);
        } else if (among(key, durations, sizeof durations / sizeof durations[0])) {
            fine = read_duration(r, key);
        }
        const char *wrong = fine ? pk_world_config_wrong(&r->script->config) : NULL;
        if (!fine || wrong != NULL) {
            return wrong == NULL ? false : fail(r, wrong, pk_bytes("", 0));
        }
    }
}

static void read_title(struct pk_script *s, struct pk_bytes comment)
{
    while (comment.len > 0 && (blank(comment.data[0]) || comment.data[0] == '#')) {
        comment = pk_bytes(comment.data + 1, comment.len - 1);
    }
    while (comment.len > 0 && blank(comment.data[comment.len - 1])) {
        comment.len--;
    }
    if (s->title[0] != '\0' || !pk_utf8_printable(comment, false)) {
        return; /* for people who read the file, then */
    }
    size_t len = comment.len < PK_TITLE_MAX - 1 ? comment.len : PK_TITLE_MAX - 1;
    while (!pk_utf8_printable(pk_bytes(comment.data, len), false) ||
           (len > 0 && blank(comment.data[len - 1]))) {
        len--; /* not through the middle of a letter, and no blank at the end */
    }
    memcpy(s->title, comment.data, len);
}

static bool read_lines(struct reader *r, const char *text, size_t len)
{
    bool first = true;
    for (const char *at = text, *end = text + len; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline != NULL ? newline : end;
        const char *hash = memchr(at, '#', (size_t)(stop - at));
        r->error->line++;
        r->line = pk_bytes(at, (size_t)((hash != NULL ? hash : stop) - at));
        if (hash != NULL) {
            read_title(r->script, pk_bytes(hash, (size_t)(stop - hash)));
        }
        struct pk_bytes line = r->line;
        struct pk_bytes word = next_word(r);
        if (first && word.len > 0) {
            struct pk_bytes version = next_word(r);
            if (!is(word, "sim")) {
                return fail(r, "a script begins with: sim 1", pk_bytes("", 0));
            }
            if (!is(version, "1")) {
                return fail(r, "this is a script of another version", version);
            }
            first = false;
            line = r->line;
        }
        r->line = line;
        if (!first && !read_line(r)) {
            return false;
        }
        at = stop + 1;
    }
    return !first || fail(r, "a script begins with: sim 1", pk_bytes("", 0));
}

bool pk_script_read(const char *text, size_t len, struct pk_script *out,
                    struct pk_script_error *e)
{
    *out = (struct pk_script){.config = pk_world_defaults()};
    *e = (struct pk_script_error){0};
    struct reader r = {.script = out, .error = e};
    bool fine = read_lines(&r, text, len);
    if (fine) {
        /* Settings may stand below the acts that need them, so it is read twice. */
        struct pk_world_config settings = out->config;
        r.settings = &settings;
        out->n_acts = 0;
        e->line = 0;
        fine = read_lines(&r, text, len);
    }
    if (!fine) {
        pk_script_free(out);
        return false;
    }
    if (out->until_us == 0) {
        uint64_t last = out->n_acts > 0 ? out->acts[out->n_acts - 1].at_us : 0;
        out->until_us = last + AFTERMATH_US;
    }
    *e = (struct pk_script_error){0};
    return true;
}

/* ---- writing ---- */

static void add_setting(struct pk_prose *out, const char *key, uint64_t value,
                        uint64_t usual)
{
    if (value != usual) {
        pk_prose_add(out, key);
        pk_prose_number(out, value);
        pk_prose_add(out, "\n");
    }
}

static void add_span(struct pk_prose *out, const char *key, uint64_t us)
{
    pk_prose_add(out, key);
    pk_prose_seconds(out, (int64_t)us);
    pk_prose_add(out, "s\n");
}

static void add_act(struct pk_prose *out, const struct pk_act *a)
{
    pk_prose_add(out, "at ");
    pk_prose_seconds(out, (int64_t)a->at_us);
    pk_prose_add(out, " ");
    pk_prose_who(out, a->who);
    pk_prose_add(out, " ");
    pk_prose_add(out, pk_op_name(a->op));
    if (a->op == PK_OP_DRIFT) {
        pk_prose_add(out, " ");
        pk_prose_signed(out, a->arg);
    } else if (has_length(a->op) && a->arg != 0) {
        pk_prose_add(out, " ");
        pk_prose_seconds(out, a->arg);
        pk_prose_add(out, "s");
    }
    pk_prose_add(out, "\n");
}

static void add_expect(struct pk_prose *out, const char *key, uint32_t mask)
{
    pk_prose_add(out, key);
    for (uint32_t i = 0; i < PK_CHECK_COUNT; i++) {
        if (mask & UINT32_C(1) << i) {
            pk_prose_add(out, " ");
            pk_prose_add(out, pk_check_name((enum pk_check)i));
        }
    }
    pk_prose_add(out, mask == 0 ? " nothing\n" : "\n");
}

void pk_script_write(const struct pk_script *s, struct pk_prose *out)
{
    struct pk_world_config usual = pk_world_defaults();
    const struct pk_world_config *c = &s->config;
    pk_prose_add(out, "sim 1");
    if (s->title[0] != '\0') {
        pk_prose_add(out, " # ");
        pk_prose_add(out, s->title);
    }
    pk_prose_add(out, "\nflavour ");
    pk_prose_add(out, pk_flavour_name(c->flavour));
    pk_prose_add(out, "\nfence ");
    pk_prose_add(out, pk_protection_name(c->fence));
    pk_prose_add(out, "\n");
    add_span(out, "ttl ", c->ttl_us);
    add_setting(out, "seed ", c->seed, usual.seed);
    add_setting(out, "clients ", c->clients, usual.clients);
    if (c->checkpoint) {
        pk_prose_add(out, "checkpoint on\n");
    }
    if (c->delay_us != usual.delay_us || c->jitter_us != usual.jitter_us) {
        add_span(out, "delay ", c->delay_us);
        add_span(out, "jitter ", c->jitter_us);
    }
    add_setting(out, "loss ", c->loss, 0);
    add_setting(out, "slow ", c->slow, 0);
    add_setting(out, "mistakes ", c->mistakes, 0);
    for (uint32_t i = 0; i < s->n_acts; i++) {
        add_act(out, &s->acts[i]);
    }
    add_span(out, "until ", s->until_us);
    if (s->expects) {
        add_expect(out, "expect", s->expect);
    }
    if (s->expects_fenced) {
        add_expect(out, "expect-fenced", s->expect_fenced);
    }
}

void pk_script_link(const struct pk_script *s, struct pk_prose *out)
{
    static const char hex[] = "0123456789ABCDEF";
    struct pk_prose text = {0};
    pk_script_write(s, &text);
    pk_prose_add(out, "v=1&s=");
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                     (c >= '0' && c <= '9') || c == '.' || c == '-';
        char other[] = {'%', hex[c >> 4], hex[c & 15]};
        if (plain) {
            pk_prose_bytes(out, &text.data[i], 1);
        } else if (c == ' ') {
            pk_prose_add(out, "_");
        } else if (c == '\n') {
            pk_prose_add(out, "~");
        } else {
            pk_prose_bytes(out, other, 3);
        }
    }
    pk_prose_free(&text);
}

/* ---- running ---- */

struct pk_world *pk_script_run(const struct pk_script *s, struct pk_checker *checker)
{
    struct pk_world *w = pk_world_new(&s->config);
    for (uint32_t i = 0; i < s->n_acts; i++) {
        pk_world_act(w, &s->acts[i]);
    }
    pk_world_run(w, s->until_us);
    pk_world_settle(w);
    *checker = (struct pk_checker){0};
    pk_checker_catch_up(checker, w);
    return w;
}
