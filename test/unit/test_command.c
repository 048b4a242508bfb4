/* SPDX-License-Identifier: MIT */
/* Every field's bounds from both sides, and the encoding: round trip, truncation, one
 * form. */
#include "core/command.h"

#include <stdlib.h>

#include "tap.h"

static char filler[PK_VALUE_CEILING + 1];
static unsigned char ids[8 * (PK_RENEW_MAX + 1)], heard[4 * (PK_RENEW_MAX + 1)];

/* A valid command of the verb with every field it has set to something. */
static struct pk_command sample(enum pk_verb verb)
{
    uint32_t fields = pk_verb_fields(verb);
    struct pk_command c = {.verb = verb, .stamp_ms = 300, .principal = pk_text("ops")};
    memset(filler, 'x', sizeof filler);
    c.lease = fields & PK_F_LEASE ? 7 : 0;
    c.request = fields & PK_F_REQUEST ? 128 : 0;
    c.target = fields & PK_F_TARGET ? 3 : 0;
    c.token = fields & PK_F_TOKEN ? 1000000 : 0;
    c.ttl_ms = fields & PK_F_TTL ? 5000 : 0;
    c.wait_ms = fields & PK_F_WAIT ? PK_WAIT_FOREVER : 0;
    c.max_hold_ms = fields & PK_F_MAX_HOLD ? 16384 : 0;
    c.lock_delay_ms = fields & PK_F_LOCK_DELAY ? 10 : 0;
    c.count = fields & PK_F_COUNT ? 10 : 0;
    c.flags = fields & PK_F_FLAGS ? PK_KEY_ANY : 0;
    c.epoch = fields & PK_F_EPOCH ? 3 : 0;
    c.name = pk_text(fields & PK_F_NAME ? "jobs/nightly" : "");
    c.label = pk_text(fields & PK_F_LABEL ? "host=h1\npid=7" : "");
    c.value = pk_text(fields & PK_F_VALUE ? "10.0.0.1:80" : "");
    c.reason = pk_text(fields & PK_F_REASON ? "stuck" : "");
    c.cursor = pk_text(fields & PK_F_CURSOR ? "jobs/a" : "");
    if (fields & PK_F_PARTS) {
        c.n_parts = 2;
        c.parts[0] = (struct pk_part){.name = pk_text("a"), .mode = PK_SHARED};
        c.parts[1] = (struct pk_part){.name = pk_text("b"), .slots = 3, .mode = PK_SLOT};
    }
    if (fields & PK_F_EXCLUSIVE) {
        c.parts[0].mode = PK_EXCLUSIVE;
        c.parts[1] = (struct pk_part){.name = pk_text("b"), .mode = PK_EXCLUSIVE};
    }
    if (fields & PK_F_VERSION) {
        c.version = 1;
    }
    if (fields & PK_F_LEASES) {
        c.leases = ids;
        c.n_leases = 2;
        pk_command_put_lease(ids, 0, 1);
        pk_command_put_lease(ids, 1, UINT64_MAX);
        c.heard = heard;
        pk_command_put_heard(heard, 0, 0);
        pk_command_put_heard(heard, 1, UINT32_MAX);
    }
    if (fields & PK_F_LIMITS) {
#define X(name, initial, ceiling, text) c.limits.name = initial;
        PK_LIMITS(X)
#undef X
    }
    return c;
}

static void check_good(const struct pk_command *c)
{
    CHECK_STR(pk_command_wrong(c), NULL);
}

static void check_bad(const struct pk_command *c)
{
    CHECK(pk_command_wrong(c) != NULL);
}

/* The field at its last good and first bad value. */
#define BOUND(verb, field, good, bad)                                                    \
    do {                                                                                 \
        struct pk_command at = sample(verb);                                             \
        at.field = (good);                                                               \
        check_good(&at);                                                                 \
        at.field = (bad);                                                                \
        check_bad(&at);                                                                  \
    } while (0)

static struct pk_bytes of_length(size_t len)
{
    return pk_bytes(filler, len);
}

