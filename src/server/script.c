/* SPDX-License-Identifier: MIT */
#include "server/script.h"

#include <openssl/evp.h>
#include <string.h>

#include "core/door.h"

/* ---- meanings ---- */

/* Scripts on one key are a question, an act and a NO, each in one of several spellings:
 *
 *     if QUESTION then ACT else NO end        if QUESTION then ACT end NO
 *     if QUESTION then ACT end                if not QUESTION then NO end ACT
 *
 * Every act ends by returning something; one that went on behind `end` would return the
 * NO in any case. */

#define GET "redis.call('get',KEYS[1])"
#define SETNX "redis.call('setnx',KEYS[1],ARGV[1])"
#define EXISTS "redis.call('exists',KEYS[1])"
#define SET "redis.call('set',KEYS[1],ARGV[1],"

enum question {
    IS_OWN,  /* the value is ours */
    IS_SET,  /* setnx did it; a TTL must follow */
    IS_FREE, /* there is no such key */
};

static const struct {
    const char *text;
    enum question asks;
    bool negative; /* it asks for the opposite, so the NO comes first */
} questions[] = {
    {"if " GET "==ARGV[1] then", IS_OWN, false},
    {"if ARGV[1]==" GET " then", IS_OWN, false},
    {"local $1=" GET " if $1==ARGV[1] then", IS_OWN, false},
    {"local $1=" GET " if ARGV[1]==$1 then", IS_OWN, false},
    {"local $1=" GET " if $1 and $1==ARGV[1] then", IS_OWN, false},
    {"if " GET "~=ARGV[1] then", IS_OWN, true},
    {"if ARGV[1]~=" GET " then", IS_OWN, true},
    {"local $1=" GET " if $1~=ARGV[1] then", IS_OWN, true},
    {"local $1=" GET " if not $1 or $1~=ARGV[1] then", IS_OWN, true},
    {"if " SETNX "==1 then", IS_SET, false},
    {"local $1=" SETNX " if $1==1 then", IS_SET, false},
    {"if " SETNX "==0 then", IS_SET, true},
    {"local $1=" SETNX " if $1==0 then", IS_SET, true},
    {"if " EXISTS "==0 then", IS_FREE, false},
    {"if not " GET " then", IS_FREE, false},
    {"if " EXISTS "==1 then", IS_FREE, true},
    {"if " GET " then", IS_FREE, true},
};

static const struct {
    const char *text;
    enum question after; /* only then it means the act */
    enum pk_script_act act;
    bool seconds;
    enum pk_script_yes yes; /* what the call itself returns */
} acts[] = {
    {"redis.call('del',KEYS[1])", IS_OWN, PK_SCRIPT_DROP, false, PK_SCRIPT_ONE},
    {"redis.call('unlink',KEYS[1])", IS_OWN, PK_SCRIPT_DROP, false, PK_SCRIPT_ONE},
    {"redis.call('pexpire',KEYS[1],ARGV[2])", IS_OWN, PK_SCRIPT_KEEP, false,
     PK_SCRIPT_ONE},
    {"redis.call('expire',KEYS[1],ARGV[2])", IS_OWN, PK_SCRIPT_KEEP, true, PK_SCRIPT_ONE},
    {SET "'px',ARGV[2])", IS_OWN, PK_SCRIPT_KEEP, false, PK_SCRIPT_OK},
    {SET "'ex',ARGV[2])", IS_OWN, PK_SCRIPT_KEEP, true, PK_SCRIPT_OK},
    {SET "'xx','px',ARGV[2])", IS_OWN, PK_SCRIPT_KEEP, false, PK_SCRIPT_OK},
    {SET "'px',ARGV[2],'xx')", IS_OWN, PK_SCRIPT_KEEP, false, PK_SCRIPT_OK},
    {"redis.call('pexpire',KEYS[1],ARGV[2])", IS_SET, PK_SCRIPT_TAKE, false,
     PK_SCRIPT_ONE},
    {"redis.call('expire',KEYS[1],ARGV[2])", IS_SET, PK_SCRIPT_TAKE, true, PK_SCRIPT_ONE},
    {SET "'px',ARGV[2])", IS_FREE, PK_SCRIPT_TAKE, false, PK_SCRIPT_OK},
    {SET "'ex',ARGV[2])", IS_FREE, PK_SCRIPT_TAKE, true, PK_SCRIPT_OK},
};

