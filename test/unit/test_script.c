/* SPDX-License-Identifier: MIT */
/* Which scripts are known, and, above all, which are not. */
#include <stdio.h>

#include "server/script.h"
#include "tap.h"

static const char *form_of(const char *text)
{
    static char form[PK_SCRIPT_FORM_MAX + 1];
    form[pk_script_normalise(pk_text(text), form)] = '\0';
    return form;
}

static struct pk_script known(const char *text)
{
    struct pk_script s = {0};
    if (!pk_script_meaning(pk_text(text), &s)) {
        FAIL(text);
    }
    return s;
}

static void check_refused(const char *text)
{
    struct pk_script s;
    if (pk_script_meaning(pk_text(text), &s)) {
        FAIL(text);
    }
}

/* Act, answers and arguments in one word, such as "drop 1/0 v1 t0". */
static const char *means(const char *text)
{
    static const char *const acts[] = {"take", "keep", "drop"};
    static const char *const yes[] = {"1", "OK", "n"};
    static const char *const no[] = {"0", "nil", "-1"};
    static char out[64];
    struct pk_script s = known(text);
    snprintf(out, sizeof out, "%s%s %s/%s v%d t%d%s%s%s", acts[s.act],
             s.all_keys ? " all" : "", yes[s.yes], no[s.no], s.value_arg, s.ttl_arg,
             s.seconds ? "s" : "", s.add_arg == 3 ? " +3" : "",
             s.db_arg == 1 ? " db1" : "");
    return out;
}

/* ---- the normal form ---- */

TEST(script__blanks_comments_and_quotes_fold_away)
{
    const char *plain = "return redis.call('del',KEYS[1])";
    CHECK_STR(form_of("return redis.call('del',KEYS[1])"), plain);
    CHECK_STR(form_of("  return\tredis . call ( \"del\" ,\r\n KEYS [ 1 ] )  "), plain);
    CHECK_STR(form_of("--first\nreturn redis.call(--[[in\n]]'del',KEYS[1])--last"),
              plain);
    CHECK_STR(form_of("--[==[ ]] ]=] ]==]return redis.call('del',KEYS[1])"), plain);
    CHECK_STR(form_of("--[=x\rreturn redis.call('del',KEYS[1])"), plain);
    CHECK_STR(form_of("-- \xe2\x82\xac\nreturn redis.call('del',KEYS[1])"), plain);
    CHECK_STR(form_of("return redis.call('del',KEYS[1]);"), plain);
    CHECK_STR(form_of("return (redis.call('del',(KEYS[1])))"), plain);
    CHECK_STR(form_of("return redis.pcall('DEL',KEYS[1])"), plain);
}

TEST(script__locals_are_numbered_and_aliases_go)
{
    CHECK_STR(form_of("local a=1 local b=2 return b"), "local $1=1 local $2=2 return $2");
    CHECK_STR(form_of("local k = KEYS[1]; local v = ARGV[2] return f(k, v)"),
              "return f(KEYS[1],ARGV[2])");
    CHECK_STR(form_of("for i, k in ipairs(KEYS) do f(k) end return k"),
              "for $1,$2 in ipairs(KEYS) do f($2) end return $2");
    CHECK_STR(form_of("local a, b = 1 c()"), "local $1,$2=1 c()");
    CHECK_STR(form_of("local a redis.call('x')"), "local $1 redis.call('x')");
    /* Fields are no variables. */
    CHECK_STR(form_of("local call = 1 return redis.call('x')"),
              "local $1=1 return redis.call('x')");
    /* A second declaration is another variable. */
    CHECK_STR(form_of("local a=1 local a=2 return a"), "local $1=1 local $2=2 return $2");
}

TEST(script__what_changes_the_meaning_stays)
{
    CHECK_STR(form_of("return {1;2}"), "return {1;2}");
    CHECK_STR(form_of("if a;then b() end"), "if a; then b() end");
    CHECK_STR(form_of("return;redis.call('x')"), "return ;redis.call('x')");
    CHECK_STR(form_of("return not (a == b)"), "return not (a==b)");
    CHECK_STR(form_of("if (a) == (b) then c() end"), "if a==b then c() end");
    CHECK_STR(form_of("if (a == b) and c then d() end"), "if (a==b) and c then d() end");
    CHECK_STR(form_of("local k = KEYS[1] .. 'x' return k"),
              "local $1=KEYS[1]..'x' return $1");
    CHECK_STR(form_of("local k = KEYS[1] or 'x' return k"),
              "local $1=KEYS[1] or 'x' return $1");
    CHECK_STR(form_of("f() local k = KEYS[1] return k"),
              "f() local $1=KEYS[1] return $1");
    CHECK_STR(form_of("return 'OK'"), "return 'OK'");
    CHECK_STR(form_of("a = = b"), "a= =b");
    CHECK_STR(form_of("a . . b"), "a. .b");
}

