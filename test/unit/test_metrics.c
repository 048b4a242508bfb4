/* SPDX-License-Identifier: MIT */
#include "server/metrics.h"

#include <stdio.h>
#include <stdlib.h>

#include "tap.h"

/* ---- the text ---- */

static struct pk_resp_out text;

static void render_now(const struct pk_metrics *m, const struct pk_metrics_now *now)
{
    pk_resp_free(&text);
    pk_metrics_write(m, now, &text);
    pk_resp_raw(&text, "", 1);
}

static void render(const struct pk_metrics *m)
{
    render_now(m, &(struct pk_metrics_now){.node = "n1"});
}

/* The value of the line that begins with `sample` and a blank; NULL: there is none. */
static const char *find(const char *sample)
{
    static char value[64];
    size_t len = strlen(sample);
    for (const char *line = text.data; *line != '\0'; line = strchr(line, '\n') + 1) {
        if (strncmp(line, sample, len) == 0 && line[len] == ' ') {
            size_t n = strcspn(line + len + 1, "\n");
            CHECK(n < sizeof value);
            memcpy(value, line + len + 1, n);
            value[n] = '\0';
            return value;
        }
    }
    return NULL;
}

#define CHECK_SAMPLE(sample, value) CHECK_STR(find(sample), value)

/* ---- a machine to watch ---- */

static struct pk_machine *machine;
static struct pk_metrics *metrics;

static void begin(const char *const *prefixes, size_t n)
{
    machine = pk_machine_new();
    metrics = pk_metrics_new(prefixes, n);
}

static void end(void)
{
    pk_machine_free(machine);
    pk_metrics_free(metrics);
    pk_resp_free(&text);
}

static void step(struct pk_command c, uint64_t at_ms)
{
    struct pk_effects e = {0};
    c.stamp_ms = at_ms;
    pk_machine_step(machine, &c, &e);
    pk_metrics_step(metrics, &e);
    pk_effects_free(&e);
}

static void open_lease(uint64_t ttl_ms, uint64_t at_ms)
{
    step((struct pk_command){.verb = PK_LEASE_OPEN, .ttl_ms = ttl_ms}, at_ms);
}

static void acquire(uint64_t lease, const char *name, uint64_t wait_ms, uint64_t at_ms)
{
    struct pk_command c = {
        .verb = PK_LOCK_ACQUIRE, .lease = lease, .wait_ms = wait_ms, .n_parts = 1};
    c.parts[0] = (struct pk_part){.name = pk_text(name), .mode = PK_EXCLUSIVE};
    step(c, at_ms);
}

/* ---- what is counted ---- */

TEST(metrics__counts_losses_by_reason_and_prefix)
{
    const char *const prefixes[] = {"jobs/", "jobs/nightly/"};
    begin(prefixes, 2);
    open_lease(1000, 1);
    acquire(1, "jobs/a", 0, 2);
    acquire(1, "jobs/nightly/b", 0, 3);
    acquire(1, "other", 0, 4);
    struct pk_command held = {
        .verb = PK_LOCK_BREAK, .name = pk_text("other"), .token = 3};
    step(held, 5);
    step((struct pk_command){.verb = PK_TICK}, 2000);
    open_lease(1000, 2001);
    acquire(2, "jobs/a", 0, 2002);
    step((struct pk_command){.verb = PK_LEASE_CLOSE, .lease = 2}, 2003);
    render(metrics);
    CHECK_SAMPLE("picket_lock_lost_total{prefix=\"jobs/\",reason=\"expired\"}", "1");
    CHECK_SAMPLE("picket_lock_lost_total{prefix=\"jobs/nightly/\",reason=\"expired\"}",
                 "1");
    CHECK_SAMPLE("picket_lock_lost_total{prefix=\"\",reason=\"broken\"}", "1");
    CHECK_SAMPLE("picket_lock_lost_total{prefix=\"\",reason=\"expired\"}", "0");
    CHECK_SAMPLE("picket_lease_expired_total", "1");
    CHECK_SAMPLE("picket_leases_opened_total", "2");
    end();
}

