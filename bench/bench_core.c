/* SPDX-License-Identifier: MIT */
/*
 * The lock machine alone: steps per second and bytes per hold, at growing numbers of
 * holds; then a million leases with a lock each: what one costs, and how much more memory
 * a snapshot and the end of all of them take.
 *
 * Memory is what the allocator handed out (mallinfo2), its own rounding included. In the
 * first table leases are there before the first hold, so they are not part of a hold's
 * price; neither is the name. In the second, `text` is the bytes of label and name.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/door.h"
#include "core/machine.h"

enum { PER_LEASE = 100, PAIRS = 400000 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Names come in no order, as they would. */
static struct pk_bytes name_of(uint64_t i, char *out, size_t size)
{
    int n = snprintf(out, size, "orders/%012llx", (unsigned long long)(mix(i) >> 16));
    return pk_bytes(out, (size_t)n);
}

struct bench {
    struct pk_machine *m;
    struct pk_effects effects;
    uint64_t holds;
    uint64_t *tokens;   /* of hold i */
    uint64_t *requests; /* the last id of each lease */
    uint64_t clock;
};

static uint64_t step(struct bench *b, struct pk_command *c)
{
    c->stamp_ms = b->clock;
    pk_effects_reset(&b->effects);
    pk_machine_step(b->m, c, &b->effects);
    const struct pk_effect *r = &b->effects.list[0];
    if (r->status != PK_OK) {
        fprintf(stderr, "bench: %s answered %s\n", pk_verb_name(c->verb),
                pk_status_name(r->status));
        exit(1);
    }
    return r->token;
}

static void acquire(struct bench *b, uint64_t i)
{
    char name[32];
    uint64_t lease = i / PER_LEASE;
    struct pk_command c = {
        .verb = PK_LOCK_ACQUIRE,
        .lease = lease + 1,
        .request = ++b->requests[lease],
        .parts = {{.name = name_of(i, name, sizeof name), .mode = PK_EXCLUSIVE}},
        .n_parts = 1};
    b->tokens[i] = step(b, &c);
}

static void release(struct bench *b, uint64_t i)
{
    char name[32];
    uint64_t lease = i / PER_LEASE;
    struct pk_command c = {.verb = PK_LOCK_RELEASE,
                           .lease = lease + 1,
                           .request = ++b->requests[lease],
                           .name = name_of(i, name, sizeof name),
                           .token = b->tokens[i]};
    step(b, &c);
}

static void renew(struct bench *b, uint64_t lease)
{
    unsigned char id[8];
    pk_command_put_lease(id, 0, lease + 1);
    struct pk_command c = {.verb = PK_LEASE_RENEW, .leases = id, .n_leases = 1};
    step(b, &c);
}

static void run(uint64_t holds)
{
    struct bench b = {.m = pk_machine_new(), .holds = holds, .clock = 1};
    uint64_t leases = (holds + PER_LEASE - 1) / PER_LEASE;
    b.tokens = calloc(holds, sizeof *b.tokens);
    b.requests = calloc(leases, sizeof *b.requests);
    for (uint64_t i = 0; i < leases; i++) {
        struct pk_command c = {.verb = PK_LEASE_OPEN,
                               .request = i + 1,
                               .ttl_ms = PK_TTL_MAX_MS,
                               .label = pk_text("host=web1\npid=4711\nuser=app")};
        step(&b, &c);
    }
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    double t0 = seconds();
    for (uint64_t i = 0; i < holds; i++) {
        acquire(&b, i);
    }
    double t1 = seconds();
    size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;
    for (uint64_t i = 0; i < PAIRS; i++) {
        uint64_t k = mix(i) % holds;
        release(&b, k);
        acquire(&b, k);
    }
    double t2 = seconds();
    for (uint64_t i = 0; i < PAIRS; i++) {
        b.clock += i % 64 == 0;
        renew(&b, mix(i) % leases);
    }
    double t3 = seconds();
    unsigned char *snapshot;
    size_t size = pk_machine_snapshot(b.m, &snapshot);
    double t4 = seconds();
    pk_door_resize(snapshot, 0);
    const double name_bytes = 19;
    printf("%9llu  %11.0f  %16.0f  %11.0f  %14.1f  %8.1f MB in %4.0f ms\n",
           (unsigned long long)holds, (double)holds / (t1 - t0), 2.0 * PAIRS / (t2 - t1),
           PAIRS / (t3 - t2), (double)(after - before) / (double)holds - name_bytes,
           (double)size / 1e6, (t4 - t3) * 1e3);
    free(b.tokens);
    free(b.requests);
    pk_effects_free(&b.effects);
    pk_machine_free(b.m);
}