/* tonumber() changes nothing where Redis reads a number, and much elsewhere. */
TEST(script__tonumber_goes_only_where_redis_reads_a_number)
{
    CHECK_STR(form_of("redis.call('PEXPIRE',KEYS[1],tonumber(ARGV[2]))"),
              "redis.call('pexpire',KEYS[1],ARGV[2])");
    CHECK_STR(form_of("local t = tonumber(ARGV[2]) redis.call('expire',KEYS[1],t)"),
              "redis.call('expire',KEYS[1],ARGV[2])");
    CHECK_STR(form_of("redis.call('set',KEYS[1],ARGV[1],'PX',tonumber(ARGV[2]))"),
              "redis.call('set',KEYS[1],ARGV[1],'px',ARGV[2])");
    CHECK_STR(form_of("redis.call('set',KEYS[1],tonumber(ARGV[1]))"),
              "redis.call('set',KEYS[1],tonumber(ARGV[1]))");
    CHECK_STR(form_of("redis.call('pexpire',KEYS[1],tonumber(ARGV[2])*2)"),
              "redis.call('pexpire',KEYS[1],tonumber(ARGV[2])*2)");
    CHECK_STR(form_of("redis.call('pexpire',KEYS[1],-tonumber(ARGV[2]))"),
              "redis.call('pexpire',KEYS[1],-tonumber(ARGV[2]))");
    CHECK_STR(form_of("redis.call('pexpire',KEYS[1],x.tonumber(ARGV[2]))"),
              "redis.call('pexpire',KEYS[1],x.tonumber(ARGV[2]))");
    CHECK_STR(form_of("local t = tonumber(ARGV[3]) return t == '0'"),
              "return tonumber(ARGV[3])=='0'");
}

TEST(script__what_is_not_our_lua_has_no_form)
{
    CHECK_STR(form_of(""), "");
    CHECK_STR(form_of("return [[long]]"), "");
    CHECK_STR(form_of("return KEYS[[1]]"), "");
    CHECK_STR(form_of("return '\\68el'"), "");
    CHECK_STR(form_of("return 'a\"b'"), "");
    CHECK_STR(form_of("return 'open"), "");
    CHECK_STR(form_of("return 'two\nlines'"), "");
    CHECK_STR(form_of("--[[ open"), "");
    CHECK_STR(form_of("return 0x10"), "");
    CHECK_STR(form_of("return 1e3"), "");
    CHECK_STR(form_of("return KEYS[01]"), "");
    CHECK_STR(form_of("return 1.5"), "");
    CHECK_STR(form_of("return $1"), "");
    CHECK_STR(form_of("#!lua name=x\nreturn 1"), "");
    CHECK_STR(form_of("local redis = {} return redis.call('x')"), "");
    CHECK_STR(form_of("local KEYS = ARGV return KEYS[1]"), "");
    CHECK_STR(form_of("for tonumber in x do end"), "");
    CHECK_U64(pk_script_normalise(pk_bytes("f()\0g()", 7), (char[PK_SCRIPT_FORM_MAX]){0}),
              0);
}

TEST(script__length_is_bounded)
{
    static char text[PK_SCRIPT_BYTES_MAX + 1];
    static const char script[] = "return redis.call('x')";
    struct pk_script s;
    char form[PK_SCRIPT_FORM_MAX];
    memset(text, ' ', sizeof text);
    memcpy(text, script, sizeof script - 1);
    CHECK_U64(pk_script_normalise(pk_bytes(text, sizeof text - 1), form), 22);
    CHECK_U64(pk_script_normalise(pk_bytes(text, sizeof text), form), 0);
    for (size_t i = 0; i + 2 < sizeof text; i += 2) {
        memcpy(text + i, "a ", 2); /* too many tokens, and too long a form */
    }
    CHECK_U64(pk_script_normalise(pk_bytes(text, 4000), form), 0);
    CHECK(!pk_script_meaning(pk_bytes(text, 4000), &s));
    memset(text, 'a', sizeof text);
    CHECK_U64(pk_script_normalise(pk_bytes(text, PK_SCRIPT_FORM_MAX), form),
              PK_SCRIPT_FORM_MAX);
    CHECK_U64(pk_script_normalise(pk_bytes(text, PK_SCRIPT_FORM_MAX + 1), form), 0);
}

/* ---- what is known ---- */