TEST(metrics__a_restore_is_a_loss)
{
    begin(NULL, 0);
    open_lease(1000, 1);
    acquire(1, "a", 0, 2);
    step((struct pk_command){.verb = PK_LEAP}, 3);
    render(metrics);
    CHECK_SAMPLE("picket_lock_lost_total{prefix=\"\",reason=\"restored\"}", "1");
    end();
}

TEST(metrics__max_hold_is_a_loss)
{
    begin(NULL, 0);
    open_lease(10000, 1);
    struct pk_command c = {
        .verb = PK_LOCK_ACQUIRE, .lease = 1, .max_hold_ms = 10, .n_parts = 1};
    c.parts[0] = (struct pk_part){.name = pk_text("a"), .mode = PK_EXCLUSIVE};
    step(c, 2);
    step((struct pk_command){.verb = PK_TICK}, 100);
    render(metrics);
    CHECK_SAMPLE("picket_lock_lost_total{prefix=\"\",reason=\"overheld\"}", "1");
    end();
}

/* Refusals by their answer; waits by how the waiter left. A set that leaves two queues is
 * one failure. */
TEST(metrics__counts_failed_acquires_once)
{
    begin(NULL, 0);
    open_lease(100000, 1);
    open_lease(100000, 1);
    acquire(1, "a", 0, 2);
    acquire(2, "a", 0, 3); /* busy */
    struct pk_command set = {
        .verb = PK_LOCK_ACQUIRE, .lease = 2, .request = 5, .wait_ms = 50, .n_parts = 2};
    set.parts[0] = (struct pk_part){.name = pk_text("a"), .mode = PK_EXCLUSIVE};
    set.parts[1] = (struct pk_part){.name = pk_text("b"), .mode = PK_EXCLUSIVE};
    step(set, 4);
    step((struct pk_command){.verb = PK_TICK}, 100); /* timeout */
    step(set, 101);                                  /* its repeat is not another one */
    set.request = 6;
    set.wait_ms = PK_WAIT_FOREVER;
    step(set, 102);
    step((struct pk_command){.verb = PK_LOCK_CANCEL, .lease = 2, .target = 6}, 103);
    set.request = 7;
    step(set, 104);
    step((struct pk_command){.verb = PK_LEASE_CLOSE, .lease = 2}, 105); /* lost */
    acquire(2, "a", 0, 106);                                            /* lost, too */
    acquire(99, "a", 0, 107);                                           /* not found */
    struct pk_command slot = {.verb = PK_LOCK_ACQUIRE, .lease = 1, .n_parts = 1};
    slot.parts[0] = (struct pk_part){.name = pk_text("a"), .mode = PK_SLOT, .slots = 3};
    step(slot, 108); /* mismatch */
    render(metrics);
    CHECK_SAMPLE("picket_lock_acquire_failures_total{reason=\"busy\"}", "1");
    CHECK_SAMPLE("picket_lock_acquire_failures_total{reason=\"timeout\"}", "1");
    CHECK_SAMPLE("picket_lock_acquire_failures_total{reason=\"cancelled\"}", "1");
    CHECK_SAMPLE("picket_lock_acquire_failures_total{reason=\"lost\"}", "2");
    CHECK_SAMPLE("picket_lock_acquire_failures_total{reason=\"notfound\"}", "1");
    CHECK_SAMPLE("picket_lock_acquire_failures_total{reason=\"mismatch\"}", "1");
    CHECK_SAMPLE("picket_lock_acquire_failures_total{reason=\"limit\"}", "0");
    end();
}

