/* SPDX-License-Identifier: MIT */
/* Traces of clusters: their lines, and what is found in them. */
#include "sim/replay.h"
#include "tap.h"

/* ---- lines ---- */

static struct pk_prose out;

static void line_is(struct pk_trace_line l, const char *text)
{
    struct pk_trace_reader r;
    struct pk_trace_line back;
    struct pk_prose again = {0};
    pk_trace_write(&(struct pk_trace_line){.kind = PK_TRACE_BEGIN}, &out);
    size_t head = out.len;
    pk_trace_write(&l, &out);
    CHECK_STR(out.data + head, text);
    pk_trace_open(&r, out.data, out.len);
    CHECK(pk_trace_read(&r, &back) && pk_trace_read(&r, &back));
    pk_trace_write(&back, &again);
    CHECK_STR(again.data, text);
    CHECK(!pk_trace_read(&r, &back) && r.why == NULL && !r.cut);
    pk_prose_free(&again);
    pk_prose_free(&out);
}

TEST(trace__lines_are_read_as_they_were_written)
{
    line_is(
        (struct pk_trace_line){
            .kind = PK_TRACE_OPENED, .at_ms = 7, .lease = 3, .text = pk_text("a b")},
        "7 opened 3 a%20b\n");
    line_is((struct pk_trace_line){.kind = PK_TRACE_OPENED, .lease = 3},
            "0 opened 3 -\n");
    line_is((struct pk_trace_line){.kind = PK_TRACE_OPENED, .text = pk_text("-")},
            "0 opened 0 %2D\n");
    line_is((struct pk_trace_line){.kind = PK_TRACE_GRANTED,
                                   .at_ms = 10,
                                   .name = pk_text("100% \xc3\xa4/b"),
                                   .lease = 1,
                                   .request = 2,
                                   .token = 3,
                                   .mode = PK_SLOT,
                                   .slots = 5,
                                   .number = 9},
            "10 granted 100%25%20\xc3\xa4/b 1 2 3 5 9\n");
    line_is((struct pk_trace_line){.kind = PK_TRACE_GRANTED,
                                   .name = pk_text("x"),
                                   .token = UINT64_MAX,
                                   .mode = PK_SHARED},
            "0 granted x 0 0 18446744073709551615 s 0\n");
    line_is((struct pk_trace_line){.kind = PK_TRACE_GAP, .at_ms = 1}, "1 gap\n");
    line_is((struct pk_trace_line){.kind = PK_TRACE_LEADER}, "0 leader -\n");
}

TEST(trace__a_long_label_is_cut_between_letters)
{
    char label[300];
    memset(label, 'a', 127);
    memcpy(label + 127, "\xc3\xa4 and more", 12);
    struct pk_trace_line l = {.kind = PK_TRACE_OPENED, .text = pk_bytes(label, 139)};
    pk_trace_write(&l, &out);
    CHECK_U64(out.len, strlen("0 opened 0 ") + 127 + 1);
    pk_prose_free(&out);
}

static struct pk_replay *replay;

static const char *read(const char *text, uint32_t *line)
{
    replay = pk_replay_new(pk_text(NULL));
    return pk_replay_read(replay, text, strlen(text), line);
}

static void refused(const char *text, uint32_t line, const char *why)
{
    uint32_t at;
    CHECK_STR(read(text, &at), why);
    CHECK_U64(at, line);
    pk_replay_free(replay);
}

#define BEGIN "picket-trace 1 n1 77\n"