static const struct {
    const char *text;
    bool seconds;
} set_if_free[] = {
    {SET "'nx','px',ARGV[2])", false},
    {SET "'px',ARGV[2],'nx')", false},
    {SET "'nx','ex',ARGV[2])", true},
    {SET "'ex',ARGV[2],'nx')", true},
};

/* Scripts on all of KEYS, with the value in ARGV[v] and the TTL in ARGV[t]. */
#define EACH(a, b) "for $" #a ",$" #b " in ipairs(KEYS) do "
#define SET_EACH(v, t)                                                                   \
    EACH(3, 4) "redis.call('set',$4,ARGV[" #v "],'px',ARGV[" #t "]) end return #KEYS"
#define TAKE_EACH(v, t)                                                                  \
    EACH(1, 2) "if redis.call('exists',$2)==1 then return 0 end end " SET_EACH(v, t)
#define KEEP_EACH(v, t)                                                                  \
    EACH(1, 2)                                                                           \
    "if redis.call('get',$2)~=ARGV[" #v "] then return 0 end end " SET_EACH(v, t)
#define DROP_EACH(v)                                                                     \
    "local $1=0 " EACH(2, 3) "if redis.call('get',$3)==ARGV[" #v                         \
                             "] then redis.call('del',$3) $1=$1+1 end end return $1"
#define SELECT "redis.call('select',ARGV[1]) "

static const struct {
    const char *text;
    struct pk_script meaning;
} wholes[] = {
    {TAKE_EACH(1, 2),
     {.act = PK_SCRIPT_TAKE, .all_keys = true, .value_arg = 1, .ttl_arg = 2}},
    {KEEP_EACH(1, 2),
     {.act = PK_SCRIPT_KEEP, .all_keys = true, .value_arg = 1, .ttl_arg = 2}},
    {DROP_EACH(1), {.act = PK_SCRIPT_DROP, .all_keys = true, .value_arg = 1}},
    {SELECT TAKE_EACH(2, 3),
     {.act = PK_SCRIPT_TAKE,
      .all_keys = true,
      .value_arg = 2,
      .ttl_arg = 3,
      .db_arg = 1}},
    {SELECT KEEP_EACH(2, 3),
     {.act = PK_SCRIPT_KEEP,
      .all_keys = true,
      .value_arg = 2,
      .ttl_arg = 3,
      .db_arg = 1}},
    {SELECT DROP_EACH(2),
     {.act = PK_SCRIPT_DROP, .all_keys = true, .value_arg = 2, .db_arg = 1}},
    /* The TTL is added to what is left, or replaces it. */
    {"local $1=" GET " if not $1 or $1~=ARGV[1] then return 0 end "
     "local $2=redis.call('pttl',KEYS[1]) if not $2 then $2=0 end "
     "if $2<0 then return 0 end "
     "local $3=ARGV[2] if ARGV[3]=='0' then $3=ARGV[2]+$2 end "
     "redis.call('pexpire',KEYS[1],$3) return 1",
     {.act = PK_SCRIPT_KEEP, .value_arg = 1, .ttl_arg = 2, .add_arg = 3}},
};

/* Steps over `piece` and the blank behind it, if that is how `rest` begins. */
static bool eat(struct pk_bytes *rest, const char *piece)
{
    uint32_t len = (uint32_t)strlen(piece);
    if (rest->len < len || memcmp(rest->data, piece, len) != 0 ||
        (rest->len > len && rest->data[len] != ' ')) {
        return false;
    }
    len += rest->len > len ? 1 : 0;
    *rest = pk_bytes(rest->data + len, rest->len - len);
    return true;
}

static bool eat_no(struct pk_bytes *rest, enum pk_script_no *no)
{
    if (eat(rest, "return 0")) {
        *no = PK_SCRIPT_ZERO;
        return true;
    }
    if (eat(rest, "return -1")) {
        *no = PK_SCRIPT_MINUS;
        return true;
    }
    *no = PK_SCRIPT_NIL;
    return eat(rest, "return nil") || eat(rest, "return false");
}

/* What follows a positive question and its act, to the end of the script. */
static bool eat_tail(struct pk_bytes *rest, enum pk_script_no *no)
{
    if (eat(rest, "else")) {
        return eat_no(rest, no) && eat(rest, "end") && rest->len == 0;
    }
    *no = PK_SCRIPT_NIL;
    return eat(rest, "end") && (rest->len == 0 || (eat_no(rest, no) && rest->len == 0));
}

static bool eat_done(struct pk_bytes *rest)
{
    return eat(rest, "return 1") || eat(rest, "return true");
}