TEST(metrics__counts_renewals_and_fences)
{
    begin(NULL, 0);
    open_lease(1000, 1);
    unsigned char ids[16];
    pk_command_put_lease(ids, 0, 1);
    pk_command_put_lease(ids, 1, 9);
    step((struct pk_command){.verb = PK_LEASE_RENEW, .leases = ids, .n_leases = 2}, 2);
    step((struct pk_command){.verb = PK_TICK}, 5000);
    step((struct pk_command){.verb = PK_LEASE_RENEW, .leases = ids, .n_leases = 1}, 5001);
    struct pk_command fence = {.verb = PK_FENCE_CHECK, .name = pk_text("r"), .token = 5};
    step(fence, 5002); /* unclaimed */
    fence.verb = PK_FENCE_CLAIM;
    step(fence, 5003);
    fence.token = 4;
    step(fence, 5004); /* stale */
    fence.verb = PK_FENCE_SET;
    step(fence, 5005); /* stale */
    render(metrics);
    CHECK_SAMPLE("picket_renewals_total", "1");
    CHECK_SAMPLE("picket_renewal_failures_total{reason=\"notfound\"}", "1");
    CHECK_SAMPLE("picket_renewal_failures_total{reason=\"lost\"}", "1");
    CHECK_SAMPLE("picket_fence_rejected_total{reason=\"stale\"}", "2");
    CHECK_SAMPLE("picket_fence_rejected_total{reason=\"unclaimed\"}", "1");
    end();
}

/* What shadow mode lets through is counted apart, and is no refusal. */
TEST(metrics__counts_what_shadow_mode_lets_through)
{
    begin(NULL, 0);
    struct pk_command fence = {
        .verb = PK_FENCE_MODE, .name = pk_text("r"), .flags = PK_FENCE_SHADOW};
    step(fence, 1);
    fence = (struct pk_command){.verb = PK_FENCE_CHECK, .name = pk_text("r"), .token = 5};
    step(fence, 2); /* would be unclaimed */
    fence.verb = PK_FENCE_CLAIM;
    step(fence, 3);
    step(fence, 4);
    fence.token = 4;
    static const enum pk_verb verbs[] = {PK_FENCE_CLAIM, PK_FENCE_SET, PK_FENCE_GET,
                                         PK_FENCE_CHECK};
    for (uint64_t i = 0; i < 4; i++) {
        fence.verb = verbs[i];
        step(fence, 5 + i); /* would be stale */
    }
    render(metrics);
    CHECK_SAMPLE("picket_fence_shadowed_total{reason=\"stale\"}", "4");
    CHECK_SAMPLE("picket_fence_shadowed_total{reason=\"unclaimed\"}", "1");
    CHECK_SAMPLE("picket_fence_rejected_total{reason=\"stale\"}", "0");
    CHECK_SAMPLE("picket_fence_rejected_total{reason=\"unclaimed\"}", "0");
    end();
}

/* Keys are locks, whatever dialect they come in. */
TEST(metrics__counts_keys_like_locks)
{
    begin(NULL, 0);
    struct pk_command c = {
        .verb = PK_KEY_TAKE, .ttl_ms = 1000, .value = pk_text("me"), .n_parts = 1};
    c.parts[0] = (struct pk_part){.name = pk_text("k"), .mode = PK_EXCLUSIVE};
    step(c, 1);
    step(c, 2); /* busy */
    c.verb = PK_KEY_KEEP;
    step(c, 3);
    c.value = pk_text("you");
    step(c, 4); /* not held */
    step((struct pk_command){.verb = PK_TICK}, 5000);
    render(metrics);
    CHECK_SAMPLE("picket_lock_acquire_failures_total{reason=\"busy\"}", "1");
    CHECK_SAMPLE("picket_renewals_total", "1");
    CHECK_SAMPLE("picket_renewal_failures_total{reason=\"notheld\"}", "1");
    CHECK_SAMPLE("picket_lock_lost_total{prefix=\"\",reason=\"expired\"}", "1");
    end();
}

/* ---- durations ---- */

static void event(enum pk_effect_kind kind, const char *name, uint64_t lasted_ms)
{
    struct pk_effects e = {0};
    struct pk_effect x = {.kind = kind, .name = pk_text(name), .lasted_ms = lasted_ms};
    x.end = kind == PK_EV_ENDED ? PK_END_RELEASED : PK_END_NONE;
    pk_effects_add(&e, &x);
    pk_metrics_step(metrics, &e);
    pk_effects_free(&e);
}

