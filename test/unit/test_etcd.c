/* SPDX-License-Identifier: MIT */
/* etcd's messages, byte by byte. What a real etcd makes of them is for the conformance
 * suite. */
#include "drivers/etcd.h"

#include "tap.h"

static void check_bytes(struct pk_pb_out *o, const char *bytes, size_t len)
{
    CHECK_U64(o->len, len);
    CHECK(memcmp(o->data, bytes, len) == 0);
    pk_pb_free(o);
}

#define CHECK_BYTES(o, text) check_bytes(o, (text), sizeof(text) - 1)

TEST(etcd__numbers_take_as_many_bytes_as_they_need)
{
    struct pk_pb_out o = {0};
    pk_pb_uint(&o, 1, 0);
    pk_pb_uint(&o, 2, 300);
    pk_pb_uint(&o, 64, UINT64_MAX);
    CHECK_BYTES(&o, "\x08\x00"
                    "\x10\xac\x02"
                    "\x80\x04\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
}

TEST(etcd__messages_nest)
{
    struct pk_pb_out o = {0};
    char long_text[200];
    memset(long_text, 'x', sizeof long_text);
    size_t outer = pk_pb_begin(&o, 1);
    size_t inner = pk_pb_begin(&o, 2);
    pk_pb_bytes(&o, 3, pk_bytes(long_text, sizeof long_text));
    pk_pb_end(&o, inner);
    pk_pb_end(&o, outer);
    struct pk_pb_in in = pk_pb_read(pk_bytes(o.data, o.len));
    struct pk_pb_field f;
    CHECK(pk_pb_next(&in, &f) && f.number == 1);
    CHECK(in.rest.len == 0);
    in = pk_pb_read(f.bytes);
    CHECK(pk_pb_next(&in, &f) && f.number == 2);
    in = pk_pb_read(f.bytes);
    CHECK(pk_pb_next(&in, &f) && f.number == 3);
    CHECK(pk_bytes_equal(f.bytes, pk_bytes(long_text, sizeof long_text)));
    pk_pb_free(&o);
}

TEST(etcd__a_claim_is_created_if_it_is_not_there)
{
    struct pk_pb_out o = {0};
    pk_etcd_if_created(&o, pk_text("k"), pk_bytes(NULL, 0), 0);
    pk_etcd_op_write(
        &o, PK_ETCD_THEN,
        &(struct pk_etcd_write){.key = pk_text("k"), .value = pk_text("v"), .lease = 7});
    pk_etcd_op_find(&o, PK_ETCD_ELSE,
                    &(struct pk_etcd_find){.key = pk_text("a"),
                                           .end = pk_text("b"),
                                           .limit = 1,
                                           .order = PK_ETCD_NEWEST,
                                           .max_create = 9,
                                           .keys_only = true});
    CHECK_BYTES(&o, "\x0a\x07\x10\x01\x1a\x01k\x28\x00"
                    "\x12\x0a\x12\x08\x0a\x01k\x12\x01v\x18\x07"
                    "\x1a\x12\x0a\x10\x0a\x01"
                    "a\x12\x01"
                    "b\x18\x01\x28\x02\x30\x02\x40\x01\x68\x09");
}

TEST(etcd__a_watch_has_its_number_and_its_beginning)
{
    struct pk_pb_out o = {0};
    pk_etcd_put_watch(
        &o, &(struct pk_etcd_watching){
                .key = pk_text("k"), .from = 5, .id = 3, .deletions_only = true});
    CHECK_BYTES(&o, "\x0a\x09\x0a\x01k\x18\x05\x28\x00\x38\x03");
    pk_etcd_put_unwatch(&o, 3);
    CHECK_BYTES(&o, "\x12\x02\x08\x03");
    pk_etcd_put_progress(&o);
    CHECK_BYTES(&o, "\x1a\x00");
}

/* What a real one has answered: created 5 and deleted 6 within one message. */
static const char seen_bytes[] = "\x0a\x04\x18\x06\x20\x02"
                                 "\x10\x03"
                                 "\x5a\x0a\x12\x08\x0a\x01k\x10\x05\x2a\x01v"
                                 "\x5a\x09\x08\x01\x12\x05\x0a\x01k\x18\x06";

TEST(etcd__events_are_read_in_order)
{
    struct pk_etcd_seen seen;
    struct pk_etcd_event event;
    CHECK(pk_etcd_read_seen(pk_bytes(seen_bytes, sizeof seen_bytes - 1), &seen));
    CHECK_U64(seen.header.revision, 6);
    CHECK_U64(seen.header.term, 2);
    CHECK_U64(seen.id, 3);
    CHECK(!seen.created && !seen.cancelled);
    CHECK(pk_etcd_next_event(&seen.events, &event));
    CHECK(!event.deleted && event.kv.created == 5);
    CHECK(pk_bytes_equal(event.kv.value, pk_text("v")));
    CHECK(pk_etcd_next_event(&seen.events, &event));
    CHECK(event.deleted && event.kv.modified == 6);
    CHECK(pk_bytes_equal(event.kv.key, pk_text("k")));
    CHECK(!pk_etcd_next_event(&seen.events, &event));
}

/* A message that ends within a field is refused, as a whole. */
TEST(etcd__what_is_cut_off_is_refused)
{
    struct pk_etcd_seen seen;
    for (size_t len = 0; len < sizeof seen_bytes - 1; len++) {
        bool between = len == 0 || len == 6 || len == 8 || len == 20;
        CHECK(pk_etcd_read_seen(pk_bytes(seen_bytes, len), &seen) == between);
    }
}

TEST(etcd__what_is_unknown_is_skipped)
{
    static const char lease[] = "\x10\x07" /* its id */
                                "\x9a\x06\x01x"
                                "\x99\x06"
                                "12345678"
                                "\x9d\x06"
                                "1234"
                                "\x18\x0a";
    struct pk_etcd_lease out;
    CHECK(pk_etcd_read_lease(pk_bytes(lease, sizeof lease - 1), &out));
    CHECK_U64(out.id, 7);
    CHECK(out.ttl_s == 10);
}

TEST(etcd__nonsense_is_refused)
{
    static const struct {
        const char *bytes;
        size_t len;
    } bad[] = {
        {"\x00\x00", 2},                                       /* no field 0 */
        {"\x0b", 1},                                           /* a group */
        {"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11},  /* over 64 bits */
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x", 12}, /* longer than all */
        {"\x0a\x02\x10", 3},                                   /* shorter than said */
        {"\x0a\x01\x80", 3},                                   /* bad within */
    };
    struct pk_etcd_lease out;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(!pk_etcd_read_lease(pk_bytes(bad[i].bytes, bad[i].len), &out));
    }
}

TEST(etcd__keys_are_told_apart)
{
    struct pk_etcd e = {.prefix = "picket"};
    char key[PK_ETCD_KEY_MAX], end[PK_ETCD_KEY_MAX], name[PK_NAME_MAX + 1];
    enum pk_mode mode;
    pk_etcd_key_lock(&e, "a/b", key);
    CHECK_STR(key, "picket/a%2Fb/");
    pk_etcd_key_end(key, end);
    CHECK_STR(end, "picket/a%2Fb0");
    CHECK(pk_etcd_key_read(&e, pk_text("picket/a%2Fb/7f-1"), name, &mode));
    CHECK_STR(name, "a/b");
    CHECK(mode == PK_EXCLUSIVE);
    CHECK(pk_etcd_key_read(&e, pk_text("picket/db/~7f-1"), name, &mode));
    CHECK(mode == PK_SHARED);
    /* As `etcdctl lock picket/db` has it. */
    CHECK(pk_etcd_key_read(&e, pk_text("picket/db/694d7f3ab4a1e6f1"), name, &mode));
    CHECK(mode == PK_EXCLUSIVE);
    CHECK(!pk_etcd_key_read(&e, pk_text("picket/%note/7f"), name, &mode));
    CHECK(!pk_etcd_key_read(&e, pk_text("picket/%left/7f-1"), name, &mode));
    CHECK(!pk_etcd_key_read(&e, pk_text("picket/db"), name, &mode));
    CHECK(!pk_etcd_key_read(&e, pk_text("picket/"), name, &mode));
    CHECK(!pk_etcd_key_read(&e, pk_text("other/db/7f"), name, &mode));
}

TEST(etcd__notes_say_why)
{
    char by[PK_PRINCIPAL_MAX + 1], why[PK_REASON_MAX + 1];
    CHECK(pk_etcd_note_read(pk_text("broken\nroot@vm\nenough\n"), by, why) ==
          PK_END_BROKEN);
    CHECK_STR(by, "root@vm");
    CHECK_STR(why, "enough");
    CHECK(pk_etcd_note_read(pk_text("released"), by, why) == PK_END_RELEASED);
    CHECK(pk_etcd_note_read(pk_text("closed"), by, why) == PK_END_CLOSED);
    CHECK(pk_etcd_note_read(pk_text(""), by, why) == PK_END_EXPIRED);
}