static bool eat_act(struct pk_bytes *rest, enum question after, struct pk_script *out)
{
    bool returned = eat(rest, "return");
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++) {
        if (acts[i].after == after && eat(rest, acts[i].text)) {
            out->act = acts[i].act;
            out->seconds = acts[i].seconds;
            out->ttl_arg = acts[i].act == PK_SCRIPT_DROP ? 0 : 2;
            out->yes = returned ? acts[i].yes : PK_SCRIPT_ONE;
            return returned || eat_done(rest);
        }
    }
    return false;
}

static bool read_question(struct pk_bytes form, struct pk_script *out)
{
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        struct pk_bytes rest = form;
        enum question asked = questions[i].asks;
        *out = (struct pk_script){.value_arg = 1};
        if (!eat(&rest, questions[i].text)) {
            continue;
        }
        bool known = questions[i].negative
                         ? eat_no(&rest, &out->no) && eat(&rest, "end") &&
                               eat_act(&rest, asked, out) && rest.len == 0
                         : eat_act(&rest, asked, out) && eat_tail(&rest, &out->no);
        if (known) {
            return true;
        }
    }
    return false;
}

/* return SET, or if SET then return 1 else NO end. */
static bool read_set_if_free(struct pk_bytes form, struct pk_script *out)
{
    struct pk_bytes rest = form;
    bool asks = eat(&rest, "if");
    *out = (struct pk_script){.act = PK_SCRIPT_TAKE,
                              .value_arg = 1,
                              .ttl_arg = 2,
                              .yes = asks ? PK_SCRIPT_ONE : PK_SCRIPT_OK,
                              .no = PK_SCRIPT_NIL};
    if (!asks && !eat(&rest, "return")) {
        return false;
    }
    for (size_t i = 0; i < sizeof set_if_free / sizeof set_if_free[0]; i++) {
        if (eat(&rest, set_if_free[i].text)) {
            out->seconds = set_if_free[i].seconds;
            return asks ? eat(&rest, "then") && eat_done(&rest) &&
                              eat_tail(&rest, &out->no)
                        : rest.len == 0;
        }
    }
    return false;
}

static bool read_whole(struct pk_bytes form, struct pk_script *out)
{
    for (size_t i = 0; i < sizeof wholes / sizeof wholes[0]; i++) {
        if (pk_bytes_equal(form, pk_text(wholes[i].text))) {
            *out = wholes[i].meaning;
            out->yes = out->all_keys ? PK_SCRIPT_COUNT : PK_SCRIPT_ONE;
            return true;
        }
    }
    return false;
}

bool pk_script_meaning(struct pk_bytes text, struct pk_script *out)
{
    char room[PK_SCRIPT_FORM_MAX];
    struct pk_bytes form = pk_bytes(room, pk_script_normalise(text, room));
    return read_question(form, out) || read_set_if_free(form, out) ||
           read_whole(form, out);
}

/* ---- what was seen ---- */

static const struct pk_script_seen *find(const struct pk_scripts *s,
                                         const unsigned char *digest)
{
    for (uint32_t i = 0; i < s->count; i++) {
        if (memcmp(s->seen[i].digest, digest, PK_SCRIPT_DIGEST) == 0) {
            return &s->seen[i];
        }
    }
    return NULL;
}

const struct pk_script *pk_scripts_find(const struct pk_scripts *s,
                                        const unsigned char digest[PK_SCRIPT_DIGEST])
{
    const struct pk_script_seen *seen = find(s, digest);
    return seen == NULL ? NULL : &seen->meaning;
}

const struct pk_script *pk_scripts_learn(struct pk_scripts *s, struct pk_bytes text,
                                         unsigned char digest[PK_SCRIPT_DIGEST])
{
    struct pk_script meaning;
    if (text.len > PK_SCRIPT_BYTES_MAX) {
        return NULL;
    }
    unsigned int len = 0;
    int done = EVP_Digest(text.data, text.len, digest, &len, EVP_sha1(), NULL);
    PK_ASSERT(done == 1 && len == PK_SCRIPT_DIGEST);
    const struct pk_script *known = pk_scripts_find(s, digest);
    if (known != NULL || !pk_script_meaning(text, &meaning)) {
        return known;
    }
    struct pk_script_seen *seen = &s->seen[s->next];
    memcpy(seen->digest, digest, PK_SCRIPT_DIGEST);
    seen->meaning = meaning;
    s->next = (s->next + 1) % PK_SCRIPTS_MAX;
    s->count += s->count < PK_SCRIPTS_MAX ? 1 : 0;
    return &seen->meaning;
}