/* One holder has it at once and for 2.5 s; who waited gets it then, for an hour. */
TEST(metrics__waits_and_holds_are_durations_in_cluster_time)
{
    const char *const prefixes[] = {"db/"};
    begin(prefixes, 1);
    open_lease(PK_TTL_MAX_MS, 7000);
    open_lease(PK_TTL_MAX_MS, 7000);
    acquire(1, "db/a", 0, 7000);
    acquire(2, "db/a", PK_WAIT_FOREVER, 7001);
    acquire(1, "x", 0, 8000);
    struct pk_command c = {
        .verb = PK_LOCK_RELEASE, .lease = 1, .name = pk_text("x"), .token = 2};
    step(c, 8250);
    c.name = pk_text("db/a");
    c.token = 1;
    step(c, 9500);
    c.lease = 2;
    c.token = 3;
    step(c, 9500 + 3600001);
    render(metrics);
    CHECK_SAMPLE("picket_lock_acquire_wait_seconds_bucket{prefix=\"db/\",le=\"0\"}", "1");
    CHECK_SAMPLE("picket_lock_acquire_wait_seconds_bucket{prefix=\"db/\",le=\"1\"}", "1");
    CHECK_SAMPLE("picket_lock_acquire_wait_seconds_bucket{prefix=\"db/\",le=\"5\"}", "2");
    CHECK_SAMPLE("picket_lock_acquire_wait_seconds_sum{prefix=\"db/\"}", "2.499");
    CHECK_SAMPLE("picket_lock_acquire_wait_seconds_count{prefix=\"db/\"}", "2");
    CHECK_SAMPLE("picket_lock_hold_seconds_bucket{prefix=\"db/\",le=\"3600\"}", "1");
    CHECK_SAMPLE("picket_lock_hold_seconds_bucket{prefix=\"db/\",le=\"+Inf\"}", "2");
    CHECK_SAMPLE("picket_lock_hold_seconds_sum{prefix=\"db/\"}", "3602.501");
    CHECK_SAMPLE("picket_lock_hold_seconds_sum{prefix=\"\"}", "0.25");
    CHECK_SAMPLE("picket_lock_hold_seconds_count{prefix=\"\"}", "1");
    end();
}

TEST(metrics__times_are_kept_in_microseconds)
{
    begin(NULL, 0);
    pk_metrics_time(metrics, PK_TIME_COMMIT, 50);
    pk_metrics_time(metrics, PK_TIME_COMMIT, 51);
    pk_metrics_time(metrics, PK_TIME_COMMIT, 6000000);
    pk_metrics_time(metrics, PK_TIME_DISK_WRITE, 3);
    pk_metrics_batch(metrics, 1);
    pk_metrics_batch(metrics, 300);
    render(metrics);
    CHECK_SAMPLE("picket_commit_seconds_bucket{le=\"0.00005\"}", "1");
    CHECK_SAMPLE("picket_commit_seconds_bucket{le=\"0.0001\"}", "2");
    CHECK_SAMPLE("picket_commit_seconds_bucket{le=\"5\"}", "2");
    CHECK_SAMPLE("picket_commit_seconds_bucket{le=\"+Inf\"}", "3");
    CHECK_SAMPLE("picket_commit_seconds_sum", "6.000101");
    CHECK_SAMPLE("picket_disk_write_seconds_sum", "0.000003");
    CHECK_SAMPLE("picket_batch_commands_bucket{le=\"256\"}", "1");
    CHECK_SAMPLE("picket_batch_commands_sum", "301");
    CHECK_SAMPLE("picket_batch_commands_count", "2");
    end();
}

