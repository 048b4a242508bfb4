/* SPDX-License-Identifier: MIT */
#include "proto/proto.h"

#include <stdio.h>
#include <stdlib.h>

#include "chance.h"
#include "tap.h"

/* ---- requests ---- */

static struct pk_proto_scratch scratch;
static struct pk_bytes args[PK_RESP_ARGS_MAX];

/* The words of what was written. */
static uint32_t words_of(const struct pk_resp_out *o)
{
    uint32_t n;
    size_t used;
    const char *why;
    CHECK(pk_resp_request(pk_bytes(o->data, o->len), args, &n, &used, &why) ==
          PK_RESP_ONE);
    CHECK_U64(used, o->len);
    return n;
}

/* Reads one typed line; *why borrows from the scratch. */
static enum pk_proto_got typed(const char *line, struct pk_command *c, const char **why)
{
    static char text[PK_RESP_INLINE_MAX];
    uint32_t n;
    size_t used;
    int len = snprintf(text, sizeof text, "%s\n", line);
    CHECK(pk_resp_request(pk_bytes(text, (size_t)len), args, &n, &used, why) ==
          PK_RESP_ONE);
    memset(&scratch, 0xaa, sizeof scratch);
    memset(c, 0xaa, sizeof *c);
    return pk_proto_read_command(args, n, &scratch, c, why);
}

static struct pk_command command_typed(const char *line)
{
    struct pk_command c;
    const char *why;
    enum pk_proto_got got = typed(line, &c, &why);
    if (got != PK_PROTO_COMMAND) {
        printf("# %s: %s\n", line, why == NULL ? "?" : why);
    }
    CHECK(got == PK_PROTO_COMMAND && why == NULL);
    return c;
}

/* The machine's own bytes say all that counts of a command; TARGET of a SHOW aside. */
static bool same_command(const struct pk_command *a, const struct pk_command *b)
{
    size_t len = pk_command_size(a);
    if (len != pk_command_size(b) || a->target != b->target) {
        return false;
    }
    unsigned char *both = malloc(2 * len);
    CHECK(both != NULL);
    pk_command_encode(a, both);
    pk_command_encode(b, both + len);
    bool same = memcmp(both, both + len, len) == 0;
    free(both);
    return same;
}

static bool same_typed(const char *a, const char *b)
{
    static char kept[PK_RESP_INLINE_MAX];
    struct pk_command first = command_typed(a);
    unsigned char leases[64];
    memcpy(leases, scratch.leases, sizeof leases);
    first.leases = leases;
    /* The texts borrow from the line; the encoding is kept instead. */
    size_t len = pk_command_encode(&first, (unsigned char *)kept);
    struct pk_command again, second = command_typed(b);
    CHECK(pk_command_decode((unsigned char *)kept, len, &again) == len);
    return same_command(&again, &second);
}

static void fill_parts(struct pk_command *c)
{
    c->n_parts = 1 + (uint32_t)below(PK_SET_MAX);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        enum pk_mode mode = (enum pk_mode)(PK_EXCLUSIVE + below(3));
        c->parts[i] = (struct pk_part){
            .name = some_text(printable, PRINTABLE, 12),
            .mode = mode,
            .slots = mode == PK_SLOT ? 1 + (uint32_t)some_number(PK_SLOTS_MAX - 1) : 0};
    }
}

/* Every field of the verb's mask at random; some are not valid, which the caller sees to.
 */
