/* SPDX-License-Identifier: MIT */
/* The network driver among nodes that redirect, die, fall silent and talk nonsense. */
#include <inttypes.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "client/driver.h"
#include "drivers/remote_url.h"
#include "fakenode.h"

/* ---- where to go ---- */

TEST(remote__urls)
{
    struct pk_places p;
    CHECK(pk_remote_places("//db1,db2:99,[::1],[fe80::1%eth0]:7", &p) == PICKET_OK);
    CHECK_U64(p.count, 4);
    CHECK_STR(p.list[0].host, "db1");
    CHECK_STR(p.list[0].text, "db1:7420");
    CHECK_U64(p.list[1].port, 99);
    CHECK_STR(p.list[2].host, "::1");
    CHECK_STR(p.list[2].text, "[::1]:7420");
    CHECK_STR(p.list[3].host, "fe80::1%eth0");
    CHECK_U64(p.list[3].port, 7);
    static const char *const wrong[] = {
        "",        "db1",          "/db1",
        "//",      "//a,",         "//,a",
        "//a,,b",  "//:7420",      "//a:",
        "//a:0",   "//a:65536",    "//a:7x",
        "//a:-1",  "//a/path",     "//a/",
        "//u@a",   "//a b",        "//a?x=1",
        "//::1",   "//[::1",       "//[::1]x",
        "//[]:1",  "//a:00000001", "//a:1:2",
        "//[a/b]", "//a\n",        "//1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        printf("# picket:%s\n", i == 25 ? "//a\\n" : wrong[i]);
        CHECK(pk_remote_places(wrong[i], &p) == PICKET_BADARG);
        CHECK(strstr(picket_last_error(), "picket:") != NULL);
    }
    char longest[400];
    memset(longest, 'a', sizeof longest);
    memcpy(longest, "//", 2);
    longest[2 + 253] = '\0';
    CHECK(pk_remote_places(longest, &p) == PICKET_OK);
    memset(longest, 'a', sizeof longest);
    memcpy(longest, "//", 2);
    longest[2 + 254] = '\0';
    CHECK(pk_remote_places(longest, &p) == PICKET_BADARG);
}

/* Opening asks nobody; what is wrong with the URL is told at once all the same. */
TEST(remote__opens_without_a_server)
{
    struct picket *p = open_client("picket://127.0.0.1:1", 0);
    CHECK_STR(picket_guarantees(p)->driver, "picket");
    CHECK_STR(picket_guarantees(p)->promise, "correctness");
    picket_close(p);
    CHECK(picket_open("picket://127.0.0.1:none", NULL, &p) == PICKET_BADARG);
    CHECK(picket_open("pickets://127.0.0.1", NULL, &p) == PICKET_BADARG);
    CHECK(strstr(picket_last_error(), "local:DIR") != NULL);
    CHECK(strstr(picket_last_error(), "picket://") != NULL);
}

TEST(remote__does_what_the_api_says)
{
    world_begin(1);
    struct picket *a = open_client(world_url(1), 0);
    struct picket *b = open_client(world_url(1), 0);
    struct picket_lock *l = take(a, "db");
    struct picket_lock *m;
    CHECK(picket_try(b, "db", NULL, &m) == PICKET_BUSY);
    char pid[32];
    (void)snprintf(pid, sizeof pid, "pid %d", (int)getpid());
    CHECK(strstr(picket_last_error(), pid) != NULL);
    m = enqueue(b, "db", NULL);
    CHECK(picket_state(m) == PICKET_WAITING);
    CHECK(picket_release(l) == PICKET_OK);
    CHECK(picket_wait(m, PATIENCE_MS) == PICKET_OK);
    CHECK(picket_token(m) > picket_token(l));
    int loss = picket_loss_fd(m);
    CHECK(picket_break(a, "db", picket_token(m), "it hangs") == PICKET_OK);
    CHECK(readable(loss, PATIENCE_MS));
    CHECK(strstr(picket_loss_reason(m), "it hangs") != NULL);
    picket_close(a);
    picket_close(b);
}

