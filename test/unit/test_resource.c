/* SPDX-License-Identifier: MIT */
/*
 * Every kind of resource against one table of cases and against the rule of
 * core/fencing.h over random calls, so that what is said in SQL or Lua can't drift from
 * it. Over local:, file: and sqlite: always; over what $PICKET_RESOURCES names as well
 * (URLs with spaces between them, of servers that fence_sql.py and fence_redis.py start).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <picket_fence.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/fencing.h"
#include "core/limits.h"
#include "tap.h"

enum { KINDS_MAX = 8, URL_MAX = 512, MODELS = 4, CALLS = 400 };

static char urls[KINDS_MAX][URL_MAX];
static size_t count;

static char dir[] = "/tmp/picket-resource-XXXXXX";

static void add(const char *scheme, const char *below, const char *rest)
{
    CHECK(count < KINDS_MAX);
    int n = snprintf(urls[count++], URL_MAX, "%s%s%s", scheme, below, rest);
    CHECK(n > 0 && n < URL_MAX);
}

static const char *last_path(void)
{
    return strchr(urls[count - 1], ':') + 1;
}

#ifdef PICKET_WITH_SQLITE
static void make_sqlite(void)
{
    add("sqlite:", dir, "/fence.db");
    FILE *f = fopen(last_path(), "w"); /* an empty file is an empty database */
    CHECK(f != NULL);
    CHECK(fclose(f) == 0);
    CHECK(picket_fence_install(urls[count - 1], NULL) == PICKET_OK);
}
#endif

static void remove_dir(void)
{
    char command[64];
    (void)snprintf(command, sizeof command, "rm -rf %s", dir);
    CHECK(system(command) == 0);
}

/* The URLs, made when the first test asks. */
static void prepare(void)
{
    if (count > 0) {
        return;
    }
    CHECK(mkdtemp(dir) != NULL);
    CHECK(atexit(remove_dir) == 0);
    add("local:", dir, "/state");
    add("file:", dir, "/files");
    CHECK(mkdir(last_path(), 0700) == 0);
#ifdef PICKET_WITH_SQLITE
    make_sqlite();
#endif
    const char *more = getenv("PICKET_RESOURCES");
    char text[KINDS_MAX * URL_MAX];
    (void)snprintf(text, sizeof text, "%s", more == NULL ? "" : more);
    char *rest = text;
    for (char *url = strtok_r(text, " ", &rest); url != NULL;
         url = strtok_r(NULL, " ", &rest)) {
        CHECK(picket_fence_install(url, NULL) == PICKET_OK);
        add("", "", url);
    }
}

static struct picket_resource *open_at(size_t i)
{
    struct picket_resource *r;
    prepare();
    printf("# %s\n", urls[i]);
    CHECK(picket_resource_open(urls[i], &r) == PICKET_OK);
    return r;
}

/* A name that no other test, nor another run on the same server, has used; until the next
 * one is made. */
static const char *new_name(const char *what)
{
    static char name[PK_NAME_MAX + 1];
    static unsigned made;
    (void)snprintf(name, sizeof name, "%s.%d.%u", what, (int)getpid(), made++);
    return name;
}

#define FOR_EACH_KIND(i)                                                                 \
    prepare(), i = 0;                                                                    \
    i < count;                                                                           \
    i++

/* ---- the rule, case by case ---- */

enum verb { CLAIM, CHECK_IT, SET, GET };

static enum picket_status call(struct picket_resource *r, enum verb verb,
                               const char *name, uint64_t token, uint64_t *fence)
{
    char *value = NULL;
    size_t len;
    enum picket_status s = PICKET_OK;
    switch (verb) {
    case CLAIM:
        return picket_resource_claim(r, name, token, fence);
    case CHECK_IT:
        return picket_resource_check(r, name, token, fence);
    case SET:
        return picket_resource_set(r, name, token, &token, sizeof token, fence);
    case GET:
        s = picket_resource_get(r, name, token, &value, &len, fence);
        free(value);
        return s;
    }
    return s;
}

#define TOP PK_TOKEN_MAX