TEST(script__compare_and_delete_in_many_spellings)
{
    static const char *const spellings[] = {
        "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) "
        "else return 0 end",
        "-- unlock\nif redis.call(\"GET\", KEYS[1]) == ARGV[1]\nthen\n"
        "\treturn redis.call(\"DEL\", KEYS[1])\nelse\n\treturn 0\nend\n",
        "if (redis.call('get', KEYS[1]) == ARGV[1]) then\n return redis.call('del', "
        "KEYS[1]);\nend;\nreturn 0;",
        "local key = KEYS[1];local mine = ARGV[1];\n"
        "if redis.call('get', key) == mine then return redis.call('del', key) end "
        "return 0",
        "local held = redis.call('get', KEYS[1])\nif held == ARGV[1] then\n"
        "  redis.call('unlink', KEYS[1])\n  return 1\nend\nreturn 0",
        "local who = redis.pcall('Get', KEYS[1])\n"
        "if not who or who ~= ARGV[1] then return 0 end\n"
        "redis.call('del', KEYS[1])\nreturn 1\n",
        "if ARGV[1] ~= redis.call('get',KEYS[1]) then return 0 end "
        "return redis.call('del',KEYS[1])",
        "local x = redis.call('get',KEYS[1]) if x and x == ARGV[1] then "
        "redis.call('del',KEYS[1]) return true else return 0 end",
    };
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        CHECK_STR(means(spellings[i]), "drop 1/0 v1 t0");
    }
}

TEST(script__says_no_in_its_own_way)
{
    CHECK_STR(means("if redis.call('get',KEYS[1])==ARGV[1] then return "
                    "redis.call('del',KEYS[1]) end"),
              "drop 1/nil v1 t0");
    CHECK_STR(means("if redis.call('get',KEYS[1])==ARGV[1] then return "
                    "redis.call('del',KEYS[1]) else return nil end"),
              "drop 1/nil v1 t0");
    CHECK_STR(means("if redis.call('get',KEYS[1])==ARGV[1] then return "
                    "redis.call('del',KEYS[1]) end return false"),
              "drop 1/nil v1 t0");
    CHECK_STR(means("if redis.call('get',KEYS[1])~=ARGV[1] then return -1 end "
                    "return redis.call('del',KEYS[1])"),
              "drop 1/-1 v1 t0");
}

TEST(script__compare_and_expire_in_many_spellings)
{
    static const char *const spellings[] = {
        "if redis.call('get',KEYS[1]) == ARGV[1] then return "
        "redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end",
        "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('PEXPIRE', KEYS[1], "
        "tonumber(ARGV[2])) return 1 end return 0",
        "local k = KEYS[1] local v = ARGV[1] local ms = ARGV[2]\n"
        "local now = redis.call('get', k)\n"
        "if now == v then redis.call('pexpire', k, ms) return 1 end\nreturn 0",
        "local v = redis.call('get', KEYS[1]) if not v or v ~= ARGV[1] then return 0 end "
        "redis.call('pexpire', KEYS[1], ARGV[2]) return 1",
    };
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        CHECK_STR(means(spellings[i]), "keep 1/0 v1 t2");
    }
    CHECK_STR(means("if redis.call('get',KEYS[1])==ARGV[1] then return "
                    "redis.call('EXPIRE',KEYS[1],ARGV[2]) else return 0 end"),
              "keep 1/0 v1 t2s");
    CHECK_STR(means("if redis.call('get',KEYS[1])==ARGV[1] then return "
                    "redis.call('set',KEYS[1],ARGV[1],'PX',ARGV[2]) else return 0 end"),
              "keep OK/0 v1 t2");
    CHECK_STR(means("if redis.call('get',KEYS[1])==ARGV[1] then "
                    "redis.call('set',KEYS[1],ARGV[1],'XX','PX',ARGV[2]) return 1 else "
                    "return 0 end"),
              "keep 1/0 v1 t2");
}

TEST(script__set_if_free_in_many_spellings)
{
    CHECK_STR(means("if redis.call('setnx',KEYS[1],ARGV[1]) == 1 then "
                    "redis.call('expire',KEYS[1],ARGV[2]) return 1 else return 0 end"),
              "take 1/0 v1 t2s");
    CHECK_STR(
        means("local done = redis.call('SETNX', KEYS[1], ARGV[1]) if done == 0 then "
              "return 0 end redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1"),
        "take 1/0 v1 t2");
    CHECK_STR(means("return redis.call('set',KEYS[1],ARGV[1],'NX','PX',ARGV[2])"),
              "take OK/nil v1 t2");
    CHECK_STR(means("return redis.call('set',KEYS[1],ARGV[1],'EX',ARGV[2],'NX');"),
              "take OK/nil v1 t2s");
    CHECK_STR(
        means("if redis.call('set',KEYS[1],ARGV[1],'PX',ARGV[2],'NX') then return 1 "
              "else return 0 end"),
        "take 1/0 v1 t2");
    CHECK_STR(means("if redis.call('exists',KEYS[1]) == 1 then return 0 end "
                    "redis.call('set',KEYS[1],ARGV[1],'PX',ARGV[2]) return 1"),
              "take 1/0 v1 t2");
    CHECK_STR(means("if not redis.call('get',KEYS[1]) then return "
                    "redis.call('set',KEYS[1],ARGV[1],'EX',ARGV[2]) end return false"),
              "take OK/nil v1 t2s");
}

#define EACH "for n, name in ipairs(KEYS) do "