TEST(command__every_sample_is_valid)
{
    for (unsigned v = 0; v < PK_VERB_COUNT; v++) {
        struct pk_command c = sample((enum pk_verb)v);
        check_good(&c);
    }
}

TEST(command__numbers_have_bounds)
{
    BOUND(PK_TICK, stamp_ms, PK_TIME_MAX, PK_TIME_MAX + 1);
    BOUND(PK_LEASE_OPEN, ttl_ms, PK_TTL_MIN_MS, PK_TTL_MIN_MS - 1);
    BOUND(PK_LEASE_OPEN, ttl_ms, PK_TTL_MAX_MS, PK_TTL_MAX_MS + 1);
    BOUND(PK_LEASE_OPEN, ttl_ms, PK_TTL_MIN_MS, 0);
    BOUND(PK_LEASE_RENEW, ttl_ms, 0, 1);
    BOUND(PK_LEASE_RENEW, ttl_ms, PK_TTL_MAX_MS, PK_TTL_MAX_MS + 1);
    BOUND(PK_FENCE_SET, ttl_ms, 0, 1);
    BOUND(PK_FENCE_SET, ttl_ms, PK_TTL_MIN_MS, PK_TTL_MIN_MS - 1);
    BOUND(PK_FENCE_SET, ttl_ms, PK_KEEP_MAX_MS, PK_KEEP_MAX_MS + 1);
    BOUND(PK_LOCK_ACQUIRE, wait_ms, PK_WAIT_MAX_MS, PK_WAIT_MAX_MS + 1);
    BOUND(PK_LOCK_ACQUIRE, wait_ms, PK_WAIT_FOREVER, PK_WAIT_FOREVER - 1);
    BOUND(PK_LOCK_ACQUIRE, max_hold_ms, PK_HOLD_MAX_MS, PK_HOLD_MAX_MS + 1);
    BOUND(PK_LOCK_ACQUIRE, lock_delay_ms, PK_DELAY_MAX_MS, PK_DELAY_MAX_MS + 1);
    BOUND(PK_LOCK_CANCEL, target, 1, 0);
    BOUND(PK_LOCK_CANCEL, target, 127, 128); /* 128 is its own id */
    BOUND(PK_LOCK_SHOW, count, 1, 0);
    BOUND(PK_LOCK_LIST, count, PK_PAGE_MAX, PK_PAGE_MAX + 1);
    BOUND(PK_LEASE_SHOW, count, PK_PAGE_MAX, PK_PAGE_MAX + 1);
    BOUND(PK_LEASE_RENEW, n_leases, 1, 0);
    BOUND(PK_LEASE_RENEW, n_leases, PK_RENEW_MAX, PK_RENEW_MAX + 1);
}

TEST(command__tokens_are_exact_in_json_and_not_zero)
{
    static const enum pk_verb verbs[] = {PK_LOCK_RELEASE, PK_LOCK_VALUE,  PK_LOCK_BREAK,
                                         PK_FENCE_CLAIM,  PK_FENCE_CHECK, PK_FENCE_SET};
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        BOUND(verbs[i], token, 1, 0);
        BOUND(verbs[i], token, PK_TOKEN_MAX, PK_TOKEN_MAX + 1);
    }
    BOUND(PK_FENCE_GET, token, 0, PK_TOKEN_MAX + 1);
    BOUND(PK_LEAP, token, 0, PK_TOKEN_MAX + 1);
    BOUND(PK_LEAP, token, PK_TOKEN_MAX, PK_TOKEN_MAX + 1);
}