static const struct {
    enum verb verb;
    uint64_t token;
    enum picket_status status;
    uint64_t fence; /* where it stands afterwards */
} cases[] = {
    {CHECK_IT, 1, PICKET_UNCLAIMED, 0}, /* nobody has claimed it */
    {GET, 0, PICKET_NOTFOUND, 0},
    {CLAIM, 0, PICKET_BADARG, 0},
    {CLAIM, TOP + 1, PICKET_BADARG, 0},
    {SET, UINT64_MAX, PICKET_BADARG, 0},
    {CHECK_IT, 0, PICKET_BADARG, 0},
    {CLAIM, 5, PICKET_OK, 5}, /* the first */
    {CLAIM, 5, PICKET_OK, 5}, /* equal */
    {CHECK_IT, 5, PICKET_OK, 5},
    {CLAIM, 4, PICKET_STALE, 5}, /* lower */
    {CHECK_IT, 4, PICKET_STALE, 5},
    {SET, 4, PICKET_STALE, 5},
    {GET, 4, PICKET_STALE, 5},
    {CHECK_IT, 6, PICKET_UNCLAIMED, 5}, /* higher, but not claimed */
    {SET, 6, PICKET_OK, 6},             /* a write claims too */
    {CHECK_IT, 5, PICKET_STALE, 6},
    {GET, 7, PICKET_OK, 7}, /* and so does a fenced read */
    {SET, 6, PICKET_STALE, 7},
    {GET, 0, PICKET_OK, 7}, /* anybody reads */
    {CLAIM, TOP - 1, PICKET_OK, TOP - 1},
    {CLAIM, TOP, PICKET_OK, TOP}, /* a double would take these for equal above 2^53 */
    {CLAIM, TOP - 1, PICKET_STALE, TOP},
    {CHECK_IT, TOP, PICKET_OK, TOP},
    {CLAIM, 9, PICKET_STALE, TOP}, /* a text would take 9 for the higher one */
};

TEST(resource__keeps_the_rule)
{
    size_t k;
    for (FOR_EACH_KIND(k)) {
        struct picket_resource *r = open_at(k);
        const char *name = new_name("rule");
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            uint64_t fence = 12345;
            enum picket_status s = call(r, cases[i].verb, name, cases[i].token, &fence);
            if (s != cases[i].status) {
                printf("# case %zu: %s\n", i, picket_last_error());
            }
            CHECK_STR(picket_status_name(s), picket_status_name(cases[i].status));
            bool told = s == PICKET_OK || s == PICKET_STALE || s == PICKET_UNCLAIMED;
            CHECK_U64(fence, told ? cases[i].fence : 12345);
        }
        picket_resource_close(r);
    }
}

/* ---- values and names ---- */

static void check_value(struct picket_resource *r, const char *name, const char *wanted,
                        size_t wanted_len)
{
    char *value;
    size_t len;
    CHECK(picket_resource_get(r, name, 0, &value, &len, NULL) == PICKET_OK);
    CHECK_U64(len, wanted_len);
    CHECK(memcmp(value, wanted, len) == 0);
    CHECK(value[len] == '\0');
    free(value);
}

/* Each byte there is, none at all, and the longest; a stale writer's is not kept. */
TEST(resource__keeps_values_byte_for_byte)
{
    enum { LARGE = PK_VALUE_CEILING };
    static char large[LARGE];
    size_t k;
    for (int i = 0; i < LARGE; i++) {
        large[i] = (char)(i * 31 + i / 256);
    }
    for (FOR_EACH_KIND(k)) {
        struct picket_resource *r = open_at(k);
        const char *name = new_name("value");
        /* A store of ours is configured for less. */
        size_t len = strncmp(urls[k], "local:", 6) == 0 ? 65536 : LARGE;
        CHECK(picket_resource_set(r, name, 3, large, 256, NULL) == PICKET_OK);
        check_value(r, name, large, 256);
        CHECK(picket_resource_set(r, name, 2, "late", 4, NULL) == PICKET_STALE);
        check_value(r, name, large, 256);
        CHECK(picket_resource_set(r, name, 3, "", 0, NULL) == PICKET_OK);
        check_value(r, name, "", 0);
        CHECK(picket_resource_set(r, name, 4, large, len, NULL) == PICKET_OK);
        check_value(r, name, large, len);
        CHECK(picket_resource_set(r, name, 4, large, LARGE + 1, NULL) == PICKET_LIMIT);
        check_value(r, name, large, len);
        picket_resource_close(r);
    }
}

