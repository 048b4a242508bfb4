/* SPDX-License-Identifier: MIT */
/* Redis' words against the real machine: what is asked as clients ask it, and the bytes
 * of the answer. */
#include "core/door.h"
#include "core/machine.h"
#include "server/redis.h"
#include "tap.h"

enum { WORDS_MAX = 64, ANSWER_MAX = 4096 };

static struct pk_machine *machine;
static struct pk_effects effects;
static uint64_t now_ms;
static bool resp3;

static void reset(void)
{
    pk_machine_free(machine);
    machine = pk_machine_new();
    now_ms = 1;
    resp3 = false;
}

static const char *text_of(struct pk_resp_out *out)
{
    static char text[ANSWER_MAX];
    size_t len = 0;
    for (size_t i = 0; i < out->len && len + 2 < sizeof text; i++) {
        if (out->data[i] == '\r') {
            continue; /* CR LF reads as one LF, so that answers are easy to write down */
        }
        text[len++] = out->data[i];
    }
    text[len] = '\0';
    pk_resp_free(out);
    return text;
}

static void step(struct pk_command *c)
{
    pk_effects_reset(&effects);
    c->stamp_ms = now_ms;
    pk_machine_step(machine, c, &effects);
    if (pk_machine_check(machine) != NULL) {
        FAIL(pk_machine_check(machine));
    }
}

/* What comes out of a request of these words; "other" when they are not Redis'. The
 * command goes through its encoded form, as it does in a log. */
static const char *ask_words(const struct pk_bytes *words, uint32_t n)
{
    struct pk_resp_out out = {.resp3 = resp3};
    struct pk_command c;
    struct pk_command again;
    uint64_t form = 0;
    switch (pk_redis_read(words, n, pk_text("client"), &c, &form, &out)) {
    case PK_REDIS_OTHER:
        return "other";
    case PK_REDIS_ANSWERED:
        return text_of(&out);
    case PK_REDIS_COMMAND:
        break;
    }
    CHECK(form != 0 && out.len == 0 && pk_command_wrong(&c) == NULL);
    unsigned char bytes[ANSWER_MAX];
    CHECK(pk_command_size(&c) <= sizeof bytes);
    size_t size = pk_command_encode(&c, bytes);
    CHECK_U64(pk_command_decode(bytes, size, &again), size);
    step(&again);
    pk_redis_answer(form, &again, &effects, &out);
    return text_of(&out);
}

/* Words are parted by single blanks; '_' in them stands for a blank. */
static const char *ask(const char *line)
{
    static char copy[ANSWER_MAX];
    struct pk_bytes words[WORDS_MAX];
    uint32_t n = 0;
    size_t len = strlen(line);
    CHECK(len < sizeof copy);
    char *start = copy;
    for (size_t i = 0; i <= len; i++) {
        copy[i] = (char)(line[i] == '_' ? ' ' : line[i]);
        if (line[i] == ' ' || line[i] == '\0') {
            CHECK(n < WORDS_MAX);
            words[n++] = pk_bytes(start, (size_t)(copy + i - start));
            start = copy + i + 1;
        }
    }
    return ask_words(words, n);
}