TEST(command__texts_have_bounds)
{
    BOUND(PK_TICK, principal, of_length(PK_PRINCIPAL_MAX),
          of_length(PK_PRINCIPAL_MAX + 1));
    BOUND(PK_LOCK_BREAK, reason, of_length(PK_REASON_MAX), of_length(PK_REASON_MAX + 1));
    BOUND(PK_LEASE_OPEN, label, of_length(PK_LABEL_CEILING),
          of_length(PK_LABEL_CEILING + 1));
    BOUND(PK_FENCE_SET, value, of_length(PK_VALUE_CEILING),
          of_length(PK_VALUE_CEILING + 1));
    BOUND(PK_FENCE_CLAIM, name, of_length(PK_NAME_MAX), of_length(PK_NAME_MAX + 1));
    BOUND(PK_FENCE_CLAIM, name, of_length(1), of_length(0));
    BOUND(PK_LOCK_LIST, name, of_length(0), of_length(PK_NAME_MAX + 1));
    BOUND(PK_LOCK_LIST, cursor, of_length(PK_NAME_MAX), of_length(PK_NAME_MAX + 1));
    BOUND(PK_LOCK_LIST, cursor, pk_bytes("\xff\0", 2), of_length(PK_NAME_MAX + 1));
    BOUND(PK_TICK, principal, pk_text("\xc3\xa9"), pk_text("\xc3"));
    BOUND(PK_LOCK_SHOW, name, pk_text("a b"), pk_text("a\nb"));
    BOUND(PK_LOCK_LIST, name, pk_text("a/"), pk_text("\x7f"));
    BOUND(PK_LEASE_OPEN, label, pk_text("a\nb"), pk_text("a\tb"));
    BOUND(PK_LOCK_BREAK, reason, pk_text(""), pk_text("a\nb"));
    BOUND(PK_FENCE_SET, value, pk_bytes("\0\xff", 2), of_length(PK_VALUE_CEILING + 1));
}

TEST(command__parts_have_bounds)
{
    BOUND(PK_LOCK_ACQUIRE, n_parts, 1, 0);
    BOUND(PK_LOCK_ACQUIRE, parts[0].mode, PK_EXCLUSIVE, PK_MODE_NONE);
    BOUND(PK_LOCK_ACQUIRE, parts[0].slots, 0, 1);
    BOUND(PK_LOCK_ACQUIRE, parts[1].slots, 1, 0);
    BOUND(PK_LOCK_ACQUIRE, parts[1].slots, PK_SLOTS_MAX, PK_SLOTS_MAX + 1);
    BOUND(PK_LOCK_ACQUIRE, parts[1].name, of_length(PK_NAME_MAX),
          of_length(PK_NAME_MAX + 1));
    BOUND(PK_LOCK_ACQUIRE, parts[1].name, pk_text("aa"), pk_text("a"));
    struct pk_command c = sample(PK_LOCK_ACQUIRE);
    for (c.n_parts = 0; c.n_parts < PK_SET_MAX; c.n_parts++) {
        c.parts[c.n_parts] = (struct pk_part){.name = of_length(c.n_parts + (size_t)1),
                                              .mode = PK_EXCLUSIVE};
    }
    check_good(&c);
    c.n_parts = PK_SET_MAX + 1;
    check_bad(&c);
}

TEST(command__keys_are_exclusive_and_their_flags_known)
{
    static const enum pk_verb verbs[] = {PK_KEY_TAKE, PK_KEY_KEEP, PK_KEY_DROP};
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        BOUND(verbs[i], n_parts, 1, 0);
        BOUND(verbs[i], parts[1].mode, PK_EXCLUSIVE, PK_SHARED);
        BOUND(verbs[i], parts[0].mode, PK_EXCLUSIVE, PK_MODE_NONE);
        BOUND(verbs[i], parts[1].name, pk_text("aa"), pk_text("a"));
        struct pk_command c = sample(verbs[i]);
        c.parts[1].mode = PK_SLOT;
        c.parts[1].slots = 1;
        check_bad(&c);
    }
    BOUND(PK_KEY_KEEP, flags, PK_KEY_ANY | PK_KEY_ADD, 4);
    BOUND(PK_KEY_KEEP, flags, 0, UINT64_C(1) << 63);
    BOUND(PK_KEY_DROP, flags, PK_KEY_ANY, PK_KEY_ADD);
    BOUND(PK_KEY_TAKE, ttl_ms, PK_TTL_MIN_MS, PK_TTL_MIN_MS - 1);
    BOUND(PK_KEY_KEEP, ttl_ms, PK_TTL_MIN_MS, PK_TTL_MIN_MS - 1);
    struct pk_command adds = sample(PK_KEY_KEEP);
    adds.flags = PK_KEY_ADD;
    adds.ttl_ms = 0;
    check_good(&adds);
    adds.ttl_ms = PK_TTL_MAX_MS;
    check_good(&adds);
    adds.ttl_ms = PK_TTL_MAX_MS + 1;
    check_bad(&adds);
}

