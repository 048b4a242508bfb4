/* SPDX-License-Identifier: MIT */
#include "server/redis.h"

#include <stdio.h>

#include "core/door.h"
#include "server/script.h"

/* How an answer is put into Redis' words: a form in the low bits of the number that
 * travels with the command, and what else the answer needs above. */
enum form {
    FORM_SET = 1,
    FORM_GET,
    FORM_EXISTS,
    FORM_TTL,
    FORM_PTTL,
    FORM_EXPIRE,
    FORM_DEL,
    FORM_TOKEN,    /* whoever holds it */
    FORM_TOKEN_OF, /* only of the owner whose digest is in the detail */
    FORM_SCRIPT,   /* detail: yes, no, how many keys it was asked for */
};

enum {
    FORM_BITS = 8,
    YES_BITS = 2,
    NO_BITS = 2,
    HEX_DIGEST = 2 * PK_SCRIPT_DIGEST,
    SECOND_MS = 1000,
    WHY_MAX = 256,
};

/* Digests of the scripts that clients of this node have shown. Facts about texts, true
 * for everybody, so one table serves all connections of the one loop there is. */
static struct pk_scripts scripts;

struct request {
    const struct pk_bytes *args;
    uint32_t n;
    struct pk_bytes label;
    struct pk_command *c;
    uint64_t *form;
    struct pk_resp_out *out;
};

/* ---- reading ---- */

static enum pk_redis_got refuse(const struct request *q, const char *why)
{
    pk_resp_error(q->out, "ERR", why);
    return PK_REDIS_ANSWERED;
}

static uint64_t with_detail(enum form f, uint64_t detail)
{
    return (detail << FORM_BITS) | f;
}

/* The command is as Redis has it; whether the machine can have it is seen here, so that
 * the client is told at once. */
static enum pk_redis_got run(const struct request *q, uint64_t form)
{
    const char *wrong = pk_command_wrong(q->c);
    if (wrong != NULL) {
        return refuse(q, wrong);
    }
    *q->form = form;
    return PK_REDIS_COMMAND;
}

static void begin(const struct request *q, enum pk_verb verb)
{
    *q->c = (struct pk_command){.verb = verb};
    if (verb == PK_KEY_TAKE) {
        q->c->label = q->label;
    }
}

/* Keys of one command. The same key twice is the same as once: nothing that is done to
 * it the second time makes a difference. False: too many. */
static bool put_keys(const struct request *q, const struct pk_bytes *keys, uint64_t n)
{
    struct pk_command *c = q->c;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t j = 0;
        while (j < c->n_parts && !pk_bytes_equal(c->parts[j].name, keys[i])) {
            j++;
        }
        if (j == PK_SET_MAX) {
            return false;
        }
        if (j == c->n_parts) {
            c->parts[c->n_parts++] =
                (struct pk_part){.name = keys[i], .mode = PK_EXCLUSIVE};
        }
    }
    return true;
}

/* A TTL that is a number; one that is too long becomes one that the machine refuses. */
static bool put_ttl(const struct request *q, struct pk_bytes text, bool seconds)
{
    uint64_t ttl;
    if (!pk_resp_number(text, &ttl)) {
        return false;
    }
    bool too_long = ttl > PK_TTL_MAX_MS;
    q->c->ttl_ms = too_long ? PK_TTL_MAX_MS + 1 : seconds ? ttl * SECOND_MS : ttl;
    return true;
}

#define TOO_MANY_KEYS "at most 16 keys in one command"
#define BAD_TTL "the TTL must be a whole number, between 50 ms and 24 h"

/* ---- plain commands ---- */

struct word {
    const char *name;
    uint32_t least, most; /* words of the request, its own included */
    enum pk_redis_got (*read)(const struct request *q, const struct word *w);
    enum form form;
    bool seconds;
    const char *why; /* it is refused */
};

static enum pk_redis_got read_refused(const struct request *q, const struct word *w)
{
    return refuse(q, w->why);
}