/* EVAL of a script, with the words behind it. */
static const char *eval(const char *script, const char *rest)
{
    static char copy[ANSWER_MAX];
    struct pk_bytes words[WORDS_MAX] = {pk_text("EVAL"), pk_text(script)};
    uint32_t n = 2;
    char *start = copy;
    for (size_t i = 0; i <= strlen(rest); i++) {
        copy[i] = rest[i];
        if (rest[i] == ' ' || rest[i] == '\0') {
            words[n++] = pk_bytes(start, (size_t)(copy + i - start));
            start = copy + i + 1;
        }
    }
    return ask_words(words, n);
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static uint64_t native_lease(void)
{
    struct pk_command open = {.verb = PK_LEASE_OPEN, .ttl_ms = 10000};
    step(&open);
    return effects.list[0].lease;
}

static enum pk_status native_acquire(uint64_t lease, const char *name,
                                     struct pk_part part, const char *value)
{
    struct pk_command c = {.verb = PK_LOCK_ACQUIRE,
                           .lease = lease,
                           .wait_ms = PK_WAIT_FOREVER,
                           .value = pk_text(value),
                           .n_parts = 1};
    part.name = pk_text(name);
    c.parts[0] = part;
    step(&c);
    return effects.list[0].status;
}

static const struct pk_part exclusive = {.mode = PK_EXCLUSIVE};

/* ---- SET ---- */

TEST(redis__set_takes_a_free_key_once)
{
    reset();
    CHECK_STR(ask("SET k mine NX PX 1000"), "+OK\n");
    CHECK_STR(ask("SET k other NX PX 1000"), "$-1\n");
    CHECK_STR(ask("SET k mine NX PX 1000"), "$-1\n");
    CHECK_STR(ask("GET k"), "$4\nmine\n");
    now_ms += 1000;
    CHECK_STR(ask("set k other px 1000 nx"), "+OK\n");
    CHECK_STR(ask("GET k"), "$5\nother\n");
    resp3 = true;
    CHECK_STR(ask("SET k other NX PX 1000"), "_\n");
}

TEST(redis__set_takes_seconds_and_any_order)
{
    reset();
    CHECK_STR(ask("SET a v NX EX 7"), "+OK\n");
    CHECK_STR(ask("SET b v ex 7 nx"), "+OK\n");
    CHECK_STR(ask("PTTL a"), ":7000\n");
    CHECK_STR(ask("PTTL b"), ":7000\n");
}

/* Nothing of what is refused changes anything. */
TEST(redis__set_without_nx_or_ttl_is_refused_and_changes_nothing)
{
    static const char *const refused[] = {
        "SET k v",
        "SET k v PX 1000",
        "SET k v NX",
        "SET k v XX PX 1000",
        "SET k v NX XX PX 1000",
        "SET k v NX PX 1000 GET",
        "SET k v NX KEEPTTL",
        "SET k v NX PXAT 99999999999999",
        "SET k v NX PX",
        "SET k v NX PX 1000 EX 1",
        "SET k v NX PX x",
        "SET k v NX PX -1",
        "SET k v NX PX 1.5",
        "SET k v NX PX 49",
        "SET k v NX PX 0",
        "SET k v NX PX 86400001",
        "SET k v NX EX 86401",
        "SET k v NX EX 18446744073709551615",
        "SET k v NX EX 18446744073709551616",
        "SET k",
        "SETNX k v",
        "SETNX",
        "SETEX k 10 v",
        "PSETEX k 1000 v",
        "GETSET k v",
        "PERSIST k",
        "SET  v NX PX 1000",
        "SET \n v NX PX 1000",
    };
    reset();
    CHECK_STR(ask("SET held mine NX PX 1000"), "+OK\n");
    uint64_t before = pk_machine_digest(machine);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (!begins(ask(refused[i]), "-ERR ")) {
            FAIL(refused[i]);
        }
    }
    CHECK(begins(ask("SET held thief"), "-ERR SET without NX"));
    CHECK(begins(ask("SET k v NX"), "-ERR SET NX without a TTL"));
    CHECK_STR(ask("SET k v NX PX 49"), "-ERR the TTL must be between 50 ms and 24 h\n");
    /* 2^64 / 1000, rounded up: in milliseconds it would be a short one again. */
    CHECK(begins(ask("SET k v NX EX 18446744073709552"), "-ERR the TTL must be"));
    CHECK(begins(ask("EXPIRE held 18446744073709552"), "-ERR the TTL must be"));
    CHECK_U64(pk_machine_digest(machine), before);
    CHECK_STR(ask("SET k v NX PX 50"), "+OK\n");
    CHECK_STR(ask("SET l v NX EX 86400"), "+OK\n");
}

TEST(redis__limits_of_the_machine_are_errors)
{
    reset();
    struct pk_command limit = {.verb = PK_CONFIGURE, .limits = pk_limits_default()};
    limit.limits.value_bytes = 4;
    limit.limits.leases = 1;
    step(&limit);
    CHECK_U64(effects.list[0].status, PK_OK);
    CHECK(begins(ask("SET k longer NX PX 1000"), "-LIMIT "));
    CHECK_STR(ask("SET k v NX PX 1000"), "+OK\n");
    CHECK(begins(ask("SET l v NX PX 1000"), "-LIMIT "));
}

/* ---- looking ---- */