TEST(remote__follows_to_the_leader)
{
    world_begin(2);
    char answer[64];
    (void)snprintf(answer, sizeof answer, "-NOTLEADER 127.0.0.1:%u\r\n",
                   (unsigned)world.nodes[1].port);
    node_misbehave(&world.nodes[0], "", UINT32_MAX, true, answer);
    struct picket *p = open_client(node_url(&world.nodes[0]), 0);
    struct picket_lock *l = take(p, "db");
    CHECK(picket_release(l) == PICKET_OK);
    struct heard h[8];
    CHECK_U64(node_heard(&world.nodes[0], "LEASE", h, 8), 1);
    CHECK_U64(node_accepted(&world.nodes[0]), 1);
    CHECK_U64(node_accepted(&world.nodes[1]), 1);
    CHECK(node_heard(&world.nodes[1], "ACQUIRE", h, 8) == 1);
    picket_close(p);
}

TEST(remote__asks_one_after_the_other)
{
    static const char *const no[] = {"-NOLEADER none at the moment\r\n",
                                     "-NOTLEADER ask somebody\r\n", "-NOTLEADER \r\n"};
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++) {
        world_begin(3);
        node_misbehave(&world.nodes[0], "", UINT32_MAX, true, no[i]);
        node_down(&world.nodes[1]);
        struct picket *p = open_client(world_url(3), 0);
        struct picket_lock *l = take(p, "db");
        CHECK(picket_release(l) == PICKET_OK);
        CHECK_U64(node_accepted(&world.nodes[2]), 1);
        picket_close(p);
    }
}

/* Whoever does not know the word relays; whoever speaks no RESP3 is none of ours. */
TEST(remote__takes_what_it_gets)
{
    world_begin(2);
    world.nodes[0].rude = true;
    world.nodes[1].deaf = true;
    struct picket *p = open_client(world_url(2), 0);
    struct picket_lock *l = take(p, "db");
    CHECK(picket_release(l) == PICKET_OK);
    picket_close(p);
}

/* Each answer of the first node is nonsense of another kind. */
TEST(remote__nonsense_is_no_answer)
{
    static const char *const nonsense[] = {"HTTP/1.1 400 Bad Request\r\n\r\n", "*-7\r\n",
                                           "$99999999999999999999\r\n",        "+OK\r\n",
                                           "%1\r\n$6\r\nstatus\r\n:7\r\n",     "*0\r\n",
                                           ":1\r\n:2\r\n:3\r\n:4\r\n",         "\r\n"};
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        world_begin(2);
        node_misbehave(&world.nodes[0], "", UINT32_MAX, true, nonsense[i]);
        struct picket *p = open_client(world_url(2), 0);
        struct picket_lock *l = take(p, "db");
        CHECK(picket_token(l) == 1);
        CHECK(picket_release(l) == PICKET_OK);
        picket_close(p);
    }
}

/* What does not greet as RESP3 does is not asked anything more. */
TEST(remote__nonsense_is_no_greeting)
{
    static const char *const nonsense[] = {"+OK\r\n", "*14\r\n", "$-1\r\n",
                                           "-NOPROTO this version is not spoken\r\n"};
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        struct heard h;
        world_begin(2);
        node_misbehave(&world.nodes[0], "HELLO", UINT32_MAX, true, nonsense[i]);
        struct picket *p = open_client(world_url(2), 0);
        (void)take(p, "db");
        CHECK_U64(node_heard(&world.nodes[0], "", &h, 1), 0);
        picket_close(p);
    }
}

/* Two nodes that name each other: no leader, and no racing from one to the other. */
TEST(remote__does_not_run_in_circles)
{
    world_begin(2);
    char to[2][64];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(to[i], sizeof to[i], "-NOTLEADER 127.0.0.1:%u\r\n",
                       (unsigned)world.nodes[1 - i].port);
        node_misbehave(&world.nodes[i], "", UINT32_MAX, true, to[i]);
    }
    struct pk_store *s;
    struct pk_command c = {.verb = PK_LOCK_SHOW, .name = pk_text("db"), .count = 1};
    struct pk_effects out = {0};
    CHECK(pk_remote_driver.open(strchr(world_url(2), ':') + 1, &s) == PICKET_OK);
    CHECK(pk_remote_driver.call(s, &c, pk_clock_ms() + 700, &out) == PICKET_UNREACHABLE);
    unsigned tries = node_accepted(&world.nodes[0]) + node_accepted(&world.nodes[1]);
    printf("# %u connections in 700 ms\n", tries);
    CHECK(tries >= 2 && tries < 100);
    pk_remote_driver.close(s);
}