/* SET key value NX PX ms | EX s, the options in any order. */
static enum pk_redis_got read_set(const struct request *q, const struct word *w)
{
    bool nx = false;
    bool ttl = false;
    begin(q, PK_KEY_TAKE);
    (void)put_keys(q, &q->args[1], 1);
    q->c->value = q->args[2];
    for (uint32_t i = 3; i < q->n; i++) {
        struct pk_bytes option = q->args[i];
        bool seconds = pk_resp_is(option, "EX");
        if (pk_resp_is(option, "NX")) {
            nx = true;
        } else if (seconds || pk_resp_is(option, "PX")) {
            if (ttl || i + 1 == q->n) {
                return refuse(q, "SET: one PX ms or one EX s, please");
            }
            ttl = true;
            if (!put_ttl(q, q->args[++i], seconds)) {
                return refuse(q, BAD_TTL);
            }
        } else {
            return refuse(q, "SET: only SET key value NX PX ms (or EX s) is offered; "
                             "XX, GET, KEEPTTL, EXAT and PXAT are not");
        }
    }
    if (!nx) {
        return refuse(q, "SET without NX could take a lock away from its holder; say "
                         "SET key value NX PX ms");
    }
    if (!ttl) {
        return refuse(q, "SET NX without a TTL makes a lock that outlives its owner; "
                         "say SET key value NX PX ms");
    }
    return run(q, w->form);
}

/* Whoever holds the lock, and for how long: GET, EXISTS, TTL, PTTL. */
static enum pk_redis_got read_show(const struct request *q, const struct word *w)
{
    begin(q, PK_LOCK_SHOW);
    q->c->name = q->args[1];
    q->c->count = 1;
    return run(q, w->form);
}

static enum pk_redis_got read_expire(const struct request *q, const struct word *w)
{
    begin(q, PK_KEY_KEEP);
    q->c->flags = PK_KEY_ANY;
    (void)put_keys(q, &q->args[1], 1);
    if (!put_ttl(q, q->args[2], w->seconds)) {
        return refuse(q, BAD_TTL);
    }
    return run(q, w->form);
}

/* A bare DEL is a common way to unlock, so it needs no value; but it touches keys only,
 * never what a native client holds. */
static enum pk_redis_got read_del(const struct request *q, const struct word *w)
{
    begin(q, PK_KEY_DROP);
    q->c->flags = PK_KEY_ANY;
    if (!put_keys(q, &q->args[1], q->n - 1)) {
        return refuse(q, TOO_MANY_KEYS);
    }
    return run(q, w->form);
}

/* 56 bits of FNV-1a. The command that looks at the lock has no place for the owner's
 * value, so its digest goes with the form. Who makes a collision learns a token that is
 * no secret: LOCK SHOW tells it to everybody. */
static uint64_t digest56(struct pk_bytes b)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (uint32_t i = 0; i < b.len; i++) {
        h = (h ^ (unsigned char)b.data[i]) * UINT64_C(1099511628211);
    }
    return h >> FORM_BITS;
}

/* LOCK TOKEN key [owner-value]; all else that begins with LOCK is native. */
static enum pk_redis_got read_lock(const struct request *q, const struct word *w)
{
    if (q->n < 2 || !pk_resp_is(q->args[1], "TOKEN")) {
        return PK_REDIS_OTHER;
    }
    if (q->n != 3 && q->n != 4) {
        return refuse(q, "it is LOCK TOKEN key [owner-value]");
    }
    begin(q, PK_LOCK_SHOW);
    q->c->name = q->args[2];
    q->c->count = 1;
    return run(q, q->n == 3 ? w->form : with_detail(FORM_TOKEN_OF, digest56(q->args[3])));
}