TEST(redis__looking_at_nothing_says_so)
{
    reset();
    CHECK_STR(ask("GET k"), "$-1\n");
    CHECK_STR(ask("EXISTS k"), ":0\n");
    CHECK_STR(ask("TTL k"), ":-2\n");
    CHECK_STR(ask("PTTL k"), ":-2\n");
    CHECK_STR(ask("PEXPIRE k 1000"), ":0\n");
    CHECK_STR(ask("EXPIRE k 1"), ":0\n");
    CHECK_STR(ask("DEL k"), ":0\n");
    CHECK_STR(ask("UNLINK k l m"), ":0\n");
    CHECK(begins(ask("LOCK TOKEN k"), "-NOTHELD "));
    CHECK(begins(ask("LOCK TOKEN k v"), "-NOTHELD "));
}

TEST(redis__time_left_is_told_in_both_units)
{
    reset();
    ask("SET k v NX PX 2600");
    CHECK_STR(ask("PTTL k"), ":2600\n");
    CHECK_STR(ask("TTL k"), ":3\n");
    now_ms += 200;
    CHECK_STR(ask("PTTL k"), ":2400\n");
    CHECK_STR(ask("TTL k"), ":2\n");
    CHECK_STR(ask("EXISTS k"), ":1\n");
    now_ms += 2400;
    CHECK_STR(ask("PTTL k"), ":-2\n");
    CHECK_STR(ask("EXISTS k"), ":0\n");
}

TEST(redis__values_are_any_bytes)
{
    static const char value[] = {'\0', '\r', '\n', (char)0xff, ' '};
    struct pk_bytes set[] = {pk_text("SET"), pk_text("k"),  pk_bytes(value, sizeof value),
                             pk_text("NX"),  pk_text("PX"), pk_text("1000")};
    reset();
    CHECK_STR(ask_words(set, 6), "+OK\n");
    struct pk_bytes unlock[] = {
        pk_text("EVAL"),
        pk_text("if redis.call('get',KEYS[1])==ARGV[1] then return "
                "redis.call('del',KEYS[1]) else return 0 end"),
        pk_text("1"), pk_text("k"), pk_bytes(value, sizeof value - 1)};
    CHECK_STR(ask_words(unlock, 5), ":0\n");
    unlock[4] = pk_bytes(value, sizeof value);
    CHECK_STR(ask_words(unlock, 5), ":1\n");
    CHECK_STR(ask("SET e  NX PX 1000"), "+OK\n");
    CHECK_STR(ask("GET e"), "$0\n\n");
}

TEST(redis__wrong_numbers_of_arguments_are_refused)
{
    static const char *const refused[] = {
        "GET",          "GET a b",     "EXISTS",           "EXISTS a b",   "TTL",
        "PTTL a b",     "EXPIRE a",    "EXPIRE a 1 NX",    "PEXPIRE",      "DEL",
        "UNLINK",       "LOCK TOKEN",  "LOCK TOKEN a b c", "EVAL x",       "EVALSHA",
        "SCRIPT",       "SCRIPT LOAD", "SCRIPT EXISTS",    "SCRIPT FLUSH", "PEXPIRE a x",
        "PEXPIRE a -5", "PEXPIRE a 0", "EXPIRE a 0",
    };
    reset();
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (!begins(ask(refused[i]), "-ERR ")) {
            FAIL(refused[i]);
        }
    }
}

TEST(redis__all_else_is_for_others)
{
    static const char *const others[] = {
        "PING",    "HELLO 3",     "INFO",      "SELECT 0",        "CLIENT ID",
        "COMMAND", "QUIT",        "ECHO x",    "INCR k",          "HSET k f v",
        "MULTI",   "SUBSCRIBE c", "FLUSHALL",  "RENAME a b",      "EVAL_RO x 0",
        "LOCK",    "LOCK SHOW k", "LOCK LIST", "LEASE OPEN 1000", "GETX",
        "SE",
    };
    reset();
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        CHECK_STR(ask(others[i]), "other");
    }
    CHECK_STR(ask_words(NULL, 0), "other");
}

/* ---- changing ---- */

TEST(redis__expire_moves_the_deadline_of_any_owner)
{
    reset();
    ask("SET k v NX PX 1000");
    CHECK_STR(ask("PEXPIRE k 5000"), ":1\n");
    CHECK_STR(ask("PTTL k"), ":5000\n");
    CHECK_STR(ask("EXPIRE k 60"), ":1\n");
    CHECK_STR(ask("PTTL k"), ":60000\n");
}