/* ---- a lease with its lock ---- */

enum { LEASES = 1000000 };

static size_t heap_now(void)
{
    struct mallinfo2 i = mallinfo2();
    return i.uordblks + i.hblkhd;
}

static double per_lease(size_t before)
{
    return ((double)heap_now() - (double)before) / LEASES;
}

/* A lease of its own for each lock. */
static void fill(struct bench *b, struct pk_bytes label)
{
    char name[32];
    for (uint64_t i = 0; i < LEASES; i++) {
        struct pk_command open = {
            .verb = PK_LEASE_OPEN, .request = mix(i), .ttl_ms = 60000, .label = label};
        step(b, &open);
        struct pk_command acquire = {
            .verb = PK_LOCK_ACQUIRE,
            .lease = i + 1,
            .request = 1,
            .parts = {{.name = name_of(i, name, sizeof name), .mode = PK_EXCLUSIVE}},
            .n_parts = 1};
        step(b, &acquire);
    }
}

/* The most memory beyond `before` while a snapshot is read, when all leases are renewed
 * before its first byte is read. */
static size_t during_snapshot(struct bench *b, size_t before)
{
    static unsigned char bytes[256 * 1024];
    size_t most = 0;
    pk_view_begin(b->m);
    for (uint64_t i = 0; i < LEASES; i++) {
        renew(b, i);
    }
    while (!pk_view_is_done(b->m)) {
        pk_view_read(b->m, bytes, sizeof bytes);
        size_t more = heap_now() - before;
        most = more > most ? more : most;
    }
    pk_view_end(b->m);
    return most;
}

/* All leases end together, in slices; the most memory beyond `before` meanwhile. */
static size_t during_expiry(struct bench *b, size_t before, double *longest)
{
    size_t most = 0;
    *longest = 0;
    b->clock += 2 * 60000;
    for (uint64_t i = 0; pk_machine_stats(b->m).leases > 0; i++) {
        struct pk_command c = {.verb = PK_TICK, .stamp_ms = b->clock};
        double t0 = seconds();
        pk_effects_reset(&b->effects);
        pk_machine_step(b->m, &c, &b->effects);
        double took = seconds() - t0;
        *longest = took > *longest ? took : *longest;
        size_t now = i % 100 == 0 ? heap_now() : 0; /* which walks over all free memory */
        most = now > before && now - before > most ? now - before : most;
    }
    return most;
}

static void lease_with_lock(const char *label)
{
    struct bench b = {.m = pk_machine_new(), .clock = 1};
    struct pk_bytes text = pk_text(label);
    size_t empty = heap_now();
    fill(&b, text);
    double bytes = per_lease(empty);
    double longest;
    size_t full = heap_now();
    size_t snapshot = during_snapshot(&b, full);
    size_t expiry = during_expiry(&b, full, &longest);
    printf("%9d  %5.0f  %15.1f  %13.1f  %+12.1f MB  %+12.1f MB, a step %.1f ms\n", LEASES,
           (double)text.len + 19, bytes, bytes - 19 - (double)text.len,
           (double)snapshot / 1e6, (double)expiry / 1e6, longest * 1e3);
    pk_effects_free(&b.effects);
    pk_machine_free(b.m);
}

int main(void)
{
    static const uint64_t sizes[] = {1000, 100000, 1000000};
    printf("    holds   acquires/s  release+acquire/s     renews/s  bytes per hold  "
           "snapshot\n");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        run(sizes[i]);
    }
    printf("\n   leases   text  bytes per lease  beyond text      at snapshot"
           "        at expiry of all\n");
    lease_with_lock("");
    lease_with_lock("host=web1\npid=4711\nuser=app");
    return 0;
}