/* Names that a database may fold, trim, unquote or run. */
TEST(resource__tells_names_apart)
{
    static const char *const names[] = {
        "Name",        "name",
        "name ",       "na_e",
        "na%e",        "n\xc3\xa4me",
        "na'me",       "na\"me",
        "na`me",       "na\\me",
        "{name}",      "na}me",
        "$name",       "na;me--",
        "name)",       "'; DROP TABLE picket_fence; --",
        "0",           "\xf0\x9f\x94\x92",
        "n\xc3\x84me", "a\xcc\x88",
    };
    enum { NAMES = sizeof names / sizeof names[0] };
    size_t k;
    for (FOR_EACH_KIND(k)) {
        struct picket_resource *r = open_at(k);
        char name[PK_NAME_MAX + 1];
        uint64_t fence;
        int run = (int)getpid();
        for (unsigned i = 0; i < NAMES; i++) {
            (void)snprintf(name, sizeof name, "%d-%s", run, names[i]);
            CHECK(picket_resource_claim(r, name, 10 + i, NULL) == PICKET_OK);
        }
        for (unsigned i = 0; i < NAMES; i++) {
            (void)snprintf(name, sizeof name, "%d-%s", run, names[i]);
            CHECK(picket_resource_check(r, name, 1, &fence) == PICKET_STALE);
            CHECK_U64(fence, 10 + i);
        }
        picket_resource_close(r);
    }
}

TEST(resource__takes_the_longest_name_and_no_longer)
{
    size_t k;
    char name[PK_NAME_MAX + 2];
    memset(name, 'n', sizeof name);
    for (FOR_EACH_KIND(k)) {
        /* A file's name has less room: its fence is called after it. */
        bool is_file = strncmp(urls[k], "file:", 5) == 0;
        struct picket_resource *r = open_at(k);
        name[PK_NAME_MAX + 1] = '\0';
        CHECK(picket_resource_claim(r, name, 1, NULL) == PICKET_BADARG);
        name[PK_NAME_MAX] = '\0';
        CHECK(is_file || picket_resource_claim(r, name, 1, NULL) == PICKET_OK);
        CHECK(picket_resource_claim(r, "", 1, NULL) == PICKET_BADARG);
        picket_resource_close(r);
        name[PK_NAME_MAX] = 'n';
    }
}

/* ---- shadow mode ---- */

static bool has_shadow(struct picket_resource *r)
{
    return picket_resource_mode(r, new_name("mode"), 0) != PICKET_UNSUPPORTED;
}

static void check_state(struct picket_resource *r, const char *name, uint64_t token,
                        int shadow, uint64_t shadowed)
{
    struct picket_fence_state state;
    CHECK(picket_resource_show(r, name, &state) == PICKET_OK);
    CHECK_U64(state.token, token);
    CHECK_U64(state.shadow, shadow);
    CHECK_U64(state.shadowed, shadowed);
}

TEST(resource__in_shadow_mode_counts_and_refuses_nothing)
{
    size_t k;
    for (FOR_EACH_KIND(k)) {
        struct picket_resource *r = open_at(k);
        struct picket_fence_state state;
        uint64_t fence;
        if (!has_shadow(r)) {
            picket_resource_close(r);
            continue;
        }
        const char *name = new_name("shadow");
        CHECK(picket_resource_show(r, name, &state) == PICKET_NOTFOUND);
        CHECK(picket_resource_mode(r, name, 1) == PICKET_OK);
        check_state(r, name, 0, 1, 0);
        CHECK(picket_resource_set(r, name, 7, "seven", 5, NULL) == PICKET_OK);
        CHECK(picket_resource_set(r, name, 3, "three", 5, &fence) == PICKET_OK);
        CHECK_U64(fence, 7); /* it would have been refused */
        check_value(r, name, "three", 5);
        CHECK(picket_resource_claim(r, name, 6, &fence) == PICKET_OK);
        CHECK_U64(fence, 7);
        CHECK(picket_resource_check(r, name, 6, NULL) == PICKET_OK); /* is not counted */
        check_state(r, name, 7, 1, 2);
        CHECK(picket_resource_mode(r, name, 0) == PICKET_OK);
        CHECK(picket_resource_claim(r, name, 6, NULL) == PICKET_STALE);
        check_state(r, name, 7, 0, 2);
        check_value(r, name, "three", 5);
        picket_resource_close(r);
    }
}

/* ---- random calls against the rule ---- */

