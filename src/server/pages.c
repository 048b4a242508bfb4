/* SPDX-License-Identifier: MIT */
#include "server/pages.h"

#include <stdio.h>

#include "server/health.h"
#include "server/inside.h"
#include "server/log.h"
#include "server/page.h"

static void show_metrics(struct pk_server *s, struct pk_resp_out *out)
{
    struct pk_machine *m = pk_replica_machine(s->replica);
    struct pk_metrics_now now = {
        .node = s->self.name,
        .standing = pk_replica_standing(s->replica),
        .serving = pk_turn_serving(s->turn),
        .turn = pk_turn_counts(s->turn),
        .guards = pk_replica_guard_counts(s->replica),
        .stats = pk_machine_stats(m),
        .clock_ms = pk_machine_clock(m),
        .last_token = pk_machine_last_token(m),
        .log_dropped = pk_log_dropped(),
    };
    pk_metrics_write(s->metrics, &now, out);
}

static void say(struct pk_http_answer *out, int status, const char *text)
{
    out->status = status;
    pk_resp_raw(&out->body, text, strlen(text));
}

static void show_ready(struct pk_server *s, struct pk_http_answer *out)
{
    char text[512];
    bool ready = pk_health_ready(s, text, sizeof text);
    say(out, ready ? 200 : 503, text);
}

static void show_summary(struct pk_server *s, struct pk_http_answer *out)
{
    struct pk_standing st = pk_replica_standing(s->replica);
    struct pk_stats stats = pk_machine_stats(pk_replica_machine(s->replica));
    char text[1024];
    (void)snprintf(
        text, sizeof text,
        "picket %s, node %s\n\n"
        "  standing   %s, term %llu\n"
        "  leases     %llu\n"
        "  holds      %llu\n"
        "  waiters    %llu\n"
        "  last token %llu\n\n"
        "/sim  /metrics  /healthz  /readyz\n",
        PICKET_VERSION, s->self.name,
        st.leader      ? "leader"
        : st.candidate ? "candidate"
                       : "follower",
        (unsigned long long)st.term, (unsigned long long)stats.leases,
        (unsigned long long)stats.holds, (unsigned long long)stats.waits,
        (unsigned long long)pk_machine_last_token(pk_replica_machine(s->replica)));
    say(out, 200, text);
}

/* The dashboard for who shows pages, a few lines for everybody else. */
static void show_front(struct pk_server *s, struct pk_http_answer *out)
{
    if (out->html) {
        out->status = 200;
        out->page = &pk_page_dashboard;
    } else {
        show_summary(s, out);
    }
}

static void show_simulator(struct pk_http_answer *out)
{
#ifdef PICKET_WITH_SIMULATOR
    out->status = 200;
    out->page = &pk_page_simulator;
#else
    say(out, 404,
        "this picket was built without the simulator: that takes clang, wasm-ld and "
        "wasi-libc\n");
#endif
}

void pk_pages_get(void *ctx, struct pk_bytes path, struct pk_bytes query,
                  struct pk_http_answer *out)
{
    struct pk_server *s = ctx;
    out->type = "text/plain; charset=utf-8";
    if (pk_bytes_equal(path, pk_text("/metrics"))) {
        out->status = 200;
        out->type = "text/plain; version=0.0.4; charset=utf-8";
        show_metrics(s, &out->body);
    } else if (pk_bytes_equal(path, pk_text("/healthz"))) {
        say(out, 200, "ok\n");
    } else if (pk_bytes_equal(path, pk_text("/readyz"))) {
        show_ready(s, out);
    } else if (pk_bytes_equal(path, pk_text("/"))) {
        show_front(s, out);
    } else if (pk_bytes_equal(path, pk_text("/events"))) {
        pk_dash_open(s->dash, query, out);
    } else if (pk_bytes_equal(path, pk_text("/sim"))) {
        show_simulator(out);
    } else if (pk_bytes_equal(path, pk_text("/version"))) {
        say(out, 200, PICKET_VERSION "\n");
    } else {
        say(out, 404,
            "nothing here; there are /, /events, /sim, /metrics, /healthz, /readyz and "
            "/version\n");
    }
}
