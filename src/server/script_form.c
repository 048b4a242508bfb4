/* SPDX-License-Identifier: MIT */
/* The normal form of a script: see script.h. Each step below folds one thing away that
 * means nothing, and says why that is so. */
#include "server/script.h"

#include <string.h>

enum {
    TOKENS_MAX = 400, /* more than any known script has, aliases included */
    NAMES_MAX = 32,   /* declarations of locals */
    DIGITS_MAX = 6,   /* of a number: indices, 0 and 1 are all that is said */
};

/* ---- tokens of Lua 5.1, as far as lock scripts need them ---- */

enum kind {
    WORD, /* a name that is no keyword */
    KEYWORD,
    NUMBER,
    STRING, /* `text` without its quotes */
    SYMBOL,
    PLACE, /* KEYS[n] or ARGV[n], in one piece */
    LOCAL, /* a local variable, by the order of declaration */
    END,
};

struct token {
    enum kind kind;
    bool fresh;      /* on another line than the one before */
    bool keys;       /* PLACE: KEYS, else ARGV */
    bool converted;  /* PLACE: inside of tonumber() */
    uint32_t number; /* PLACE: the index; LOCAL: which one */
    struct pk_bytes text;
};

struct source {
    struct pk_bytes rest;
    struct token tokens[TOKENS_MAX + 1]; /* the last one is END */
    uint32_t n;
};

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char lower(char c)
{
    return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

static bool says(const struct token *t, const char *text)
{
    return t->kind != STRING && pk_bytes_equal(t->text, pk_text(text));
}

static bool says_one_of(const struct token *t, const char *const *texts)
{
    while (*texts != NULL && !says(t, *texts)) {
        texts++;
    }
    return *texts != NULL;
}

/* The byte `i` from here; 0 behind the end, and for a NUL, which no script has. */
static char peek(const struct source *s, uint32_t i)
{
    return (char)(i < s->rest.len ? s->rest.data[i] : '\0');
}

static struct pk_bytes take(struct source *s, uint32_t len)
{
    struct pk_bytes taken = pk_bytes(s->rest.data, len);
    s->rest = pk_bytes(s->rest.data + len, s->rest.len - len);
    return taken;
}

/* The length of `[`, any number of `=`, `[`; 0: this is no long bracket. */
static uint32_t long_bracket(const struct source *s, char open)
{
    uint32_t i = 1;
    if (peek(s, 0) != open) {
        return 0; /* at once, since long runs of `=` are asked about at each of them */
    }
    while (peek(s, i) == '=') {
        i++;
    }
    return peek(s, i) == open ? i + 1 : 0;
}

/* Steps over a comment; false: it does not end. */
static bool skip_comment(struct source *s)
{
    (void)take(s, 2);
    uint32_t level = long_bracket(s, '[');
    if (level == 0) {
        while (s->rest.len > 0 && peek(s, 0) != '\n' && peek(s, 0) != '\r') {
            (void)take(s, 1);
        }
        return true;
    }
    (void)take(s, level);
    while (s->rest.len > 0 && long_bracket(s, ']') != level) {
        (void)take(s, 1);
    }
    if (s->rest.len == 0) {
        return false;
    }
    (void)take(s, level);
    return true;
}

static bool skip_blanks(struct source *s)
{
    for (;;) {
        char c = peek(s, 0);
        if (c == ' ' || (c >= '\t' && c <= '\r')) {
            (void)take(s, 1);
        } else if (c != '-' || peek(s, 1) != '-') {
            return true;
        } else if (!skip_comment(s)) {
            return false;
        }
    }
}

static void read_word(struct source *s, struct token *t)
{
    static const char *const keywords[] = {
        "and",      "break", "do",   "else",  "elseif", "end", "false", "for",
        "function", "if",    "in",   "local", "nil",    "not", "or",    "repeat",
        "return",   "then",  "true", "until", "while",  NULL,
    };
    uint32_t len = 1;
    while (is_letter(peek(s, len)) || is_digit(peek(s, len))) {
        len++;
    }
    t->text = take(s, len);
    t->kind = WORD;
    if (says_one_of(t, keywords)) {
        t->kind = KEYWORD;
    }
}

/* Decimal and plain: what else Lua takes for a number (0x1F, 1e3, 01) is not for us. */
static bool read_number(struct source *s, struct token *t)
{
    uint32_t len = 1;
    while (is_digit(peek(s, len))) {
        len++;
    }
    char next = peek(s, len);
    bool plain = len <= DIGITS_MAX && !is_letter(next) && next != '.';
    if (!plain || (len > 1 && peek(s, 0) == '0')) {
        return false;
    }
    t->kind = NUMBER;
    t->text = take(s, len);
    return true;
}

/* Without escapes, quotes and all that is not plain text: command names and options. */
static bool read_string(struct source *s, struct token *t)
{
    char quote = take(s, 1).data[0];
    uint32_t len = 0;
    while (peek(s, len) >= ' ' && peek(s, len) < '\x7f' && peek(s, len) != '\\' &&
           peek(s, len) != '"' && peek(s, len) != '\'') {
        len++;
    }
    if (peek(s, len) != quote) {
        return false;
    }
    t->kind = STRING;
    t->text = take(s, len);
    (void)take(s, 1);
    return true;
}

static bool read_symbol(struct source *s, struct token *t)
{
    static const char *const symbols[] = {
        "...", "..", "==", "~=", "<=", ">=", "+", "-", "*", "/", "%", "^", "#",  "<",
        ">",   "=",  "(",  ")",  "{",  "}",  "[", "]", ";", ":", ",", ".", NULL,
    };
    if (peek(s, 0) == '[' && (peek(s, 1) == '[' || peek(s, 1) == '=')) {
        return false; /* a long string */
    }
    for (uint32_t i = 0; symbols[i] != NULL; i++) {
        uint32_t len = (uint32_t)strlen(symbols[i]);
        if (s->rest.len >= len && memcmp(s->rest.data, symbols[i], len) == 0) {
            t->kind = SYMBOL;
            t->text = take(s, len);
            return true;
        }
    }
    return false;
}

static bool read_token(struct source *s, struct token *t)
{
    char c = peek(s, 0);
    if (is_letter(c)) {
        read_word(s, t);
        return true;
    }
    if (is_digit(c)) {
        return read_number(s, t);
    }
    return c == '"' || c == '\'' ? read_string(s, t) : read_symbol(s, t);
}

static bool has_newline(const char *from, const char *to)
{
    while (from < to && *from != '\n' && *from != '\r') {
        from++;
    }
    return from < to;
}

static bool read_tokens(struct source *s, struct pk_bytes text)
{
    s->rest = text;
    s->n = 0;
    const char *from = text.data;
    while (skip_blanks(s)) {
        struct token *t = &s->tokens[s->n];
        *t = (struct token){.kind = END, .fresh = has_newline(from, s->rest.data)};
        if (s->rest.len == 0) {
            return true;
        }
        if (s->n == TOKENS_MAX || !read_token(s, t)) {
            return false;
        }
        s->n++;
        from = s->rest.data;
    }
    return false;
}

/* ---- what can be left out ---- */

static const struct token nothing = {.kind = END};

static const struct token *before(const struct source *s, uint32_t i)
{
    return i == 0 ? &nothing : &s->tokens[i - 1];
}

static void drop(struct source *s, uint32_t i)
{
    memmove(&s->tokens[i], &s->tokens[i + 1], (s->n - i) * sizeof s->tokens[0]);
    s->n--;
}

/* Whether an expression may end with this token, and a statement with it. */
static bool can_end(const struct token *t)
{
    static const char *const closing[] = {")",    "]",     "}",     "end", "nil",
                                          "true", "false", "break", NULL};
    bool operand = t->kind == WORD || t->kind == NUMBER || t->kind == STRING;
    return operand || says_one_of(t, closing);
}

/* Whether a statement can begin with this token, or a block end: after a token that
 * can_end(), nothing else can be meant. */
static bool can_begin(const struct token *t)
{
    static const char *const openings[] = {"local",  "if",  "for",  "while",  "repeat",
                                           "return", "end", "else", "elseif", NULL};
    return t->kind == END || t->kind == WORD || says_one_of(t, openings);
}

/* Lua 5.1 refuses a bracket that could go on with the line before or begin another
 * statement. */
static bool is_ambiguous(const struct source *s)
{
    uint32_t i = 0;
    while (i < s->n &&
           !(says(&s->tokens[i], "(") && s->tokens[i].fresh && can_end(before(s, i)))) {
        i++;
    }
    return i < s->n;
}

/* A semicolon between two statements means nothing. Elsewhere it stays, and fits no
 * form. */
static void drop_semicolons(struct source *s)
{
    uint32_t i = 0;
    while (i < s->n) {
        bool idle = says(&s->tokens[i], ";") && can_end(before(s, i)) &&
                    can_begin(&s->tokens[i + 1]);
        if (idle) {
            drop(s, i);
        } else {
            i++;
        }
    }
}

/* The bracket that closes the one at `i`; s->n: none. */
static uint32_t closing(const struct source *s, uint32_t i)
{
    const char *close = says(&s->tokens[i], "(") ? ")" : "]";
    uint32_t depth = 0;
    for (; i < s->n; i++) {
        const struct token *t = &s->tokens[i];
        if (says(t, "(") || says(t, "[")) {
            depth++;
        } else if ((says(t, ")") || says(t, "]")) && --depth == 0) {
            return says(t, close) ? i : s->n;
        }
    }
    return s->n;
}

/* Whether the tokens from `i` to before `end` are one operand without operators: a
 * literal, or a name with fields, indices and calls behind it. */
static bool is_operand(const struct source *s, uint32_t i, uint32_t end)
{
    const struct token *t = s->tokens;
    if (i + 1 == end) {
        return t[i].kind == NUMBER || t[i].kind == STRING || t[i].kind == WORD;
    }
    if (i >= end || t[i].kind != WORD) {
        return false;
    }
    for (i++; i < end;) {
        if (says(&t[i], ".") && t[i + 1].kind == WORD) {
            i += 2;
        } else if (says(&t[i], "[") || says(&t[i], "(")) {
            i = closing(s, i) + 1;
        } else {
            return false;
        }
    }
    return i == end;
}

/* Whether the bracket at `i`, closed at `end`, groups what needs no grouping. */
static bool is_idle_group(const struct source *s, uint32_t i, uint32_t end)
{
    static const char *const expecting[] = {"if", "elseif", "return", "not", "and",
                                            "or", "=",      "==",     "~=",  "<",
                                            "(",  ",",      NULL};
    const struct token *after = &s->tokens[end + 1];
    if (says(before(s, i), "if") && says(after, "then")) {
        return true;
    }
    bool goes_on = says(after, "(") || says(after, "[") || says(after, "{") ||
                   says(after, ".") || says(after, ":") || after->kind == STRING;
    return says_one_of(before(s, i), expecting) && !goes_on && is_operand(s, i + 1, end);
}

static void drop_brackets(struct source *s)
{
    uint32_t i = 0;
    while (i < s->n) {
        uint32_t end = says(&s->tokens[i], "(") ? closing(s, i) : s->n;
        if (end < s->n && is_idle_group(s, i, end)) {
            drop(s, end);
            drop(s, i);
        } else {
            i++;
        }
    }
}

/* ---- places and names ---- */

/* The i-th token becomes one that stands for `len` of them. */
static void fold(struct source *s, uint32_t i, uint32_t len, struct token into)
{
    memmove(&s->tokens[i + 1], &s->tokens[i + len],
            (s->n + 1 - i - len) * sizeof s->tokens[0]);
    s->tokens[i] = into;
    s->n -= len - 1;
}

static uint32_t number_of(const struct token *t)
{
    uint32_t v = 0;
    for (uint32_t i = 0; i < t->text.len; i++) {
        v = 10 * v + (uint32_t)(t->text.data[i] - '0');
    }
    return v;
}

/* KEYS[n] and ARGV[n] become one token each, also with tonumber() around. */
static void fold_places(struct source *s)
{
    for (uint32_t i = 0; i + 3 < s->n; i++) {
        struct token *t = &s->tokens[i];
        if (!(says(t, "KEYS") || says(t, "ARGV")) || !says(t + 1, "[") ||
            t[2].kind != NUMBER || !says(t + 3, "]")) {
            continue;
        }
        struct token place = {.kind = PLACE, .keys = says(t, "KEYS")};
        place.number = number_of(t + 2);
        fold(s, i, 4, place);
        if (i >= 2 && says(t - 2, "tonumber") && says(t - 1, "(") && says(t + 1, ")")) {
            place.converted = true;
            fold(s, i - 2, 4, place);
            i -= 2;
        }
    }
}

/* What the names of locals mean, in the order in which they were declared. */
struct names {
    struct {
        struct pk_bytes name;
        struct token meaning;
    } list[NAMES_MAX];
    uint32_t n, locals;
};

static bool declare(struct names *d, struct pk_bytes name, struct token meaning)
{
    /* Names that the forms rely on keep their meaning. */
    static const char *const fixed[] = {"redis",  "KEYS",     "ARGV",
                                        "ipairs", "tonumber", NULL};
    struct token t = {.kind = WORD, .text = name};
    if (d->n == NAMES_MAX || says_one_of(&t, fixed)) {
        return false;
    }
    d->list[d->n].name = name;
    d->list[d->n].meaning = meaning;
    d->n++;
    return true;
}

static bool declare_local(struct names *d, struct token *t)
{
    struct pk_bytes name = t->text;
    *t = (struct token){.kind = LOCAL, .number = ++d->locals};
    return declare(d, name, *t);
}

/* The last declaration wins. That it may be out of scope here does no harm: a form uses
 * its locals where they are in scope only, and a text that comes out as that form has
 * the same blocks. */
static void replace_name(const struct names *d, struct token *t)
{
    for (uint32_t i = d->n; i-- > 0;) {
        if (pk_bytes_equal(d->list[i].name, t->text)) {
            *t = d->list[i].meaning;
            return;
        }
    }
}

/* `local name = KEYS[1]` at the very beginning, as a statement of its own, gives the
 * place another name for the whole script; the statement goes. */
static bool drop_alias(struct source *s, struct names *d)
{
    struct token *t = s->tokens;
    bool alias = s->n >= 4 && says(t, "local") && t[1].kind == WORD && says(t + 2, "=") &&
                 t[3].kind == PLACE && can_begin(t + 4);
    if (!alias || !declare(d, t[1].text, t[3])) {
        return false;
    }
    fold(s, 0, 5, t[4]);
    return true;
}

/* Locals get numbers for names. */
static bool rename_locals(struct source *s)
{
    struct names d = {.n = 0};
    while (drop_alias(s, &d)) {
    }
    bool listing = false; /* a name that is declared must come next */
    for (uint32_t i = 0; i < s->n; i++) {
        struct token *t = &s->tokens[i];
        if (says(t, "local") || says(t, "for")) {
            listing = true;
        } else if (listing && t->kind == WORD) {
            if (!declare_local(&d, t)) {
                return false;
            }
            listing = says(t + 1, ",");
        } else if (!listing || !says(t, ",")) {
            bool field = says(before(s, i), ".") || says(before(s, i), ":");
            listing = false;
            if (t->kind == WORD && !field) {
                replace_name(&d, t);
            }
        }
    }
    return true;
}

/* ---- the normal form ---- */

struct printer {
    char *out;
    size_t len;
    uint32_t depth;       /* of round brackets */
    uint32_t call;        /* the depth that a redis.call's arguments have; 0: none */
    struct token command; /* its first argument */
};

static void put(struct printer *p, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++, p->len++) {
        if (p->len < PK_SCRIPT_FORM_MAX) {
            p->out[p->len] = text[i];
        }
    }
}