/* ---- again ---- */

/* P8: what was done but not answered is sent again with the very same bytes, over a new
 * connection or to another node, and takes effect once. */
TEST(remote__repeats_the_same_bytes)
{
    static const struct {
        const char *when, *find;
    } cases[] = {{"LEASE OPEN", "OPEN"},      {"LOCK ACQUIRE", "ACQUIRE"},
                 {"LOCK RELEASE", "RELEASE"}, {"LOCK VALUE", "VALUE"},
                 {"FENCE SET", "FENCE"},      {"LOCK BREAK", "BREAK"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        printf("# %s\n", cases[i].when);
        world_begin(2);
        node_misbehave(&world.nodes[0], cases[i].when, 1, false, NULL);
        struct picket *p = open_client(world_url(2), 0);
        struct picket_lock *l = take(p, "db");
        CHECK_U64(picket_token(l), 1);
        CHECK(picket_set_value(l, "here", 4) == PICKET_OK);
        CHECK(picket_fence_set(p, "file", 1, "x", 1, NULL) == PICKET_OK);
        CHECK(picket_release(l) == PICKET_OK);
        struct picket_lock *m = take(p, "db");
        CHECK_U64(picket_token(m), 2);
        CHECK(picket_break(p, "db", 2, "done") == PICKET_OK);
        struct heard first = {0}, again = {0};
        CHECK_U64(node_heard(&world.nodes[0], cases[i].find, &first, 1), 1);
        CHECK_U64(node_heard(&world.nodes[1], cases[i].find, &again, 1), 1);
        CHECK_U64(first.len, again.len);
        CHECK(memcmp(first.bytes, again.bytes, first.len) == 0);
        struct picket_view *v;
        CHECK(picket_lease_show(p, picket_lease(p), &v) == PICKET_OK);
        CHECK_U64(v->holders, 0);
        picket_view_free(v);
        picket_close(p);
    }
}

/* Not done, try again; or maybe done, try again. */
TEST(remote__tries_again_when_told_so)
{
    static const char *const later[] = {"-OVERLOAD too much at once\r\n",
                                        "-UNKNOWN leadership was lost\r\n"};
    for (int done = 0; done < 2; done++) {
        world_begin(1);
        node_misbehave(&world.nodes[0], "LOCK ACQUIRE", 5, done == 0, later[done]);
        struct picket *p = open_client(world_url(1), 0);
        struct picket_lock *l = take(p, "db");
        CHECK_U64(picket_token(l), 1);
        struct heard h[8];
        CHECK_U64(node_heard(&world.nodes[0], "ACQUIRE", h, 8), 6);
        CHECK_U64(node_accepted(&world.nodes[0]), 1);
        picket_close(p);
    }
}

TEST(remote__a_refusal_is_told_with_its_sentence)
{
    world_begin(1);
    node_misbehave(&world.nodes[0], "LOCK ACQUIRE", 1, true,
                   "-NOSPACE the disk is full; nothing was changed\r\n");
    struct picket *p = open_client(world_url(1), 0);
    struct picket_lock *l;
    CHECK(picket_acquire(p, "db", NULL, &l) == PICKET_STORE);
    CHECK(strstr(picket_last_error(), "disk is full") != NULL);
    CHECK(strstr(picket_last_error(), "127.0.0.1:") != NULL);
    l = take(p, "db");
    picket_close(p);
}

/* The number behind REQUEST in the bytes of a request; 0: there is none. */
static uint64_t request_in(const struct heard *h)
{
    const char *at = memmem(h->bytes, h->len, "REQUEST", 7);
    uint64_t number = 0;
    /* REQUEST CRLF $LEN CRLF DIGITS CRLF */
    at = at == NULL ? NULL : memchr(at + 9, '\n', h->len - (size_t)(at + 9 - h->bytes));
    for (at = at == NULL ? "" : at + 1; *at >= '0' && *at <= '9'; at++) {
        number = number * 10 + (uint64_t)(*at - '0');
    }
    return number;
}

/* P8: the repeat of a grant is told of the grant, even if it was taken away meanwhile. */
TEST(remote__a_repeated_acquire_may_have_ended_already)
{
    world_begin(1);
    struct picket *p = open_client(world_url(1), LONG_TTL_MS);
    (void)take(p, "other");
    node_misbehave(&world.nodes[0], "LOCK ACQUIRE", 1, false, NULL);
    pthread_mutex_lock(&world.mutex);
    world.nodes[0].breaks = "db";
    pthread_mutex_unlock(&world.mutex);
    struct picket_lock *l;
    enum picket_status s = picket_acquire(p, "db", NULL, &l);
    CHECK(s == PICKET_OK || s == PICKET_LOST);
    if (s == PICKET_OK) {
        CHECK(readable(picket_loss_fd(l), LONG_TTL_MS / 6));
        CHECK(picket_state(l) == PICKET_GONE);
    }
    picket_close(p);
}

/* Numbers of fenced writes grow within the process, whatever the store handle. */
TEST(remote__fenced_writes_are_numbered)
{
    world_begin(1);
    struct picket *p[2] = {open_client(world_url(1), 0), open_client(world_url(1), 0)};
    char text[32];
    for (int i = 0; i < 200; i++) {
        int n = snprintf(text, sizeof text, "value %d", i);
        CHECK(picket_fence_set(p[i % 2], "file", 7, text, (size_t)n, NULL) == PICKET_OK);
    }
    char *value;
    size_t len;
    CHECK(picket_fence_get(p[0], "file", 7, &value, &len, NULL) == PICKET_OK);
    CHECK_STR(value, "value 199");
    free(value);
    static struct heard h[400];
    CHECK_U64(node_heard(&world.nodes[0], "value", h, 400), 200);
    for (int i = 0; i < 200; i++) {
        CHECK(request_in(&h[i]) > (i == 0 ? 0 : request_in(&h[i - 1])));
    }
    picket_close(p[0]);
    picket_close(p[1]);
}

/* Somebody else has written under the same token, with this number. */
static void write_as(uint64_t number)
{
    struct pk_command c = {.verb = PK_FENCE_SET,
                           .name = pk_text("file"),
                           .token = 7,
                           .request = number,
                           .value = pk_text("theirs")};
    pthread_mutex_lock(&world.mutex);
    world_step(&c, 0);
    CHECK(world.effects.list[0].status == PK_OK);
    pthread_mutex_unlock(&world.mutex);
}

static void check_value(struct picket *p, const char *wanted)
{
    char *value;
    size_t len;
    CHECK(picket_fence_get(p, "file", 7, &value, &len, NULL) == PICKET_OK);
    CHECK_STR(value, wanted);
    free(value);
}

/* A process that knows no number goes on from the one before it, and needs one more
 * request for that: also where clocks once made the numbers and this one was set back by
 * two seconds, or where no clock is so late. */
static void check_goes_on_from(uint64_t number)
{
    world_begin(1);
    struct picket *p = open_client(world_url(1), 0);
    struct heard h[8];
    write_as(number);
    CHECK(picket_fence_set(p, "file", 7, "ours", 4, NULL) == PICKET_OK);
    check_value(p, "ours");
    CHECK(node_heard(&world.nodes[0], "ours", h, 8) <= 2);
    CHECK(picket_fence_set(p, "file", 7, "again", 5, NULL) == PICKET_OK);
    CHECK_U64(node_heard(&world.nodes[0], "again", h, 8), 1); /* now it knows */
    check_value(p, "again");
    picket_close(p);
}

TEST(remote__fenced_writes_go_on_from_the_number_before)
{
    struct timespec t;
    CHECK(clock_gettime(CLOCK_REALTIME, &t) == 0);
    check_goes_on_from(((uint64_t)t.tv_sec + 2) * 1000000);
    check_goes_on_from(UINT64_C(1) << 60);
}

/* No number is left: that is told, after a few tries. */
TEST(remote__fenced_writes_that_find_no_number_end)
{
    world_begin(1);
    struct picket *p = open_client(world_url(1), 0);
    struct heard h[64];
    write_as(UINT64_MAX);
    CHECK(picket_fence_set(p, "file", 7, "ours", 4, NULL) == PICKET_TOOOLD);
    CHECK(node_heard(&world.nodes[0], "ours", h, 64) <= 20);
    check_value(p, "theirs");
    CHECK(picket_fence_set(p, "file", 8, "ours", 4, NULL) == PICKET_OK);
    picket_close(p);
}

/* P8: the copy of a write whose answer got lost is not done under a new number, since a
 * later write may have come after its first copy. */
TEST(remote__fenced_write_that_was_overtaken_is_not_done_twice)
{
    world_begin(1);
    struct pk_store *s;
    struct pk_effects answer = {0};
    CHECK(pk_remote_driver.open(strchr(world_url(1), ':') + 1, &s) == PICKET_OK);
    struct pk_command c = {.verb = PK_FENCE_SET,
                           .name = pk_text("file"),
                           .token = 7,
                           .request = 5, /* it has been sent before */
                           .value = pk_text("ours")};
    write_as(6);
    CHECK(pk_remote_driver.call(s, &c, pk_clock_ms() + LONG_TTL_MS, &answer) ==
          PICKET_UNKNOWN);
    CHECK_U64(c.request, 5);
    pk_effects_free(&answer);
    pk_remote_driver.close(s);
    struct picket *p = open_client(world_url(1), 0);
    check_value(p, "theirs");
    picket_close(p);
}

/* ---- deadlines ---- */

static const struct pk_command show = {
    .verb = PK_LOCK_SHOW, .name = {"db", 2}, .count = 1};
static const struct pk_command claim_fence = {
    .verb = PK_FENCE_CLAIM, .name = {"file", 4}, .token = 7};

/* One call that can't succeed within its time; returns what it says. */
static enum picket_status call_in_vain(const char *url, const struct pk_command *command)
{
    struct pk_store *s;
    struct pk_effects out = {0};
    struct pk_command c = *command;
    CHECK(pk_remote_driver.open(strchr(url, ':') + 1, &s) == PICKET_OK);
    uint64_t until = pk_clock_ms() + 300;
    enum picket_status status = pk_remote_driver.call(s, &c, until, &out);
    CHECK(pk_clock_ms() >= until);
    CHECK_U64(out.count, 0);
    printf("# %s\n", picket_last_error());
    pk_remote_driver.close(s);
    return status;
}

TEST(remote__late_and_not_done)
{
    world_begin(2);
    node_down(&world.nodes[0]);
    node_down(&world.nodes[1]);
    CHECK(call_in_vain(world_url(2), &claim_fence) == PICKET_UNREACHABLE);
    CHECK(strstr(picket_last_error(), "refused") != NULL);
    char place[32];
    (void)snprintf(place, sizeof place, "127.0.0.1:%u", (unsigned)world.nodes[1].port);
    CHECK(strstr(picket_last_error(), place) != NULL);
    world_begin(1);
    node_misbehave(&world.nodes[0], "", UINT32_MAX, true, "-NOLEADER an election\r\n");
    CHECK(call_in_vain(world_url(1), &claim_fence) == PICKET_UNREACHABLE);
    CHECK(strstr(picket_last_error(), "election") != NULL);
    world_begin(1);
    world.nodes[0].rude = true;
    CHECK(call_in_vain(world_url(1), &claim_fence) == PICKET_UNREACHABLE);
    CHECK(strstr(picket_last_error(), "HELLO") != NULL);
    CHECK(call_in_vain("picket://no-such-host.invalid", &claim_fence) ==
          PICKET_UNREACHABLE);
}

TEST(remote__late_and_maybe_done)
{
    world_begin(1);
    node_misbehave(&world.nodes[0], "FENCE", UINT32_MAX, false, NULL);
    CHECK(call_in_vain(world_url(1), &claim_fence) == PICKET_UNKNOWN);
    world_begin(1);
    node_misbehave(&world.nodes[0], "FENCE", UINT32_MAX, true, "-UNKNOWN who knows\r\n");
    CHECK(call_in_vain(world_url(1), &claim_fence) == PICKET_UNKNOWN);
    world_begin(1);
    node_misbehave(&world.nodes[0], "FENCE", UINT32_MAX, true, "");
    CHECK(call_in_vain(world_url(1), &claim_fence) == PICKET_UNKNOWN);
    /* A read changes nothing, so nothing of it is unknown. */
    node_misbehave(&world.nodes[0], "LOCK SHOW", UINT32_MAX, false, NULL);
    CHECK(call_in_vain(world_url(1), &show) == PICKET_UNREACHABLE);
}

/* A late answer to a call that has given up belongs to nobody else. */
TEST(remote__late_answers_find_their_place)
{
    world_begin(1);
    struct pk_store *s;
    struct pk_effects out = {0};
    struct pk_command c = claim_fence, d = show;
    CHECK(pk_remote_driver.open(strchr(world_url(1), ':') + 1, &s) == PICKET_OK);
    node_misbehave(&world.nodes[0], "FENCE", 1, true, "");
    CHECK(pk_remote_driver.call(s, &c, pk_clock_ms() + 200, &out) == PICKET_UNKNOWN);
    node_misbehave(&world.nodes[0], "LOCK SHOW", 1, true,
                   "%2\r\n$6\r\nstatus\r\n$2\r\nOK\r\n$5\r\ntoken\r\n:7\r\n"
                   "%2\r\n$6\r\nstatus\r\n$2\r\nOK\r\n$7\r\nwaiters\r\n:3\r\n");
    CHECK(pk_remote_driver.call(s, &d, pk_clock_ms() + PATIENCE_MS, &out) == PICKET_OK);
    CHECK_U64(out.count, 1);
    CHECK_U64(out.list[0].waiters, 3);
    CHECK_U64(node_accepted(&world.nodes[0]), 1);
    pk_effects_free(&out);
    pk_remote_driver.close(s);
}

/* A node that says nothing is left for another. */
TEST(remote__silence_is_not_waited_out)
{
    world_begin(2);
    struct picket *p = open_client(world_url(2), LONG_TTL_MS);
    struct picket_lock *l = take(p, "a");
    CHECK_U64(node_accepted(&world.nodes[1]), 0);
    node_mute(&world.nodes[0], true);
    struct picket_lock *m = take(p, "b");
    CHECK(picket_checkpoint(l, 1) == PICKET_OK);
    CHECK(picket_checkpoint(m, 1) == PICKET_OK);
    CHECK_U64(node_accepted(&world.nodes[1]), 1);
    picket_close(p);
}

/* ---- time ---- */

/* P5: with all nodes frozen, the loss is told by our own clock. */
TEST(remote__loss_needs_no_server)
{
    world_begin(1);
    struct heard h[64];
    struct picket *p = open_client(world_url(1), 3000);
    struct picket_lock *l = take(p, "db");
    int loss = picket_loss_fd(l);
    while (node_heard(&world.nodes[0], "RENEW", h, 1) == 0) {
        CHECK(!readable(loss, 10));
    }
    node_mute(&world.nodes[0], true);
    CHECK(readable(loss, PATIENCE_MS));
    CHECK(picket_state(l) == PICKET_GONE);
    CHECK(picket_checkpoint(l, 0) == PICKET_LOST);
    node_mute(&world.nodes[0], false);
    picket_close(p);
}

/* The server's wish is heard: a tenth of the TTL, long before a third. */
TEST(remote__renews_when_the_server_says)
{
    struct heard h[64];
    world_begin(1);
    world.nodes[0].renew_after_ms = 3000;
    struct picket *p = open_client(world_url(1), 30000);
    struct picket_lock *l = take(p, "db");
    uint64_t third = pk_clock_ms() + 9000;
    while (pk_clock_ms() < third && node_heard(&world.nodes[0], "RENEW", h, 1) == 0) {
        (void)usleep(10000);
    }
    CHECK(node_heard(&world.nodes[0], "RENEW", h, 1) == 1);
    CHECK(picket_checkpoint(l, 1) == PICKET_OK);
    picket_close(p);
}

/* Max-hold counts from the grant, which the push tells in cluster time; the time in the
 * queue is no part of it. */
TEST(remote__max_hold_counts_from_the_grant)
{
    world_begin(1);
    struct picket *holder = open_client(world_url(1), LONG_TTL_MS);
    struct picket *waiter = open_client(world_url(1), LONG_TTL_MS);
    struct picket_lock *l = take(holder, "db");
    struct picket_acquire_options o = {.wait_ms = PICKET_FOREVER, .max_hold_ms = 20000};
    struct picket_lock *m = enqueue(waiter, "db", &o);
    CHECK(!readable(picket_ready_fd(m), 2500));
    uint64_t before = pk_clock_ms();
    CHECK(picket_release(l) == PICKET_OK);
    CHECK(readable(picket_ready_fd(m), PATIENCE_MS));
    CHECK(picket_wait(m, 0) == PICKET_OK);
    CHECK(picket_safe_until_ms(m) >= before + 20000 - 1500); /* the margin, and the way */
    CHECK(picket_safe_until_ms(m) <= pk_clock_ms() + 20000);
    picket_close(waiter);
    picket_close(holder);
}

/* ---- threads and processes ---- */

struct worker {
    pthread_t thread;
    struct picket *p;
    unsigned granted, failed;
};

static _Atomic bool working;
static volatile unsigned counter; /* on purpose not atomic: the lock guards it */

static void *work(void *arg)
{
    struct worker *w = arg;
    while (working) {
        struct picket_lock *l;
        if (picket_acquire(w->p, "shared by all", NULL, &l) != PICKET_OK) {
            printf("# %s\n", picket_last_error());
            w->failed++;
            continue;
        }
        unsigned seen = counter;
        sched_yield();
        counter = seen + 1;
        w->granted++;
        w->failed += picket_release(l) != PICKET_OK;
        picket_lock_close(l);
    }
    return NULL;
}

/* Many threads over one connection, which ends again and again at any moment. */
TEST(remote__survives_being_cut_off_all_the_time)
{
    enum { THREADS = 4, CUTS = 60 };
    world_begin(2);
    struct picket *p = open_client(world_url(2), LONG_TTL_MS);
    struct worker w[THREADS] = {{0}};
    counter = 0;
    working = true;
    for (int i = 0; i < THREADS; i++) {
        w[i] = (struct worker){.p = p};
        CHECK(pthread_create(&w[i].thread, NULL, work, &w[i]) == 0);
    }
    for (int i = 0; i < CUTS; i++) {
        (void)usleep((unsigned)(i * 7919) % 30000);
        node_cut(&world.nodes[0]);
        node_cut(&world.nodes[1]);
    }
    working = false;
    unsigned granted = 0, failed = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(w[i].thread, NULL);
        granted += w[i].granted;
        failed += w[i].failed;
    }
    printf("# %u grants, %u connections\n", granted,
           node_accepted(&world.nodes[0]) + node_accepted(&world.nodes[1]));
    CHECK(granted > 0);
    CHECK_U64(failed, 0);
    CHECK_U64(counter, granted);
    CHECK_U64(pk_machine_last_token(world.machine), granted);
    picket_close(p);
}