TEST(redis__del_counts_what_was_there)
{
    reset();
    ask("SET a v NX PX 1000");
    ask("SET b w NX PX 1000");
    CHECK_STR(ask("DEL a a b c"), ":2\n");
    CHECK_STR(ask("GET a"), "$-1\n");
    CHECK_STR(ask("DEL 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"), ":0\n");
    CHECK(begins(ask("DEL 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17"), "-ERR "));
}

/* ---- tokens ---- */

TEST(redis__lock_token_tells_the_owner_and_grows)
{
    reset();
    ask("SET k mine NX PX 1000");
    CHECK_STR(ask("LOCK TOKEN k"), ":1\n");
    CHECK_STR(ask("lock token k mine"), ":1\n");
    CHECK_STR(ask("LOCK TOKEN k other"), "-NOTHELD this lock is held by another owner\n");
    CHECK_STR(ask("LOCK TOKEN k "), "-NOTHELD this lock is held by another owner\n");
    ask("PEXPIRE k 5000");
    CHECK_STR(ask("LOCK TOKEN k mine"), ":1\n");
    ask("DEL k");
    ask("SET k mine NX PX 1000");
    CHECK_STR(ask("LOCK TOKEN k mine"), ":2\n");
}

/* ---- together with native clients ---- */

TEST(redis__native_holds_are_seen_and_not_touched)
{
    reset();
    uint64_t lease = native_lease();
    CHECK_U64(native_acquire(lease, "plain", exclusive, ""), PK_OK);
    CHECK_U64(native_acquire(lease, "leader", exclusive, "host:1"), PK_OK);
    CHECK_U64(
        native_acquire(lease, "many", (struct pk_part){.mode = PK_SLOT, .slots = 3}, ""),
        PK_OK);
    CHECK_STR(ask("GET plain"), "$0\n\n"); /* held, so not nil */
    CHECK_STR(ask("GET leader"), "$6\nhost:1\n");
    CHECK_STR(ask("EXISTS plain"), ":1\n");
    CHECK_STR(ask("PTTL plain"), ":10000\n");
    CHECK_STR(ask("LOCK TOKEN leader"), ":2\n");
    uint64_t before = pk_machine_digest(machine);
    CHECK_STR(ask("SET plain v NX PX 1000"), "$-1\n");
    CHECK_STR(ask("SET many v NX PX 1000"), "$-1\n"); /* another kind: taken, too */
    CHECK_STR(ask("DEL plain leader many"), ":0\n");
    CHECK_STR(ask("PEXPIRE leader 50"), ":0\n");
    CHECK_STR(eval("if redis.call('get',KEYS[1])==ARGV[1] then return "
                   "redis.call('del',KEYS[1]) else return 0 end",
                   "1 leader host:1"),
              ":0\n");
    CHECK_U64(pk_machine_digest(machine), before);
}

TEST(redis__native_clients_wait_behind_a_key)
{
    reset();
    ask("SET k mine NX PX 1000");
    uint64_t lease = native_lease();
    CHECK_U64(native_acquire(lease, "k", exclusive, ""), PK_QUEUED);
    /* Nobody passes who waits (P7), not even when the key has just been deleted. */
    CHECK_STR(ask("DEL k"), ":1\n");
    CHECK_STR(ask("SET k mine NX PX 1000"), "$-1\n");
    CHECK_STR(ask("LOCK TOKEN k"), ":2\n");
}

TEST(redis__a_hold_carries_the_clients_label)
{
    reset();
    ask("SET k mine NX PX 1000");
    struct pk_command show = {.verb = PK_LOCK_SHOW, .name = pk_text("k"), .count = 1};
    step(&show);
    CHECK_U64(effects.count, 2);
    CHECK(pk_bytes_equal(effects.list[1].label, pk_text("client")));
    CHECK(pk_bytes_equal(effects.list[1].value, pk_text("mine")));
}

/* ---- scripts ---- */

static const char *const releases[] = {
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else "
    "return 0 end",
    "local k = KEYS[1]\nif redis.call(\"GET\", k) == ARGV[1] then\n  return "
    "redis.call(\"DEL\", k)\nend\nreturn 0\n",
    "local t = redis.call('get', KEYS[1])\nif not t or t ~= ARGV[1] then\n return "
    "0\nend\n"
    "redis.call('del', KEYS[1])\nreturn 1\n",
};