TEST(command__a_mode_is_shadow_or_none)
{
    BOUND(PK_FENCE_MODE, flags, PK_FENCE_SHADOW, PK_FENCE_SHADOW + 1);
    BOUND(PK_FENCE_MODE, flags, 0, UINT64_C(1) << 63);
    BOUND(PK_FENCE_MODE, name, of_length(PK_NAME_MAX), of_length(PK_NAME_MAX + 1));
    BOUND(PK_FENCE_SHOW, name, of_length(1), of_length(0));
}

TEST(command__a_show_may_name_a_request_and_a_cancel_must)
{
    BOUND(PK_LOCK_CANCEL, target, 1, 0);
    struct pk_command show = sample(PK_LEASE_SHOW);
    show.target = 0;
    check_good(&show);
    show.target = UINT64_MAX;
    check_good(&show);
}

TEST(command__limits_have_bounds)
{
#define X(name, initial, ceiling, text)                                                  \
    struct pk_command name = sample(PK_CONFIGURE);                                       \
    name.limits.name = 0; /* as it is */                                                 \
    check_good(&name);                                                                   \
    if ((uint64_t)(ceiling) < UINT32_MAX) {                                              \
        BOUND(PK_CONFIGURE, limits.name, (uint32_t)(ceiling), (uint32_t)(ceiling) + 1);  \
    }
    PK_LIMITS(X)
#undef X
}

TEST(command__no_such_verb)
{
    struct pk_command c = {.verb = PK_VERB_COUNT};
    check_bad(&c);
}

/* ---- bytes ---- */

static unsigned char *encoded(const struct pk_command *c, size_t *len)
{
    *len = pk_command_size(c);
    unsigned char *bytes = malloc(*len);
    CHECK(bytes != NULL);
    CHECK_U64(pk_command_encode(c, bytes), *len);
    return bytes;
}

TEST(command__round_trip_gives_the_same_bytes)
{
    for (unsigned v = 0; v < PK_VERB_COUNT; v++) {
        struct pk_command c = sample((enum pk_verb)v);
        struct pk_command back;
        size_t len;
        size_t again;
        unsigned char *bytes = encoded(&c, &len);
        CHECK_U64(pk_command_decode(bytes, len, &back), len);
        unsigned char *second = encoded(&back, &again);
        CHECK_U64(again, len);
        CHECK(memcmp(bytes, second, len) == 0);
        CHECK_U64(back.lease, c.lease);
        CHECK_U64(back.request, c.request);
        CHECK_U64(back.token, c.token);
        CHECK_U64(back.target, c.target);
        CHECK_U64(back.ttl_ms, c.ttl_ms);
        CHECK_U64(back.count, c.count);
        CHECK_U64(back.flags, c.flags);
        CHECK(pk_bytes_equal(back.value, c.value));
        CHECK(pk_bytes_equal(back.name, c.name));
        CHECK_U64(back.n_parts, c.n_parts);
        CHECK_U64(back.n_leases, c.n_leases);
        CHECK_U64(back.epoch, c.epoch);
        CHECK((back.heard == NULL) == (c.heard == NULL));
        free(second);
        free(bytes);
    }
}

/* Verbs are numbers on the wire and in journals: new ones go to the end. */
TEST(command__verbs_keep_their_numbers)
{
    CHECK_U64(PK_LEAP, 2);
    CHECK_U64(PK_LEASE_SHOW, 6);
    CHECK_U64(PK_FENCE_GET, 17);
    CHECK_U64(PK_KEY_TAKE, 18);
    CHECK_U64(PK_KEY_KEEP, 19);
    CHECK_U64(PK_KEY_DROP, 20);
    CHECK_U64(PK_FENCE_MODE, 21);
    CHECK_U64(PK_FENCE_SHOW, 22);
    CHECK_U64(PK_SET_VERSION, 23);
}