TEST(trace__says_what_is_wrong_and_where)
{
    refused("", 1, "this is no trace: it does not begin with picket-trace 1");
    refused("hello", 1, "this is no trace: it does not begin with picket-trace 1");
    refused("1 gap\n", 1, "this is no trace: it does not begin with picket-trace 1");
    refused("picket-trace 2 n1 77\n", 1,
            "this is a trace of another version; this program reads 1");
    refused("picket-trace 1 n1\n", 1, "a number is missing or wrong");
    refused(BEGIN "gap\n", 2, "a line begins with its time in ms");
    refused(BEGIN "1 gap\n2 fly\n", 3, "there is no such word");
    refused(BEGIN "1 gap now\n", 2, "there is too much on this line");
    refused(BEGIN "1 raised x\n", 2, "a number is missing or wrong");
    refused(BEGIN "1 raised x -3\n", 2, "a number is missing or wrong");
    refused(BEGIN "1 raised - 3\n", 2, "a name is missing or wrong");
    refused(BEGIN "1 raised a%2 3\n", 2, "a name is missing or wrong");
    refused(BEGIN "1 raised a%0G 3\n", 2, "a name is missing or wrong");
    refused(BEGIN "1 raised a\xff 3\n", 2, "a name is missing or wrong");
    refused(BEGIN "1 granted x 1 1 1 y 0\n", 2, "a mode is x, s or a number of slots");
    refused(BEGIN "1 granted x 1 1 1 0 0\n", 2, "a mode is x, s or a number of slots");
    refused(BEGIN "5 granted x 1 1 1 x 0\n4 raised f 1\n", 3, "time goes back");
}

/* ---- what is found ---- */

/* All hits, as "check check", of a trace that can be read. */
static void finds(const char *lines, const char *wanted)
{
    uint32_t line;
    struct pk_prose text = {0};
    pk_prose_add(&text, BEGIN);
    pk_prose_add(&text, lines);
    const char *wrong = read(text.data, &line);
    CHECK(wrong == NULL);
    pk_prose_add(&out, "");
    for (uint32_t i = 0; i < PK_CHECK_COUNT; i++) {
        for (uint64_t n = pk_replay_hits(replay, (enum pk_check)i); n > 0; n--) {
            pk_prose_add(&out, out.len > 0 ? " " : "");
            pk_prose_add(&out, pk_check_name((enum pk_check)i));
        }
    }
    CHECK_STR(out.data, wanted);
    pk_prose_free(&out);
    pk_prose_free(&text);
    pk_replay_free(replay);
}

TEST(replay__one_after_the_other)
{
    finds("1 granted x 1 1 1 x 0\n"
          "2 queued x 2 1 1\n"
          "3 ended x 1 1 1 released\n"
          "3 granted x 2 1 2 x 1\n",
          "");
}

TEST(replay__two_holders)
{
    finds("1 granted x 1 1 1 x 0\n2 granted x 2 1 2 x 0\n", "two-holders");
    finds("1 granted x 1 1 1 s 0\n2 granted x 2 1 2 x 0\n", "two-holders");
    finds("1 granted x 1 1 1 s 0\n2 granted x 2 1 2 2 0\n", "two-holders");
    finds("1 granted x 1 1 1 2 0\n1 granted x 2 1 2 2 0\n2 granted x 3 1 3 2 0\n",
          "two-holders");
}

TEST(replay__holders_that_may_be_there_together)
{
    finds("1 granted x 1 1 1 s 0\n2 granted x 2 1 2 s 0\n3 granted y 2 1 3 x 0\n", "");
    finds("1 granted x 1 1 1 2 0\n2 granted x 2 1 2 2 0\n"
          "3 ended x 1 1 1 expired\n4 granted x 3 1 3 2 0\n",
          "");
}

TEST(replay__an_end_of_another_claim_frees_nothing)
{
    finds("1 granted x 1 1 1 x 0\n2 ended x 1 2 1 released\n3 granted x 2 1 2 x 0\n",
          "two-holders");
}

TEST(replay__tokens_grow_over_all_locks)
{
    finds("1 granted x 1 1 5 x 0\n2 granted y 2 1 4 x 0\n", "token-order");
    finds("1 granted x 1 1 5 x 0\n2 granted y 2 1 5 x 0\n", "token-order");
    finds("1 granted x 1 1 5 x 0\n1 granted y 1 1 5 x 0\n2 granted z 1 2 6 x 0\n", "");
}

TEST(replay__first_come_first_served)
{
    finds("1 granted x 1 1 1 x 0\n2 queued x 2 1 1\n3 queued x 3 1 2\n"
          "4 ended x 1 1 1 released\n4 granted x 3 1 2 x 1\n",
          "queue-order");
    finds("1 granted x 1 1 1 x 0\n2 queued x 2 1 1\n3 queued x 3 1 2\n"
          "4 left x 2 1 cancelled\n4 ended x 1 1 1 released\n4 granted x 3 1 2 x 1\n",
          "");
}

