/* SPDX-License-Identifier: MIT */
/* What servers say of themselves and of us, and connections that end at the worst moment;
 * the talking is tested over real servers. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <picket.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/redis_link.h"
#include "client/url.h"
#include "host/clock.h"
#include "tap.h"

TEST(redis_link__finds_a_line_of_info)
{
    const char *info = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n";
    struct pk_bytes version = pk_redis_info(info, "redis_version");
    CHECK(pk_bytes_equal(version, pk_text("7.0.15")));
    CHECK(pk_bytes_equal(pk_redis_info(info, "redis_mode"), pk_text("standalone")));
    CHECK_U64(pk_redis_info(info, "version").len, 0); /* not the end of another's name */
    CHECK_U64(pk_redis_info(info, "redis").len, 0);
    CHECK_U64(pk_redis_info("", "redis").len, 0);
}

TEST(redis_link__knows_servers_that_are_unfit)
{
    CHECK(pk_redis_unfit("redis_version:7.0.15\r\nredis_mode:standalone\r\n") == NULL);
    CHECK(pk_redis_unfit("redis_version:5.0.0\r\n") == NULL);
    CHECK(strstr(pk_redis_unfit("redis_version:7.2.1\r\nredis_mode:sentinel\r\n"),
                 "Sentinel") != NULL);
    CHECK(strstr(pk_redis_unfit("redis_version:4.0.14\r\n"), "too old") != NULL);
    CHECK(strstr(pk_redis_unfit("redis_version:2.8\r\n"), "too old") != NULL);
    CHECK(strstr(pk_redis_unfit("redis_version:7.2.1\r\nredis_mode:cluster\r\n"),
                 "Cluster") != NULL);
    CHECK(strstr(pk_redis_unfit("picket_version:0.1.0\r\n"), "no Redis") != NULL);
}

TEST(redis_link__tells_refusals_apart)
{
    static const struct {
        const char *text;
        enum picket_status status;
        const char *say;
    } cases[] = {
        {"NOAUTH Authentication required.", PICKET_DENIED, "NOAUTH"},
        {"WRONGPASS invalid username-password pair", PICKET_DENIED, "WRONGPASS"},
        {"NOPERM this user has no permissions", PICKET_DENIED, "NOPERM"},
        {"LOADING Redis is loading the dataset in memory", PICKET_UNREACHABLE, "LOADING"},
        {"BUSY Redis is busy running a script.", PICKET_UNREACHABLE, "BUSY"},
        {"NOREPLICAS Not enough good replicas to write.", PICKET_UNREACHABLE, "NOREPL"},
        {"READONLY You can't write against a read only replica.", PICKET_STORE,
         "its master"},
        {"ERR Error running script (call to f_1): @user_script:9: -READONLY You can't",
         PICKET_STORE, "its master"},
        {"MOVED 3999 127.0.0.1:6381", PICKET_STORE, "Cluster"},
        {"OOM command not allowed when used memory > 'maxmemory'.", PICKET_STORE,
         "maxmemory"},
        {"MISCONF Redis is configured to save RDB snapshots", PICKET_STORE, "MISCONF"},
        {"WRONGTYPE Operation against a key", PICKET_STORE, "WRONGTYPE"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK(pk_redis_refused("redis://h", cases[i].text) == cases[i].status);
        CHECK(strstr(picket_last_error(), cases[i].say) != NULL);
        CHECK(strncmp(picket_last_error(), "redis://h", 9) == 0);
    }
}

/* ---- a connection that ends after the question was sent ---- */

struct peer {
    struct pk_url url;
    struct pk_redis_link link;
    int other;    /* the other end of the connection, which says nothing more */
    int listener; /* where a new connection would go */
};

static void meet(struct peer *p)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    int ends[2];
    char text[64];
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(p->listener >= 0 && bind(p->listener, (struct sockaddr *)&at, len) == 0);
    CHECK(listen(p->listener, 8) == 0);
    CHECK(getsockname(p->listener, (struct sockaddr *)&at, &len) == 0);
    (void)snprintf(text, sizeof text, "redis://127.0.0.1:%u", ntohs(at.sin_port));
    CHECK(pk_url_read(text, "socket", "redis://HOST", &p->url) == PICKET_OK);
    p->link = (struct pk_redis_link){.url = &p->url, .where = "redis://h"};
    CHECK(pk_url_place(&p->url, "redis://HOST", &p->link.place) == PICKET_OK);
    pk_redis_init(&p->link);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    p->link.fd = ends[0];
    p->link.stage = PK_REDIS_READY;
    p->link.reader = redisReaderCreate();
    p->other = ends[1];
    CHECK(shutdown(p->other, SHUT_WR) == 0); /* it still hears what is sent */
}

static bool heard(int fd)
{
    char bytes[256];
    ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    return n > 0 && memmem(bytes, (size_t)n, "INCR", 4) != NULL;
}

static void part(struct peer *p)
{
    pk_redis_free(&p->link);
    pk_url_free(&p->url);
    (void)close(p->other);
    (void)close(p->listener);
}

/* What must be done once only and may have been done is told as UNKNOWN; anything else is
 * sent again over a new connection. */
TEST(redis_link__does_not_repeat_what_may_be_done)
{
    struct pk_redis_words w = {.count = 0};
    pk_redis_add_text(&w, "INCR");
    pk_redis_add_text(&w, "n");
    for (int once = 0; once < 2; once++) {
        struct peer p;
        redisReply *reply;
        meet(&p);
        CHECK(pk_redis_ask(&p.link, &w, once, pk_clock_ms() + 2000, &reply) ==
              PICKET_UNKNOWN);
        CHECK(reply == NULL && heard(p.other));
        int again = accept4(p.listener, NULL, NULL, SOCK_CLOEXEC);
        CHECK((again >= 0) == (once == 0));
        CHECK(again < 0 || heard(again));
        (void)close(again);
        part(&p);
    }
}

/* Reads one request of one client and answers what is not of the protocol. */
static void *answer_garbage(void *ctx)
{
    char request[256];
    int fd = accept(*(int *)ctx, NULL, NULL);
    CHECK(fd >= 0 && read(fd, request, sizeof request) > 0);
    CHECK(write(fd, "garbage\r\n", 9) == 9);
    close(fd);
    return NULL;
}

TEST(redis_link__a_garbled_answer_leaves_the_outcome_unknown)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, 1) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    pthread_t server;
    CHECK(pthread_create(&server, NULL, answer_garbage, &fd) == 0);
    struct pk_url url;
    CHECK(pk_url_read("redis://127.0.0.1", "", "", &url) == PICKET_OK);
    struct pk_redis_link l = {.url = &url,
                              .place = {.host = "127.0.0.1", .port = ntohs(at.sin_port)},
                              .where = "redis://127.0.0.1"};
    struct pk_redis_words w = {.count = 0};
    redisReply *reply = NULL;
    pk_redis_init(&l);
    pk_redis_add_text(&w, "INCR");
    pk_redis_add_text(&w, "n");
    /* The server has read the request, so it may have executed it. */
    CHECK(pk_redis_ask(&l, &w, true, pk_clock_ms() + 60000, &reply) == PICKET_UNKNOWN);
    CHECK(reply == NULL);
    pk_redis_free(&l);
    pk_url_free(&url);
    CHECK(pthread_join(server, NULL) == 0);
    close(fd);
}