TEST(script__several_keys_in_three_spellings)
{
    CHECK_STR(means(EACH "if redis.call('exists', name) == 1 then return 0 end end " EACH
                         "redis.call('set', name, ARGV[1], 'PX', ARGV[2]) end "
                         "return #KEYS"),
              "take all n/0 v1 t2");
    CHECK_STR(
        means("-- all or none\nfor _, a in ipairs(KEYS) do\n"
              "\tif (redis.call(\"EXISTS\", a) == 1) then return 0; end;\nend\n"
              "for _, b in ipairs(KEYS) do\n"
              "\tredis.pcall(\"SET\", b, ARGV[1], \"px\", tonumber(ARGV[2]));\nend\n"
              "return #KEYS;"),
        "take all n/0 v1 t2");
    CHECK_STR(means("redis.pcall('SELECT', tonumber(ARGV[1])) " EACH
                    "if redis.call('exists', name) == 1 then return 0 end end " EACH
                    "redis.call('set', name, ARGV[2], 'PX', ARGV[3]) end return #KEYS"),
              "take all n/0 v2 t3 db1");
    CHECK_STR(means(EACH
                    "if redis.call('get', name) ~= ARGV[1] then return 0 end end " EACH
                    "redis.call('set', name, ARGV[1], 'PX', ARGV[2]) end "
                    "return #KEYS"),
              "keep all n/0 v1 t2");
    CHECK_STR(means("redis.call('select', ARGV[1]) " EACH
                    "if redis.call('get', name) ~= ARGV[2] then return 0 end end " EACH
                    "redis.call('set', name, ARGV[2], 'PX', ARGV[3]) end return #KEYS"),
              "keep all n/0 v2 t3 db1");
    CHECK_STR(means("local gone = 0 " EACH "if redis.call('get', name) == ARGV[1] then "
                    "redis.pcall('del', name) gone = gone + 1 end end return gone"),
              "drop all n/0 v1 t0");
    CHECK_STR(means("local i = 0;for j, i2 in ipairs(KEYS) do if redis.call('GET',i2)=="
                    "ARGV[1] then redis.call('DEL',i2);i=i+1;end;end;return i"),
              "drop all n/0 v1 t0");
    CHECK_STR(means("redis.pcall('SELECT', tonumber(ARGV[1]))\nlocal gone = 0 " EACH
                    "if redis.call('get', name) == ARGV[2] then "
                    "redis.pcall('del', name) gone = gone + 1 end end return gone"),
              "drop all n/0 v2 t0 db1");
}

#define OWNED                                                                            \
    "local now = redis.call('get', KEYS[1]) if not now or now ~= ARGV[1] then "          \
    "return 0 end "
#define LEFT                                                                             \
    "local left = redis.call('pttl', KEYS[1]) if not left then left = 0 end "            \
    "if left < 0 then return 0 end "

TEST(script__extend_by_more_time_in_three_spellings)
{
    CHECK_STR(means(OWNED LEFT "local ttl = ARGV[2] if ARGV[3] == '0' then "
                               "ttl = ARGV[2] + left end "
                               "redis.call('pexpire', KEYS[1], ttl) return 1"),
              "keep 1/0 v1 t2 +3");
    CHECK_STR(means("local key = KEYS[1]\nlocal a = redis.call(\"GET\", key);\n"
                    "if (not a or a ~= ARGV[1]) then return 0; end;\n"
                    "local b = redis.call(\"PTTL\", key); if (not b) then b = 0; end\n"
                    "if (b < 0) then return 0 end\nlocal c = ARGV[2]\n"
                    "if (ARGV[3] == \"0\") then c = ARGV[2] + b; end;\n"
                    "redis.call(\"PEXPIRE\", key, c);\nreturn 1;"),
              "keep 1/0 v1 t2 +3");
    CHECK_STR(means("--[[ more ]] local l1=redis.pcall('get',KEYS[1])if not l1 or l1~="
                    "ARGV[1]then return 0 end local l2=redis.pcall('pttl',KEYS[1])if not "
                    "l2 then l2=0 end if l2<0 then return 0 end local l3=ARGV[2]if "
                    "ARGV[3]=='0'then l3=ARGV[2]+l2 end redis.pcall('pexpire',KEYS[1],l3)"
                    "return 1"),
              "keep 1/0 v1 t2 +3");
}

/* ---- what must not be known ---- */

#define UNLOCK(question, act, tail) "if " question " then " act " " tail
#define IS_MINE "redis.call('get',KEYS[1]) == ARGV[1]"
#define DELETE "return redis.call('del',KEYS[1])"
#define OR_ZERO "else return 0 end"

