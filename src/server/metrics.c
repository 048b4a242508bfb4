/* SPDX-License-Identifier: MIT */
#include "server/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "core/door.h"

/* ---- histograms ---- */

enum { BOUNDS_MAX = PK_METRICS_BUCKETS_MAX - 1 };

/* Upper bounds of the buckets, ascending, in units of which `per_one` make one of what is
 * shown: microseconds for times, ones for counts. */
struct scale {
    uint64_t per_one;
    uint32_t n;
    uint64_t bounds[BOUNDS_MAX];
};

/* clang-format off */
/* Of waits and holds. Cluster time has whole milliseconds, and 0 is its own bucket: who
 * was granted at once. */
static const struct scale long_times = {
    1000000, 15, {0, 1000, 5000, 10000, 50000, 100000, 500000, 1000000, 5000000,
                  10000000, 30000000, 60000000, 300000000, 1800000000, 3600000000}};
/* Of the disk and the quorum. */
static const struct scale short_times = {
    1000000, 16, {50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000,
                  250000, 500000, 1000000, 2500000, 5000000}};
static const struct scale sizes = {
    1, 12, {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096}};
/* clang-format on */

struct histogram {
    uint64_t buckets[BOUNDS_MAX + 1]; /* each without the ones before; last: above all */
    uint64_t sum;
};

static void observe(struct histogram *h, const struct scale *s, uint64_t v)
{
    uint32_t i = 0;
    while (i < s->n && v > s->bounds[i]) {
        i++;
    }
    h->buckets[i]++;
    h->sum += v;
}

/* ---- what is counted ---- */

/* Why holds end that their holder did not give up. */
static const enum pk_end losses[] = {PK_END_EXPIRED, PK_END_OVERHELD, PK_END_BROKEN,
                                     PK_END_RESTORED};
enum { LOSSES = sizeof losses / sizeof losses[0] };

/* The locks under one prefix. */
struct series {
    char *prefix;
    uint32_t len;
    struct histogram wait, hold;
    uint64_t lost[LOSSES];
};

struct pk_metrics {
    struct series *series; /* longest prefix first; the last is "" and fits every name */
    size_t n_series;
    uint64_t acquire_failures[PK_STATUS_COUNT];
    uint64_t renewals, renewal_failures[PK_STATUS_COUNT];
    uint64_t fence_rejected[PK_STATUS_COUNT], fence_shadowed[PK_STATUS_COUNT];
    uint64_t leases_opened, leases_expired;
    int64_t gauges[PK_GAUGES];
    uint64_t counters[PK_COUNTERS];
    struct histogram timings[PK_TIMINGS];
    uint64_t longest_us[PK_TIMINGS];
    struct histogram batch, units;
};

struct pk_metrics *pk_metrics_new(const char *const *prefixes, size_t n)
{
    PK_ASSERT(n <= PK_METRICS_PREFIXES_MAX);
    struct pk_metrics *m = pk_door_resize(NULL, sizeof *m);
    memset(m, 0, sizeof *m);
    m->series = pk_door_resize(NULL, (n + 1) * sizeof *m->series);
    memset(m->series, 0, (n + 1) * sizeof *m->series);
    for (size_t i = 0; i <= n; i++) {
        const char *prefix = i < n ? prefixes[i] : "";
        uint32_t len = (uint32_t)strlen(prefix);
        size_t at = m->n_series;
        bool twice = false;
        for (size_t k = 0; k < m->n_series; k++) {
            twice = twice || strcmp(m->series[k].prefix, prefix) == 0;
        }
        if (twice) {
            continue;
        }
        for (; at > 0 && m->series[at - 1].len < len; at--) {
            m->series[at] = m->series[at - 1];
        }
        m->series[at] = (struct series){.len = len};
        m->series[at].prefix = pk_door_resize(NULL, len + 1);
        memcpy(m->series[at].prefix, prefix, len + 1);
        m->n_series++;
    }
    return m;
}