static struct pk_command some_command(enum pk_verb verb)
{
    static unsigned char leases[8 * PK_RENEW_MAX], heard[4 * PK_RENEW_MAX];
    uint32_t mask = pk_verb_fields(verb);
    struct pk_command c = {.verb = verb};
#define NUMBER(bit, member, most) c.member = mask & (bit) ? some_number(most) : 0
    NUMBER(PK_F_LEASE, lease, UINT64_MAX);
    NUMBER(PK_F_REQUEST, request, UINT64_MAX);
    NUMBER(PK_F_TARGET, target, UINT64_MAX);
    NUMBER(PK_F_TOKEN, token, PK_TOKEN_MAX);
    NUMBER(PK_F_TTL, ttl_ms, PK_TTL_MAX_MS);
    NUMBER(PK_F_WAIT, wait_ms, below(3) == 0 ? UINT64_MAX : PK_WAIT_MAX_MS);
    NUMBER(PK_F_MAX_HOLD, max_hold_ms, PK_HOLD_MAX_MS);
    NUMBER(PK_F_LOCK_DELAY, lock_delay_ms, PK_DELAY_MAX_MS);
    NUMBER(PK_F_COUNT, count, PK_PAGE_MAX);
    NUMBER(PK_F_FLAGS, flags, PK_FENCE_SHADOW);
    NUMBER(PK_F_EPOCH, epoch, UINT64_MAX);
#undef NUMBER
    c.name = mask & PK_F_NAME ? some_text(printable, PRINTABLE, 12) : c.name;
    c.label = mask & PK_F_LABEL ? some_text(printable, PRINTABLE, 12) : c.label;
    c.reason = mask & PK_F_REASON ? some_text(printable, PRINTABLE, 12) : c.reason;
    c.cursor = mask & PK_F_CURSOR ? some_text(hostile, HOSTILE, 12) : c.cursor;
    c.value = mask & PK_F_VALUE ? some_text(hostile, HOSTILE, 30) : c.value;
    if (verb == PK_LOCK_BREAK) {
        c.principal = some_text(printable, PRINTABLE, 3);
    }
    if (verb == PK_LEASE_SHOW && below(2) == 0) {
        c.target = some_number(UINT64_MAX);
    }
    if (mask & PK_F_PARTS) {
        fill_parts(&c);
    }
    if (mask & PK_F_LEASES) {
        c.n_leases = (uint32_t)some_number(below(20) == 0 ? PK_RENEW_MAX : 4);
        c.leases = leases;
        for (uint32_t i = 0; i < c.n_leases; i++) {
            pk_command_put_lease(leases, i, some_number(UINT64_MAX));
            pk_command_put_heard(heard, i, (uint32_t)some_number(UINT32_MAX));
        }
        c.heard = below(2) == 0 ? heard : NULL;
    }
    return c;
}