TEST(metrics__loop_shows_its_longest_turn)
{
    begin(NULL, 0);
    render(metrics);
    CHECK_SAMPLE("picket_loop_stall_longest_seconds", "0");
    pk_metrics_time(metrics, PK_TIME_LOOP, 70);
    pk_metrics_time(metrics, PK_TIME_LOOP, 20500);
    pk_metrics_time(metrics, PK_TIME_LOOP, 300);
    render(metrics);
    CHECK_SAMPLE("picket_loop_stall_seconds_bucket{le=\"0.01\"}", "2");
    CHECK_SAMPLE("picket_loop_stall_seconds_bucket{le=\"0.025\"}", "3");
    CHECK_SAMPLE("picket_loop_stall_seconds_sum", "0.02087");
    CHECK_SAMPLE("picket_loop_stall_longest_seconds", "0.0205");
    end();
}

/* ---- the node ---- */

TEST(metrics__shows_what_it_is_asked_with)
{
    begin(NULL, 0);
    pk_metrics_gauge(metrics, PK_GAUGE_CONNECTIONS, 3);
    pk_metrics_gauge(metrics, PK_GAUGE_CONNECTIONS, -1);
    pk_metrics_count(metrics, PK_COUNT_REQUESTS, 10);
    pk_metrics_count(metrics, PK_COUNT_UNKNOWN_OUTCOMES, 4);
    struct pk_metrics_now now = {
        .node = "n\"1\\\n",
        .standing = {.leader = true, .term = 7, .commit_index = 12, .applied_index = 11},
        .serving = true,
        .turn = {.leaderless_ms = 1500, .left_out_ms = 20},
        .guards = {.g2 = 5},
        .stats = {.leases = 1, .holds = 2, .waits = 3},
        .clock_ms = 123456,
        .last_token = 9007199254740991,
        .log_dropped = 6,
    };
    render_now(metrics, &now);
    CHECK_SAMPLE("picket_connections", "2");
    CHECK_SAMPLE("picket_requests_total", "10");
    CHECK_SAMPLE("picket_unknown_outcomes_total", "4");
    CHECK_SAMPLE("picket_leader", "1");
    CHECK_SAMPLE("picket_serving", "1");
    CHECK_SAMPLE("picket_term", "7");
    CHECK_SAMPLE("picket_commit_index", "12");
    CHECK_SAMPLE("picket_applied_index", "11");
    CHECK_SAMPLE("picket_leaderless_seconds_total", "1.5");
    CHECK_SAMPLE("picket_pause_left_out_seconds_total", "0.02");
    CHECK_SAMPLE("picket_guard_interventions_total{guard=\"g2\"}", "5");
    CHECK_SAMPLE("picket_leases", "1");
    CHECK_SAMPLE("picket_locks_held", "2");
    CHECK_SAMPLE("picket_lock_waiters", "3");
    CHECK_SAMPLE("picket_cluster_clock_seconds", "123.456");
    CHECK_SAMPLE("picket_last_token", "9007199254740991");
    CHECK_SAMPLE("picket_log_lines_dropped_total", "6");
    CHECK_SAMPLE(
        "picket_build_info{node=\"n\\\"1\\\\\\n\",version=\"" PICKET_VERSION "\"}", "1");
    const char *resident = find("process_resident_memory_bytes");
    CHECK(resident != NULL && strtoull(resident, NULL, 10) > 100000);
    end();
}

/* The longest prefix wins whatever the order they were given in; twice is once; all 64
 * and the rest are there. */