void pk_metrics_free(struct pk_metrics *m)
{
    if (m == NULL) {
        return;
    }
    for (size_t i = 0; i < m->n_series; i++) {
        pk_door_resize(m->series[i].prefix, 0);
    }
    pk_door_resize(m->series, 0);
    pk_door_resize(m, 0);
}

void pk_metrics_gauge(struct pk_metrics *m, enum pk_gauge g, int64_t by)
{
    m->gauges[g] += by;
}

void pk_metrics_set(struct pk_metrics *m, enum pk_gauge g, int64_t to)
{
    m->gauges[g] = to;
}

void pk_metrics_count(struct pk_metrics *m, enum pk_counter c, uint64_t by)
{
    m->counters[c] += by;
}

void pk_metrics_time(struct pk_metrics *m, enum pk_timing t, uint64_t us)
{
    observe(&m->timings[t], &short_times, us);
    m->longest_us[t] = us > m->longest_us[t] ? us : m->longest_us[t];
}

void pk_metrics_batch(struct pk_metrics *m, uint64_t commands)
{
    observe(&m->batch, &sizes, commands);
}

void pk_metrics_units(struct pk_metrics *m, uint64_t units)
{
    observe(&m->units, &sizes, units);
}

/* ---- events ---- */

static struct series *series_of(struct pk_metrics *m, struct pk_bytes name)
{
    struct series *s = m->series;
    while (s->len > name.len || memcmp(s->prefix, name.data, s->len) != 0) {
        s++; /* the last one fits */
    }
    return s;
}

static void count_ended(struct pk_metrics *m, const struct pk_effect *e)
{
    struct series *s = series_of(m, e->name);
    observe(&s->hold, &long_times, e->lasted_ms * 1000);
    for (size_t i = 0; i < LOSSES; i++) {
        s->lost[i] += e->end == losses[i];
    }
}

/* Waiters that left without a grant; a set leaves several queues and counts once. */
static void count_left(struct pk_metrics *m, const struct pk_effect *e)
{
    enum pk_status why = e->end == PK_END_TIMED_OUT   ? PK_TIMEOUT
                         : e->end == PK_END_WITHDRAWN ? PK_CANCELLED
                                                      : PK_LOST;
    m->acquire_failures[why] += e->part == 0;
}

static void count_reply(struct pk_metrics *m, const struct pk_effect *e)
{
    bool ok = e->status == PK_OK || e->status == PK_QUEUED;
    switch (e->verb) {
    case PK_LOCK_ACQUIRE:
    case PK_KEY_TAKE:
        /* These two were counted when the waiter left; the reply is to a repeat. */
        ok = ok || e->status == PK_TIMEOUT || e->status == PK_CANCELLED;
        m->acquire_failures[e->status] += !ok;
        break;
    case PK_LEASE_RENEW:
    case PK_KEY_KEEP:
        m->renewals += ok;
        m->renewal_failures[e->status] += !ok;
        break;
    case PK_FENCE_CLAIM:
    case PK_FENCE_CHECK:
    case PK_FENCE_SET:
    case PK_FENCE_GET:
        m->fence_rejected[e->status] +=
            e->status == PK_STALE || e->status == PK_UNCLAIMED;
        m->fence_shadowed[e->would] += e->would != PK_OK;
        break;
    default:
        break;
    }
}

void pk_metrics_step(struct pk_metrics *m, const struct pk_effects *e)
{
    for (uint32_t i = 0; i < e->count; i++) {
        const struct pk_effect *x = &e->list[i];
        switch (x->kind) {
        case PK_REPLY:
            count_reply(m, x);
            break;
        case PK_EV_GRANTED:
            observe(&series_of(m, x->name)->wait, &long_times, x->lasted_ms * 1000);
            break;
        case PK_EV_ENDED:
            count_ended(m, x);
            break;
        case PK_EV_LEFT:
            count_left(m, x);
            break;
        case PK_EV_LEASE_OPENED:
            m->leases_opened++;
            break;
        case PK_EV_LEASE_ENDED:
            m->leases_expired += x->end == PK_END_EXPIRED;
            break;
        default:
            break;
        }
    }
}