static bool is_native(enum pk_verb v)
{
    static const char *const nouns[] = {"LEASE ", "LOCK ", "FENCE "};
    for (size_t i = 0; i < sizeof nouns / sizeof nouns[0]; i++) {
        if (strncmp(pk_verb_name(v), nouns[i], strlen(nouns[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* What is written is read back as the same command, for every verb of the protocol. */
TEST(proto__a_command_survives_the_way_over_the_wire)
{
    struct pk_resp_out o = {0};
    unsigned verbs = 0;
    for (enum pk_verb v = 0; v < PK_VERB_COUNT; v++) {
        unsigned valid = 0;
        for (state = v; is_native(v) && valid < 500; rewind_texts()) {
            struct pk_command c = some_command(v), back;
            const char *why;
            if (pk_command_wrong(&c) != NULL) {
                continue;
            }
            valid++;
            o.len = 0;
            pk_proto_write_command(&o, &c);
            CHECK(pk_proto_read_command(args, words_of(&o), &scratch, &back, &why) ==
                  PK_PROTO_COMMAND);
            CHECK(same_command(&c, &back));
        }
        verbs += valid > 0 ? 1 : 0;
    }
    CHECK_U64(verbs, 17);
    pk_resp_free(&o);
}

TEST(proto__words_become_the_fields_they_name)
{
    struct pk_command c =
        command_typed("lock Acquire 7 db/1 wait 500 AND b MODE shared and c SLOTS 3 "
                      "REQUEST 9 maxhold 60000 DELAY 10 VALUE here");
    CHECK(c.verb == PK_LOCK_ACQUIRE);
    CHECK_U64(c.lease, 7);
    CHECK_U64(c.request, 9);
    CHECK_U64(c.wait_ms, 500);
    CHECK_U64(c.max_hold_ms, 60000);
    CHECK_U64(c.lock_delay_ms, 10);
    CHECK(pk_bytes_equal(c.value, pk_text("here")));
    CHECK_U64(c.n_parts, 3);
    CHECK(pk_bytes_equal(c.parts[0].name, pk_text("db/1")));
    CHECK(c.parts[0].mode == PK_EXCLUSIVE && c.parts[0].slots == 0);
    CHECK(pk_bytes_equal(c.parts[1].name, pk_text("b")));
    CHECK(c.parts[1].mode == PK_SHARED && c.parts[1].slots == 0);
    CHECK(c.parts[2].mode == PK_SLOT && c.parts[2].slots == 3);
    c = command_typed("LEASE RENEW 3 1 2 TTL 700");
    CHECK(c.verb == PK_LEASE_RENEW && c.n_leases == 3 && c.ttl_ms == 700);
    CHECK_U64(pk_command_lease_at(&c, 0), 3);
    CHECK_U64(pk_command_lease_at(&c, 2), 2);
    c = command_typed("LOCK BREAK a 5 REASON stuck BY ops");
    CHECK(pk_bytes_equal(c.reason, pk_text("stuck")));
    CHECK(pk_bytes_equal(c.principal, pk_text("ops")));
    c = command_typed("LOCK LIST PREFIX jobs/ AFTER jobs/7 COUNT 5");
    CHECK(pk_bytes_equal(c.name, pk_text("jobs/")));
    CHECK(pk_bytes_equal(c.cursor, pk_text("jobs/7")));
    CHECK_U64(command_typed("LEASE SHOW 4 TARGET 8").target, 8);
    c = command_typed("fence mode disk Shadow 4");
    CHECK(c.verb == PK_FENCE_MODE && c.flags == PK_FENCE_SHADOW && c.epoch == 4);
    CHECK(pk_bytes_equal(c.name, pk_text("disk")));
    CHECK_U64(command_typed("FENCE MODE disk ENFORCE 1").flags, 0);
    c = command_typed("lease renew 3 4 heard 0 4294967295 TTL 700");
    CHECK(c.n_leases == 2 && c.ttl_ms == 700 && c.heard != NULL);
    CHECK(pk_command_heard_at(&c, 0) == 0 && pk_command_heard_at(&c, 1) == UINT32_MAX);
    CHECK(command_typed("LEASE RENEW 3 4").heard == NULL);
    CHECK(command_typed("FENCE SHOW disk").verb == PK_FENCE_SHOW);
    c = command_typed("fence set note 3 done keep 60000 REQUEST 4");
    CHECK(c.verb == PK_FENCE_SET && c.ttl_ms == 60000 && c.request == 4);
}

TEST(proto__what_is_not_said_has_its_default)
{
    CHECK(command_typed("LOCK ACQUIRE 1 a").wait_ms == PK_WAIT_FOREVER);
    CHECK_U64(command_typed("LOCK TRY 1 a").wait_ms, 0);
    CHECK_U64(command_typed("LOCK SHOW a").count, PK_PROTO_ROWS);
    CHECK_U64(command_typed("LOCK LIST").count, PK_PROTO_ROWS);
    CHECK_U64(command_typed("LEASE SHOW 1").count, PK_PROTO_ROWS);
    CHECK_U64(command_typed("LEASE RENEW 1").ttl_ms, 0);
    CHECK_U64(command_typed("FENCE GET a").token, 0);
    CHECK_U64(command_typed("FENCE SET a 1 v").ttl_ms, 0);
}

/* Several ways to say the same. */
TEST(proto__an_election_is_a_lock_with_a_value)
{
    CHECK(same_typed("ELECT CAMPAIGN 1 boss here REQUEST 2 WAIT 5",
                     "LOCK ACQUIRE 1 boss VALUE here REQUEST 2 WAIT 5"));
    CHECK(same_typed("ELECT CAMPAIGN 1 boss here", "LOCK ACQUIRE 1 boss VALUE here"));
    CHECK(same_typed("ELECT PROCLAIM 1 boss 3 there", "LOCK VALUE 1 boss 3 there"));
    CHECK(
        same_typed("ELECT RESIGN 1 boss 3 REQUEST 4", "LOCK RELEASE 1 boss 3 REQUEST 4"));
    CHECK(same_typed("ELECT LEADER boss", "LOCK SHOW boss COUNT 1"));
    CHECK(same_typed("LOCK TRY 1 a", "LOCK ACQUIRE 1 a WAIT 0"));
    CHECK(same_typed("LOCK TRY 1 a SLOTS 3", "LOCK TRY 1 a MODE slot SLOTS 3"));
    CHECK(same_typed("LOCK TRY 1 a SLOTS 3", "LOCK TRY 1 a SLOTS 3 MODE SLOT"));
    CHECK(!same_typed("LOCK TRY 1 a", "LOCK TRY 1 b"));
}

TEST(proto__wrong_words_are_told_how_they_are_right)
{
    static const struct {
        const char *line, *why;
    } cases[] = {
        {"LEASE OPEN", "LEASE OPEN wants a ttl: "
                       "LEASE OPEN ttl-ms [LABEL text] [REQUEST id]"},
        {"LOCK RELEASE 1 a", "LOCK RELEASE wants a lease, a name and a token: "
                             "LOCK RELEASE lease name token [REQUEST id]"},
        {"LEASE CLOSE 1 2", "LEASE CLOSE has no option 2: LEASE CLOSE lease"},
        {"LOCK SHOW a COUNT",
         "LOCK SHOW wants something behind COUNT: LOCK SHOW name [COUNT n]"},
        {"LOCK SHOW a COUNT 1 count 2",
         "LOCK SHOW has COUNT twice: LOCK SHOW name [COUNT n]"},
        {"FENCE GET a T\xc3\xb6ken 1",
         "FENCE GET has no option T??ken: FENCE GET resource [TOKEN token]"},
        {"FENCE MODE a shadow", "FENCE MODE wants a resource, a mode and an epoch: "
                                "FENCE MODE resource shadow|enforce epoch"},
        {"LEASE RENEW",
         "LEASE RENEW wants a lease: "
         "LEASE RENEW lease [lease ...] [TTL ms] [HEARD event [event ...]]"},
        {"LEASE RENEW 1 x",
         "LEASE RENEW has no option x: "
         "LEASE RENEW lease [lease ...] [TTL ms] [HEARD event [event ...]]"},
        {"ELECT LEADER a 0123456789012345678901234567890123456789",
         "ELECT LEADER has no option 01234567890123456789012345678901: "
         "ELECT LEADER name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pk_command c;
        const char *why;
        CHECK(typed(cases[i].line, &c, &why) == PK_PROTO_WRONG);
        CHECK_STR(why, cases[i].why);
    }
}

TEST(proto__an_option_is_said_once_for_each_lock)
{
    struct pk_command c;
    const char *why;
    CHECK(typed("LOCK TRY 1 a MODE shared MODE shared", &c, &why) == PK_PROTO_WRONG);
    CHECK(typed("LOCK TRY 1 a SLOTS 1 SLOTS 1", &c, &why) == PK_PROTO_WRONG);
    CHECK(typed("LOCK TRY 1 a VALUE v AND b VALUE v", &c, &why) == PK_PROTO_WRONG);
    CHECK(typed("LOCK TRY 1 a WAIT 5", &c, &why) == PK_PROTO_WRONG);
    CHECK(typed("LOCK TRY 1 a MODE shared AND b MODE shared", &c, &why) ==
          PK_PROTO_COMMAND);
}

TEST(proto__values_out_of_bounds_are_bad_arguments)
{
    static const struct {
        const char *line, *why;
    } cases[] = {
        {"LEASE OPEN x", "the ttl must be a whole number from 0 to 18446744073709551615"},
        {"LEASE RENEW -1",
         "the lease must be a whole number from 0 to 18446744073709551615"},
        {"LOCK TRY 1 a REQUEST 18446744073709551616",
         "the request must be a whole number from 0 to 18446744073709551615"},
        {"LEASE OPEN 49", "the TTL must be between 50 ms and 24 h"},
        {"LOCK ACQUIRE 1 a WAIT soon",
         "the wait must be a number of milliseconds, or forever"},
        {"LOCK ACQUIRE 1 a MODE none", "the mode must be exclusive, shared or slot"},
        {"FENCE MODE a shared 0", "the mode must be shadow or enforce"},
        {"LEASE RENEW 1 2 HEARD 1",
         "HEARD wants a number from 0 to 4294967295 for each lease"},
        {"LEASE RENEW 1 HEARD 4294967296",
         "HEARD wants a number from 0 to 4294967295 for each lease"},
        {"LEASE RENEW 1 2 HEARD 1 TTL",
         "HEARD wants a number from 0 to 4294967295 for each lease"},
        {"LOCK ACQUIRE 1 a MODE slot",
         "slots must be 1 to 1000000, and only for a semaphore"},
        {"LOCK ACQUIRE 1 a SLOTS 4294967297",
         "slots must be 1 to 1000000, and only for a semaphore"},
        {"LOCK ACQUIRE 1 a SLOTS 3 MODE shared",
         "slots must be 1 to 1000000, and only for a semaphore"},
        {"LOCK ACQUIRE 1 a MODE shared SLOTS 3",
         "slots must be 1 to 1000000, and only for a semaphore"},
        {"LOCK TRY 1 a AND b AND a", "a set names the same lock twice"},
        {"LOCK RELEASE 1 a 0", "a token must be a number from 1 to 9007199254740991"},
        {"LOCK TRY 1 1 AND 2 AND 3 AND 4 AND 5 AND 6 AND 7 AND 8 AND 9 AND 10 AND 11 "
         "AND 12 AND 13 AND 14 AND 15 AND 16 AND 17",
         "a set must name 1 to 16 locks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pk_command c;
        const char *why;
        CHECK(typed(cases[i].line, &c, &why) == PK_PROTO_BADARG);
        CHECK_STR(why, cases[i].why);
    }
}

/* As many leases as one renewal takes; one more is told so. */
TEST(proto__a_renewal_names_at_most_4096_leases)
{
    struct pk_command c;
    const char *why;
    args[0] = pk_text("LEASE");
    args[1] = pk_text("RENEW");
    for (uint32_t i = 0; i <= PK_RENEW_MAX; i++) {
        args[2 + i] = pk_text("18446744073709551615");
    }
    CHECK(pk_proto_read_command(args, 2 + PK_RENEW_MAX, &scratch, &c, &why) ==
          PK_PROTO_COMMAND);
    CHECK_U64(c.n_leases, PK_RENEW_MAX);
    memset(&scratch, 0xaa, sizeof scratch);
    CHECK(pk_proto_read_command(args, 3 + PK_RENEW_MAX, &scratch, &c, &why) ==
          PK_PROTO_BADARG);
    CHECK_STR(why, "a renewal must name 1 to 4096 leases");
    CHECK(2 + 2 * PK_RENEW_MAX + 3 <= PK_RESP_ARGS_MAX); /* with HEARD, and a TTL */
    /* Nothing is written behind the room for the ids. */
    CHECK(scratch.heard[0] == 0xaa && (unsigned char)scratch.why[0] == 0xaa);
}

TEST(proto__other_words_are_left_to_others)
{
    static const char *const lines[] = {
        "",
        "PING",
        "LOCK",
        "LEASE",
        "LOCK WATCH a",
        "LOCK TOKEN k",
        "KEY TAKE a b",
        "CLUSTER CONFIGURE leases 1",
        "LOCKS SHOW a",
        "LOC SHOW a",
        "LOCK SHO a",
        "CONFIGURE",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct pk_command c;
        const char *why;
        CHECK(typed(lines[i], &c, &why) == PK_PROTO_OTHER);
    }
}

static const char *text_of(const struct pk_resp_out *o)
{
    static char text[2048];
    CHECK(o->len < sizeof text);
    memcpy(text, o->data, o->len);
    text[o->len] = '\0';
    return text;
}

TEST(proto__usage_is_known_for_each_beginning)
{
    struct pk_bytes words[] = {PIECE("lock"), PIECE("show"), PIECE("x")};
    CHECK_STR(pk_proto_usage(words, 3), "LOCK SHOW name [COUNT n]");
    CHECK(strncmp(pk_proto_usage(words, 1), "LOCK ACQUIRE|TRY|", 17) == 0);
    CHECK(pk_proto_usage(words + 1, 2) == NULL);
    CHECK(pk_proto_usage(words, 0) == NULL);
    struct pk_resp_out o = {0};
    pk_proto_write_unknown(&o, words + 1, 2);
    words[1] = pk_text("s\r\nx");
    pk_proto_write_unknown(&o, words, 2);
    CHECK_STR(text_of(&o),
              "-ERR unknown command 'show'\r\n"
              "-ERR unknown command 'lock s??x': LOCK ACQUIRE|TRY|CANCEL|RELEASE|VALUE|"
              "BREAK|SHOW|LIST|WATCH|UNWATCH|TOKEN ...\r\n");
    pk_resp_free(&o);
}

/* Each usage line begins with the words that it explains, and no sentence is cut. */
TEST(proto__every_usage_line_fits_its_command)
{
    struct pk_command c;
    const char *line, *why;
    uint32_t i = 0;
    for (; (line = pk_proto_usage_line(i)) != NULL; i++) {
        char wrong[PK_PROTO_WHY_MAX];
        char noun[16], verb[16];
        CHECK(sscanf(line, "%15s %15s", noun, verb) == 2);
        snprintf(wrong, sizeof wrong,
                 "%s %s 1 %s 1 1 "
                 "OPTION_OF_MORE_THAN_THIRTY_TWO_LETTERS 1",
                 noun, verb, strcmp(verb, "MODE") == 0 ? "shadow" : "1");
        CHECK(typed(wrong, &c, &why) == PK_PROTO_WRONG);
        size_t tail = strlen(why) - strlen(line);
        CHECK_STR(why + tail, line);
        struct pk_bytes first = pk_text(noun);
        CHECK(strstr(pk_proto_usage(&first, 1), verb) != NULL);
    }
    CHECK_U64(i, 22);
}

TEST(proto__a_wrong_request_is_answered_as_such)
{
    struct pk_resp_out o = {0};
    pk_proto_write_wrong(&o, PK_PROTO_WRONG, "LEASE OPEN wants a ttl");
    pk_proto_write_wrong(&o, PK_PROTO_BADARG, "the name is empty");
    CHECK_STR(text_of(&o), "-ERR LEASE OPEN wants a ttl\r\n"
                           "-BADARG the name is empty\r\n");
    pk_resp_free(&o);
}

/* ---- limits ---- */

TEST(proto__limits_are_read_over_those_there_are)
{
    struct pk_limits l = pk_limits_default();
    struct pk_bytes pairs[] = {PIECE("Leases"), PIECE("5"), PIECE("ended"), PIECE("6")};
    CHECK(pk_proto_read_limits(pairs, 4, &l) == NULL);
    CHECK_U64(l.leases, 5);
    CHECK_U64(l.ended, 6);
    CHECK_U64(l.locks, pk_limits_default().locks);
    static const char *const wrong[][2] = {{"leases", "0"},
                                           {"leases", "x"},
                                           {"set_locks", "17"},
                                           {"leases", "4294967297"},
                                           {"lease", "1"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        pairs[2] = pk_text(wrong[i][0]);
        pairs[3] = pk_text(wrong[i][1]);
        pairs[1] = pk_text("7");
        CHECK(pk_proto_read_limits(pairs, 4, &l) != NULL);
        CHECK_U64(l.leases, 5);
    }
    CHECK(pk_proto_read_limits(pairs, 1, &l) != NULL);
    CHECK(pk_proto_read_limits(pairs, 0, &l) != NULL);
    /* Over nothing: a change, in which all others are 0. */
    struct pk_limits change = {0};
    CHECK(pk_proto_read_limits(pairs, 2, &change) == NULL);
    CHECK_U64(change.leases, 7);
    change.leases = 0;
    CHECK(memcmp(&change, &(struct pk_limits){0}, sizeof change) == 0);
}

TEST(proto__limits_are_written_as_pairs_that_can_be_read)
{
    struct pk_limits from = pk_limits_default(), to = pk_limits_default();
    struct pk_resp_out o = {0};
    from.leases = 77;
    from.ended = 88;
    pk_proto_write_limits(&o, &from);
    struct pk_resp_cursor c = {.rest = pk_bytes(o.data, o.len)};
    struct pk_resp_value map = pk_resp_next(&c);
    for (uint32_t i = 0; i < map.n; i += 2) {
        char digits[PK_RESP_DIGITS_MAX];
        struct pk_bytes pair[2] = {pk_resp_next(&c).bytes};
        uint64_t v = (uint64_t)pk_resp_next(&c).number;
        pair[1] = pk_bytes(digits, pk_resp_digits(digits, v));
        CHECK(!c.bad && pk_proto_read_limits(pair, 2, &to) == NULL);
    }
    CHECK(memcmp(&from, &to, sizeof from) == 0);
    pk_resp_free(&o);
}