TEST(redis__release_scripts_delete_what_is_owned)
{
    for (size_t i = 0; i < 3; i++) {
        reset();
        CHECK_STR(eval(releases[i], "1 k mine"), ":0\n");
        ask("SET k mine NX PX 1000");
        CHECK_STR(eval(releases[i], "1 k other"), ":0\n");
        CHECK_STR(ask("GET k"), "$4\nmine\n");
        CHECK_STR(eval(releases[i], "1 k mine"), ":1\n");
        CHECK_STR(ask("GET k"), "$-1\n");
    }
}

static const char *const refreshes[] = {
    "if redis.call('get',KEYS[1]) == ARGV[1] then return "
    "redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end",
    "local k = KEYS[1] local v = ARGV[1] local ms = tonumber(ARGV[2])\n"
    "local now = redis.call('get', k)\nif now == v then redis.call('pexpire', k, ms) "
    "return 1 end\nreturn 0",
    "local t = redis.call('get', KEYS[1])\nif not t or t ~= ARGV[1] then return 0 end\n"
    "redis.call('pexpire', KEYS[1], ARGV[2])\nreturn 1\n",
};

TEST(redis__refresh_scripts_keep_what_is_owned)
{
    for (size_t i = 0; i < 3; i++) {
        reset();
        CHECK_STR(eval(refreshes[i], "1 k mine 5000"), ":0\n");
        ask("SET k mine NX PX 1000");
        CHECK_STR(eval(refreshes[i], "1 k other 5000"), ":0\n");
        CHECK_STR(ask("PTTL k"), ":1000\n");
        CHECK_STR(eval(refreshes[i], "1 k mine 5000"), ":1\n");
        CHECK_STR(ask("PTTL k"), ":5000\n");
        CHECK(begins(eval(refreshes[i], "1 k mine 49"), "-ERR "));
        CHECK(begins(eval(refreshes[i], "1 k mine soon"), "-ERR "));
        CHECK_STR(ask("PTTL k"), ":5000\n");
    }
    reset();
    ask("SET k mine NX PX 1000");
    CHECK_STR(eval("if redis.call('get',KEYS[1])==ARGV[1] then return "
                   "redis.call('expire',KEYS[1],ARGV[2]) else return 0 end",
                   "1 k mine 5"),
              ":1\n");
    CHECK_STR(ask("PTTL k"), ":5000\n");
}

/* redis-py's extend: the third argument says whether to add or to replace. */
TEST(redis__extend_script_adds_or_replaces)
{
    static const char extend[] =
        "local t = redis.call('get', KEYS[1]) if not t or t ~= ARGV[1] then return 0 end "
        "local e = redis.call('pttl', KEYS[1]) if not e then e = 0 end if e < 0 then "
        "return 0 end local n = ARGV[2] if ARGV[3] == '0' then n = ARGV[2] + e end "
        "redis.call('pexpire', KEYS[1], n) return 1";
    reset();
    CHECK_STR(eval(extend, "1 k mine 500 0"), ":0\n");
    ask("SET k mine NX PX 1000");
    CHECK_STR(eval(extend, "1 k other 500 0"), ":0\n");
    now_ms += 400;
    CHECK_STR(eval(extend, "1 k mine 500 0"), ":1\n");
    CHECK_STR(ask("PTTL k"), ":1100\n");
    CHECK_STR(eval(extend, "1 k mine 500 1"), ":1\n");
    CHECK_STR(ask("PTTL k"), ":500\n");
    CHECK_STR(eval(extend, "1 k mine 10 0"), ":1\n"); /* little, but enough in sum */
    CHECK(
        begins(eval(extend, "1 k mine 86400000 0"), "-ERR not a valid request: the TTL"));
    CHECK(begins(eval(extend, "1 k mine 10 1"), "-ERR the TTL must be"));
    CHECK(begins(eval(extend, "1 k mine 10"), "-ERR the script needs more"));
    CHECK_STR(ask("PTTL k"), ":510\n");
}

#define EACH "for i, k in ipairs(KEYS) do "
#define TAKE_ALL                                                                         \
    EACH "if redis.call('exists', k) == 1 then return 0 end end " EACH                   \
         "redis.call('set', k, ARGV[1], 'PX', ARGV[2]) end return #KEYS"
#define KEEP_ALL                                                                         \
    EACH "if redis.call('get', k) ~= ARGV[1] then return 0 end end " EACH                \
         "redis.call('set', k, ARGV[1], 'PX', ARGV[2]) end return #KEYS"
#define DROP_ALL                                                                         \
    "local c = 0 " EACH "if redis.call('get', k) == ARGV[1] then redis.pcall('del', k) " \
    "c = c + 1 end end return c"