TEST(replay__who_waited_before_the_trace_is_not_judged)
{
    finds("1000 queued x 3 1 2\n1001 granted x 2 1 2 x 500\n", "");
    finds("1000 queued x 3 1 2\n1001 granted x 2 1 2 x 1\n", "queue-order");
}

TEST(replay__fences_do_not_go_back)
{
    finds("1 raised f 4\n2 passed f 4\n3 refused f 3 4\n4 raised f 5\n", "");
    finds("1 raised f 4\n2 passed f 3\n", "fence-back");
    finds("1 raised f 4\n2 raised f 3\n", "fence-back");
    finds("1 raised f 4\n2 shadowed f 3 4\n3 passed f 4\n", "");
    finds("1 raised f 4\n2 forgot f\n3 raised f 3\n", "");
    finds("1 raised f 4\n2 raised g 3\n", "");
}

TEST(replay__after_a_gap_only_tokens_are_known)
{
    finds("1 granted x 1 1 1 x 0\n2 raised f 9\n3 gap\n"
          "4 granted x 2 1 2 x 0\n5 raised f 3\n",
          "");
    finds("9 granted x 1 1 1 x 0\n3 gap\n4 granted x 2 1 2 x 0\n", "");
    finds("1 granted x 1 1 5 x 0\n3 gap\n4 granted x 2 1 2 x 0\n", "token-order");
    finds("1 granted x 1 1 5 x 0\n" BEGIN "4 granted x 2 1 2 x 0\n", "token-order");
    finds("1 granted x 1 1 5 x 0\npicket-trace 1 n1 78\n0 granted x 2 1 2 x 0\n", "");
}

TEST(replay__a_set_is_one_grant_of_several_locks)
{
    finds("1 granted x 1 1 3 x 0\n1 granted y 1 1 3 x 0\n"
          "2 ended x 1 1 3 released\n2 ended y 1 1 3 released\n3 granted y 2 1 4 x 0\n",
          "");
}

TEST(replay__of_one_lock_alone)
{
    static const char text[] = BEGIN "1 granted x 1 1 1 x 0\n2 granted x 2 1 2 x 0\n"
                                     "3 granted y 3 1 3 x 0\n";
    uint32_t line;
    replay = pk_replay_new(pk_text("y"));
    CHECK(pk_replay_read(replay, text, strlen(text), &line) == NULL);
    CHECK_U64(replay->n_locks, 1);
    CHECK_STR(pk_replay_first(replay)->name, "y");
    CHECK(pk_replay_next(pk_replay_first(replay)) == NULL);
    CHECK_U64(pk_replay_hits(replay, PK_CHECK_TWO_HOLDERS), 0);
    pk_replay_free(replay);
}

TEST(replay__an_unfinished_last_line_is_left_out)
{
    uint32_t line;
    CHECK(read(BEGIN "1 granted x 1 1 1 x 0\n2 granted x 2 1", &line) == NULL);
    CHECK(replay->cut);
    CHECK_U64(replay->grants, 1);
    pk_replay_free(replay);
}

TEST(replay__names_clients_by_their_labels)
{
    uint32_t line;
    CHECK(read(BEGIN "1 opened 1 host=h3%0Apid=17%0Acommand=x\n"
                     "1 opened 2 the%20second\n"
                     "2 granted x 1 1 1 x 0\n3 granted x 2 1 2 x 0\n"
                     "4 granted x 3 1 3 x 0\n",
               &line) == NULL);
    const struct pk_checker *c = &pk_replay_first(replay)->checker;
    pk_replay_explain(replay, &c->hits[0], &out);
    CHECK_STR(out.data, "At 0.003 s the second with token 2 was given the lock while "
                        "h3/17 with token 1 still had it by the service's own account.");
    pk_prose_free(&out);
    pk_replay_name(replay, 3, &out);
    CHECK_STR(out.data, "lease 3");
    pk_prose_free(&out);
    pk_replay_free(replay);
}