struct pk_metrics_sums pk_metrics_sums(const struct pk_metrics *m)
{
    struct pk_metrics_sums out = {.buckets = long_times.n + 1,
                                  .bounds_us = long_times.bounds};
    for (size_t i = 0; i < m->n_series; i++) {
        const struct series *s = &m->series[i];
        for (uint32_t k = 0; k < out.buckets; k++) {
            out.wait[k] += s->wait.buckets[k];
            out.hold[k] += s->hold.buckets[k];
            out.grants += s->wait.buckets[k];
            out.ends += s->hold.buckets[k];
        }
        for (size_t k = 0; k < LOSSES; k++) {
            out.lost += s->lost[k];
        }
    }
    for (size_t i = 0; i < PK_STATUS_COUNT; i++) {
        out.rejected += m->fence_rejected[i];
        out.shadowed += m->fence_shadowed[i];
    }
    return out;
}

/* ---- text ---- */

/* The text on its way out; `name` is of the family that is being written. */
struct page {
    struct pk_resp_out *out;
    const char *name;
    bool labelled; /* the present sample has a label already */
};

static void put(struct page *p, const char *text)
{
    pk_resp_raw(p->out, text, strlen(text));
}

static void put_u64(struct page *p, uint64_t v)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%" PRIu64, v);
    pk_resp_raw(p->out, text, (size_t)n);
}

/* v / per_one as a decimal fraction, without a float; per_one is a power of ten. */
static void put_scaled(struct page *p, uint64_t v, uint64_t per_one)
{
    put_u64(p, v / per_one);
    uint64_t rest = v % per_one;
    put(p, rest != 0 ? "." : "");
    while (rest != 0) {
        per_one /= 10;
        put_u64(p, rest / per_one);
        rest %= per_one;
    }
}

static void family(struct page *p, const char *name, const char *type, const char *help)
{
    p->name = name;
    put(p, "# HELP ");
    put(p, name);
    put(p, " ");
    put(p, help);
    put(p, "\n# TYPE ");
    put(p, name);
    put(p, " ");
    put(p, type);
    put(p, "\n");
}

/* A sample is begun, gets its labels, and is ended by its value. */
static void begin(struct page *p, const char *suffix)
{
    put(p, p->name);
    put(p, suffix);
    p->labelled = false;
}

static void open_label(struct page *p, const char *key)
{
    put(p, p->labelled ? "," : "{");
    put(p, key);
    put(p, "=\"");
    p->labelled = true;
}

/* NULL: no such label. */
static void label(struct page *p, const char *key, const char *value)
{
    if (value == NULL) {
        return;
    }
    open_label(p, key);
    for (; *value != '\0'; value++) {
        if (*value == '\n') {
            put(p, "\\n");
        } else {
            put(p, *value == '"' || *value == '\\' ? "\\" : "");
            pk_resp_raw(p->out, value, 1);
        }
    }
    put(p, "\"");
}

static void end_scaled(struct page *p, uint64_t v, uint64_t per_one)
{
    put(p, p->labelled ? "} " : " ");
    put_scaled(p, v, per_one);
    put(p, "\n");
}

static void end(struct page *p, uint64_t v)
{
    end_scaled(p, v, 1);
}

/* Families of one sample without labels. */
static void counter(struct page *p, const char *name, uint64_t v, const char *help)
{
    family(p, name, "counter", help);
    begin(p, "");
    end(p, v);
}

static void gauge(struct page *p, const char *name, uint64_t v, const char *help)
{
    family(p, name, "gauge", help);
    begin(p, "");
    end(p, v);
}

static void seconds(struct page *p, const char *name, uint64_t ms, const char *help)
{
    family(p, name, "counter", help);
    begin(p, "");
    end_scaled(p, ms, 1000);
}