TEST(redis__several_keys_are_taken_all_or_none)
{
    reset();
    CHECK_STR(eval(TAKE_ALL, "3 a b c mine 1000"), ":3\n");
    CHECK_STR(eval(TAKE_ALL, "2 d a other 1000"), ":0\n");
    CHECK_STR(ask("EXISTS d"), ":0\n");
    CHECK_STR(ask("LOCK TOKEN a"), ":1\n");
    CHECK_STR(ask("LOCK TOKEN c"), ":3\n");
    CHECK_STR(eval(KEEP_ALL, "3 a b c other 5000"), ":0\n");
    CHECK_STR(ask("PTTL a"), ":1000\n");
    CHECK_STR(eval(KEEP_ALL, "3 a b c mine 5000"), ":3\n");
    CHECK_STR(ask("PTTL c"), ":5000\n");
    CHECK_STR(eval(KEEP_ALL, "2 a d mine 7000"), ":0\n");
    CHECK_STR(ask("PTTL a"), ":5000\n");
    ask("DEL b");
    CHECK_STR(eval(DROP_ALL, "3 a b c other"), ":0\n");
    CHECK_STR(eval(DROP_ALL, "3 a b c mine"), ":2\n");
    CHECK_STR(ask("EXISTS a"), ":0\n");
}

/* As in Redis, where the second of two equal keys finds what the first one left. */
TEST(redis__the_same_key_twice_is_one_key)
{
    reset();
    CHECK_STR(eval(TAKE_ALL, "2 a a mine 1000"), ":2\n");
    CHECK_STR(eval(KEEP_ALL, "3 a a a mine 2000"), ":3\n");
    CHECK_STR(eval(DROP_ALL, "2 a a mine"), ":1\n");
}

TEST(redis__number_of_keys_is_bounded_and_checked)
{
    reset();
    CHECK_STR(eval(TAKE_ALL, "16 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 v 1000"),
              ":16\n");
    CHECK(begins(eval(TAKE_ALL, "17 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 v 1000"),
                 "-ERR at most 16"));
    CHECK(begins(eval(TAKE_ALL, "0 v 1000"), "-ERR the script needs more"));
    CHECK(begins(eval(TAKE_ALL, "3 a v"), "-ERR the number of keys"));
    CHECK(begins(eval(TAKE_ALL, "-1 a v"), "-ERR the number of keys"));
    CHECK(begins(eval(TAKE_ALL, "18446744073709551615 a v"), "-ERR the number of keys"));
    CHECK(begins(eval(TAKE_ALL, "2 a v"), "-ERR the script needs more"));
    CHECK(begins(eval(releases[0], "1 a"), "-ERR the script needs more"));
    /* Further keys and arguments are not the script's business. */
    CHECK_STR(eval(releases[0], "2 1 2 v more"), ":1\n");
    CHECK_STR(ask("EXISTS 2"), ":1\n");
}

TEST(redis__selecting_scripts_work_in_database_0_only)
{
    static const char take[] =
        "redis.pcall('SELECT', tonumber(ARGV[1])) " EACH
        "if redis.call('exists', k) == 1 then return 0 end end " EACH
        "redis.call('set', k, ARGV[2], 'PX', ARGV[3]) end return #KEYS";
    static const char keep[] =
        "redis.pcall('SELECT', tonumber(ARGV[1])) " EACH
        "if redis.call('get', k) ~= ARGV[2] then return 0 end end " EACH
        "redis.call('set', k, ARGV[2], 'PX', ARGV[3]) end return #KEYS";
    static const char dropped[] =
        "redis.pcall('SELECT', tonumber(ARGV[1])) local c = 0 " EACH
        "if redis.call('get', k) == ARGV[2] then redis.pcall('del', k) c = c + 1 end end "
        "return c";
    reset();
    CHECK(begins(eval(take, "1 a 5 mine 1000"), "-ERR the script selects"));
    CHECK_STR(ask("EXISTS a"), ":0\n");
    CHECK_STR(eval(take, "2 a b 0 mine 1000"), ":2\n");
    CHECK_STR(eval(keep, "2 a b 0 mine 3000"), ":2\n");
    CHECK_STR(ask("PTTL b"), ":3000\n");
    CHECK(begins(eval(dropped, "2 a b 1 mine"), "-ERR the script selects"));
    CHECK_STR(eval(dropped, "2 a b 0 mine"), ":2\n");
}

