/* SPDX-License-Identifier: MIT */
/* What servers say of themselves and of us; the talking is tested over real ones. */
#include <picket.h>

#include "client/redis_link.h"
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