/* The samples of one histogram; `prefix` NULL: without that label. */
static void histogram(struct page *p, const struct histogram *h, const struct scale *s,
                      const char *prefix)
{
    uint64_t below = 0;
    for (uint32_t i = 0; i <= s->n; i++) {
        below += h->buckets[i];
        begin(p, "_bucket");
        label(p, "prefix", prefix);
        open_label(p, "le");
        if (i < s->n) {
            put_scaled(p, s->bounds[i], s->per_one);
        } else {
            put(p, "+Inf");
        }
        put(p, "\"");
        end(p, below);
    }
    begin(p, "_sum");
    label(p, "prefix", prefix);
    end_scaled(p, h->sum, s->per_one);
    begin(p, "_count");
    label(p, "prefix", prefix);
    end(p, below);
}

/* A counter for each of the statuses, which ends with OK. */
static void by_status(struct page *p, const enum pk_status *statuses,
                      const uint64_t *counts)
{
    for (; *statuses != PK_OK; statuses++) {
        char reason[16] = "";
        const char *name = pk_status_name(*statuses);
        for (size_t i = 0; name[i] != '\0' && i + 1 < sizeof reason; i++) {
            reason[i] = (char)(name[i] | 0x20); /* they are capital letters */
        }
        begin(p, "");
        label(p, "reason", reason);
        end(p, counts[*statuses]);
    }
}

/* ---- the families ---- */

static void write_locks(struct page *p, const struct pk_metrics *m)
{
    family(p, "picket_lock_acquire_wait_seconds", "histogram",
           "Time from asking for a lock to its grant; 0 when it was free.");
    for (size_t i = 0; i < m->n_series; i++) {
        histogram(p, &m->series[i].wait, &long_times, m->series[i].prefix);
    }
    family(p, "picket_lock_hold_seconds", "histogram",
           "Time from the grant of a lock to the end of the hold.");
    for (size_t i = 0; i < m->n_series; i++) {
        histogram(p, &m->series[i].hold, &long_times, m->series[i].prefix);
    }
    family(p, "picket_lock_lost_total", "counter",
           "Holds that ended without their holder asking for it.");
    for (size_t i = 0; i < m->n_series; i++) {
        for (size_t k = 0; k < LOSSES; k++) {
            begin(p, "");
            label(p, "prefix", m->series[i].prefix);
            label(p, "reason", pk_end_name(losses[k]));
            end(p, m->series[i].lost[k]);
        }
    }
}

static void write_refusals(struct page *p, const struct pk_metrics *m)
{
    static const enum pk_status acquire[] = {
        PK_BUSY,     PK_TIMEOUT, PK_CANCELLED, PK_LOST,   PK_MISMATCH, PK_LIMIT,
        PK_NOTFOUND, PK_TOOOLD,  PK_DENIED,    PK_BADARG, PK_OK};
    static const enum pk_status renewal[] = {PK_LOST,   PK_NOTHELD, PK_NOTFOUND,
                                             PK_DENIED, PK_BADARG,  PK_OK};
    static const enum pk_status fence[] = {PK_STALE, PK_UNCLAIMED, PK_OK};
    family(p, "picket_lock_acquire_failures_total", "counter",
           "Acquires that did not end in a grant.");
    by_status(p, acquire, m->acquire_failures);
    counter(p, "picket_renewals_total", m->renewals, "Leases and keys renewed.");
    family(p, "picket_renewal_failures_total", "counter", "Renewals that were refused.");
    by_status(p, renewal, m->renewal_failures);
    family(
        p, "picket_fence_rejected_total", "counter",
        "Fence calls refused: a higher token was there before (stale), or this one has "
        "not claimed (unclaimed).");
    by_status(p, fence, m->fence_rejected);
    family(p, "picket_fence_shadowed_total", "counter",
           "Fence calls let through by shadow mode, by what would have refused them.");
    by_status(p, fence, m->fence_shadowed);
    counter(p, "picket_leases_opened_total", m->leases_opened, "Leases opened.");
    counter(p, "picket_lease_expired_total", m->leases_expired,
            "Leases that ended because they were not renewed in time.");
}