/* One thing wrong at a time. */
TEST(script__compare_and_delete_with_a_flaw_is_refused)
{
    check_refused(UNLOCK(IS_MINE, "return redis.call('del',KEYS[2])", OR_ZERO));
    check_refused(UNLOCK(IS_MINE, "return redis.call('del',ARGV[1])", OR_ZERO));
    check_refused(UNLOCK(IS_MINE, "return redis.call('del',KEYS[1],KEYS[2])", OR_ZERO));
    check_refused(UNLOCK(IS_MINE, "return redis.call('del','KEYS[1]')", OR_ZERO));
    check_refused(UNLOCK(IS_MINE, "return redis.call('del',unpack(KEYS))", OR_ZERO));
    check_refused(UNLOCK("redis.call('get',KEYS[2]) == ARGV[1]", DELETE, OR_ZERO));
    check_refused(UNLOCK("redis.call('get',KEYS[1]) == ARGV[2]", DELETE, OR_ZERO));
    check_refused(UNLOCK("redis.call('get',KEYS[1]) == KEYS[1]", DELETE, OR_ZERO));
    check_refused(UNLOCK("redis.call('get',KEYS[1]) ~= ARGV[1]", DELETE, OR_ZERO));
    check_refused(UNLOCK("redis.call('get',KEYS[1])", DELETE, OR_ZERO));
    check_refused(UNLOCK("redis.call('getset',KEYS[1]) == ARGV[1]", DELETE, OR_ZERO));
    check_refused(UNLOCK("redis.call('exists',KEYS[1]) == 1", DELETE, OR_ZERO));
    check_refused(UNLOCK("not redis.call('get',KEYS[1]) == ARGV[1]", DELETE, OR_ZERO));
    check_refused(UNLOCK("true or " IS_MINE, DELETE, OR_ZERO));
    check_refused(UNLOCK(IS_MINE " or true", DELETE, OR_ZERO));
    check_refused(UNLOCK(IS_MINE " and false", DELETE, OR_ZERO));
    check_refused(UNLOCK("tonumber(" IS_MINE ")", DELETE, OR_ZERO));
    check_refused(
        UNLOCK("redis.call('get',KEYS[1]) == tonumber(ARGV[1])", DELETE, OR_ZERO));
    check_refused(UNLOCK("redis.sha1hex('get',KEYS[1]) == ARGV[1]", DELETE, OR_ZERO));
    check_refused(UNLOCK("x.redis.call('get',KEYS[1]) == ARGV[1]", DELETE, OR_ZERO));
    check_refused(UNLOCK(IS_MINE, DELETE " or 1", OR_ZERO));
    check_refused(UNLOCK(IS_MINE, DELETE ", 1", OR_ZERO));
    check_refused(UNLOCK(IS_MINE, DELETE "[1]", OR_ZERO));
    check_refused(UNLOCK(IS_MINE, DELETE, "else return 1 end"));
    check_refused(UNLOCK(IS_MINE, DELETE, "else return 01 end"));
    check_refused(UNLOCK(IS_MINE, DELETE, "else return '0' end"));
    check_refused(UNLOCK(IS_MINE, DELETE, "else " DELETE " end"));
    check_refused(UNLOCK(IS_MINE, DELETE, "else redis.call('incr','n') return 0 end"));
    check_refused(UNLOCK(IS_MINE, DELETE, "elseif true then return 0 end"));
    check_refused(UNLOCK(IS_MINE, DELETE, "end redis.call('flushall') return 0"));
    check_refused(UNLOCK(IS_MINE, DELETE, "end return 0)"));
    check_refused(UNLOCK(IS_MINE, DELETE, "end return 0,"));
    check_refused(UNLOCK(IS_MINE, DELETE, ""));
    check_refused("redis.call('flushall') " UNLOCK(IS_MINE, DELETE, OR_ZERO));
    check_refused(UNLOCK(IS_MINE, DELETE, OR_ZERO) " redis.call('flushall')");
    check_refused(DELETE);
    check_refused("return redis.call('get',KEYS[1])");
}

/* An act that does not return inside the block returns the NO behind it. */
TEST(script__act_that_falls_through_is_refused)
{
    check_refused(UNLOCK(IS_MINE, "redis.call('del',KEYS[1])", "end return 0"));
    check_refused(UNLOCK(IS_MINE, "redis.call('del',KEYS[1])", "end"));
    check_refused(UNLOCK(IS_MINE, "redis.call('del',KEYS[1])", OR_ZERO));
    check_refused(UNLOCK(IS_MINE, "redis.call('del',KEYS[1]) return 2", OR_ZERO));
    check_refused(UNLOCK(IS_MINE, "redis.call('del',KEYS[1]) return 10", OR_ZERO));
    check_refused(UNLOCK(IS_MINE, "redis.call('del',KEYS[1]) return", OR_ZERO));
    check_refused(UNLOCK(IS_MINE, "return 1", OR_ZERO));
}

