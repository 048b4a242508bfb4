/* SPDX-License-Identifier: MIT */
/* Fences over a store of the user's own, by load and compare_and_swap. */
#include <picket_fence.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/fencing.h"
#include "host/clock.h"
#include "tap.h"

/* The smallest store there can be: one cell, versions from a counter. */
struct toy {
    pthread_mutex_t mutex;
    struct picket_fence_state fence;
    unsigned version;
    char value[32];
    size_t len;
    unsigned swaps, lost;
    int lose; /* so many swaps are lost to somebody else first */
    enum picket_status broken;
    enum picket_status answer; /* of a swap that was done */
    uint64_t overtake;         /* a token that claims before a value is read; 0: none */
};

static enum picket_status load(void *ctx, const char *name, int with_value,
                               struct picket_cell *out)
{
    struct toy *t = ctx;
    (void)name;
    pthread_mutex_lock(&t->mutex);
    if (with_value != 0 && t->overtake != 0) {
        t->fence.token = t->overtake;
        t->version++;
    }
    if (t->version > 0) {
        out->fence = t->fence;
        snprintf(out->version, sizeof out->version, "v%u", t->version);
        if (with_value != 0 && t->len > 0) {
            char *copy = malloc(t->len);
            memcpy(copy, t->value, t->len);
            out->value = copy;
            out->len = t->len;
        }
    }
    pthread_mutex_unlock(&t->mutex);
    return t->broken;
}

static enum picket_status swap(void *ctx, const char *name, const char *version,
                               const struct picket_cell *next)
{
    struct toy *t = ctx;
    char now[PICKET_VERSION_MAX] = "";
    enum picket_status s = PICKET_BUSY;
    (void)name;
    pthread_mutex_lock(&t->mutex);
    if (t->version > 0) {
        snprintf(now, sizeof now, "v%u", t->version);
    }
    if (t->lose > 0) {
        t->lose--;
        t->version++;
    } else if (strcmp(now, version) == 0) {
        t->fence = next->fence;
        t->version++;
        t->swaps++;
        if (next->value != NULL) {
            memcpy(t->value, next->value, next->len);
            t->len = next->len;
        }
        s = t->answer;
    }
    t->lost += s == PICKET_BUSY;
    pthread_mutex_unlock(&t->mutex);
    return s;
}

static struct picket_resource *over(struct toy *t)
{
    struct picket_resource *r = NULL;
    struct picket_cas cas = {.ctx = t, .load = load, .compare_and_swap = swap};
    CHECK(picket_resource_over(&cas, &r) == PICKET_OK);
    return r;
}

#define TOY                                                                              \
    {                                                                                    \
        .mutex = PTHREAD_MUTEX_INITIALIZER                                               \
    }

TEST(cas__keeps_the_rule_over_random_tokens)
{
    struct toy t = TOY;
    struct picket_resource *r = over(&t);
    uint64_t fence = 0;
    uint64_t told;
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t token = 1 + pk_random() % (fence + 3);
        enum picket_status wanted =
            pk_fencing(fence, token) == PK_FENCING_STALE ? PICKET_STALE : PICKET_OK;
        fence = token > fence ? token : fence;
        CHECK_U64(i % 2 == 0 ? picket_resource_claim(r, "x", token, &told)
                             : picket_resource_set(r, "x", token, "v", 1, &told),
                  wanted);
        CHECK_U64(told, fence);
    }
    picket_resource_close(r);
}

TEST(cas__an_equal_claim_swaps_nothing)
{
    struct toy t = TOY;
    struct picket_resource *r = over(&t);
    CHECK(picket_resource_claim(r, "x", 7, NULL) == PICKET_OK);
    CHECK(picket_resource_claim(r, "x", 7, NULL) == PICKET_OK);
    CHECK(picket_resource_claim(r, "x", 6, NULL) == PICKET_STALE);
    CHECK_U64(t.swaps, 1);
    picket_resource_close(r);
}

TEST(cas__who_was_overtaken_between_load_and_swap_looks_again)
{
    struct toy t = TOY;
    t.lose = 3;
    struct picket_resource *r = over(&t);
    CHECK(picket_resource_claim(r, "x", 7, NULL) == PICKET_OK);
    CHECK_U64(t.lost, 3);
    picket_resource_close(r);
}

TEST(cas__a_store_that_never_swaps_is_told_of)
{
    struct toy t = TOY;
    t.lose = 1000000;
    struct picket_resource *r = over(&t);
    CHECK(picket_resource_claim(r, "x", 7, NULL) == PICKET_BUSY);
    CHECK(strstr(picket_last_error(), "quicker") != NULL);
    picket_resource_close(r);
}

