/* SPDX-License-Identifier: MIT */
#include "server/query.h"

#include <stdio.h>
#include <stdlib.h>

#include "tap.h"

static struct pk_query q;

static void read_query(const char *text)
{
    pk_query_read(&q, pk_text(text));
}

static bool has_text(const char *text)
{
    return pk_bytes_equal(pk_bytes(q.text, q.text_len), pk_text(text));
}

TEST(query__reads_what_it_knows)
{
    read_query("");
    CHECK(q.sort == PK_SORT_WAITERS && q.show == PK_SHOW_ALL && q.text_len == 0);
    CHECK(q.lock_len == 0 && !q.prefix);
    read_query("q=orders/*&sort=left&show=expiring&lock=a%2Fb+c&else=1&");
    CHECK(q.sort == PK_SORT_LEFT && q.show == PK_SHOW_EXPIRING);
    CHECK(q.prefix && has_text("orders/"));
    CHECK(pk_bytes_equal(pk_bytes(q.lock, q.lock_len), pk_text("a/b c")));
    read_query("sort=name&show=closed");
    CHECK(q.sort == PK_SORT_NAME && q.show == PK_SHOW_CLOSED);
    read_query("sort=age&show=waiting");
    CHECK(q.sort == PK_SORT_AGE && q.show == PK_SHOW_WAITING);
}

TEST(query__takes_nonsense_calmly)
{
    read_query("sort=sideways&show=&q&=&&=x");
    CHECK(q.sort == PK_SORT_WAITERS && q.show == PK_SHOW_ALL && q.text_len == 0);
    read_query("q=%zz%4&lock=%");
    CHECK(has_text("%zz%4"));
    CHECK_U64(q.lock_len, 1);
    read_query("q=%41%4");
    CHECK(has_text("A%4"));
    read_query("q=*");
    CHECK(q.prefix && q.text_len == 0);
    char many[700];
    memset(many, 'x', sizeof many);
    many[0] = 'q';
    many[1] = '=';
    pk_query_read(&q, pk_bytes(many, sizeof many));
    CHECK_U64(q.text_len, PK_NAME_MAX);
}

static struct pk_look_lock lock(const char *name)
{
    return (struct pk_look_lock){.name = pk_text(name), .holders = 1, .ends_ms = 5000};
}

TEST(query__filters_by_name_and_holder)
{
    struct pk_look_lock l = lock("orders/export");
    l.label = pk_text("user=ann");
    read_query("q=export");
    CHECK(pk_query_fits(&q, &l, 0));
    read_query("q=ann");
    CHECK(pk_query_fits(&q, &l, 0));
    read_query("q=export*");
    CHECK(!pk_query_fits(&q, &l, 0));
    read_query("q=orders/*");
    CHECK(pk_query_fits(&q, &l, 0));
    read_query("q=orders/export-and-more*");
    CHECK(!pk_query_fits(&q, &l, 0));
    read_query("q=exporx");
    CHECK(!pk_query_fits(&q, &l, 0));
}

TEST(query__filters_by_state)
{
    struct pk_look_lock l = lock("a");
    read_query("show=expiring");
    CHECK(!pk_query_fits(&q, &l, 4000));
    CHECK(pk_query_fits(&q, &l, 4001));
    read_query("show=waiting");
    CHECK(!pk_query_fits(&q, &l, 0));
    l.waiters = 1;
    CHECK(pk_query_fits(&q, &l, 0));
    read_query("show=closed");
    CHECK(!pk_query_fits(&q, &l, 0));
    l.closed_until_ms = 1;
    CHECK(pk_query_fits(&q, &l, 0));
    read_query("show=held");
    CHECK(pk_query_fits(&q, &l, 0));
    l.holders = 0;
    CHECK(!pk_query_fits(&q, &l, 0));
    read_query("show=expiring");
    CHECK(!pk_query_fits(&q, &l, 9999));
}

/* ---- the best ---- */

enum { LOCKS = 3000 };

struct one {
    char name[16];
    uint32_t waiters;
    uint64_t since_ms, ends_ms;
};

static struct one all[LOCKS];
static enum pk_query_sort order;

static uint64_t rank(const struct one *o)
{
    return order == PK_SORT_WAITERS ? UINT64_MAX - o->waiters
           : order == PK_SORT_AGE   ? o->since_ms
           : order == PK_SORT_LEFT  ? o->ends_ms
                                    : 0;
}

static int compare(const void *x, const void *y)
{
    uint64_t a = rank(x), b = rank(y);
    return a != b ? (a < b ? -1 : 1)
                  : strcmp(((const struct one *)x)->name, ((const struct one *)y)->name);
}

static void offer_all(struct pk_best *b, size_t n)
{
    pk_best_begin(b, order);
    for (size_t i = 0; i < n; i++) {
        struct pk_look_lock l = lock(all[i].name);
        l.waiters = all[i].waiters;
        l.since_ms = all[i].since_ms;
        l.ends_ms = all[i].ends_ms;
        pk_best_offer(b, &l);
    }
    pk_best_finish(b);
}

TEST(query__keeps_the_first_rows_in_each_order)
{
    static struct pk_best best;
    uint64_t seed = 1;
    for (size_t i = 0; i < LOCKS; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        (void)snprintf(all[i].name, sizeof all[i].name, "l%04zu", (i * 1237) % LOCKS);
        all[i].waiters = (uint32_t)(seed >> 60);
        all[i].since_ms = (seed >> 40) % 500;
        all[i].ends_ms = (seed >> 20) % 500;
    }
    for (order = PK_SORT_WAITERS; order <= PK_SORT_NAME; order++) {
        size_t sizes[] = {0, 1, 7, PK_QUERY_ROWS, PK_QUERY_ROWS + 1, LOCKS};
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            offer_all(&best, sizes[s]);
            CHECK_U64(best.offered, sizes[s]);
            CHECK_U64(best.n, sizes[s] < PK_QUERY_ROWS ? sizes[s] : PK_QUERY_ROWS);
            static struct one sorted[LOCKS];
            memcpy(sorted, all, sizeof all);
            qsort(sorted, sizes[s], sizeof sorted[0], compare);
            for (uint32_t i = 0; i < best.n; i++) {
                CHECK(pk_bytes_equal(pk_bytes(best.rows[i].name, best.rows[i].name_len),
                                     pk_text(sorted[i].name)));
            }
        }
    }
}