/* Names that look right and mean something else. */
TEST(script__aliases_that_deceive_are_refused)
{
    check_refused("local key = KEYS[2] " UNLOCK("redis.call('get',KEYS[1]) == ARGV[1]",
                                                "return redis.call('del',key)", OR_ZERO));
    check_refused("local v = ARGV[1] .. '' " UNLOCK("redis.call('get',KEYS[1]) == v",
                                                    DELETE, OR_ZERO));
    check_refused("local v = ARGV[1] v = ARGV[2] " UNLOCK(
        "redis.call('get',KEYS[1]) == v", DELETE, OR_ZERO));
    check_refused(
        "local k = KEYS[1] KEYS[1] = KEYS[2] " UNLOCK(IS_MINE, DELETE, OR_ZERO));
    check_refused("KEYS = ARGV " UNLOCK(IS_MINE, DELETE, OR_ZERO));
    check_refused("local KEYS = {KEYS[2]} " UNLOCK(IS_MINE, DELETE, OR_ZERO));
    check_refused("local redis = other " UNLOCK(IS_MINE, DELETE, OR_ZERO));
    check_refused("local a = redis.call('get',KEYS[1]) local a = ARGV[1] if a == ARGV[1] "
                  "then " DELETE " " OR_ZERO);
    check_refused("local a = redis.call('get',KEYS[1]) if b == ARGV[1] then " DELETE
                  " " OR_ZERO);
    check_refused("local a = redis.call('get',KEYS[2]) if a == ARGV[1] then " DELETE
                  " " OR_ZERO);
    check_refused("local a, b = redis.call('get',KEYS[1]), 1 if b == ARGV[1] then " DELETE
                  " " OR_ZERO);
    check_refused("local a = redis.call('get',KEYS[1]) if not a and a ~= ARGV[1] then "
                  "return 0 end " DELETE);
    /* An alias of the first statements only; this one ends with its block. */
    check_refused("do local k = KEYS[1] end " UNLOCK(
        IS_MINE, "return redis.call('del',k)", OR_ZERO));
    check_refused(
        "local function f() " UNLOCK(IS_MINE, DELETE, OR_ZERO) " end return f()");
}

/* As docs/redis.md says: what Spring's lock registry and newer redsync send. */
TEST(script__take_or_extend_and_a_third_answer_are_refused)
{
    check_refused("local lockClientId = redis.call('GET', KEYS[1]) "
                  "if lockClientId == ARGV[1] then "
                  "redis.call('PEXPIRE', KEYS[1], ARGV[2]) return true "
                  "elseif not lockClientId then "
                  "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return true end "
                  "return false");
    check_refused("local val = redis.call('GET', KEYS[1]) "
                  "if val == ARGV[1] then return redis.call('DEL', KEYS[1]) "
                  "elseif val == false then return -1 else return 0 end");
}

TEST(script__broken_lua_is_refused)
{
    check_refused("if (" IS_MINE "] then " DELETE " " OR_ZERO);
    check_refused("if " IS_MINE "; then " DELETE " " OR_ZERO);
    check_refused("if " IS_MINE " then return; redis.call('del',KEYS[1]) " OR_ZERO);
    check_refused("if redis.call('get',KEYS[1]) = = ARGV[1] then " DELETE " " OR_ZERO);
    check_refused("if redis.call('get' KEYS[1]) == ARGV[1] then " DELETE " " OR_ZERO);
    check_refused(
        "if redis.call('get',KEYS[1]) == ARGV[1] then (redis.call('del',KEYS[1])) "
        "return 1 " OR_ZERO);
    check_refused("if redis.call\n('get',KEYS[1]) == ARGV[1] then " DELETE " " OR_ZERO);
    check_refused("if redis.call--[[\n]]('get',KEYS[1]) == ARGV[1] then " DELETE
                  " " OR_ZERO);
    check_refused("if redis.call'get' == ARGV[1] then " DELETE " " OR_ZERO);
    check_refused("if redis . call\\('get',KEYS[1]) == ARGV[1] then " DELETE " " OR_ZERO);
}

TEST(script__expire_with_a_flaw_is_refused)
{
    check_refused(
        UNLOCK(IS_MINE, "return redis.call('pexpire',KEYS[1],ARGV[1])", OR_ZERO));
    check_refused(
        UNLOCK(IS_MINE, "return redis.call('pexpire',KEYS[1],ARGV[3])", OR_ZERO));
    check_refused(
        UNLOCK(IS_MINE, "return redis.call('pexpire',ARGV[2],KEYS[1])", OR_ZERO));
    check_refused(
        UNLOCK(IS_MINE, "return redis.call('pexpire',KEYS[2],ARGV[2])", OR_ZERO));
    check_refused(UNLOCK(IS_MINE, "return redis.call('pexpire',KEYS[1],30000)", OR_ZERO));
    check_refused(
        UNLOCK(IS_MINE, "return redis.call('pexpire',KEYS[1],ARGV[2],'NX')", OR_ZERO));
    check_refused(
        UNLOCK(IS_MINE, "return redis.call('pexpireat',KEYS[1],ARGV[2])", OR_ZERO));
    check_refused(UNLOCK(IS_MINE, "return redis.call('persist',KEYS[1])", OR_ZERO));
    check_refused(UNLOCK("redis.call('get',KEYS[1]) == ARGV[2]",
                         "return redis.call('pexpire',KEYS[1],ARGV[1])", OR_ZERO));
    check_refused(UNLOCK(IS_MINE, "return redis.call('set',KEYS[1],ARGV[2],'PX',ARGV[2])",
                         OR_ZERO));
    check_refused(UNLOCK(IS_MINE, "return redis.call('set',KEYS[1],ARGV[1])", OR_ZERO));
    check_refused(UNLOCK(IS_MINE,
                         "return redis.call('set',KEYS[1],ARGV[1],'NX','PX',"
                         "ARGV[2])",
                         OR_ZERO));
    check_refused("return redis.call('pexpire',KEYS[1],ARGV[2])");
}