TEST(replay__a_queue_that_is_too_long_is_not_judged)
{
    struct pk_prose text = {0};
    uint32_t line;
    pk_prose_add(&text, BEGIN);
    for (uint32_t i = 0; i <= PK_QUEUE_MAX; i++) {
        pk_prose_add(&text, "1 queued x ");
        pk_prose_number(&text, i + 1);
        pk_prose_add(&text, " 1 1\n");
    }
    pk_prose_add(&text, "2 granted x 257 1 1 x 1\n");
    CHECK(read(text.data, &line) == NULL);
    CHECK(pk_replay_first(replay)->checker.queue_full);
    CHECK_U64(pk_replay_hits(replay, PK_CHECK_QUEUE_ORDER), 0);
    pk_prose_free(&text);
    pk_replay_free(replay);
}

static unsigned times(const char *part)
{
    unsigned n = 0;
    for (const char *at = out.data; (at = strstr(at, part)) != NULL; at++) {
        n++;
    }
    return n;
}

TEST(replay__a_part_of_it)
{
    uint32_t line;
    const struct pk_replay_part second = {.from_us = 3500000, .to_us = 4500000};
    const struct pk_replay_part before = {.from_us = 1, .to_us = 500000};
    const struct pk_replay_part edges = {.from_us = 3000000, .to_us = 4000000};
    CHECK(read(BEGIN "1000 opened 1 ann\n1000 opened 2 bob\n1000 opened 3 eve\n"
                     "1000 granted x 1 1 1 x 0\n2000 ended x 1 1 1 released\n"
                     "3000 granted x 2 1 2 x 0\n4000 queued x 3 1 1\n"
                     "5000 ended x 2 1 2 released\n5000 granted x 3 1 3 x 1000\n",
               &line) == NULL);
    const struct pk_replay_lock *x = pk_replay_first(replay);
    pk_replay_picture(replay, x, second, 600, true, &out);
    CHECK_U64(times("class=\"hold\""), 1); /* bob's, which began before */
    CHECK_U64(times("class=\"wait\""), 1);
    pk_prose_free(&out);
    pk_replay_lock_json(replay, x, second, 10, &out);
    CHECK_U64(times("\"at_us\""), 1);
    CHECK(strstr(out.data, "\"who\":\"eve\"") != NULL);
    pk_prose_free(&out);
    pk_replay_lock_json(replay, x, edges, 10, &out);
    CHECK_U64(times("\"at_us\""), 2);
    pk_prose_free(&out);
    pk_replay_lock_json(replay, x, before, 10, &out);
    CHECK_U64(times("\"at_us\""), 0);
    pk_prose_free(&out);
    pk_replay_picture(replay, x, before, 600, true, &out);
    CHECK_U64(times("class=\"hold\""), 0);
    pk_prose_free(&out);
    pk_replay_free(replay);
}

TEST(replay__picture_and_json)
{
    const struct pk_replay_part all = {0};
    uint32_t line;
    CHECK(read(BEGIN "1000 opened 1 worker<1>\n1000 granted x 1 1 1 x 0\n"
                     "1500 queued x 2 1 1\n3000 ended x 1 1 1 expired\n"
                     "3000 granted x 2 1 2 x 1500\n3100 raised x 2\n"
                     "4000 refused x 1 2\n5000 ended x 2 1 2 released\n",
               &line) == NULL);
    pk_replay_picture(replay, pk_replay_first(replay), all, 600, true, &out);
    CHECK(strstr(out.data, "worker&lt;1>") != NULL);
    CHECK(strstr(out.data, "class=\"hold\"") != NULL);
    CHECK(strstr(out.data, "class=\"wait\"") != NULL);
    CHECK(strstr(out.data, "class=\"refused\"") != NULL);
    CHECK(strstr(out.data, "class=\"fence\"") != NULL);
    pk_prose_free(&out);
    pk_replay_json(replay, &out);
    CHECK(strstr(out.data, "\"refused\":1") != NULL);
    CHECK(strstr(out.data, "\"who\":\"worker<1>\"") != NULL);
    pk_prose_free(&out);
    pk_replay_free(replay);
}