/* ---- scripts ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    char letter = (char)(c | ('a' - 'A'));
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

static const struct pk_script *find_script(struct pk_bytes hex)
{
    unsigned char digest[PK_SCRIPT_DIGEST];
    if (hex.len != HEX_DIGEST) {
        return NULL;
    }
    for (size_t i = 0; i < PK_SCRIPT_DIGEST; i++) {
        int high = hex_digit(hex.data[2 * i]);
        int low = hex_digit(hex.data[2 * i + 1]);
        if (high < 0 || low < 0) {
            return NULL;
        }
        digest[i] = (unsigned char)(high * 16 + low);
    }
    return pk_scripts_find(&scripts, digest);
}

static uint64_t script_form(const struct pk_script *s, uint64_t keys)
{
    uint64_t detail =
        (keys << (YES_BITS + NO_BITS)) | ((uint64_t)s->no << YES_BITS) | s->yes;
    return with_detail(FORM_SCRIPT, detail);
}

/* Does what the script means. The third word is the number of keys; keys and arguments
 * follow. */
static enum pk_redis_got run_script(const struct request *q, const struct pk_script *s)
{
    static const enum pk_verb verbs[] = {[PK_SCRIPT_TAKE] = PK_KEY_TAKE,
                                         [PK_SCRIPT_KEEP] = PK_KEY_KEEP,
                                         [PK_SCRIPT_DROP] = PK_KEY_DROP};
    uint64_t keys;
    if (!pk_resp_number(q->args[2], &keys) || keys > q->n - 3) {
        return refuse(q, "the number of keys is not one, or larger than what follows");
    }
    const struct pk_bytes *argv = q->args + 2 + keys; /* argv[1] is ARGV[1] */
    uint64_t have = q->n - 3 - keys;
    if (keys == 0 || have < s->value_arg || have < s->ttl_arg || have < s->add_arg) {
        return refuse(q, "the script needs more keys or arguments than these");
    }
    if (s->db_arg != 0 && !pk_resp_is(argv[s->db_arg], "0")) {
        return refuse(q, "the script selects another database; there is only 0");
    }
    begin(q, verbs[s->act]);
    q->c->value = argv[s->value_arg];
    if (!put_keys(q, &q->args[3], s->all_keys ? keys : 1)) {
        return refuse(q, TOO_MANY_KEYS);
    }
    if (s->ttl_arg != 0 && !put_ttl(q, argv[s->ttl_arg], s->seconds)) {
        return refuse(q, BAD_TTL);
    }
    if (s->add_arg != 0 && pk_resp_is(argv[s->add_arg], "0")) {
        q->c->flags = PK_KEY_ADD;
    }
    return run(q, script_form(s, keys));
}

#define UNKNOWN_SCRIPT                                                                   \
    "this script is not one of the lock scripts that Picket knows, and it runs no "      \
    "others; docs/redis.md lists them"

/* EVAL script numkeys key ... arg ... */
static enum pk_redis_got read_eval(const struct request *q, const struct word *w)
{
    (void)w;
    unsigned char digest[PK_SCRIPT_DIGEST];
    const struct pk_script *s = pk_scripts_learn(&scripts, q->args[1], digest);
    return s == NULL ? refuse(q, UNKNOWN_SCRIPT) : run_script(q, s);
}

/* EVALSHA digest numkeys key ... arg ... */
static enum pk_redis_got read_evalsha(const struct request *q, const struct word *w)
{
    (void)w;
    const struct pk_script *s = find_script(q->args[1]);
    if (s == NULL) {
        pk_resp_error(q->out, "NOSCRIPT",
                      "no script with this digest; send it with EVAL");
        return PK_REDIS_ANSWERED;
    }
    return run_script(q, s);
}

static enum pk_redis_got load_script(const struct request *q)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char digest[PK_SCRIPT_DIGEST];
    char hex[HEX_DIGEST];
    if (pk_scripts_learn(&scripts, q->args[2], digest) == NULL) {
        return refuse(q, UNKNOWN_SCRIPT);
    }
    for (size_t i = 0; i < PK_SCRIPT_DIGEST; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    pk_resp_bulk(q->out, pk_bytes(hex, sizeof hex));
    return PK_REDIS_ANSWERED;
}