TEST(metrics__labels_by_the_longest_prefix)
{
    char names[PK_METRICS_PREFIXES_MAX][80];
    const char *prefixes[PK_METRICS_PREFIXES_MAX];
    for (size_t i = 0; i < PK_METRICS_PREFIXES_MAX; i++) {
        size_t len = (i * 37) % PK_METRICS_PREFIXES_MAX; /* each length once, mixed */
        memset(names[i], 'a', len);
        names[i][len] = '\0';
        prefixes[i] = names[i];
    }
    begin(prefixes, PK_METRICS_PREFIXES_MAX);
    char lock[100];
    memset(lock, 'a', sizeof lock);
    lock[40] = 'b';
    lock[sizeof lock - 1] = '\0';
    event(PK_EV_ENDED, lock, 1);
    event(PK_EV_ENDED, "", 1);
    render(metrics);
    char sample[200];
    (void)snprintf(sample, sizeof sample,
                   "picket_lock_hold_seconds_count{prefix=\"%.40s\"}", lock);
    CHECK_SAMPLE(sample, "1");
    CHECK_SAMPLE("picket_lock_hold_seconds_count{prefix=\"\"}", "1");
    CHECK_SAMPLE("picket_lock_hold_seconds_count{prefix=\"a\"}", "0");
    end();
}

/* ---- the format ---- */

/* The family that a sample belongs to, by its type. */
static size_t family_len(const char *line, size_t len, const char *type)
{
    static const char *const suffixes[] = {"_bucket", "_sum", "_count"};
    for (size_t i = 0; strcmp(type, "histogram") == 0 && i < 3; i++) {
        size_t n = strlen(suffixes[i]);
        if (len > n && strncmp(line + len - n, suffixes[i], n) == 0) {
            return len - n;
        }
    }
    return len;
}

/* Every line is of a family that was announced right before it; names and types keep the
 * conventions; no series is there twice; buckets never fall, and end in the count. */
TEST(metrics__text_keeps_the_format)
{
    const char *const prefixes[] = {"a/", "a/", "b\"\\/"};
    begin(prefixes, 3);
    for (uint64_t i = 0; i < 1000; i++) {
        event(PK_EV_GRANTED, i % 3 == 0 ? "a/x" : "c", i * i);
        pk_metrics_time(metrics, PK_TIME_COMMIT, i * i);
    }
    render(metrics);
    char family[128] = "", type[32] = "";
    uint64_t below = 0;
    for (char *line = text.data; *line != '\0'; line = strchr(line, '\n') + 1) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            CHECK(sscanf(line, "# HELP %127s", family) == 1);
            CHECK(strncmp(strchr(line, '\n') + 1, "# TYPE ", 7) == 0);
            continue;
        }
        if (strncmp(line, "# TYPE ", 7) == 0) {
            char again[128];
            CHECK(sscanf(line, "# TYPE %127s %31s", again, type) == 2);
            CHECK_STR(again, family);
            size_t len = strlen(family);
            bool total = len > 6 && strcmp(family + len - 6, "_total") == 0;
            CHECK(total == (strcmp(type, "counter") == 0));
            below = 0;
            continue;
        }
        size_t name = strcspn(line, "{ ");
        size_t len = family_len(line, name, type);
        CHECK(len == strlen(family) && strncmp(line, family, len) == 0);
        /* Up to the value, it is there once. */
        const char *value = strchr(line, '\n');
        while (value[-1] != ' ') {
            value--;
        }
        char key[256];
        (void)snprintf(key, sizeof key, "\n%.*s", (int)(value - line), line);
        const char *first = strstr(text.data, key);
        CHECK(first != NULL && strstr(first + 1, key) == NULL);
        uint64_t v = strtoull(value, NULL, 10);
        if (strncmp(line + len, "_bucket", 7) == 0) {
            CHECK(v >= below);
            below = v;
        } else if (strncmp(line + len, "_count", 6) == 0) {
            CHECK_U64(v, below);
            below = 0;
        }
    }
    CHECK(find("picket_lock_hold_seconds_count{prefix=\"b\\\"\\\\/\"}") != NULL);
    end();
}

TEST(metrics__text_comes_after_what_is_there)
{
    begin(NULL, 0);
    struct pk_resp_out out = {0};
    pk_resp_raw(&out, "before\n", 7);
    pk_metrics_write(metrics, &(struct pk_metrics_now){.node = "n"}, &out);
    CHECK(out.len > 7 && memcmp(out.data, "before\n# HELP ", 14) == 0);
    CHECK(out.data[out.len - 1] == '\n');
    pk_resp_free(&out);
    end();
}