TEST(cas__what_the_store_says_is_passed_on)
{
    struct toy t = TOY;
    struct picket_resource *r = over(&t);
    t.broken = PICKET_UNREACHABLE;
    CHECK(picket_resource_claim(r, "x", 7, NULL) == PICKET_UNREACHABLE);
    CHECK(picket_resource_check(r, "x", 7, NULL) == PICKET_UNREACHABLE);
    CHECK_U64(t.swaps, 0);
    picket_resource_close(r);
}

struct writer {
    struct toy *toy;
    uint64_t token;
    uint64_t accepted;
};

static void *write_often(void *arg)
{
    struct writer *w = arg;
    struct picket_resource *r = over(w->toy);
    char value[32];
    int len = snprintf(value, sizeof value, "%llu", (unsigned long long)w->token);
    for (int i = 0; i < 2000; i++) {
        w->accepted +=
            picket_resource_set(r, "x", w->token, value, (size_t)len, NULL) == PICKET_OK;
    }
    picket_resource_close(r);
    return NULL;
}

TEST(cas__threads_with_different_tokens_leave_the_highest_ones_value)
{
    struct toy t = TOY;
    struct writer writers[8];
    pthread_t threads[8];
    for (uint64_t i = 0; i < 8; i++) {
        writers[i] = (struct writer){&t, i + 1, 0};
        CHECK(pthread_create(&threads[i], NULL, write_often, &writers[i]) == 0);
    }
    for (int i = 0; i < 8; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK_U64(t.fence.token, 8);
    CHECK_U64(writers[7].accepted, 2000);
    CHECK(t.len == 1 && t.value[0] == '8');
}

TEST(cas__a_read_with_a_token_raises_the_fence_first)
{
    struct toy t = TOY;
    struct picket_resource *r = over(&t);
    char *value = NULL;
    size_t len;
    uint64_t fence;
    CHECK(picket_resource_get(r, "x", 0, &value, &len, NULL) == PICKET_NOTFOUND);
    CHECK(picket_resource_set(r, "x", 3, "abc", 3, NULL) == PICKET_OK);
    CHECK(picket_resource_get(r, "x", 5, &value, &len, &fence) == PICKET_OK);
    CHECK_STR(value, "abc");
    free(value);
    CHECK_U64(fence, 5);
    CHECK(picket_resource_set(r, "x", 4, "late", 4, NULL) == PICKET_STALE);
    CHECK(picket_resource_get(r, "x", 4, &value, &len, NULL) == PICKET_STALE);
    picket_resource_close(r);
}

/* What a higher token has written is not for the one before it. */
TEST(cas__a_read_that_is_overtaken_is_refused)
{
    struct toy t = TOY;
    struct picket_resource *r = over(&t);
    char *value = NULL;
    size_t len;
    uint64_t fence = 0;
    CHECK(picket_resource_set(r, "x", 5, "abc", 3, NULL) == PICKET_OK);
    t.overtake = 6;
    CHECK(picket_resource_get(r, "x", 5, &value, &len, &fence) == PICKET_STALE);
    CHECK_U64(fence, 6);
    CHECK(value == NULL);
    CHECK(picket_resource_get(r, "x", 6, &value, &len, &fence) == PICKET_OK);
    CHECK_STR(value, "abc");
    free(value);
    picket_resource_close(r);
}

TEST(cas__a_swap_of_unknown_outcome_is_not_repeated)
{
    struct toy t = TOY;
    t.answer = PICKET_UNKNOWN;
    struct picket_resource *r = over(&t);
    CHECK(picket_resource_set(r, "x", 7, "v", 1, NULL) == PICKET_UNKNOWN);
    CHECK_U64(t.swaps, 1);
    picket_resource_close(r);
}

TEST(cas__words_are_checked_before_the_store_is_asked)
{
    struct toy t = TOY;
    struct picket_resource *r = over(&t);
    t.broken = PICKET_UNREACHABLE;
    CHECK(picket_resource_claim(r, "x", 0, NULL) == PICKET_BADARG);
    CHECK(picket_resource_claim(r, "x", UINT64_C(1) << 53, NULL) == PICKET_BADARG);
    CHECK(picket_resource_claim(r, "", 1, NULL) == PICKET_BADARG);
    CHECK(picket_resource_claim(r, "a\nb", 1, NULL) == PICKET_BADARG);
    picket_resource_close(r);
    struct picket_cas half = {.ctx = &t, .load = load};
    CHECK(picket_resource_over(&half, &r) == PICKET_BADARG);
}