TEST(script__set_if_free_with_a_flaw_is_refused)
{
    check_refused("return redis.call('set',KEYS[1],ARGV[1],'PX',ARGV[2])");
    check_refused("return redis.call('set',KEYS[1],ARGV[1],'NX')");
    check_refused("return redis.call('set',KEYS[1],ARGV[1],'XX','PX',ARGV[2])");
    check_refused("return redis.call('set',KEYS[1],ARGV[2],'NX','PX',ARGV[1])");
    check_refused("return redis.call('setnx',KEYS[1],ARGV[1])");
    check_refused(
        "if redis.call('setnx',KEYS[1],ARGV[1]) == 1 then return 1 else return 0 "
        "end");
    check_refused("if redis.call('setnx',KEYS[1],ARGV[1]) == 0 then "
                  "redis.call('pexpire',KEYS[1],ARGV[2]) return 1 else return 0 end");
    check_refused("if redis.call('setnx',KEYS[1],ARGV[1]) == 1 then "
                  "redis.call('pexpire',KEYS[1],ARGV[2]) end return 1");
    check_refused("local s = redis.call('setnx',KEYS[1],ARGV[1]) "
                  "redis.call('pexpire',KEYS[1],ARGV[2]) return s");
    check_refused("if redis.call('exists',KEYS[1]) == 1 then "
                  "redis.call('set',KEYS[1],ARGV[1],'PX',ARGV[2]) return 1 else return 0 "
                  "end");
    check_refused("if redis.call('exists',KEYS[1]) == 0 then return "
                  "redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end");
}

TEST(script__several_keys_with_a_flaw_are_refused)
{
    /* The variable of the first loop in the second; the index for the key. */
    check_refused(
        "for i, a in ipairs(KEYS) do if redis.call('exists', a) == 1 then return 0 "
        "end end for j, b in ipairs(KEYS) do redis.call('set', a, ARGV[1], 'PX', "
        "ARGV[2]) end return #KEYS");
    check_refused(EACH
                  "if redis.call('exists', n) == 1 then return 0 end end " EACH
                  "redis.call('set', name, ARGV[1], 'PX', ARGV[2]) end return #KEYS");
    check_refused(EACH
                  "if redis.call('exists', name) == 1 then return 0 end end " EACH
                  "redis.call('set', name, ARGV[1], 'PX', ARGV[2]) end return #ARGV");
    check_refused(EACH "if redis.call('exists', name) == 1 then return 0 end end " EACH
                       "redis.call('set', name, ARGV[1], 'PX', ARGV[2]) end return 1");
    check_refused(EACH "if redis.call('exists', name) == 1 then return 0 end end " EACH
                       "redis.call('set', name, ARGV[1]) end return #KEYS");
    check_refused(EACH
                  "redis.call('set', name, ARGV[1], 'PX', ARGV[2]) end return #KEYS");
    check_refused(EACH
                  "if redis.call('exists', name) == 1 then return 0 end "
                  "redis.call('set', name, ARGV[1], 'PX', ARGV[2]) end return #KEYS");
    check_refused("local gone = 0 " EACH "if redis.call('get', name) == ARGV[1] then "
                  "redis.call('del', KEYS[1]) gone = gone + 1 end end return gone");
    check_refused("local gone = 0 " EACH "if redis.call('get', name) == ARGV[1] then "
                  "redis.call('del', name) end gone = gone + 1 end return gone");
    check_refused("local gone = 0 " EACH "if redis.call('get', name) == ARGV[1] then "
                  "redis.call('del', name) gone = gone + 2 end end return gone");
    check_refused("local gone = 1 " EACH "if redis.call('get', name) == ARGV[1] then "
                  "redis.call('del', name) gone = gone + 1 end end return gone");
    check_refused(
        "local gone = 0 for n, name in ipairs(ARGV) do if redis.call('get', name) "
        "== ARGV[1] then redis.call('del', name) gone = gone + 1 end end return "
        "gone");
    check_refused(
        "local gone = 0 for n, name in pairs(KEYS) do if redis.call('get', name) "
        "== ARGV[1] then redis.call('del', name) gone = gone + 1 end end return "
        "gone");
    /* The database and the value in each other's place. */
    check_refused("redis.pcall('SELECT', ARGV[2]) local gone = 0 " EACH
                  "if redis.call('get', name) == ARGV[1] then redis.call('del', name) "
                  "gone = gone + 1 end end return gone");
    check_refused("redis.pcall('SELECT', ARGV[1]) local gone = 0 " EACH
                  "if redis.call('get', name) == ARGV[1] then redis.call('del', name) "
                  "gone = gone + 1 end end return gone");
    check_refused("redis.pcall('SELECT', 5) local gone = 0 " EACH
                  "if redis.call('get', name) == ARGV[1] then redis.call('del', name) "
                  "gone = gone + 1 end end return gone");
}