TEST(redis__taking_scripts_say_yes_and_no_as_written)
{
    reset();
    static const char set[] =
        "return redis.call('set',KEYS[1],ARGV[1],'NX','PX',ARGV[2])";
    CHECK_STR(eval(set, "1 a v 1000"), "+OK\n");
    CHECK_STR(eval(set, "1 a v 1000"), "$-1\n");
    static const char setnx[] =
        "if redis.call('setnx',KEYS[1],ARGV[1]) == 1 then "
        "redis.call('expire',KEYS[1],ARGV[2]) return 1 else return 0 end";
    CHECK_STR(eval(setnx, "1 b v 3"), ":1\n");
    CHECK_STR(eval(setnx, "1 b v 3"), ":0\n");
    CHECK_STR(ask("PTTL b"), ":3000\n");
    static const char minus[] = "if redis.call('exists',KEYS[1]) == 1 then return -1 end "
                                "return redis.call('set',KEYS[1],ARGV[1],'PX',ARGV[2])";
    CHECK_STR(eval(minus, "1 c v 1000"), "+OK\n");
    CHECK_STR(eval(minus, "1 c v 1000"), ":-1\n");
}

TEST(redis__unknown_scripts_are_refused_and_change_nothing)
{
    reset();
    ask("SET k mine NX PX 1000");
    uint64_t before = pk_machine_digest(machine);
    CHECK(begins(eval("return redis.call('del',KEYS[1])", "1 k"),
                 "-ERR this script is not"));
    CHECK(begins(ask("SCRIPT LOAD return_1"), "-ERR this script is not"));
    CHECK_U64(pk_machine_digest(machine), before);
}

TEST(redis__digests_are_known_after_load_or_eval)
{
    static const char sha[] = "0b8313130b4653dc50a530467b588e0fae72d1cf";
    static const char again[] =
        "EVALSHA 0b8313130b4653dc50a530467b588e0fae72d1cf 1 k mine";
    static const char shout[] =
        "EVALSHA 0B8313130B4653DC50A530467B588E0FAE72D1CF 1 k mine";
    static const char release[] =
        "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) "
        "else return 0 end -- by digest";
    struct pk_bytes load[] = {pk_text("SCRIPT"), pk_text("LOAD"), pk_text(release)};
    struct pk_bytes exists[] = {pk_text("SCRIPT"), pk_text("EXISTS"), pk_text(sha),
                                pk_text("00"), pk_text(sha)};
    reset();
    CHECK(begins(ask(again), "-NOSCRIPT "));
    CHECK(begins(ask("EVALSHA zz 1 k mine"), "-NOSCRIPT "));
    CHECK_STR(ask_words(exists, 5), "*3\n:0\n:0\n:0\n");
    CHECK_STR(ask_words(load, 3), "$40\n0b8313130b4653dc50a530467b588e0fae72d1cf\n");
    CHECK_STR(ask_words(exists, 5), "*3\n:1\n:0\n:1\n");
    ask("SET k mine NX PX 1000");
    CHECK_STR(ask(again), ":1\n");
    CHECK_STR(ask(shout), ":0\n");
}

/* ---- answers ---- */

/* Whatever the machine says, and whatever was asked, some answer goes out. */
TEST(redis__every_status_has_an_answer_for_every_form)
{
    for (uint64_t form = 1; form <= 10; form++) {
        for (int status = 0; status < PK_STATUS_COUNT; status++) {
            struct pk_resp_out out = {0};
            struct pk_effect reply = {.kind = PK_REPLY,
                                      .verb = PK_KEY_TAKE,
                                      .status = (enum pk_status)status,
                                      .why = pk_text("because")};
            struct pk_command c = {.verb = PK_KEY_TAKE};
            pk_effects_reset(&effects);
            pk_effects_add(&effects, &(struct pk_effect){.kind = PK_EV_OPENED});
            pk_effects_add(&effects, &reply);
            pk_redis_answer(form, &c, &effects, &out);
            size_t used;
            CHECK(pk_resp_whole(pk_bytes(out.data, out.len), &used) == PK_RESP_ONE);
            CHECK_U64(used, out.len);
            bool no = status == PK_BUSY || status == PK_NOTHELD || status == PK_MISMATCH;
            CHECK(status == PK_OK || no || out.data[0] == '-');
            pk_resp_free(&out);
        }
    }
}