/* A child lets go of the connections, and the parent's lock stays as it is. */
TEST(remote__a_forked_child_has_nothing_of_ours_open)
{
    world_begin(1);
    struct picket *p = open_client(world_url(1), LONG_TTL_MS);
    struct picket_lock *l = take(p, "db");
    struct picket_watch *w;
    CHECK(picket_watch_open(p, "", &w) == PICKET_OK);
    pid_t child = fork();
    if (child == 0) {
        int found = 0;
        for (int fd = 3; fd < 1024; fd++) {
            struct sockaddr_in at;
            socklen_t len = sizeof at;
            found += getpeername(fd, (struct sockaddr *)&at, &len) == 0 &&
                     ntohs(at.sin_port) == world.nodes[0].port;
        }
        struct picket_event e;
        (void)alarm(PATIENCE_MS / 1000); /* the parent waits without a limit */
        bool told = picket_left_ms(l) == 0 && picket_lease(p) == 0 &&
                    picket_release(l) == PICKET_FORKED &&
                    picket_watch_next(w, -1, &e) == PICKET_FORKED &&
                    picket_watch_fd(w) == -1;
        picket_watch_close(w); /* whose thread is not in this process */
        picket_lock_close(l);
        picket_close(p);
        _exit(found + (told ? 0 : 100));
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_U64((uint64_t)status, 0);
    CHECK(picket_checkpoint(l, 1) == PICKET_OK);
    CHECK(picket_release(l) == PICKET_OK);
    picket_watch_close(w);
    picket_close(p);
}