struct model {
    bool exists;
    uint64_t fence;
    bool shadow;
    uint64_t shadowed;
    uint64_t value; /* 0: none */
};

static uint64_t random_state;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (uint32_t)(random_state >> 33) % below;
}

/* Small tokens meet often; large ones are where numbers go wrong. */
static uint64_t draw_token(void)
{
    return draw(8) == 0 ? TOP - draw(3) : 1 + draw(draw(2) == 0 ? 6 : 40);
}

static enum picket_status expect_admit(struct model *m, uint64_t token)
{
    m->exists = true;
    switch (pk_fencing(m->fence, token)) {
    case PK_FENCING_STALE:
        m->shadowed += m->shadow ? 1 : 0;
        return m->shadow ? PICKET_OK : PICKET_STALE;
    case PK_FENCING_HELD:
        return PICKET_OK;
    case PK_FENCING_RAISE:
        m->fence = token;
        return PICKET_OK;
    }
    return PICKET_OK;
}

static enum picket_status expect(struct model *m, enum verb verb, uint64_t token)
{
    enum pk_fencing word = pk_fencing(m->fence, token);
    if (verb == CHECK_IT) {
        return m->shadow || word == PK_FENCING_HELD ? PICKET_OK
               : word == PK_FENCING_STALE           ? PICKET_STALE
                                                    : PICKET_UNCLAIMED;
    }
    if (verb == GET && token == 0) {
        return m->value == 0 && m->fence == 0 ? PICKET_NOTFOUND : PICKET_OK;
    }
    enum picket_status s = expect_admit(m, token);
    if (s == PICKET_OK && verb == SET) {
        m->value = token;
    }
    return s;
}

static void compare_value(struct picket_resource *r, const char *name,
                          const struct model *m)
{
    if (m->value != 0) {
        check_value(r, name, (const char *)&m->value, sizeof m->value);
    }
}

static void one_random_call(struct picket_resource *r, const char *name, struct model *m,
                            bool shadows)
{
    uint64_t fence = 0;
    enum verb verb = (enum verb)draw(4);
    uint64_t token = verb == GET && draw(3) == 0 ? 0 : draw_token();
    if (shadows && draw(12) == 0) {
        m->shadow = draw(2) == 0;
        m->exists = true;
        CHECK(picket_resource_mode(r, name, m->shadow) == PICKET_OK);
    }
    enum picket_status wanted = expect(m, verb, token);
    enum picket_status s = call(r, verb, name, token, &fence);
    CHECK_STR(picket_status_name(s), picket_status_name(wanted));
    CHECK_U64(fence, s == PICKET_NOTFOUND ? 0 : m->fence);
    compare_value(r, name, m);
    if (shadows && m->exists) {
        check_state(r, name, m->fence, m->shadow, m->shadowed);
    }
}

TEST(resource__does_what_the_rule_says_over_random_calls)
{
    size_t k;
    const char *seed = getenv("PICKET_SEED");
    random_state = (uint64_t)getpid();
    if (seed != NULL) {
        random_state = (uint64_t)strtoull(seed, NULL, 10);
    }
    printf("# PICKET_SEED=%" PRIu64 "\n", random_state);
    for (FOR_EACH_KIND(k)) {
        struct picket_resource *r = open_at(k);
        bool shadows = has_shadow(r);
        char names[MODELS][PK_NAME_MAX + 1];
        struct model models[MODELS] = {{0}};
        for (int i = 0; i < MODELS; i++) {
            (void)snprintf(names[i], sizeof names[i], "%s", new_name("random"));
        }
        for (int i = 0; i < CALLS; i++) {
            uint32_t at = draw(MODELS);
            one_random_call(r, names[at], &models[at], shadows);
        }
        picket_resource_close(r);
    }
}

/* ---- descriptors ---- */

static unsigned open_descriptors(bool inherited_only)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");
    CHECK(d != NULL);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        int fd = (int)strtol(e->d_name, NULL, 10);
        bool counts = fd > STDERR_FILENO && fd != dirfd(d);
        n += counts && !(inherited_only && (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    }
    (void)closedir(d);
    return n;
}