static enum pk_redis_got read_script(const struct request *q, const struct word *w)
{
    (void)w;
    if (pk_resp_is(q->args[1], "LOAD") && q->n == 3) {
        return load_script(q);
    }
    if (pk_resp_is(q->args[1], "EXISTS") && q->n >= 3) {
        pk_resp_array(q->out, q->n - 2);
        for (uint32_t i = 2; i < q->n; i++) {
            pk_resp_int(q->out, find_script(q->args[i]) != NULL ? 1 : 0);
        }
        return PK_REDIS_ANSWERED;
    }
    return refuse(q, "SCRIPT LOAD script and SCRIPT EXISTS digest ... are all there is "
                     "of SCRIPT");
}

/* ---- all of them ---- */

#define ANY PK_RESP_ARGS_MAX
#define TAKES_AWAY                                                                       \
    " could take a lock away from its holder, so it is not offered; say SET key value "  \
    "NX PX ms"

static const struct word words[] = {
    {"SET", 3, ANY, read_set, .form = FORM_SET},
    {"GET", 2, 2, read_show, .form = FORM_GET},
    {"DEL", 2, ANY, read_del, .form = FORM_DEL},
    {"UNLINK", 2, ANY, read_del, .form = FORM_DEL},
    {"EXISTS", 2, 2, read_show, .form = FORM_EXISTS},
    {"TTL", 2, 2, read_show, .form = FORM_TTL},
    {"PTTL", 2, 2, read_show, .form = FORM_PTTL},
    {"EXPIRE", 3, 3, read_expire, .form = FORM_EXPIRE, .seconds = true},
    {"PEXPIRE", 3, 3, read_expire, .form = FORM_EXPIRE},
    {"LOCK", 1, ANY, read_lock, .form = FORM_TOKEN},
    {"EVALSHA", 3, ANY, read_evalsha, .form = FORM_SCRIPT},
    {"EVAL", 3, ANY, read_eval, .form = FORM_SCRIPT},
    {"SCRIPT", 2, ANY, read_script, .form = FORM_SCRIPT},
    {"SETNX", 1, ANY, read_refused,
     .why = "SETNX makes a lock without a TTL, which outlives its owner; say SET key "
            "value NX PX ms"},
    {"SETEX", 1, ANY, read_refused, .why = "SETEX" TAKES_AWAY},
    {"PSETEX", 1, ANY, read_refused, .why = "PSETEX" TAKES_AWAY},
    {"GETSET", 1, ANY, read_refused, .why = "GETSET" TAKES_AWAY},
    {"PERSIST", 1, ANY, read_refused,
     .why = "PERSIST makes a lock that outlives its owner, so it is not offered"},
};

enum pk_redis_got pk_redis_read(const struct pk_bytes *args, uint32_t n,
                                struct pk_bytes label, struct pk_command *c,
                                uint64_t *form, struct pk_resp_out *out)
{
    const struct request q = {args, n, label, c, form, out};
    for (size_t i = 0; n > 0 && i < sizeof words / sizeof words[0]; i++) {
        const struct word *w = &words[i];
        if (!pk_resp_is(args[0], w->name)) {
            continue;
        }
        if (n >= w->least && n <= w->most) {
            return w->read(&q, w);
        }
        char why[WHY_MAX];
        (void)snprintf(why, sizeof why, "wrong number of arguments for %s", w->name);
        return refuse(&q, why);
    }
    return PK_REDIS_OTHER;
}

/* ---- answering ---- */

static const struct pk_effect *first_of(const struct pk_effects *e,
                                        enum pk_effect_kind kind)
{
    uint32_t i = 0;
    while (i < e->count && e->list[i].kind != kind) {
        i++;
    }
    return i < e->count ? &e->list[i] : NULL;
}

/* What the idiom has no "no" for: an error, with the machine's own reason if it gave
 * one. */
static void answer_error(struct pk_resp_out *out, const struct pk_effect *reply)
{
    bool bad = reply->status == PK_BADARG;
    const char *code = bad ? "ERR" : pk_status_name(reply->status);
    char why[WHY_MAX];
    (void)snprintf(why, sizeof why, "%s%s%.*s", pk_status_text(reply->status),
                   reply->why.len > 0 ? ": " : "", (int)reply->why.len,
                   reply->why.len > 0 ? reply->why.data : "");
    pk_resp_error(out, code, why);
}