static void put_text(struct printer *p, const char *text)
{
    put(p, text, strlen(text));
}

/* Below a million, see DIGITS_MAX. */
static void put_number(struct printer *p, uint32_t v)
{
    char digits[DIGITS_MAX];
    size_t n = 0;
    do {
        digits[DIGITS_MAX - ++n] = (char)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    put(p, digits + DIGITS_MAX - n, n);
}

/* A string that Redis reads without regard to case: a command's name, an option. */
static bool is_named(const struct token *t, const char *word)
{
    size_t len = strlen(word);
    bool same = t->kind == STRING && t->text.len == len;
    for (size_t i = 0; same && i < len; i++) {
        same = lower(t->text.data[i]) == word[i];
    }
    return same;
}

/* One blank where words would run together, and around keywords: the form reads as Lua
 * does. Operators stay apart, so that two of them never look like another one. */
static bool apart(const struct token *a, const struct token *b)
{
    static const char *const brackets[] = {"(", ")", "[", "]", "{", "}", ",", NULL};
    if (a->kind == END || a->kind == KEYWORD || b->kind == KEYWORD) {
        return a->kind != END;
    }
    if (b->kind == SYMBOL) {
        return a->kind == SYMBOL && !says_one_of(a, brackets) &&
               !says_one_of(b, brackets);
    }
    return a->kind != SYMBOL || says(a, ")") || says(a, "]") || says(a, "}");
}

/* Whether the i-th token is where Redis reads a number from text, so that tonumber()
 * changes nothing. */
static bool is_numeric(const struct source *s, uint32_t i, const struct printer *p)
{
    const struct token *t = &s->tokens[i];
    bool argument = p->call > 0 && p->depth == p->call && says(before(s, i), ",") &&
                    (says(t + 1, ",") || says(t + 1, ")"));
    if (!argument) {
        return false;
    }
    return is_named(&p->command, "pexpire") || is_named(&p->command, "expire") ||
           is_named(&p->command, "select") || is_named(t - 2, "px") ||
           is_named(t - 2, "ex");
}

static void put_place(struct printer *p, const struct token *t, bool numeric)
{
    bool converted = t->converted && !numeric;
    put_text(p, converted ? "tonumber(" : "");
    put_text(p, t->keys ? "KEYS[" : "ARGV[");
    put_number(p, t->number);
    put_text(p, converted ? "])" : "]");
}

static void put_string(struct printer *p, const struct token *t)
{
    bool option = p->call > 0 && p->depth == p->call;
    put_text(p, "'");
    for (uint32_t i = 0; i < t->text.len; i++) {
        char c = t->text.data[i];
        c = (char)(option ? lower(c) : c);
        put(p, &c, 1);
    }
    put_text(p, "'");
}

/* Whether this is the last word of redis.call or redis.pcall. They differ in how they
 * fail, and what the forms say to Redis fails only with arguments that we refuse. */
static bool is_call(const struct source *s, uint32_t i)
{
    const struct token *t = &s->tokens[i];
    return i >= 2 && (says(t, "call") || says(t, "pcall")) && says(t - 1, ".") &&
           says(t - 2, "redis") && says(t + 1, "(");
}

static void put_token(struct printer *p, const struct source *s, uint32_t i)
{
    const struct token *t = &s->tokens[i];
    put_text(p, apart(before(s, i), t) ? " " : "");
    if (t->kind == PLACE) {
        put_place(p, t, is_numeric(s, i, p));
    } else if (t->kind == STRING) {
        put_string(p, t);
    } else if (t->kind == LOCAL) {
        put_text(p, "$");
        put_number(p, t->number);
    } else if (is_call(s, i)) {
        put_text(p, "call");
    } else {
        put(p, t->text.data, t->text.len);
    }
    if (says(t, "(")) {
        p->depth++;
        if (i >= 1 && is_call(s, i - 1)) {
            p->call = p->depth;
            p->command = t[1];
        }
    } else if (says(t, ")") && p->depth > 0) {
        p->call = p->call == p->depth ? 0 : p->call;
        p->depth--;
    }
}

size_t pk_script_normalise(struct pk_bytes text, char out[PK_SCRIPT_FORM_MAX])
{
    struct source s;
    if (text.len > PK_SCRIPT_BYTES_MAX || !read_tokens(&s, text) || is_ambiguous(&s)) {
        return 0;
    }
    drop_semicolons(&s);
    drop_brackets(&s);
    fold_places(&s);
    if (!rename_locals(&s)) {
        return 0;
    }
    struct printer p = {.out = out};
    for (uint32_t i = 0; i < s.n; i++) {
        put_token(&p, &s, i);
    }
    return p.len <= PK_SCRIPT_FORM_MAX ? p.len : 0;
}