static void write_state(struct page *p, const struct pk_metrics_now *now)
{
    gauge(p, "picket_leases", now->stats.leases, "Leases alive.");
    gauge(p, "picket_locks_held", now->stats.holds, "Holds; a set of locks is one.");
    gauge(p, "picket_lock_waiters", now->stats.waits, "Waiters in all queues.");
    gauge(p, "picket_locks", now->stats.locks,
          "Lock names that are held, waited for or closed by a lock-delay.");
    gauge(p, "picket_fences", now->stats.fences, "Fence registers.");
    gauge(p, "picket_stored_bytes", now->stats.stored_bytes,
          "Bytes of all names, labels and values in the state.");
    gauge(p, "picket_last_token", now->last_token, "The highest token given out.");
    family(p, "picket_cluster_clock_seconds", "gauge",
           "Cluster time; it stands still while there is no leader.");
    begin(p, "");
    end_scaled(p, now->clock_ms, 1000);
}

static void write_replica(struct page *p, const struct pk_metrics *m,
                          const struct pk_metrics_now *now)
{
    const struct pk_turn_counts *t = &now->turn;
    gauge(p, "picket_leader", now->standing.leader, "1 on the node that leads.");
    gauge(p, "picket_serving", now->serving, "1 on the node that takes in commands.");
    gauge(p, "picket_term", now->standing.term, "The term of the consensus.");
    gauge(p, "picket_last_index", now->standing.last_index, "Last entry of the log.");
    gauge(p, "picket_commit_index", now->standing.commit_index,
          "Last entry that is known to be committed.");
    gauge(p, "picket_applied_index", now->standing.applied_index,
          "Last entry that was run.");
    counter(p, "picket_reigns_total", t->reigns, "Times this node began to serve.");
    seconds(p, "picket_leaderless_seconds_total", t->leaderless_ms,
            "Time without a known leader; leases were stretched by it.");
    seconds(p, "picket_pause_left_out_seconds_total", t->left_out_ms,
            "Time of pauses that a leader left out of cluster time.");
    counter(p, "picket_entries_total", t->entries, "Entries proposed.");
    counter(p, "picket_commands_total", t->commands, "Commands taken in.");
    counter(p, "picket_ticks_total", t->ticks, "Entries for deadlines alone.");
    counter(p, "picket_reads_total", t->reads, "Reads answered by this node.");
    counter(p, "picket_read_rounds_total", t->rounds,
            "Times that other nodes were asked to confirm reads.");
    counter(p, "picket_commands_refused_total", t->refused,
            "Commands taken in and then refused; they were not done.");
    family(p, "picket_guard_interventions_total", "counter",
           "Messages of the consensus library that a guard dropped or mended.");
    const uint64_t guards[] = {
        now->guards.g1, now->guards.g2, now->guards.g3, now->guards.g4, now->guards.g5,
        now->guards.g6, now->guards.g7, now->guards.g8, now->guards.g9, now->guards.g10};
    for (size_t i = 0; i < sizeof guards / sizeof guards[0]; i++) {
        char name[24];
        (void)snprintf(name, sizeof name, "g%zu", i + 1);
        begin(p, "");
        label(p, "guard", name);
        end(p, guards[i]);
    }
    family(p, "picket_commit_seconds", "histogram",
           "Time from proposing an entry to having run it: disk and quorum.");
    histogram(p, &m->timings[PK_TIME_COMMIT], &short_times, NULL);
    family(p, "picket_disk_write_seconds", "histogram",
           "Time of one write to the log, with its sync.");
    histogram(p, &m->timings[PK_TIME_DISK_WRITE], &short_times, NULL);
    family(p, "picket_batch_commands", "histogram", "Commands in one entry.");
    histogram(p, &m->batch, &sizes, NULL);
    family(p, "picket_turn_units", "histogram",
           "Units of work that one turn took in: leases, names, rows, KiB.");
    histogram(p, &m->units, &sizes, NULL);
}