/* Whether the keys were not as the command wanted them: Redis' idiom says so by a plain
 * 0 or nil. That a lock is used as a semaphore is a way of being taken. */
static bool is_no(enum pk_status s)
{
    return s == PK_BUSY || s == PK_MISMATCH || s == PK_NOTHELD;
}

/* `hold`: the oldest hold of the lock, or NULL. */
static void answer_show(enum form form, const struct pk_effect *hold,
                        struct pk_resp_out *out)
{
    int64_t left = hold == NULL ? -2 : (int64_t)hold->left_ms;
    if (form == FORM_EXISTS) {
        pk_resp_int(out, hold != NULL ? 1 : 0);
    } else if (form == FORM_PTTL) {
        pk_resp_signed(out, left);
    } else if (form == FORM_TTL) { /* to the nearest second, as Redis does */
        pk_resp_signed(out, left < 0 ? left : (left + SECOND_MS / 2) / SECOND_MS);
    } else if (hold == NULL) {
        pk_resp_null(out);
    } else { /* nil would say that it is free, so a hold without a value is "" */
        pk_resp_bulk(out, hold->value);
    }
}

static void answer_token(uint64_t form, const struct pk_effect *hold,
                         struct pk_resp_out *out)
{
    bool anybody = form == FORM_TOKEN;
    if (hold == NULL) {
        pk_resp_error(out, "NOTHELD", "nobody holds this lock");
    } else if (!anybody && digest56(hold->value) != form >> FORM_BITS) {
        pk_resp_error(out, "NOTHELD", "this lock is held by another owner");
    } else {
        pk_resp_int(out, hold->token);
    }
}

static void answer_no(enum pk_script_no no, struct pk_resp_out *out)
{
    if (no == PK_SCRIPT_NIL) {
        pk_resp_null(out);
    } else {
        pk_resp_signed(out, no == PK_SCRIPT_ZERO ? 0 : -1);
    }
}

static void answer_script(uint64_t detail, const struct pk_effect *reply,
                          struct pk_resp_out *out)
{
    enum pk_script_yes yes = detail & ((1 << YES_BITS) - 1);
    enum pk_script_no no = (detail >> YES_BITS) & ((1 << NO_BITS) - 1);
    uint64_t keys = detail >> (YES_BITS + NO_BITS);
    bool drops = reply->verb == PK_KEY_DROP;
    if (yes == PK_SCRIPT_COUNT && drops) {
        pk_resp_int(out, reply->holders);
    } else if (reply->status != PK_OK || (drops && reply->holders == 0)) {
        answer_no(no, out);
    } else if (yes == PK_SCRIPT_OK) {
        pk_resp_simple(out, "OK");
    } else {
        pk_resp_int(out, yes == PK_SCRIPT_COUNT ? keys : 1);
    }
}

void pk_redis_answer(uint64_t form, const struct pk_command *c,
                     const struct pk_effects *e, struct pk_resp_out *out)
{
    (void)c;
    const struct pk_effect *reply = first_of(e, PK_REPLY);
    const struct pk_effect *hold = first_of(e, PK_ROW_HOLD);
    PK_ASSERT(reply != NULL);
    if (reply->status != PK_OK && !is_no(reply->status)) {
        answer_error(out, reply);
        return;
    }
    enum form kind = form & ((1 << FORM_BITS) - 1);
    switch (kind) {
    case FORM_SET:
        if (reply->status == PK_OK) {
            pk_resp_simple(out, "OK");
        } else {
            pk_resp_null(out);
        }
        break;
    case FORM_GET:
    case FORM_EXISTS:
    case FORM_TTL:
    case FORM_PTTL:
        answer_show(kind, hold, out);
        break;
    case FORM_TOKEN:
    case FORM_TOKEN_OF:
        answer_token(form, hold, out);
        break;
    case FORM_EXPIRE:
        pk_resp_int(out, reply->status == PK_OK ? 1 : 0);
        break;
    case FORM_DEL:
        pk_resp_int(out, reply->holders);
        break;
    case FORM_SCRIPT:
        answer_script(form >> FORM_BITS, reply, out);
        break;
    }
}