TEST(script__extend_with_a_flaw_is_refused)
{
    check_refused(LEFT "local ttl = ARGV[2] if ARGV[3] == '0' then ttl = ARGV[2] + left "
                       "end redis.call('pexpire', KEYS[1], ttl) return 1");
    check_refused(OWNED LEFT "local ttl = ARGV[2] if ARGV[3] == '1' then "
                             "ttl = ARGV[2] + left end "
                             "redis.call('pexpire', KEYS[1], ttl) return 1");
    check_refused(OWNED LEFT "local ttl = ARGV[2] if tonumber(ARGV[3]) == '0' then "
                             "ttl = ARGV[2] + left end "
                             "redis.call('pexpire', KEYS[1], ttl) return 1");
    check_refused(OWNED LEFT "local ttl = ARGV[2] if ARGV[3] == '0' then "
                             "ttl = ARGV[2] - left end "
                             "redis.call('pexpire', KEYS[1], ttl) return 1");
    check_refused(OWNED LEFT "local ttl = ARGV[2] if ARGV[3] == '0' then "
                             "ttl = ARGV[2] + ttl end "
                             "redis.call('pexpire', KEYS[1], ttl) return 1");
    check_refused(OWNED LEFT "local ttl = ARGV[2] if ARGV[3] == '0' then "
                             "ttl = ARGV[2] + left end "
                             "redis.call('pexpire', KEYS[1], left) return 1");
}

/* ---- digests ---- */

static void hex(const unsigned char *digest, char *out)
{
    for (size_t i = 0; i < PK_SCRIPT_DIGEST; i++) {
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
    }
}

TEST(script__digest_is_the_sha1_of_the_exact_text)
{
    static struct pk_scripts s;
    unsigned char digest[PK_SCRIPT_DIGEST];
    char text[2 * PK_SCRIPT_DIGEST + 1];
    const char *script = "if redis.call('get',KEYS[1]) == ARGV[1] then return "
                         "redis.call('del',KEYS[1]) else return 0 end";
    const struct pk_script *learnt = pk_scripts_learn(&s, pk_text(script), digest);
    CHECK(learnt != NULL && learnt->act == PK_SCRIPT_DROP);
    hex(digest, text);
    CHECK_STR(text, "ae3671744a5dbb24ea37ef607b8b10ac7856d43e");
    CHECK(pk_scripts_find(&s, digest) == learnt);
    CHECK(pk_scripts_learn(&s, pk_text(script), digest) == learnt);
    CHECK_U64(s.count, 1);
    digest[PK_SCRIPT_DIGEST - 1] ^= 1;
    CHECK(pk_scripts_find(&s, digest) == NULL);
}

TEST(script__unknown_scripts_are_not_remembered)
{
    static struct pk_scripts s;
    unsigned char digest[PK_SCRIPT_DIGEST];
    CHECK(pk_scripts_learn(&s, pk_text("return 1"), digest) == NULL);
    CHECK(pk_scripts_find(&s, digest) == NULL);
    CHECK_U64(s.count, 0);
}

static const struct pk_script *learn_numbered(struct pk_scripts *s, int i,
                                              unsigned char *digest)
{
    char text[160];
    snprintf(text, sizeof text, UNLOCK(IS_MINE, DELETE, OR_ZERO) "-- %d", i);
    return pk_scripts_learn(s, pk_text(text), digest);
}

/* P10: the table has an end, and the oldest goes first. */
TEST(script__oldest_digest_is_forgotten_first)
{
    static struct pk_scripts s;
    unsigned char digests[PK_SCRIPTS_MAX + 2][PK_SCRIPT_DIGEST];
    for (int i = 0; i < PK_SCRIPTS_MAX + 2; i++) {
        CHECK(learn_numbered(&s, i, digests[i]) != NULL);
        int oldest = i < PK_SCRIPTS_MAX ? 0 : i - PK_SCRIPTS_MAX + 1;
        CHECK(oldest == 0 || pk_scripts_find(&s, digests[oldest - 1]) == NULL);
        CHECK(pk_scripts_find(&s, digests[oldest]) != NULL);
        CHECK(pk_scripts_find(&s, digests[i]) != NULL);
    }
    CHECK_U64(s.count, PK_SCRIPTS_MAX);
}