/* The flags stand between the other integers and the strings, as command.h says. */
TEST(command__a_keep_in_bytes)
{
    static const unsigned char want[] = {PK_KEY_KEEP, 5, 0,   100,          3, 1, 'v',
                                         1,           1, 'k', PK_EXCLUSIVE, 0};
    struct pk_command c = {.verb = PK_KEY_KEEP,
                           .stamp_ms = 5,
                           .ttl_ms = 100,
                           .flags = PK_KEY_ANY | PK_KEY_ADD,
                           .value = pk_text("v"),
                           .n_parts = 1};
    c.parts[0] = (struct pk_part){.name = pk_text("k"), .mode = PK_EXCLUSIVE};
    size_t len;
    unsigned char *bytes = encoded(&c, &len);
    CHECK_U64(len, sizeof want);
    CHECK(memcmp(bytes, want, len) == 0);
    free(bytes);
}

TEST(command__cut_at_every_byte_is_refused)
{
    for (unsigned v = 0; v < PK_VERB_COUNT; v++) {
        struct pk_command c = sample((enum pk_verb)v);
        struct pk_command back;
        size_t len;
        unsigned char *bytes = encoded(&c, &len);
        for (size_t cut = 0; cut < len; cut++) {
            unsigned char *part =
                malloc(cut + 1); /* a block of its own, for sanitizers */
            CHECK(part != NULL);
            memcpy(part, bytes, cut);
            CHECK_U64(pk_command_decode(part, cut, &back), 0);
            free(part);
        }
        free(bytes);
    }
}

TEST(command__bytes_behind_it_are_left_alone)
{
    struct pk_command c = sample(PK_LOCK_RELEASE);
    struct pk_command back;
    unsigned char bytes[256];
    size_t len = pk_command_encode(&c, bytes);
    memset(bytes + len, 0xff, sizeof bytes - len);
    CHECK_U64(pk_command_decode(bytes, sizeof bytes, &back), len);
}

TEST(command__an_integer_has_one_form)
{
    struct pk_command back;
    static const unsigned char good[] = {PK_TICK, 0x81, 0x01, 0};
    static const unsigned char padded[] = {PK_TICK, 0x81, 0x81, 0x00, 0};
    static const unsigned char overlong[] = {PK_TICK, 0xff, 0xff, 0xff, 0xff, 0xff,
                                             0xff,    0xff, 0xff, 0xff, 0x02, 0};
    static const unsigned char largest[] = {PK_TICK, 0xff, 0xff, 0xff, 0xff, 0xff,
                                            0xff,    0xff, 0xff, 0xff, 0x01, 0};
    CHECK_U64(pk_command_decode(good, sizeof good, &back), sizeof good);
    CHECK_U64(back.stamp_ms, 129);
    CHECK_U64(pk_command_decode(padded, sizeof padded, &back), 0);
    CHECK_U64(pk_command_decode(overlong, sizeof overlong, &back), 0);
    CHECK_U64(pk_command_decode(largest, sizeof largest, &back), sizeof largest);
    CHECK_U64(back.stamp_ms, UINT64_MAX);
}

TEST(command__unknown_verbs_and_modes_do_not_decode)
{
    struct pk_command back;
    unsigned char verb[] = {PK_VERB_COUNT, 0, 0};
    CHECK_U64(pk_command_decode(verb, sizeof verb, &back), 0);
    struct pk_command c = sample(PK_LOCK_ACQUIRE);
    c.parts[0].mode = (enum pk_mode)(PK_SLOT + 1);
    size_t len;
    unsigned char *bytes = encoded(&c, &len);
    CHECK_U64(pk_command_decode(bytes, len, &back), 0);
    free(bytes);
}