TEST(resource__closes_all_that_it_has_opened)
{
    size_t k;
    for (FOR_EACH_KIND(k)) {
        picket_resource_close(open_at(k)); /* what a library opens once for a process */
        unsigned before = open_descriptors(false);
        struct picket_resource *r = open_at(k);
        const char *name = new_name("descriptors");
        unsigned opened = open_descriptors(false);
        for (uint64_t token = 3; token > 0; token--) {
            CHECK(call(r, SET, name, token, NULL) ==
                  (token == 3 ? PICKET_OK : PICKET_STALE));
            (void)call(r, CLAIM, name, token, NULL);
            (void)call(r, CHECK_IT, name, token, NULL);
            (void)call(r, GET, name, token, NULL);
        }
        CHECK_U64(open_descriptors(false), opened);
        picket_resource_close(r);
        CHECK_U64(open_descriptors(false), before);
        enum picket_status s = picket_fence_install(urls[k], NULL);
        CHECK(s == PICKET_OK || s == PICKET_UNSUPPORTED);
        CHECK_U64(open_descriptors(false), before);
    }
}

/* A child that lives on would keep a connection open, and a transaction on it. */
TEST(resource__leaves_nothing_open_to_the_programs_that_are_started)
{
    size_t k;
    prepare();
    unsigned before = open_descriptors(true);
    for (FOR_EACH_KIND(k)) {
        struct picket_resource *r = open_at(k);
        CHECK(call(r, CLAIM, new_name("inherited"), 1, NULL) == PICKET_OK);
        CHECK_U64(open_descriptors(true), before);
        picket_resource_close(r);
    }
}

/* ---- URLs ---- */

TEST(resource__refuses_urls_that_it_can_do_nothing_with)
{
    static const struct {
        const char *url;
        enum picket_status status;
    } urls_wrong[] = {
        {"nosuch:thing", PICKET_UNSUPPORTED},
        {"locals:/tmp", PICKET_UNSUPPORTED},
        {"rediss://:secret@127.0.0.1:1", PICKET_UNSUPPORTED}, /* never without TLS */
#ifdef PICKET_WITH_SQLITE
        {"sqlite:", PICKET_BADARG},
        {"sqlite::memory:", PICKET_BADARG},
        {"sqlite:/nonexistent/file.db", PICKET_UNREACHABLE},
#endif
#ifdef PICKET_WITH_POSTGRES
        {"postgres://u:secret@127.0.0.1:99999/x", PICKET_BADARG},
        {"postgres://u:secret@127.0.0.1:1/x", PICKET_UNREACHABLE},
        {"postgresql://u:secret@[::1/x", PICKET_BADARG},
#endif
#ifdef PICKET_WITH_MYSQL
        {"mysql:u:secret@127.0.0.1/x", PICKET_BADARG},
        {"mysql://u:secret@127.0.0.1:99999/x", PICKET_BADARG},
        {"mysql://u:secret@127.0.0.1:1/x", PICKET_UNREACHABLE},
        {"mariadb://u:secret@127.0.0.1:1", PICKET_BADARG},
#endif
#ifdef PICKET_WITH_REDIS
        {"redis://u:secret@127.0.0.1:1", PICKET_UNREACHABLE},
        {"redis://:secret@127.0.0.1:1/zero", PICKET_BADARG},
        {"redis://:secret@127.0.0.1:1?option=x", PICKET_BADARG},
        {"redis://:secret%2@127.0.0.1:1", PICKET_BADARG},
#endif
    };
    for (size_t i = 0; i < sizeof urls_wrong / sizeof urls_wrong[0]; i++) {
        struct picket_resource *r = NULL;
        enum picket_status s = picket_resource_open(urls_wrong[i].url, &r);
        const char *why = picket_last_error();
        printf("# %s: %s\n", urls_wrong[i].url, why);
        CHECK_STR(picket_status_name(s), picket_status_name(urls_wrong[i].status));
        CHECK(strstr(why, "secret") == NULL); /* a password is never shown */
        CHECK(strchr(why, '\n') == NULL);
    }
}

#ifdef PICKET_WITH_SQLITE
/* A slip in a file's name must not end in a new database. */
TEST(resource__makes_no_sqlite_database)
{
    struct picket_resource *r;
    char url[URL_MAX];
    prepare();
    (void)snprintf(url, sizeof url, "sqlite:%s/typo.db", dir);
    CHECK(picket_resource_open(url, &r) == PICKET_UNREACHABLE);
    CHECK(picket_fence_install(url, NULL) == PICKET_UNREACHABLE);
    CHECK(access(url + strlen("sqlite:"), F_OK) != 0 && errno == ENOENT);
}
#endif