static void write_clients(struct page *p, const struct pk_metrics *m)
{
    static const char *const gauges[PK_GAUGES][2] = {
        [PK_GAUGE_CONNECTIONS] = {"picket_connections", "Client connections."},
        [PK_GAUGE_WATCHERS] = {"picket_watchers", "Connections that watch."},
        [PK_GAUGE_RELAYS] = {"picket_relays", "Connections relayed to the leader."},
        [PK_GAUGE_UNSENT] = {"picket_unsent_bytes",
                             "Answers and events that clients have not read yet."},
    };
    static const char *const counters[PK_COUNTERS][2] = {
        [PK_COUNT_REQUESTS] = {"picket_requests_total", "Requests read."},
        [PK_COUNT_BAD_REQUESTS] = {"picket_bad_requests_total",
                                   "Requests that were not understood."},
        [PK_COUNT_CONNECTIONS_REFUSED] = {"picket_connections_refused_total",
                                          "Connections above the limit."},
        [PK_COUNT_SLOW_CLOSED] = {"picket_slow_connections_closed_total",
                                  "Connections closed for being too slow."},
        [PK_COUNT_UNKNOWN_OUTCOMES] =
            {"picket_unknown_outcomes_total",
             "Commands whose client was told that the outcome is unknown."},
        [PK_COUNT_NOSPACE] = {"picket_no_space_total",
                              "Requests refused because the disk was full."},
        [PK_COUNT_GAPS] = {"picket_watch_gaps_total",
                           "Times that watchers missed events and were told so."},
        [PK_COUNT_SHARE_WAITS] = {"picket_share_waits_total",
                                  "Times that a connection asked for more than its "
                                  "share of a turn."},
    };
    for (size_t i = 0; i < PK_GAUGES; i++) {
        int64_t v = m->gauges[i];
        gauge(p, gauges[i][0], v > 0 ? (uint64_t)v : 0, gauges[i][1]);
    }
    for (size_t i = 0; i < PK_COUNTERS; i++) {
        counter(p, counters[i][0], m->counters[i], counters[i][1]);
    }
}

/* Pages of memory in use, as the kernel says it; 0 when it doesn't. */
static uint64_t resident_pages(void)
{
    uint64_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    char line[128] = "";
    if (f != NULL) {
        const char *at = fgets(line, sizeof line, f) == NULL ? NULL : strchr(line, ' ');
        for (at = at == NULL ? "" : at + 1; *at >= '0' && *at <= '9'; at++) {
            pages = pages * 10 + (uint64_t)(*at - '0');
        }
        (void)fclose(f);
    }
    return pages;
}

static void write_loop(struct page *p, const struct pk_metrics *m)
{
    family(p, "picket_loop_stall_seconds", "histogram",
           "Time of one turn of the node's loop, in which nobody else is served; sleep "
           "is left out.");
    histogram(p, &m->timings[PK_TIME_LOOP], &short_times, NULL);
    family(p, "picket_loop_stall_longest_seconds", "gauge",
           "The longest turn of the loop since the start.");
    begin(p, "");
    end_scaled(p, m->longest_us[PK_TIME_LOOP], 1000000);
}

static void write_process(struct page *p, const struct pk_metrics_now *now)
{
    struct timespec cpu = {0};
    counter(p, "picket_log_lines_dropped_total", now->log_dropped,
            "Log lines that standard error did not take.");
    gauge(p, "process_resident_memory_bytes",
          resident_pages() * (uint64_t)sysconf(_SC_PAGESIZE), "Memory in use.");
    PK_ASSERT(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) == 0);
    seconds(p, "process_cpu_seconds_total",
            (uint64_t)cpu.tv_sec * 1000 + (uint64_t)cpu.tv_nsec / 1000000,
            "Processor time used.");
    family(p, "picket_build_info", "gauge", "Always 1; says who and what this is.");
    begin(p, "");
    label(p, "node", now->node);
    label(p, "version", PICKET_VERSION);
    end(p, 1);
}

void pk_metrics_write(const struct pk_metrics *m, const struct pk_metrics_now *now,
                      struct pk_resp_out *out)
{
    struct page p = {.out = out};
    write_locks(&p, m);
    write_refusals(&p, m);
    write_state(&p, now);
    write_replica(&p, m, now);
    write_clients(&p, m);
    write_loop(&p, m);
    write_process(&p, now);
}
